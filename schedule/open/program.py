"""A config's program for a box of sizes, found by lowering it at some of them."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.size import Dim
from loopwright.dsl.workload import Workload
from loopwright.schedule.lowering import lower_columns
from loopwright.schedule.open.fit import Array, Fit, divisors
from loopwright.schedule.open.numbers import at_sizes, structure, with_numbers, without_hints
from loopwright.schedule.open.retarget import retargeted
from loopwright.schedule.program.nest import extent
from loopwright.schedule.sketch.sketch import Config, Sketch, unrolls
from loopwright.schedule.space import find_sketch
from loopwright.schedule.target import Target
from loopwright.schedule.tree.formula import Formula
from loopwright.schedule.tree.grammar import Tree
from loopwright.schedule.tree.verifier import legal

_DRAWN = 24  # sizes at which a config is lowered first
_STEPS = 1  # of a formula's last and other steps, around which it is lowered again
_ROUNDS = 8
_MOST_DIVISOR = 1 << 20
_AT_ONCE = 1 << 15  # sizes that are verified at once
_MOST_SIZES = 1 << 22
_UNROLL = "unroll"


@dataclass(frozen=True)
class OpenProgram:
    """A config lowered for all sizes of a box: `dims` with the bounds for which it is right."""

    workload: Workload
    target: Target
    config: Config
    dims: tuple[Dim, ...]
    tree: Tree
    sketch: Sketch
    """Of the sizes that it was made for."""
    made_for: tuple[Mapping[str, int], ...]
    """Sizes that the config was chosen for."""

    def takes(self, sizes: Mapping[str, int]) -> bool:
        """Return whether it is right for values of the dims."""
        return all(d.low <= sizes[d.name] <= d.high for d in self.dims)


def open_program(
    workload: Workload, target: Target, config: Config, made_for: Mapping[str, int]
) -> OpenProgram:
    """Lower a config of `workload.at(**made_for)` for as large a box of sizes around that as it
    is right for.

    Raises `ConfigError` where it has no form for other sizes: a number that follows none of the
    formulas that are tried.
    """
    return _opened(workload, target, config, tuple(made_for.items()))


@functools.lru_cache(maxsize=256)
def _opened(
    workload: Workload, target: Target, config: Config, made_for: tuple[tuple[str, int], ...]
) -> OpenProgram:
    return _Opening(workload, target, config, dict(made_for)).program()


class _Opening:
    def __init__(
        self, workload: Workload, target: Target, config: Config, made_for: Mapping[str, int]
    ) -> None:
        self.workload, self.target, self.config = workload, target, config
        self.made_for = dict(made_for)
        self.found: dict[tuple[int, ...], tuple[Any, tuple[int, ...]] | None] = {}
        self.names = [d.name for d in workload.dims]
        self._own = np.array([made_for[name] for name in self.names])
        self.formulas: dict[int, Formula] = {}
        self.sketch = find_sketch(workload.at(**made_for), target, config.sketch)
        self.config = rolled(self.workload, self.target, self.config, self.sketch)
        self.tree = self._lowered(tuple(made_for[name] for name in self.names))
        self.kind, self.numbers = structure(self.tree)

    def program(self) -> OpenProgram:
        dims = self.workload.dims
        for at in range(len(dims)):
            dims = (*dims[:at], self._range(dims, at), *dims[at + 1 :])
        for _ in range(_ROUNDS):
            tree, cut = self._fitted(dims)
            cut = cut or self._cut(dims)
            if cut is None:
                self._verify(dims, tree)
                return OpenProgram(
                    self.workload,
                    self.target,
                    self.config,
                    dims,
                    tree,
                    self.sketch,
                    (self.made_for,),
                )
            dims = cut
        raise ConfigError(f"{self.config} has no form for sizes other than {self.made_for}")

    # ---- one size ----

    def _lowered(self, sizes: tuple[int, ...]) -> Tree:
        """The tree of the config at some sizes, loops that do not run included."""
        fixed = self.workload.at(**dict(zip(self.names, sizes, strict=True)))
        sketch = retargeted(self.sketch, fixed, self.target, self.config)
        values = {name: tuple(choice) for name, choice in self.config.values}
        made = lower_columns(sketch, self.target, values, 1)
        return without_hints(made.row(0, prune=False))

    def _at(self, sizes: tuple[int, ...]) -> tuple[Any, tuple[int, ...]] | None:
        """The structure and the numbers at some sizes; None where the config has no program."""
        if sizes not in self.found:
            self.found[sizes] = self._structure(sizes)
        return self.found[sizes]

    def _structure(self, sizes: tuple[int, ...]) -> tuple[Any, tuple[int, ...]] | None:
        try:
            tree = self._lowered(sizes)
        except ConfigError:
            return None
        return structure(tree) if legal(tree).all() else None

    def _fits(self, sizes: tuple[int, ...]) -> bool:
        found = self._at(sizes)
        return found is not None and found[0] == self.kind

    # ---- the box ----

    def _range(self, dims: Sequence[Dim], at: int) -> Dim:
        """The bounds of a dim between which the tree has one structure, others as made for."""
        known, own = dims[at], self.made_for[dims[at].name]

        def fits(value: int) -> bool:
            sizes = {**self.made_for, known.name: value}
            return self._fits(tuple(sizes[name] for name in self.names))

        def last(values: Sequence[int]) -> int:
            """The last of these that fits, where the first one does: by a few that lie evenly in
            the logarithm, then by halves."""
            good, bad = 0, len(values)
            probes = sorted({int(p) for p in np.geomspace(1, len(values), 8)} | {len(values) - 1})
            while bad - good > 1:
                some = (probe for probe in probes if good < probe < bad)
                probe = next(some, (good + bad) // 2)
                good, bad = (probe, bad) if fits(values[probe]) else (good, probe)
            return values[good]

        step = known.multiple
        low = last(range(own, known.low - 1, -step))
        high = last(range(own, known.high + 1, step))
        return replace(known, low=low, high=high)

    # ---- formulas ----

    def _fitted(self, dims: tuple[Dim, ...]) -> tuple[Tree, tuple[Dim, ...] | None]:
        """The tree with formulas that hold at all sizes of the box that were lowered; where a
        number has none, the smaller box in which it may be constant."""
        for sizes in drawn(dims):
            self._at(sizes)
        samples = [
            (sizes, found[1])
            for sizes, found in self.found.items()
            if found is not None and found[0] == self.kind and _inside(sizes, dims)
        ]
        where = np.array([sizes for sizes, _ in samples], np.int64)
        table = np.array([numbers for _, numbers in samples], np.int64)
        constant = [int(c[0]) for c in table.T if (c == c[0]).all()]
        chosen = [n for _, choice in self.config.values for n in choice]
        fit = Fit(
            dims,
            {d.name: where[:, k] for k, d in enumerate(dims)},
            divisors([*constant, *chosen], _MOST_DIVISOR),
            table,
        )
        distinct = {c.tobytes(): c for c in table.T if (c != c[0]).any()}
        found = fit.formulas(list(distinct.values()))
        known = dict(zip(distinct, found, strict=True))
        formulas: dict[int, Any] = {}
        for place, values in enumerate(table.T):
            if (key := values.tobytes()) not in known:
                continue
            if (made := known[key]) is None:
                other = where[values != self.numbers[place]]
                nearest = np.abs(np.log(other / self._own)).max(axis=1).argmin()
                return self.tree, _without(dims, other[nearest].tolist(), self.made_for)
            formulas[place] = made
        self.formulas = formulas
        return with_numbers(self.tree, formulas), None

    def _cut(self, dims: tuple[Dim, ...]) -> tuple[Dim, ...] | None:
        """None if the formulas hold wherever they are tried; else the box to try next, which is a
        smaller one if the structure is another at some size."""
        wrong = False
        for sizes in self._tried(dims):
            found = self._at(sizes)
            if found is None or found[0] != self.kind:
                return _without(dims, sizes, self.made_for)
            values = dict(zip(self.names, sizes, strict=True))
            wrong |= any(f.at(values) != found[1][place] for place, f in self.formulas.items())
        return dims if wrong else None

    def _tried(self, dims: tuple[Dim, ...]) -> list[tuple[int, ...]]:
        """Sizes at which formulas step, the first ones, the last ones and some between; for each
        dim, with the others at their ends."""
        tried: list[tuple[int, ...]] = list(drawn(dims))
        rng = np.random.default_rng(0)
        for at, known in enumerate(dims):
            values = np.arange(known.low, known.high + 1, known.multiple)
            for ends in {tuple(d.low for d in dims), tuple(d.high for d in dims)}:
                grid = {d.name: np.full(len(values), e) for d, e in zip(dims, ends)}
                grid[known.name] = values
                for formula in {f for f in self.formulas.values() if _steps(f)}:
                    numbers = np.broadcast_to(formula.at(grid), values.shape)
                    second = np.flatnonzero(np.diff(numbers, n=2)) + 1
                    some = rng.choice(second, min(_STEPS, len(second)), replace=False)
                    for s in {*second[-_STEPS:], *some}:
                        for value in values[max(s - 1, 0) : s + 2]:
                            tried.append((*ends[:at], int(value), *ends[at + 1 :]))
        return list(dict.fromkeys(tried))

    def _verify(self, dims: tuple[Dim, ...], tree: Tree) -> None:
        """Prove the tree's subscripts at every size of the box. Raises `ConfigError`."""
        for grid, n in grids(dims):
            if not legal(at_sizes(tree, grid, n)).all():
                raise ConfigError(f"{self.config} leaves its buffers at some size")


