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
from collections.abc import Iterator, Mapping, Sequence

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import Read
from loopwright.dsl.index import Index
from loopwright.dsl.scans import Scan
from loopwright.dsl.workload import tensor_bytes
from loopwright.schedule.cpu.heuristics import CPU
from loopwright.schedule.cpu.packing import packable, packings
from loopwright.schedule.cpu.register_tile import (
    best_tile,
    best_tile_score,
    free_registers,
    register_tiles,
)
from loopwright.schedule.program.footprint import (
    NestContext,
    indices,
    mostly_written,
    touched,
    uses,
)
from loopwright.schedule.program.nest import (
    Nest,
    extent,
    in_place,
    is_order,
    predicated_reads,
    scan_of,
    sliding,
    stride,
    terms,
)
from loopwright.schedule.program.plan import has_reuse
from loopwright.schedule.program.predicates import tested
from loopwright.schedule.sketch.sketch import Choice, Knob, NestSketch, Packed, counts, unrolls


def nest_sketches(nest: Nest, context: NestContext) -> Iterator[NestSketch]:
    """Structures of one nest, the most promising first, derived lazily; some come twice."""
    if is_order(nest):
        rows = tuple(a for a in nest.axes if a in indices(nest.reads()[0]))
        return iter((NestSketch(nest, None, (), rows, nest.reduce),))
    if nest.sparse is not None:
        return iter((_sparse_sketch(nest, context),))
    scan = scan_of(nest)
    if scan is not None and extent(scan.axis) > CPU.scanned_elements:
        return iter((_scan_sketch(nest, scan),))
    found = (
        NestSketch(nest, vector, tiled, order, reduce, packed)
        for vector in _vector_axes(nest, context)
        for tiled in (_tiled(nest, vector),)
        for packed in packings(nest, vector, tiled, context)
        for order in _orders(nest, vector, tiled, packed)
        for reduce in _reduce_orders(nest, vector, tiled)
    )
    return found if has_reuse(nest) else itertools.islice(found, 1)


def _sparse_sketch(nest: Nest, context: NestContext) -> NestSketch:
    """The one structure of a sum that leaves steps out: vectors of weights, a panel of which all
    rows use before the next one."""
    assert nest.sparse is not None
    rows = tuple(a for a in nest.axes if a in indices(nest.sparse))
    (vector,) = (a for a in nest.axes if a not in rows)
    (packed, *_) = packings(nest, vector, rows, context)
    return NestSketch(nest, vector, rows[-2:], (vector, *rows), nest.reduce, packed)


def _scan_sketch(nest: Nest, scan: Scan) -> NestSketch:
    """The one structure of a running result: of as many rows at once as a register tile has, in
    vectors where these lie along rows."""
    rows = tuple(a for a in nest.axes if a != scan.axis)
    steps = {a: [stride(r.tensor, r.index, a) for r in nest.reads()] for a in rows}
    vectors = [a for a in rows if stride(nest.out, nest.index, a) == 1 and set(steps[a]) <= {0, 1}]
    tiled = () if vectors else rows[-1:]
    return NestSketch(nest, vectors[0] if vectors else None, tiled, rows, (), scan=scan)


def nest_knobs(sketch: NestSketch, context: NestContext) -> Iterator[Knob]:
    """The knobs of one nest: "tile", "block<axis>_" and "unroll"."""
    nest = sketch.nest
    if sketch.tile:
        yield Knob("tile", tuple(register_tiles(sketch, context)))
    if not context.rows:
        for place, axis in enumerate(nest.axes):
            if axis in sketch.order:
                yield Knob(f"block{place}_", tuple((q,) for q in counts(extent(axis))))
    if sketch.unrolled:
        yield Knob("unroll", tuple(unrolls([extent(k) for k in sketch.unrolled])))


