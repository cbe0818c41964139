"""The CPU's rules: which structures and which sizes are worth considering for a nest.

Nothing here knows operators by name; the rules look at strides, reuse and extents:

 - the *vector axis* is one along which every operand is contiguous, constant, or can be packed so;
 - the *register tile* adds axes along which the vector operand is used again;
 - operands with reuse are *packed*: always if constant (it happens ahead of time), if they must be
   for the vector axis, and as an alternative otherwise;
 - the *middle loops* keep either the vector operand's panel or the other one's rows in cache.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import Read
from loopwright.dsl.index import Index
from loopwright.dsl.workload import tensor_bytes, tensor_shape
from loopwright.schedule.nest import Nest, extent, guarded_reads, lanes, sliding, stride
from loopwright.schedule.plan import has_reuse
from loopwright.schedule.sketch import Choice, Knob, NestSketch, Packed
from loopwright.schedule.target import Target

_PANEL_LANES = 24  # elements of a usual tile along the vector axis
_PACK_PAYS = 8  # uses of an element that repay copying it
_MAX_UNROLL = 9  # iterations: a 3×3 window; more costs build time and gains nothing
_USUAL_UNROLL = 3
_IN_FLIGHT = 10  # accumulators: 4 cycles of latency, 2 multiply-adds a cycle, and some slack
_SMALL = 1 << 15  # steps below which starting threads costs more than it saves
# Costs in steps: of an access that is not a vector, and of vectors that a window slides over,
# half of which straddle cache lines.
_GATHER, _SCATTER, _SLIDING = 4.0, 4.0, 0.2
# A vector of elements that stand at most so far apart is loads and a shuffle: its cost for each
# element from one to the next.
_NEAR, _STRIDED = 4, 0.4
_EXPANDS = 4  # times the bytes read that make a result large
_LINE = 64  # bytes of a cache line
_FAR = 0.2  # of single elements of a large operand, each from another cache line
_CLOSE = 0.5  # vector axes that are worse than the best by no more than this are sketches too


@dataclass(frozen=True)
class NestContext:
    """What the rules need besides the nest: the machine, and what stands around."""

    target: Target
    rows: tuple[Index, ...] = ()
    known_ahead: frozenset[str] = frozenset()

    def lanes(self, nest: Nest) -> int:
        """Elements of a vector."""
        return lanes(nest, self.target)


def nest_sketches(nest: Nest, context: NestContext) -> tuple[NestSketch, ...]:
    """The structures for one nest, the most promising first."""
    found = [
        NestSketch(nest, vector, tiled, order, reduce, packed)
        for vector in _vector_axes(nest, context)
        for tiled in (_tiled(nest, vector),)
        for packed in _packings(nest, vector, tiled, context)
        for order in _orders(nest, vector, tiled, packed)
        for reduce in _reduce_orders(nest, vector, tiled)
    ]
    return tuple(dict.fromkeys(found)) if has_reuse(nest) else tuple(found[:1])


def nest_knobs(sketch: NestSketch, context: NestContext) -> Iterator[Knob]:
    """The knobs of one nest: "tile", "block<axis>_" and "unroll"."""
    nest = sketch.nest
    if sketch.tile:
        yield Knob("tile", tuple(_tiles(sketch, context)))
    if not context.rows:
        for place, axis in enumerate(nest.axes):
            yield Knob(f"block{place}_", tuple((q,) for q in counts(extent(axis))))
    if sketch.unrolled:
        yield Knob("unroll", tuple(unrolls([extent(k) for k in sketch.unrolled])))


def default_choices(sketch: NestSketch, context: NestContext) -> dict[str, Choice]:
    """A choice for every knob by rules of thumb: full registers, panels in cache, work for all
    threads, no threads for little work."""
    knobs = {k.name: k for k in nest_knobs(sketch, context)}
    chosen: dict[str, Choice] = {}
    if "tile" in knobs:
        chosen["tile"] = max(knobs["tile"].choices, key=lambda t: _tile_score(sketch, t, context))
    sizes = dict(zip(sketch.tile, chosen.get("tile", ()), strict=True))
    if not context.rows:
        for axis, wanted in _default_blocks(sketch, sizes, context).items():
            name = f"block{sketch.nest.axes.index(axis)}_"
            choices, tiles = knobs[name].choices, -(-extent(axis) // sizes.get(axis, 1))
            fitting = [c for c in choices if c[0] <= max(1, wanted)]
            whole = [c for c in choices if c[0] >= tiles]  # one block, whatever its size
            chosen[name] = whole[0] if wanted >= tiles else fitting[-1]
    if "unroll" in knobs:
        small = [c for c in knobs["unroll"].choices if math.prod(c) <= _USUAL_UNROLL]
        chosen["unroll"] = max(small, key=math.prod)
    return chosen


def _vector_axes(nest: Nest, context: NestContext) -> Sequence[Index | None]:
    """Candidates for the vector axis, cheapest first."""
    axes = [*nest.axes, *nest.reduce]
    if not axes:
        return [None]
    cost = {a: _vector_cost(nest, a, context) + 1 - _best_tile(nest, a, context) for a in axes}
    ranked = sorted(axes, key=lambda a: (cost[a], -axes.index(a)))
    return [a for a in ranked if cost[a] <= cost[ranked[0]] + _CLOSE][:3]


def _best_tile(nest: Nest, axis: Index, context: NestContext) -> float:
    """The best share of the peak that a register tile with this vector axis may reach."""
    sketch = NestSketch(nest, axis, _tiled(nest, axis), (), ())
    return max(_tile_score(sketch, tile, context) for tile in _tiles(sketch, context))


def _vector_cost(nest: Nest, axis: Index, context: NestContext) -> float:
    """Extra work per step if `axis` is the vector axis."""
    cost = 0.0
    for read in set(nest.reads()):
        step = stride(read.tensor, read.index, axis)
        if step not in (0, 1):
            packable = _packable(nest, read, axis, context)
            ahead = read.tensor.name in context.known_ahead
            apart = _STRIDED * step if step in range(2, _NEAR + 1) and step else _GATHER
            cost += (0.0 if ahead else 4 / _uses(nest, read)) if packable else apart
        elif step == 1 and any(axis in set(p.indices()) and len(p.terms) > 1 for p in read.index):
            cost += _SLIDING
        elif step == 0 and _touched(nest, read) > context.target.l2_bytes:
            steps = [stride(read.tensor, read.index, k) for k in nest.reduce]
            cost += 0.0 if 1 in steps or read.tensor.name in context.known_ahead else _FAR
    if axis in nest.reduce:
        return cost + 0.3 + 4 * context.lanes(nest) / extent(axis)
    if stride(nest.out, nest.index, axis) != 1:
        large = nest.size * item_bytes(nest.out.dtype) > context.target.l2_bytes
        cost += _SCATTER * (3 if large else 1) / math.prod(extent(k) for k in nest.reduce)
    return cost


def _uses(nest: Nest, read: Read) -> float:
    """How often an element that a read touches is used."""
    used = {i for p in read.index for i in p.indices()}
    return nest.steps / math.prod(extent(i) for i in used if i in nest.extents)


def _packable(nest: Nest, read: Read, axis: Index, context: NestContext) -> bool:
    """Whether a copy in another layout is no larger than the tensor, and repaid."""
    used = {i for p in read.index for i in p.indices()}
    if axis not in used & set(nest.axes) or not used <= set(nest.extents):
        return False
    if read.tensor is nest.result:
        return False
    if any(not isinstance(atom, Index) for p in read.index for atom, _ in p.terms):
        return False
    for p, size in zip(read.index, tensor_shape(read.tensor), strict=True):
        low, high = p.bounds(nest.extents)
        if low < 0 or high >= size:
            return False
    if math.prod(extent(i) for i in used) > math.prod(tensor_shape(read.tensor)):
        return False
    return read.tensor.name in context.known_ahead or _uses(nest, read) >= _PACK_PAYS


def _tiled(nest: Nest, vector: Index | None) -> tuple[Index, ...]:
    """Axes of the register tile beside the vector axis: those along which the vector operand is
    used again, else the innermost other axis, for independent accumulators."""
    others = [a for a in nest.axes if a != vector]
    if nest.reducer is None or not others:
        return ()
    reused = [
        a
        for a in others
        if any(
            vector in _indices(r) and a not in _indices(r)
            for r in nest.reads()
            if r.tensor is not nest.result
        )
    ]
    return tuple(reused[-2:]) if reused else (others[-1],)


def _indices(read: Read) -> set[Index]:
    return {i for p in read.index for i in p.indices()}


def _packings(
    nest: Nest, vector: Index | None, tiled: tuple[Index, ...], context: NestContext
) -> list[tuple[Packed, ...]]:
    """Which operands are packed: what must be and what is free, then with what may be."""
    if not has_reuse(nest) or context.rows:
        return [()]
    always: list[Packed] = []
    maybe: list[Packed] = []
    for read in dict.fromkeys(read for read, _ in guarded_reads(nest.body)):
        axes = [a for a in (vector, *reversed(tiled)) if a is not None and a in _indices(read)]
        if not axes or not _packable(nest, read, axes[0], context):
            continue
        packed = _packed(nest, read, axes[0])
        forced = axes[0] == vector and stride(read.tensor, read.index, axes[0]) != 1
        ahead = read.tensor.name in context.known_ahead
        (always if forced or ahead else maybe).append(packed)
    vectors = [p for p in maybe if p.axis == vector]
    panels = [p for p in (*vectors, *always) if _fits_a_panel(p, vector, tiled, context)][:1]
    blocks = [b for p in (*vectors, *always) if (b := _block(nest, p, vector, context))][:1]
    options = [
        *((*(p for p in always if p.index != block.index), block) for block in blocks),
        *((*(p for p in always if p != panel), replace(panel, local=True)) for panel in panels),
        *([(*always, *vectors)] if vectors else []),
        tuple(always),
        *([(*always, *maybe)] if len(maybe) > len(vectors) else []),
    ]
    if vectors and tensor_bytes(vectors[0].tensor) < context.target.l1_bytes // 2:
        options.insert(0, options.pop(options.index(tuple(always))))
    if _mostly_written(nest):
        options.sort(key=lambda option: any(p.local for p in option))
    if any(p.axis != vector and _scattered(nest, p, context) for p in maybe):
        options.insert(0, options.pop(options.index((*always, *maybe))))
    return options


def _scattered(nest: Nest, packed: Packed, context: NestContext) -> bool:
    """Whether every step of the reduction reads other cache lines of an operand, each of them for
    one element, or so many that they leave the nearest cache."""
    if any(stride(packed.tensor, packed.index, k) == 1 for k in packed.inner):
        return False
    deep = math.prod(extent(k) for k in packed.inner) * _LINE > context.target.l1_bytes // 2
    return deep or stride(packed.tensor, packed.index, packed.axis) != 1


def _fits_a_panel(
    packed: Packed, vector: Index | None, tiled: tuple[Index, ...], context: NestContext
) -> bool:
    """Whether one tile of the operand at a time can be copied inside of the nest, to be used from
    the cache by all register tiles along the tiled axes."""
    if packed.axis != vector or packed.tensor.name in context.known_ahead:
        return False
    depth = math.prod(extent(k) for k in packed.inner) * item_bytes(packed.tensor.dtype)
    widest = min(extent(packed.axis), _PANEL_LANES)
    return not set(packed.outer) & set(tiled) and depth * widest <= context.target.l2_bytes // 2


def _block(
    nest: Nest, packed: Packed, vector: Index | None, context: NestContext
) -> Packed | None:
    """A panel that also spans the axis along which its operand is contiguous, so that whole cache
    lines are copied; None if that is no axis of the result, or the panel is too large."""
    if packed.axis != vector or packed.tensor.name in context.known_ahead:
        return None
    near = [a for a in packed.outer if stride(packed.tensor, packed.index, a) == 1]
    size = math.prod(extent(a) for a in (*near, *packed.inner)) * item_bytes(packed.tensor.dtype)
    if not near or size * min(extent(packed.axis), _PANEL_LANES) > context.target.l2_bytes // 2:
        return None
    outer = tuple(a for a in packed.outer if a not in near)
    return replace(packed, outer=outer, inner=(*near, *packed.inner), local=True)


def _packed(nest: Nest, read: Read, axis: Index) -> Packed:
    used = _indices(read)
    outer = tuple(a for a in nest.axes if a in used and a != axis)
    inner = tuple(k for k in nest.reduce if k in used)
    return Packed(read.tensor, read.index, axis, outer, inner)


def _orders(
    nest: Nest, vector: Index | None, tiled: tuple[Index, ...], packed: tuple[Packed, ...]
) -> list[tuple[Index, ...]]:
    """Orders of the middle loops: the vector axis outside of the tiled ones, or inside."""
    if vector not in nest.axes:
        return [nest.axes]
    rest = tuple(a for a in nest.axes if a != vector and a not in tiled)
    inside = (*rest, *tiled, vector)
    outside = (*rest, vector, *tiled)
    if any(p.local for p in packed):
        within = {a for p in packed if p.local for a in p.inner}
        return [tuple(sorted(outside, key=lambda a: _level(a, vector, tiled, within)))]
    if not tiled or not has_reuse(nest):
        return [inside]
    if _mostly_written(nest):
        return list(dict.fromkeys([nest.axes, outside, inside]))
    # A sliding window reuses rows, not columns: along the rows, they stay in the nearest cache.
    return [inside, outside] if sliding(nest, vector, tiled) else [outside, inside]


def _level(axis: Index, vector: Index, tiled: tuple[Index, ...], within: set[Index]) -> int:
    """How far inside a middle loop stands where there are panels, which span the axes `within`."""
    return (axis == vector) + 2 * (axis in within) + 3 * (axis in tiled)


def _mostly_written(nest: Nest) -> bool:
    """Whether the result is larger than all that it is made of by so much that it had better be
    written in its own order."""
    read = sum(_touched(nest, r) for r in dict.fromkeys(nest.reads()))
    return nest.size * item_bytes(nest.out.dtype) > _EXPANDS * read


def _touched(nest: Nest, read: Read) -> int:
    """Bytes of a tensor that a read may touch."""
    used = _indices(read) & set(nest.extents)
    touched = math.prod(extent(i) for i in used) * item_bytes(read.tensor.dtype)
    return min(touched, tensor_bytes(read.tensor))


def _reduce_orders(
    nest: Nest, vector: Index | None, tiled: tuple[Index, ...]
) -> list[tuple[Index, ...]]:
    """Orders of the reduction loops: what slides along the tile innermost, one along which what is
    read element by element is contiguous, as written, and with the longest one innermost."""
    single = [r for r in dict.fromkeys(nest.reads()) if vector not in _indices(r)]
    near = [k for k in nest.reduce if any(stride(r.tensor, r.index, k) == 1 for r in single)]
    longest = sorted(nest.reduce, key=extent)
    last = [sliding(nest, vector, tiled)[-1:], tuple(near[-1:]), (), tuple(longest[-1:])]
    first = 0 if last[0] else 1
    orders = [(*(k for k in nest.reduce if k not in inner), *inner) for inner in last[first:]]
    return list(dict.fromkeys(orders))


def _tiles(sketch: NestSketch, context: NestContext) -> Iterator[Choice]:
    """Register tiles: accumulators, one row of vector operands and a broadcast fit the vector
    registers."""
    lanes, vector = context.lanes(sketch.nest), sketch.vector
    assert vector is not None
    widths = _widths(sketch, lanes)
    registers = context.target.vector_registers
    spans = [range(1, min(extent(a), registers) + 1) for a in sketch.tiled]
    if len(spans) == 2:
        spans[0] = range(1, min(4, len(spans[0])) + 1)
    for sizes in itertools.product(*spans):
        for width in widths:
            columns = -(-width // lanes)
            if math.prod(sizes) * columns + columns + 1 <= registers or _least(
                sizes, width, widths
            ):
                yield (*sizes, width)


def _least(sizes: Choice, width: int, widths: list[int]) -> bool:
    return math.prod(sizes) == 1 and width == widths[0]


def _widths(sketch: NestSketch, lanes: int) -> list[int]:
    """Sizes of the tile along the vector axis: whole vectors, or a power of two below one."""
    vector, nest = sketch.vector, sketch.nest
    assert vector is not None
    size = extent(vector)
    counts = [1, 2, 3, 4, 6, 8] if vector in nest.axes else [1, 2, 4, 8]
    if nest.also:  # its many stores are independent already
        counts = [1]
    whole = [c * lanes for c in counts if c * lanes <= size]
    return whole or [1 << (size.bit_length() - 1)]


def counts(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, … up to `most`, and `most` itself."""
    steps = itertools.chain([1], *([2 << e, 3 << e] for e in range(40)))
    return [*itertools.takewhile(lambda q: q < most, steps), most]


