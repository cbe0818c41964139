"""A config's program for a box of sizes, found by lowering it at some of them."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.size import Dim
from loopwright.schedule.lowering import lower_columns
from loopwright.schedule.open.family import Sized
from loopwright.schedule.open.fit import Array
from loopwright.schedule.open.numbers import (
    MOST_SIZES,
    at_sizes,
    structure,
    with_numbers,
    without_hints,
)
from loopwright.schedule.open.retarget import divides, retargeted
from loopwright.schedule.open.unify import Structure, Unification, drawn
from loopwright.schedule.program.nest import extent, in_place
from loopwright.schedule.sketch.sketch import Config, Sketch, unrolls
from loopwright.schedule.space import find_sketch
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Tree
from loopwright.schedule.tree.verifier import holds, legal

_TILE, _UNROLL = "tile", "unroll"


@dataclass(frozen=True)
class OpenProgram:
    """A config lowered for all sizes of a box: `dims` with the bounds for which it is right."""

    workload: Sized
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
    formulas that are tried.
    """
    return _opened(workload, target, config, tuple(made_for.items()))


@functools.lru_cache(maxsize=256)
def _opened(
    workload: Any, target: Target, config: Config, made_for: tuple[tuple[str, int], ...]
) -> OpenProgram:
    return _Opening(workload, target, config, dict(made_for)).program()


class _Opening(Unification):
    """The structure of a config's trees."""

    def __init__(
        self, workload: Sized, target: Target, config: Config, made_for: Mapping[str, int]
    ) -> None:
        self.workload, self.target, self.made_for = workload, target, dict(made_for)
        self.sketch = find_sketch(workload.at(**made_for), target, config.sketch)
        self.config = rolled(workload, target, config, self.sketch)
        self.open_sums = self._open_sums(workload.dims)
        chosen = [n for _, choice in self.config.values for n in choice]
        super().__init__(workload.dims, made_for, chosen, known=getattr(workload, "parts", ()))

    def program(self) -> OpenProgram:
        own = self._lowered(self.made_for)
        box = self.unified()
        tree = with_numbers(own, box.formulas)
        self._verify(box.dims, tree)
        return OpenProgram(
            self.workload,
            self.target,
            self.config,
            box.dims,
            tree,
            self.sketch,
            (self.made_for,),
        )

    def structure(self, sizes: Mapping[str, int]) -> Structure | None:
        try:
            tree = self._lowered(sizes)
        except ConfigError:
            return None
        return structure(tree) if legal(without_hints(tree)).all() else None

    def _lowered(self, sizes: Mapping[str, int]) -> Tree:
        """The tree of the config at some sizes, loops that do not run included."""
        fixed = self.workload.at(**sizes)
        sketch = retargeted(self.sketch, fixed, self.target, self.config)
        nests = tuple(replace(n, cut=k not in self.open_sums) for k, n in enumerate(sketch.nests))
        sketch = replace(sketch, nests=nests)
        values = {name: tuple(choice) for name, choice in self.config.values}
        made = lower_columns(sketch, self.target, values, 1)
        return made.row(0, prune=False)

    def _open_sums(self, dims: tuple[Dim, ...]) -> set[int]:
        """The numbers of the nests whose sums have other lengths at other sizes. They are not cut
        into blocks, since no block divides all of these."""
        found = set()
        # An axis of one element is none, so the next size is tried too.
        ends = [(d, v) for d in dims for v in (d.low, min(d.low + d.multiple, d.high), d.high)]
        for d, value in ends:
            other = self.workload.at(**{**self.made_for, d.name: value})
            with contextlib.suppress(ConfigError):
                made = retargeted(self.sketch, other, self.target, self.config)
                for k, (here, there) in enumerate(zip(self.sketch.nests, made.nests, strict=True)):
                    if [*map(extent, here.reduce)] != [*map(extent, there.reduce)]:
                        found.add(k)
        return found

    def _verify(self, dims: tuple[Dim, ...], tree: Tree) -> None:
        """Prove the tree's subscripts at every size of the box. Raises `ConfigError`."""
        if not holds(at_sizes(without_hints(tree), grid(dims))):
            raise ConfigError(f"{self.config} leaves its buffers at some size")


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
    for sizes in drawn(workload.dims) if common else ():
        fixed = workload.at(**dict(zip((d.name for d in workload.dims), sizes, strict=True)))
        with contextlib.suppress(ConfigError):
            made = retargeted(sketch, fixed, target, plain)
            for nest, leader in zip(made.nests, made.knobs_of, strict=True):
                if (name := f"{_UNROLL}{leader}") in common:
                    there = unrolls([extent(k) for k in nest.unrolled])
                    common[name] = tuple(c for c in common[name] if c in there)
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
        if (many := (d.high - d.low) // d.multiple + 1) > MOST_SIZES:
            raise ConfigError(
                f"{many} sizes ({d}) are more than the {MOST_SIZES} that are verified: give the "
                "dim narrower bounds or a multiple"
            )
    return {
        d.name: np.arange(d.low, d.high + 1, d.multiple).reshape(
            [-1 if k == place else 1 for k in range(len(dims))]
        )
        for place, d in enumerate(dims)
    }