def default_choices(
    sketch: NestSketch,
    context: NestContext,
    knobs: Mapping[str, Knob],
    tile: Choice | None = None,
) -> dict[str, Choice]:
    """A choice for every knob by rules of thumb: full registers, panels in cache, busy threads.
    With `tile`, that is the register tile."""
    chosen: dict[str, Choice] = {}
    if "tile" in knobs:
        chosen["tile"] = tile or best_tile(sketch, context)
    sizes = dict(zip(sketch.tile, chosen.get("tile", ()), strict=True))
    if not context.rows:
        for axis, wanted in _default_blocks(sketch, sizes, context).items():
            name = f"block{sketch.nest.axes.index(axis)}_"
            choices, tiles = knobs[name].choices, -(-extent(axis) // sizes.get(axis, 1))
            fitting = [c for c in choices if c[0] <= max(1, wanted)]
            whole = [c for c in choices if c[0] >= tiles]  # one block, whatever its size
            chosen[name] = whole[0] if wanted >= tiles else fitting[-1]
    if "unroll" in knobs:
        full = _full(sketch, chosen.get("tile"), context)
        most = 1 if full else max(1, CPU.unroll_iterations // len(terms(sketch.nest.body)))
        small = [c for c in knobs["unroll"].choices if math.prod(c) <= most]
        chosen["unroll"] = max(small, key=math.prod)
    return chosen


def _full(sketch: NestSketch, tile: Choice | None, context: NestContext) -> bool:
    """Return whether a tile fills the registers. A compiler that interleaves two steps then keeps
    accumulators in memory, as LLVM does for Zen 4 and 5. The tile must be so large that unrolling
    gains nothing."""
    if tile is None or extent(sketch.unrolled[-1]) <= CPU.unroll_iterations:
        return False
    return (
        free_registers(tile, sketch, context) <= 1
        and context.target.vector_registers >= CPU.many_registers
    )


def _vector_axes(nest: Nest, context: NestContext) -> Sequence[Index | None]:
    """Candidates for the vector axis, cheapest first."""
    axes = [*nest.axes, *nest.reduce]
    if not axes:
        return [None]
    tiles = [NestSketch(nest, a, _tiled(nest, a), (), ()) for a in axes]
    cost = {
        a: _vector_cost(nest, a, context) + 1 - best_tile_score(tile, context)
        for a, tile in zip(axes, tiles, strict=True)
    }
    ranked = sorted(axes, key=lambda a: (cost[a], -axes.index(a)))
    return [a for a in ranked if cost[a] <= cost[ranked[0]] + CPU.vector_axis_slack][:3]


def _vector_cost(nest: Nest, axis: Index, context: NestContext) -> float:
    """Extra work per step if `axis` is the vector axis."""
    cost = 0.0
    sums = math.prod(extent(k) for k in nest.reduce)
    after = set() if nest.epilogue is None else {r for r, _ in predicated_reads(nest.epilogue)}
    for read in set(nest.reads()):
        step = stride(read.tensor, read.index, axis)
        if read in after and step not in (0, 1):  # once a sum, as the result is written
            cost += _scatter(nest, touched(nest, read), context) / sums
        elif step not in (0, 1):
            constant = read.tensor.name in context.constants
            apart = (
                CPU.strided_cost * step
                if step in range(2, CPU.strided_elements + 1) and step
                else CPU.gather_cost
            )
            copied = 0.0 if constant else _copy(nest, read, step, context) / uses(nest, read)
            cost += copied if packable(nest, read, axis, context) else apart
        elif step == 1 and any(axis in set(p.indices()) and len(p.terms) > 1 for p in read.index):
            cost += CPU.sliding_cost
        elif step == 0 and touched(nest, read) > context.target.l2_bytes:
            steps = [stride(read.tensor, read.index, k) for k in nest.reduce]
            cost += (
                0.0
                if 1 in steps or read.tensor.name in context.constants
                else CPU.far_element_cost
            )
    if axis in nest.reduce:
        streamed = CPU.rows_streamed_cost if _streams_rows(nest, axis, context) else 0.0
        return cost + 0.3 + 4 * context.lanes(nest) / extent(axis) + streamed
    if nest.reducer is None and _across(nest, axis):
        return cost + 1  # shuffles
    if stride(nest.out, nest.index, axis) != 1:
        cost += _scatter(nest, nest.size * item_bytes(nest.out.dtype), context) / sums
    return cost


def _streams_rows(nest: Nest, axis: Index, context: NestContext) -> bool:
    """Return whether weights that each call reads once are read along an axis, where a tile of
    another axis could have them in its own order."""
    wide = {a for a in nest.axes if extent(a) >= CPU.panel_lanes}
    return any(
        read.tensor.name in context.constants
        and uses(nest, read) == 1
        and stride(read.tensor, read.index, axis) == 1
        and any(a in indices(read) and packable(nest, read, a, context) for a in wide)
        for read in nest.reads()
    )


def _copy(nest: Nest, read: Read, step: int | None, context: NestContext) -> float:
    """The cost of a vector of a copy whose vectors stand across such steps. Where a reduction goes
    along the lines of the operand, whole ones are turned. Elsewhere lines that are a multiple of a
    page apart drive each other out of the nearest cache before the next element."""
    if any(stride(read.tensor, read.index, k) == 1 for k in nest.reduce):
        return CPU.turned_cost * context.lanes(nest)
    paged = step and step * item_bytes(read.dtype) % CPU.page_bytes == 0
    return CPU.transpose_cost * context.lanes(nest) * (CPU.missed_line_factor if paged else 1)


def _scatter(nest: Nest, size: int, context: NestContext) -> float:
    """The cost of a vector whose elements lie apart in a tensor of `size` bytes."""
    return (
        CPU.transpose_cost
        * context.lanes(nest)
        * (CPU.missed_line_factor if size > context.target.l2_bytes else 1)
    )


def _tiled(nest: Nest, vector: Index | None) -> tuple[Index, ...]:
    """Axes of the register tile beside the vector axis: those along which the vector operand is
    used again; with too few of such elements, the innermost other axis too, for independent
    accumulators."""
    if nest.reducer is None:
        return () if vector is None else _across(nest, vector)
    others = [a for a in nest.axes if a != vector]
    if not others:
        return ()
    reused = [
        a
        for a in others
        if any(
            vector in indices(r) and a not in indices(r)
            for r in nest.reads()
            if r.tensor is not nest.result
        )
    ]
    most = reused[-2:]
    if len(tested(nest).intersection(most)) > 1:
        most = most[-1:]  # the other test is made once for all of a tile
    rest = [a for a in others if a not in most]
    if rest and len(most) < 2 and math.prod(map(extent, most)) < CPU.tile_rows:
        most = [a for a in others if a in most or a == rest[-1]]
    return tuple(most)


def _across(nest: Nest, vector: Index) -> tuple[Index, ...]:
    """The axis along which an element-wise result is contiguous, where vectors stand across it:
    a few neighbours of these are transposed in registers when they are stored."""
    step = stride(nest.out, nest.index, vector)
    if nest.also or in_place(nest) or nest.out.dtype != "float32" or not step or step == 1:
        return ()
    near = (a for a in nest.axes if stride(nest.out, nest.index, a) == 1)
    return tuple(a for a in near if extent(a) >= CPU.transposed_rows)[:1]


def _orders(
    nest: Nest, vector: Index | None, tiled: tuple[Index, ...], packed: tuple[Packed, ...]
) -> list[tuple[Index, ...]]:
    """Orders of the middle loops: the vector axis outside of the tiled ones, or inside."""
    if vector not in nest.axes:
        return [nest.axes]
    rest = tuple(a for a in nest.axes if a != vector and a not in tiled)
    rows = tuple(a for a in rest if a in tested(nest))  # which would be tiled, but for the tests
    inside = (*rest, *tiled, vector)
    outside = (*(a for a in rest if a not in rows), vector, *rows, *tiled)
    if any(p.local for p in packed):
        within = {a for p in packed if p.local for a in p.inner}
        depth = {a: (a == vector) + 2 * (a in within) + 3 * (a in tiled) for a in outside}
        return [tuple(sorted(outside, key=depth.__getitem__))]
    if nest.reducer is None:
        return [outside]
    if not tiled or not has_reuse(nest):
        return [inside]
    if mostly_written(nest):
        return list(dict.fromkeys([nest.axes, outside, inside]))
    # A sliding window reuses rows, not columns: along the rows, they stay in the nearest cache.
    return [inside, outside] if sliding(nest, vector, tiled) else [outside, inside]


def _reduce_orders(
    nest: Nest, vector: Index | None, tiled: tuple[Index, ...]
) -> list[tuple[Index, ...]]:
    """Orders of the reduction loops: what slides along the tile innermost, one along which what is
    read element by element is contiguous, as written, and with the longest one innermost."""
    single = [r for r in dict.fromkeys(nest.reads()) if vector not in indices(r)]
    near = [k for k in nest.reduce if any(stride(r.tensor, r.index, k) == 1 for r in single)]
    longest = sorted(nest.reduce, key=extent)
    last = [sliding(nest, vector, tiled)[-1:], tuple(near[-1:]), (), tuple(longest[-1:])]
    first = 0 if last[0] else 1
    orders = [(*(k for k in nest.reduce if k not in inner), *inner) for inner in last[first:]]
    return list(dict.fromkeys(orders))


def _default_blocks(
    sketch: NestSketch, sizes: dict[Index, int], context: NestContext
) -> dict[Index, int]:
    """Tiles to a block for every axis: enough blocks for the threads, and about as much work for
    each of them, cut along the axis whose blocks read the least again; rows of the innermost
    middle axis within half of the second-level cache."""
    nest, target = sketch.nest, context.target
    blocks = {a: -(-extent(a) // sizes.get(a, 1)) for a in nest.axes if a in sketch.order}
    steps = nest.steps
    if sketch.scan is not None:
        steps = nest.size
    if is_order(nest):
        steps = CPU.ordered_steps * math.prod(map(extent, (*sketch.order, *nest.reduce)))
    wanted = 1 if steps < CPU.parallel_steps or target.threads == 1 else 4 * target.threads
    large = [p for p in sketch.packed if tensor_bytes(p.tensor) > target.l2_bytes // 2]
    if wanted > 1 and any(p.axis == sketch.vector and not p.local for p in large):
        wanted = target.threads  # panel after panel, each prefetched while the last one is used
    panels = any(p.local for p in sketch.packed)  # not to be copied by several threads
    copied = {a for p in sketch.packed if p.local for a in (p.axis, *p.outer)}

    def cost(axis: Index) -> tuple[int, bool]:
        if panels:
            return 0, axis not in copied
        return _read_again(nest, axis) // target.l2_bytes, axis == sketch.vector

    spanned = {a for p in sketch.packed if p.local for a in p.inner}
    made = 1
    for axis in sorted((a for a in blocks if a not in spanned), key=cost):
        if wanted == 1:
            break
        tiles, parts = blocks[axis], min(blocks[axis], wanted)
        choices = [q for q in counts(tiles) if q <= -(-tiles // parts)]
        # Tiles that the busiest thread computes, and what the copies of its panels cost.
        again = panels and axis not in copied
        copy = CPU.panel_copy_rows / math.prod(sizes[a] for a in sketch.tiled) if again else 0
        busiest = {q: -(-made * -(-tiles // q) // target.threads) * (q + copy) for q in choices}
        even = (q for q in choices if busiest[q] <= CPU.imbalance * min(busiest.values()))
        blocks[axis] = max(even)
        made *= -(-tiles // blocks[axis])
        wanted = -(-wanted // parts)
    if sketch.tiled and sketch.scan is None and has_reuse(nest):
        axis = sketch.order[-1]
        depth = math.prod(extent(k) for k in nest.reduce)
        row = sizes.get(axis, 1) * depth * item_bytes(nest.result.dtype)
        blocks[axis] = min(blocks[axis], max(1, target.l2_bytes // 2 // row))
    return blocks


def _read_again(nest: Nest, axis: Index) -> int:
    """Bytes that every block reads if blocks are cut along `axis`: operands without it."""
    reads = dict.fromkeys(nest.reads())
    return sum(touched(nest, r) for r in reads if axis not in indices(r))