def unrolls(extents: list[int]) -> list[Choice]:
    """Unroll factors of the last two reduction loops: divisors, the outer one's only if the
    inner one is unrolled whole."""
    last = [u for u in range(1, _MAX_UNROLL + 1) if extents[-1] % u == 0]
    if len(extents) == 1:
        return [(u,) for u in last]
    both: list[Choice] = [(1, u) for u in last]
    if extents[-1] in last:
        most = _MAX_UNROLL // extents[-1]
        both += [(u, extents[-1]) for u in range(2, most + 1) if extents[0] % u == 0]
    return both


def _tile_score(sketch: NestSketch, tile: Choice, context: NestContext) -> float:
    """The share of the peak that a register tile may reach: as many multiply-adds as loads can
    start at once, enough accumulators hide the latency, and what tiles compute twice is lost."""
    lanes = context.lanes(sketch.nest)
    *rows, width = tile
    columns = -(-width // lanes)
    vectors = math.prod(rows) * columns
    useful = min(1.0, width / lanes)
    for axis, size in zip(sketch.tile, tile, strict=True):
        useful *= extent(axis) / (-(-extent(axis) // size) * size)
    if sketch.nest.reducer is None:
        return useful * (0.9 + 0.025 * min(columns, 4))
    if slides := sliding(sketch.nest, sketch.vector, sketch.tiled):
        # Beside the accumulators, the rows of one window and its weights are at hand.
        window = math.prod(extent(k) for k in slides[-1:])
        weights = window if len(set(sketch.nest.reads())) > 1 else 0
        if vectors + window * columns + weights > context.target.vector_registers:
            useful *= 0.5
    useful -= 0.01 * _lines(sketch, tile, context)
    per_load = vectors / (columns + math.prod(rows))
    return useful * min(1.0, vectors / _IN_FLIGHT) * min(1.0, per_load) + 0.05 * min(per_load, 2.0)


def _lines(sketch: NestSketch, tile: Choice, context: NestContext) -> int:
    """Cache lines that a step of the tile reads single elements from, of operands that do not
    stay in the second-level cache: neighbours share one, and so do steps along a row."""
    total = 0
    for read in dict.fromkeys(sketch.nest.reads()):
        packed = any((p.tensor, p.index) == (read.tensor, read.index) for p in sketch.packed)
        large = _touched(sketch.nest, read) > context.target.l2_bytes // 2
        near = any(stride(read.tensor, read.index, k) == 1 for k in sketch.nest.reduce)
        if packed or near or not large or sketch.vector in _indices(read):
            continue
        sizes = dict(zip(sketch.tile, tile, strict=True))
        steps = {a: stride(read.tensor, read.index, a) for a in sketch.tiled}
        total += math.prod(n for a, n in sizes.items() if steps.get(a, 0) not in (0, 1))
    return total


def _default_blocks(
    sketch: NestSketch, sizes: dict[Index, int], context: NestContext
) -> dict[Index, int]:
    """Tiles to a block for every axis: enough blocks for the threads, cut along the axis whose
    blocks read the least again; rows of the innermost middle axis within half of the second-level
    cache."""
    nest, target = sketch.nest, context.target
    blocks = {a: -(-extent(a) // sizes.get(a, 1)) for a in nest.axes}
    wanted = 1 if nest.steps < _SMALL or target.threads == 1 else 4 * target.threads
    panels = any(p.local for p in sketch.packed)  # not to be copied by several threads

    def cost(axis: Index) -> tuple[int, bool]:
        again = 0 if panels else _read_again(nest, axis) // target.l2_bytes
        return again, (axis == sketch.vector) != panels

    spanned = {a for p in sketch.packed if p.local for a in p.inner}
    for axis in sorted((a for a in nest.axes if a not in spanned), key=cost):
        parts = min(blocks[axis], wanted)
        blocks[axis] = -(-blocks[axis] // parts)
        wanted = -(-wanted // parts)
    if sketch.tiled and has_reuse(nest):
        axis = sketch.order[-1]
        depth = math.prod(extent(k) for k in nest.reduce)
        row = sizes.get(axis, 1) * depth * item_bytes(nest.result.dtype)
        blocks[axis] = min(blocks[axis], max(1, target.l2_bytes // 2 // row))
    return blocks


def _read_again(nest: Nest, axis: Index) -> int:
    """Bytes that every block reads if blocks are cut along `axis`: operands without it."""
    reads = dict.fromkeys(nest.reads())
    return sum(_touched(nest, r) for r in reads if axis not in _indices(r))