def rolled(workload: Workload, target: Target, config: Config, sketch: Sketch) -> Config:
    """A config without unroll factors that do not divide a loop at every size: of those that do,
    the largest."""
    values = dict(config.values)
    common = {k.name: k.choices for k in sketch.knobs if k.name.startswith(_UNROLL)}
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
    for name, choices in common.items():
        if values[name] not in choices:
            values[name] = max(choices, key=math.prod)
    return replace(config, values=tuple(values.items()))


def drawn(dims: Sequence[Dim]) -> Iterator[tuple[int, ...]]:
    """Sizes in a box: its corners, and others drawn evenly in the logarithm and in number."""
    yield tuple(d.low for d in dims)
    yield tuple(d.high for d in dims)
    rng = np.random.default_rng(0)
    for number in range(_DRAWN):
        sizes = []
        for d in dims:
            u = rng.random()
            value = d.low * (d.high / d.low) ** u if number % 2 else d.low + u * (d.high - d.low)
            sizes.append(_allowed(value, d))
        yield tuple(sizes)


def grids(dims: Sequence[Dim]) -> Iterator[tuple[dict[str, Array], int]]:
    """All sizes of a box, in parts: an array of values for every dim, and how many there are.
    Raises `ConfigError` where there are too many."""
    counts = [(d.high - d.low) // d.multiple + 1 for d in dims]
    total = int(np.prod(counts, dtype=np.float64))
    if total > _MOST_SIZES:
        allowed = "; ".join(map(str, dims))
        raise ConfigError(
            f"{total} combinations of sizes ({allowed}) are more than the {_MOST_SIZES} that are "
            "verified: give the dims narrower bounds or a multiple"
        )
    for start in range(0, total, _AT_ONCE):
        flat = np.arange(start, min(start + _AT_ONCE, total))
        places = np.unravel_index(flat, counts)
        yield (
            {d.name: d.low + d.multiple * p for d, p in zip(dims, places, strict=True)},
            len(flat),
        )


def _allowed(value: float, known: Dim) -> int:
    steps = round((value - known.low) / known.multiple)
    return known.low + known.multiple * min(steps, (known.high - known.low) // known.multiple)


def _inside(sizes: Sequence[int], dims: Sequence[Dim]) -> bool:
    return all(d.low <= s <= d.high for s, d in zip(sizes, dims, strict=True))


def _without(
    dims: tuple[Dim, ...], sizes: Sequence[int], made_for: Mapping[str, int]
) -> tuple[Dim, ...]:
    """The box that is left on the side of `made_for`, without `sizes`: cut where least is lost."""
    best: tuple[float, tuple[Dim, ...]] | None = None
    for at, (known, size) in enumerate(zip(dims, sizes, strict=True)):
        own = made_for[known.name]
        if size == own:
            continue
        if size < own:
            cut = replace(known, low=size + known.multiple)
        else:
            cut = replace(known, high=size - known.multiple)
        kept = (cut.high - cut.low + known.multiple) / (known.high - known.low + known.multiple)
        if best is None or kept > best[0]:
            best = kept, (*dims[:at], cut, *dims[at + 1 :])
    assert best is not None, "its own size fits"
    return best[1]


def _steps(formula: Formula) -> bool:
    """Return whether a formula is more than a sum of products."""
    return formula.op in ("floordiv", "min") or any(
        _steps(x) for x in formula.args if isinstance(x, Formula)
    )
