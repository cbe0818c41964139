"""A config's program for a box of sizes, found by lowering it at some of them."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.size import Dim, named
from loopwright.schedule.lowering import lower_columns
from loopwright.schedule.open.family import Sized
from loopwright.schedule.open.numbers import (
    CLAMPED,
    MOST_SIZES,
    PLAIN,
    at_sizes,
    loads,
    structure,
    with_numbers,
    without_hints,
)
from loopwright.schedule.open.prepared import check_prepared
from loopwright.schedule.open.products import Array, even_shares
from loopwright.schedule.open.retarget import check_values, divides, retargeted, shapes_at
from loopwright.schedule.open.samples import drawn
from loopwright.schedule.open.unify import Structure, Unification, Unified
from loopwright.schedule.program.buffer_reuse import Shapes
from loopwright.schedule.program.nest import extent, in_place, nests
from loopwright.schedule.program.padding import pads_some
from loopwright.schedule.program.plan import has_reuse
from loopwright.schedule.registry import Named, rows_of_even_blocks
from loopwright.schedule.sketch.naming import SketchName
from loopwright.schedule.sketch.sketch import Config, Sketch, unrolls
from loopwright.schedule.space import find_sketch
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Buffer, Tree
from loopwright.schedule.tree.parts import allocated, rebuffered
from loopwright.schedule.tree.verifier import holds, legal

_TILE, _UNROLL, _BLOCK = "tile", "unroll", "block"
_COMPARED = 4  # sizes at which shapes are compared, beside the least and the greatest
_BLOCKS_OF_A_THREAD = 16  # of which a quarter is left at a quarter of the size


@dataclass(frozen=True)
class OpenProgram:
    """A config lowered for all sizes of a box: `dims` with the bounds for which it is right."""

    target: Target
    config: Config
    dims: tuple[Dim, ...]
    tree: Tree
    sketch: Sketch
    """The sketch at the sizes that it was made for."""
    made_for: tuple[Mapping[str, int], ...]
    """Sizes that the config was chosen for."""

    def takes(self, sizes: Mapping[str, int]) -> bool:
        """Return whether it is right for values of the dims."""
        return all(d.low <= sizes[d.name] <= d.high for d in self.dims)


def open_program(
    workload: Sized, target: Target, config: Config, made_for: Mapping[str, int]
) -> OpenProgram:
    """Lower a config of `workload.at(**made_for)` for as large a box of sizes around that as it
    is right for.

    Raises `ConfigError` where it has no form for other sizes: a number that follows none of the
    formulas that are tried. Raises `SizedConstantsError` where a preparation depends on a size.
    """
    plain = general(workload, target, config, made_for)
    return _opened(Named(workload), target, plain, tuple(made_for.items()))


@functools.lru_cache(maxsize=256)
def _opened(
    named: Named, target: Target, config: Config, made_for: tuple[tuple[str, int], ...]
) -> OpenProgram:
    return _Opening(named.workload, target, config, dict(made_for)).program()


def general(
    workload: Sized, target: Target, config: Config, made_for: Mapping[str, int]
) -> Config:
    """The config that is opened for one of `workload.at(**made_for)`: without what suits these
    sizes alone. Raises `ConfigError` where there is no such sketch."""
    return _general(Named(workload), target, config, tuple(made_for.items()))


@functools.lru_cache(maxsize=256)
def _general(
    named: Named, target: Target, config: Config, made_for: tuple[tuple[str, int], ...]
) -> Config:
    workload, sizes = named.workload, dict(made_for)
    sketch = find_sketch(workload.at(**sizes), target, config.sketch)
    whole = _undivided(workload, target, config, sketch, sizes)
    return rolled(workload, target, _finer(whole, target, sketch), sketch)


@dataclass(eq=False)
class _Known:
    """What is known of a sketch of a workload with dims, whatever the config."""

    workload: Sized
    target: Target
    forms: dict[Any, Unified] = field(default_factory=dict)
    """The last form of each structure that its trees have."""
    _at: dict[tuple[int, ...], Sketch | str] = field(default_factory=dict)
    _others: Shapes | None = None

    def at(self, sizes: Mapping[str, int], sketch: Sketch) -> Sketch:
        """The sketch at some sizes, given that at any. Raises `ConfigError` where it has none."""
        key = tuple(sizes[d.name] for d in self.workload.dims)
        if key not in self._at:
            try:
                self._at[key] = retargeted(
                    sketch, self.workload.at(**sizes), self.target, self._shapes(sketch)
                )
            except ConfigError as error:
                self._at[key] = str(error)
        found = self._at[key]
        if isinstance(found, str):
            raise ConfigError(found)
        return found

    def _shapes(self, sketch: Sketch) -> Shapes:
        """The shapes of its tensors at a few sizes: those that differ at one of them have other
        formulas, though they may be equal where one dim is as large as another."""
        if self._others is None:
            dims = self.workload.dims
            there = (self.workload.at(**named(dims, s)) for s in drawn(dims, _COMPARED))
            self._others = shapes_at(sketch, there, self.target)
        return self._others


def _known(workload: Sized, target: Target, sketch: Sketch) -> _Known:
    # One loop may be a row in one sketch and rows that are merged in another.
    names = tuple((*map(str, n.nest.axes), "|", *map(str, n.nest.reduce)) for n in sketch.nests)
    return _known_of(Named(workload), target, sketch.name, (*names, tuple(sketch.knobs_of)))


@functools.lru_cache(maxsize=64)
def _known_of(
    named: Named, target: Target, name: SketchName, structure: tuple[tuple[Any, ...], ...]
) -> _Known:
    return _Known(named.workload, target)


class _Opening(Unification):
    """The structure of a config's trees."""

    def __init__(
        self, workload: Sized, target: Target, config: Config, made_for: Mapping[str, int]
    ) -> None:
        self.workload, self.target, self.made_for = workload, target, dict(made_for)
        self.sketch = find_sketch(workload.at(**made_for), target, config.sketch)
        self.config, self.verified = config, False
        self.seen = _known(workload, target, self.sketch)
        self.open_sums = self._open_sums(workload.dims)
        self.pads_some = pads_some(nests(workload.at(**made_for)))
        self.clamped: set[int] = set()
        self.scopes: dict[str, set[str]] = {}
        self.moved: set[str] = set()
        chosen = [n for _, choice in self.config.values for n in choice]
        rows = rows_of_even_blocks(config.sketch.derivation)
        known = [share for most in rows for share in even_shares(workload.dims, most)]
        known += getattr(workload, "parts", ())
        super().__init__(workload.dims, made_for, chosen, known=known)

    def program(self) -> OpenProgram:
        self._lowered(self.made_for)  # whose error says what is wrong
        box = self.unified([*self.seen.forms.values()])
        own = self._lowered(self.made_for).row(0, prune=False)
        tree = with_numbers(own, box.formulas, self.clamped)
        if not holds(at_sizes(without_hints(tree), grid(box.dims))):
            # Some size of the box is not right, so each tree is verified that is tried.
            self.verified = True
            self._found.clear()
            box = self.unified()
            tree = with_numbers(own, box.formulas, self.clamped)
            if not holds(at_sizes(without_hints(tree), grid(box.dims))):
                raise ConfigError(f"{self.config} leaves its buffers at some size")
        check_prepared(tree)
        self.seen.forms[box.kind] = box
        return OpenProgram(self.target, self.config, box.dims, tree, self.sketch, (self.made_for,))

    def structure(self, sizes: Mapping[str, int]) -> Structure | None:
        try:
            tree = self._lowered(sizes)
        except ConfigError:
            return None
        if self.verified and not legal(without_hints(tree)).all():
            return None
        for buffer in allocated(tree.body):
            self.scopes.setdefault(buffer.name, set()).add(buffer.scope)
        return structure(tree)

    def widened(self) -> bool:
        """What is too large for the stack at some sizes lies on the heap at all."""
        both = {name for name, scopes in self.scopes.items() if len(scopes) > 1}
        is_new = not both <= self.moved
        self.moved |= both
        return is_new

    def same(self, kind: Any) -> bool:
        """Loads that leave a padded array at its own sizes may stay inside at others. Where the
        padded one may be another tensor, it is the other way round, too. What is too large for the
        stack here may lie there at others."""
        if kind == self.kind:
            return True
        wider = [(CLAMPED, PLAIN), ("heap", "register")]
        wider += [(PLAIN, CLAMPED)] if self.pads_some else []
        fits = len(kind) == len(self.kind) and all(
            ours == other or (ours, other) in wider for ours, other in zip(self.kind, kind)
        )
        if fits and self.pads_some:
            self.clamped.update(n for n, how in enumerate(loads(kind)) if how == CLAMPED)
        return fits

    def _lowered(self, sizes: Mapping[str, int]) -> Tree:
        """The batched tree of the config at some sizes, loops that do not run included."""
        sketch = self.seen.at(sizes, self.sketch)
        check_values(sketch, self.target, self.config)
        nests = tuple(replace(n, cut=k not in self.open_sums) for k, n in enumerate(sketch.nests))
        sketch = replace(sketch, nests=nests)
        values = {name: tuple(choice) for name, choice in self.config.values}
        tree = lower_columns(sketch, self.target, values, 1)
        if not self.moved:
            return tree

        def placed(buffer: Buffer) -> Buffer:
            return replace(buffer, scope="heap") if buffer.name in self.moved else buffer

        return replace(tree, body=tuple(rebuffered(stmt, placed) for stmt in tree.body))

    def _open_sums(self, dims: tuple[Dim, ...]) -> set[int]:
        """The numbers of the nests whose sums have other lengths at other sizes. They are not cut
        into blocks, since no block divides all of these."""
        found = set()
        # An axis of one element is none, so the next size is tried too.
        ends = [(d, v) for d in dims for v in (d.low, min(d.low + d.multiple, d.high), d.high)]
        for d, value in ends:
            other = {**self.made_for, d.name: value}
            with contextlib.suppress(ConfigError):
                made = self.seen.at(other, self.sketch)
                for k, (here, there) in enumerate(zip(self.sketch.nests, made.nests, strict=True)):
                    if [*map(extent, here.reduce)] != [*map(extent, there.reduce)]:
                        found.add(k)
        return found


