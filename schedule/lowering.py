"""Lowering: x = g(e, s), from a sketch and a batch of configs to one batched loop tree.

Every spatial axis of extent E has register tiles of R elements, T = ⌈E/R⌉ of them, Q to a block,
P = ⌈T/Q⌉ blocks that run in parallel:

    for block < P:                      parallel
      for within < min(Q, T - Q·block):
        tile = Q·block + within
        base = min(R·tile, E - R)       the last tile overlaps the one before it
        …  elements base … base + R - 1, all inside

so that no element needs a predicate and every tile is full: where R does not divide E, a few
elements are computed twice, to the same value. Reads of packed operands use `tile`, all others
`base`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.index import Index
from loopwright.schedule.cpu.lower_hand import HandLowering
from loopwright.schedule.cpu.lower_nest import NestLowering
from loopwright.schedule.cpu.lower_pack import lower_pack
from loopwright.schedule.gpu.lower import lower_kernels
from loopwright.schedule.loops.assembly import assembled, values_of
from loopwright.schedule.loops.statements import to_linear
from loopwright.schedule.loops.storage import Storage
from loopwright.schedule.program.constants import constants_of
from loopwright.schedule.program.nest import extent
from loopwright.schedule.program.plan import FusionGroup
from loopwright.schedule.sketch.sketch import Config, NestSketch, Sketch
from loopwright.schedule.target import Target
from loopwright.schedule.tree import grammar as g


def lower(sketch: Sketch, target: Target, configs: Config | np.ndarray[Any, Any]) -> g.Tree:
    """The loop tree of one config, or of a batch given as numbers of shape (configs, knobs)."""
    if isinstance(configs, Config):
        if configs.sketch != sketch.name:
            raise ConfigError(f"the config is of sketch {configs.sketch!r}, not {sketch.name!r}")
        numbers = np.array([sketch.numbers(configs)], np.int64).reshape(1, -1)
        return lower(sketch, target, numbers).row(0)
    values: Mapping[str, tuple[g.Column, ...]] = sketch.columns(np.asarray(configs))
    if target.gpu is None:  # where an axis of one element makes other loops than one of a column
        values = {name: tuple(map(_agreed, columns)) for name, columns in values.items()}
    return lower_columns(sketch, target, values, len(configs))


def _agreed(column: g.Column) -> g.Column:
    """A column as an int where all configs agree, which costs next to nothing to compute with."""
    if isinstance(column, np.ndarray) and len(column) and (column == column[0]).all():
        return int(column[0])
    return column


def lower_columns(
    sketch: Sketch, target: Target, values: Mapping[str, tuple[g.Column, ...]], n: int
) -> g.Tree:
    """The loop tree of a batch of n configs, given as the values of every knob."""
    if target.gpu is not None:
        known = constants_of(sketch.workload, sketch.groups)
        return lower_kernels(sketch, target.gpu, values, n, known)
    if sketch.hand:
        return _lower_hand(sketch, target, n)
    return _Lowering(sketch, target, values, n).tree()


def _lower_hand(sketch: Sketch, target: Target, n: int) -> g.Tree:
    """The loop tree of a schedule by hand, nest after nest."""
    constants = constants_of(sketch.workload, sketch.groups)
    storage = Storage(sketch.workload, constants)
    prepare: list[g.Stmt] = []
    body: list[g.Stmt] = []
    for number, hand in enumerate(sketch.hand):
        nest = HandLowering(hand, storage, target, number, constants)
        nest.lower()
        prepare += nest.prepare
        body += nest.body
    return assembled(n, sketch.workload, storage, prepare, body, copied)


class _Lowering:
    def __init__(
        self, sketch: Sketch, target: Target, values: Mapping[str, tuple[g.Column, ...]], n: int
    ) -> None:
        self.sketch, self.target, self.n = sketch, target, n
        self.values = values_of(sketch, values)
        self.constants = constants_of(sketch.workload, sketch.groups)
        self.storage = Storage(sketch.workload, self.constants)

    def tree(self) -> g.Tree:
        prepare: list[g.Stmt] = []
        body: list[g.Stmt] = []
        number = 0
        for group in self.sketch.groups:
            ahead = group.nests[0].out.name in self.constants
            part, section = ("prepare", prepare) if ahead else ("body", body)
            sketches = self.sketch.nests[number : number + len(group.nests)]
            for offset, sketch in enumerate(sketches):
                prepare_pack, pack = self._pack(sketch, number + offset)
                prepare += prepare_pack
                section += pack
            section += self._group(group, dict(enumerate(sketches, number)), {}, part)
            number += len(group.nests)
        return assembled(self.n, self.sketch.workload, self.storage, prepare, body, copied)

    def _pack(self, sketch: NestSketch, number: int) -> tuple[list[g.Stmt], list[g.Stmt]]:
        prepare: list[g.Stmt] = []
        body: list[g.Stmt] = []
        tile = dict(zip(sketch.tile, self.values[number].get("tile", ()), strict=True))
        for packed in sketch.packed:
            constant = packed.tensor.name in self.constants
            part = "prepare" if constant else "body"
            buffer = self.storage.add_packed(packed, number, tile[packed.axis], constant)
            if packed.local:
                continue  # made inside of the nest
            stmts = lower_pack(packed, buffer, tile[packed.axis], self.storage, part, self.target)
            (prepare if constant else body).extend(stmts)
        return prepare, body

    def _group(
        self,
        group: FusionGroup,
        sketches: Mapping[int, NestSketch],
        outside: Mapping[Index, g.Linear],
        part: str,
    ) -> list[g.Stmt]:
        """The loops of a group; `sketches` are those of its nests, by number, and `outside` says
        where the loops around it stand."""
        number = next(iter(sketches))
        rows = {axis: g.Var(axis.name) for axis in group.outer}
        at = {**outside, **{axis: g.Linear(((var, 1),)) for axis, var in rows.items()}}
        inner: list[g.Stmt] = []
        for base in group.tile_origins:
            var = g.Var(f"{base.index.name}{number or ''}")
            begin = to_linear(base.number, at) * base.size
            inner.append(g.Let(var, begin, extent(base.index) - 1))
            at[base.index] = g.Linear(((var, 1),))
        inner += [g.Allocate(self.storage.add_scratch(t)) for t in group.scratch]
        left = iter(sketches.items())
        for item in group.body:
            if isinstance(item, FusionGroup):
                own = dict(itertools.islice(left, len(item.nests)))
                inner += self._group(item, own, at, part)
                continue
            which, sketch = next(left)
            constant = group.prefetch if item is group.body[-1] else ()
            nest = NestLowering(
                sketch, self.values[which], self.storage, part, self.target, at, which, constant
            )
            inner += nest.lower()
        for axis, var in reversed(rows.items()):
            kind = "serial" if outside else "parallel"
            inner = [g.Loop(var, extent(axis), kind, tuple(inner))]
        return inner


def copied(source: g.Buffer, target: g.Buffer) -> g.Stmt:
    """Loops that copy a buffer."""
    loops = [(g.Var(f"{target.name}.{d}"), count) for d, count in enumerate(source.shape)]
    index = tuple(g.Linear(((var, 1),)) for var, _ in loops)
    copy: g.Stmt = g.Store(target, index, g.Load(source, index))
    for var, count in reversed(loops or [(g.Var(target.name), 1)]):
        copy = g.Loop(var, count, "serial", (copy,))
    return copy
