"""A sketch's structure for the same workload at other sizes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.index import Index
from loopwright.dsl.workload import Workload
from loopwright.schedule.program.buffer_reuse import Shapes, settled, shapes
from loopwright.schedule.program.footprint import indices
from loopwright.schedule.program.nest import Nest, extent, in_place, lanes, scan_of
from loopwright.schedule.registry import Named, derive
from loopwright.schedule.sketch.sketch import Choice, Config, NestSketch, Packed, Sketch, unrolls
from loopwright.schedule.target import Target


def shapes_at(
    sketch: Sketch, workloads: Iterable[Workload], target: Target
) -> dict[str, tuple[tuple[int, ...] | None, ...]]:
    """The shapes of the tensors of a sketch's program at other sizes of its workload, by name."""
    found = []
    for workload in workloads:
        with contextlib.suppress(ConfigError):
            found.append(shapes(derive(Named(workload), target, sketch.derivation).groups))
    return {name: tuple(at.get(name) for at in found) for at in found for name in at}


def retargeted(
    sketch: Sketch, workload: Workload, target: Target, others: Shapes | None = None
) -> Sketch:
    """The loops of a sketch over those of another size of its workload, whether or not they are
    worth a try there; `others` as `settled` has them. The result has no knobs of its own.

    Raises `ConfigError` where the program has other nests at that size.
    """
    # Axes may be contiguous here alone, as of a copy of all of a tensor, and a padding may have no
    # element.
    like = tuple(tuple(a.name for a in (*n.nest.axes, *n.nest.reduce)) for n in sketch.nests)
    for fills in (False, True):
        variant = derive(Named(workload), target, sketch.derivation, like, fills)
        groups = settled(variant.workload, variant.groups, others)
        placed = [pair for group in groups for pair in group.placed()]
        if len(placed) == len(sketch.nests):
            break
    else:
        raise ConfigError("the program has other nests")
    before = [rows for group in sketch.groups for _, rows in group.placed()]
    made = tuple(
        _moved(old, rows, nest, new)
        for old, rows, (nest, new) in zip(sketch.nests, before, placed, strict=True)
    )
    return replace(
        sketch, workload=variant.workload, groups=groups, nests=made, knobs=(), default=()
    )


def check_values(sketch: Sketch, target: Target, config: Config) -> None:
    """Raise `ConfigError` where values of a config, of another size, are not right for a sketch:
    where a tile is larger than a loop or no whole number of vectors, an unroll factor does not
    divide a loop, or tiles would change elements twice."""
    values = dict(config.values)
    for nest, leader in zip(sketch.nests, sketch.knobs_of, strict=True):
        factors = values.get(f"unroll{leader}")
        if factors is not None and factors not in unrolls([extent(k) for k in nest.unrolled]):
            raise ConfigError("an unroll factor does not divide a loop")
        tile = values.get(f"tile{leader}", ())
        if any(t > extent(a) for a, t in zip(nest.tile, tile)):
            raise ConfigError("a tile is larger than a loop")
        if not _in_vectors(tile, nest, target):
            raise ConfigError("a tile is no whole number of vectors")
        if tile != halved(tile, nest):
            raise ConfigError("partial results of a tile do not halve")
        if in_place(nest.nest) and not divides(tile, nest):
            raise ConfigError("a tile does not divide an axis whose elements are changed in place")


def divides(tile: Choice, sketch: NestSketch) -> bool:
    """Return whether no element of a nest is in two tiles."""
    return not any(extent(a) % t for a, t in zip(sketch.tile, tile))


def halved(tile: Choice, sketch: NestSketch) -> Choice:
    """A tile whose lanes along a reduction are a power of two, as large as fits: their partial
    results are halved until one is left."""
    return tuple(
        1 << (size.bit_length() - 1)
        if axis is sketch.vector and axis in sketch.nest.reduce
        else size
        for axis, size in zip(sketch.tile, tile)
    )


def _in_vectors(tile: Choice, sketch: NestSketch, target: Target) -> bool:
    """Return whether a tile is whole vectors, or less than one: else its end is not computed.
    The verifier refuses that too, but only once the tree is lowered."""
    size = dict(zip(sketch.tile, tile)).get(sketch.vector, 1) if sketch.vector else 1
    most = lanes(sketch.nest, target)
    return size <= most or size % most == 0


def _moved(
    sketch: NestSketch, rows: tuple[Index, ...], nest: Nest, new: tuple[Index, ...]
) -> NestSketch:
    """The loops of a sketch, which stands in the common loops `rows`, for a nest in `new` ones."""
    old = sketch.nest
    if (len(old.axes), len(old.reduce)) != (len(nest.axes), len(nest.reduce)):
        raise ConfigError("a nest has other loops")
    at = dict(zip((*old.axes, *old.reduce), (*nest.axes, *nest.reduce), strict=True))
    if len(rows) == len(new):
        at |= zip(rows, new, strict=True)

    def axes(some: tuple[Index, ...]) -> tuple[Index, ...]:
        if not at.keys() >= set(some):
            raise ConfigError("a packed operand has loops that its nest has not")
        return tuple(at[a] for a in some)

    reads = list(dict.fromkeys(old.reads()))
    there = list(dict.fromkeys(nest.reads()))
    if len(reads) != len(there):
        raise ConfigError("a nest has other reads")

    def packed(p: Packed) -> Packed:
        place = next(k for k, r in enumerate(reads) if (r.tensor, r.index) == (p.tensor, p.index))
        read = there[place]
        if not indices(read) <= set(axes((p.axis, *p.outer, *p.inner))):
            raise ConfigError("a packed operand moves with a loop that its copy has not")
        return Packed(read.tensor, read.index, at[p.axis], axes(p.outer), axes(p.inner), p.local)

    return NestSketch(
        nest,
        None if sketch.vector is None else at[sketch.vector],
        axes(sketch.tiled),
        axes(sketch.order),
        axes(sketch.reduce),
        tuple(map(packed, sketch.packed)),
        scan=None if sketch.scan is None else scan_of(nest),
    )