def _undivided(
    workload: Sized, target: Target, config: Config, sketch: Sketch, made_for: Mapping[str, int]
) -> Config:
    """A config whose blocks that are all of an axis are that at the greatest sizes, too. So one
    program serves all sizes at which nothing is shared among threads."""
    values = dict(config.values)
    known = _known(workload, target, sketch)
    greatest = {d.name: d.high for d in workload.dims}
    for sizes in (greatest, *({**made_for, name: high} for name, high in greatest.items())):
        with contextlib.suppress(ConfigError):
            there = known.at(sizes, sketch)
            for here, most, leader in zip(sketch.nests, there.nests, sketch.knobs_of, strict=True):
                tile = dict(zip(here.tile, values.get(f"{_TILE}{leader}", ())))
                for place, (axis, same) in enumerate(zip(here.nest.axes, most.nest.axes)):
                    name, size = f"{_BLOCK}{place}_{leader}", tile.get(axis, 1)
                    if name in values and values[name][0] * size >= extent(axis):
                        values[name] = (max(values[name][0], -(-extent(same) // size)),)
    return replace(config, values=tuple(values.items()))


def _finer(config: Config, target: Target, sketch: Sketch) -> Config:
    """A config with many blocks of what is read once, where it has some. So many as are even for
    the threads at one size are not at smaller ones, where fewer are left."""
    values = dict(config.values)
    read_again = {
        leader
        for nest, leader in zip(sketch.nests, sketch.knobs_of, strict=True)
        if nest.packed or has_reuse(nest.nest)
    }
    for nest, leader in zip(sketch.nests, sketch.knobs_of, strict=True):
        tile = dict(zip(nest.tile, values.get(f"{_TILE}{leader}", ())))
        for place, axis in enumerate(nest.nest.axes):
            name, tiles = f"{_BLOCK}{place}_{leader}", -(-extent(axis) // tile.get(axis, 1))
            if name in values and values[name][0] < tiles and leader not in read_again:
                most = max(1, tiles // (_BLOCKS_OF_A_THREAD * target.threads))
                values[name] = (min(values[name][0], most),)
                break
    return replace(config, values=tuple(values.items()))


def rolled(workload: Sized, target: Target, config: Config, sketch: Sketch) -> Config:
    """A config without unroll factors, and tiles of what is changed in place, that do not divide
    a loop at every size: of those that do, the largest."""
    values = dict(config.values)
    whole = {f"{_TILE}{k}" for n, k in zip(sketch.nests, sketch.knobs_of) if in_place(n.nest)}
    common = {
        k.name: tuple({*k.choices, (1,) * len(values[k.name])})
        for k in sketch.knobs
        if k.name.startswith(_UNROLL) or k.name in whole
    }
    others = {n: (1,) * len(v) for n, v in values.items() if n in common}
    plain = replace(config, values=tuple({**values, **others}.items()))
    known = _known(workload, target, sketch)
    for sizes in drawn(workload.dims) if common else ():
        there = named(workload.dims, sizes)
        with contextlib.suppress(ConfigError):
            made = known.at(there, sketch)
            check_values(made, target, plain)
            for nest, leader in zip(made.nests, made.knobs_of, strict=True):
                if (name := f"{_UNROLL}{leader}") in common:
                    factors = unrolls([extent(k) for k in nest.unrolled])
                    common[name] = tuple(c for c in common[name] if c in factors)
                if (name := f"{_TILE}{leader}") in whole:
                    common[name] = tuple(c for c in common[name] if divides(c, nest))
    for name, choices in common.items():
        if values[name] not in choices:
            values[name] = max(choices, key=math.prod)
    return replace(config, values=tuple(values.items()))


def grid(dims: Sequence[Dim]) -> dict[str, Array]:
    """The values of every dim, along an axis of its own: what follows a few of the dims is
    worked out for their values alone, not for all combinations with those of the others.

    Raises `ConfigError` where a dim has too many values.
    """
    for d in dims:
        if (many := len(d.values)) > MOST_SIZES:
            raise ConfigError(
                f"{many} sizes ({d}) are more than the {MOST_SIZES} that are verified: give the "
                "dim narrower bounds or a multiple"
            )
    return {
        d.name: np.array(d.values).reshape([-1 if k == place else 1 for k in range(len(dims))])
        for place, d in enumerate(dims)
    }
