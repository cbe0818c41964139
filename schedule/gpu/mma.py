"""Tensor cores: which sums of products are matrix products for them, and in what sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from loopwright.dsl.dtypes import HALVES
from loopwright.dsl.expr import Binary, Cast, Expr, Read
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.workload import tensor_shape
from loopwright.schedule.gpu.context import contiguous_axis
from loopwright.schedule.gpu.heuristics import GPU
from loopwright.schedule.program.nest import Nest, extent
from loopwright.schedule.program.plan import FusionGroup
from loopwright.schedule.sketch.kernel import Mma
from loopwright.schedule.sketch.sketch import Choice, Knob
from loopwright.schedule.target import Gpu
from loopwright.schedule.tree.grammar import MATRIX

_WIDE = 8  # elements of 16 bytes
_CHUNKS = (16, 32, 64)
_HALF_BYTES, _RESULT_BYTES = 2, 4


def mma_sketches(group: FusionGroup, gpu: Gpu) -> Iterator[Mma]:
    """A product of two matrices of float16 or bfloat16, added up in float32, by every pipeline."""
    (nest,) = group.nests
    factors = _factors(nest)
    if not gpu.tensor_cores or factors is None or nest.result.dtype != "float32":
        return
    fast = contiguous_axis(nest)
    for left, right in (factors, factors[::-1]):
        m = _own_axis(nest, left, right)
        n = _own_axis(nest, right, left)
        if m is None or n is None or (fast is not None and n != fast and m == fast):
            continue
        (k,) = nest.reduce
        copied = all(
            size % _WIDE == 0
            for r in (left, right)
            for size in (tensor_shape(r.tensor)[-1], *_steps(r.index[-1], k))
        )
        pipelines = ["double", "plain"]
        if gpu.async_copies and copied:
            pipelines.insert(0, "async")
        for pipeline in pipelines:
            yield Mma(group, left, right, m, n, k, pipeline)
        return


def mma_knobs(sketch: Mma, gpu: Gpu) -> Iterator[Knob]:
    """Knobs "tile" (warps of a block, accumulators of a warp), "chunk" and, if copied, "slots"."""
    yield Knob("tile", tuple(_tiles(sketch, gpu)))
    chunks = [c for c in _CHUNKS if c <= extent(sketch.k)]
    yield Knob("chunk", tuple((c,) for c in chunks))
    if sketch.pipeline == "async":
        yield Knob("slots", ((2,), (3,), (4,)))


def mma_default(sketch: Mma, knobs: dict[str, tuple[Choice, ...]], gpu: Gpu) -> dict[str, Choice]:
    """Large tiles, as far as there are enough of them for all multiprocessors, and as much on its
    way to them as shared memory holds."""
    m, n = extent(sketch.m), extent(sketch.n)

    def blocks(tile: Choice) -> float:
        """Blocks for each multiprocessor."""
        counts = [-(-size // b) for size, b in zip((m, n), _block(tile), strict=True)]
        return math.prod(counts) * (sketch.nest.size // (m * n)) / gpu.multiprocessors

    def score(tile: Choice) -> float:
        wm, wn, fm, fn = tile
        bm, bn = _block(tile)
        each = blocks(tile)
        useful = m * n / (-(-m // bm) * bm * -(-n // bn) * bn)
        warps = min(max(each, 1), 2) * wm * wn
        cost = max(1.0, 64 * (1 / bm + 1 / bn)) + (1 / fm + 1 / fn) * 0.5
        alone = GPU.mma_alone_share if each <= 1 else 1.0
        return float(
            alone * useful * each / math.ceil(each) * math.sqrt(min(1.0, warps / 8)) / cost
        )

    tile = max(knobs["tile"], key=score)
    if "slots" not in knobs:
        return {"tile": tile, "chunk": [c for c in knobs["chunk"] if c[0] <= 32][-1]}
    together = 1 if blocks(tile) <= 1 else 2

    def depth(choice: tuple[Choice, Choice]) -> tuple[bool, bool, bool, int, int]:
        """Rank of a chunk and a number of slots: what fits, three slots, room for a second block,
        long chunks."""
        ((chunk,), (slots,)) = choice
        factors = slots * sum(_block(tile)) * (chunk + _WIDE) * _HALF_BYTES
        results = math.prod(tile[:2]) * MATRIX * tile[3] * MATRIX * _RESULT_BYTES
        fits = factors + results <= gpu.shared_bytes
        early = chunk * max(slots - 1, 2) <= extent(sketch.k)
        roomy = together * (factors + results) <= gpu.sm_shared_bytes
        return fits and early, slots >= 3, roomy, chunk, slots

    chunk, slots = max(itertools.product(knobs["chunk"], knobs["slots"]), key=depth)
    return {"tile": tile, "chunk": chunk, "slots": slots}


def _block(tile: Choice) -> tuple[int, int]:
    """Rows and columns of a block."""
    wm, wn, fm, fn = tile
    return wm * fm * MATRIX, wn * fn * MATRIX


def _tiles(sketch: Mma, gpu: Gpu) -> Iterator[Choice]:
    for tile in itertools.product((1, 2, 4), (1, 2, 4), (1, 2, 3, 4), (1, 2, 3, 4)):
        wm, wn, fm, fn = tile
        fits = wm * fm * MATRIX <= extent(sketch.m) and wn * fn * MATRIX <= extent(sketch.n)
        threads = wm * wn * gpu.warp
        legal = wm * wn <= GPU.mma_warps and threads <= gpu.most_threads
        if fits and legal and fm * fn <= GPU.mma_accumulators:
            yield tile


def _factors(nest: Nest) -> tuple[Read, Read] | None:
    """The two operands of a sum of products in halves, computed in float32."""
    x = nest.body
    if nest.reducer != "sum" or len(nest.reduce) != 1 or extent(nest.reduce[0]) < MATRIX:
        return None
    if not isinstance(x, Binary) or x.op != "mul" or nest.also:
        return None
    left, right = _halves(x.x), _halves(x.y)
    if left is None or right is None or left.dtype != right.dtype:
        return None
    (k,) = nest.reduce
    for read in (left, right):
        along = [_along(p, k) for p in read.index]
        if any(p.terms and a is None for p, a in zip(read.index, along, strict=True)):
            return None
        used = [a for a in along if a is not None]
        used += [i for p in read.index for i in _parts(p, k)]
        if along[-1] is None or k not in used or len(set(used)) != len(used):
            return None
        if not set(used) <= set(nest.extents):
            return None
    return left, right


def _along(subscript: Affine, k: Index) -> Index | None:
    """The axis that a subscript runs along: its only index, or k where that is split in parts,
    each of whole tiles."""
    whole = not subscript.const and extent(k) % MATRIX == 0
    coefficients = dict(subscript.terms)
    split = coefficients.pop(k, 0) == 1 and all(c == extent(k) for c in coefficients.values())
    return k if whole and split else subscript.plain()


def _parts(subscript: Affine, k: Index) -> tuple[Index, ...]:
    """The indices that number the parts of k."""
    return tuple(i for i in subscript.indices() if i != k) if subscript.plain() is None else ()


def _steps(subscript: Affine, k: Index) -> Iterator[int]:
    """Extents of a subscript: those of its index, or of a part of k."""
    yield from map(extent, (i for i in subscript.indices() if i not in _parts(subscript, k)))


def _halves(x: Expr) -> Read | None:
    """A read in half precision under a cast to float32."""
    if isinstance(x, Cast) and x.dtype == "float32" and isinstance(x.x, Read):
        return x.x if x.x.dtype in HALVES else None
    return None


def _own_axis(nest: Nest, read: Read, other: Read) -> Index | None:
    """The longest axis of the result that one factor has and the other has not, if one of it and
    the reduction axis is the factor's contiguous one."""
    (k,) = nest.reduce
    used = {p.plain() for p in read.index} - {p.plain() for p in other.index}
    found = [a for a in nest.axes if a in used and extent(a) >= MATRIX]
    last = _along(read.index[-1], k)
    if last in found:
        return last
    return max(found, key=extent) if found and last == k else None
