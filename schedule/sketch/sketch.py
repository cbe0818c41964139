"""Sketches, knobs, configs: the structure of a program, its open numbers, and a choice of them."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.scans import Scan
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.words import brief
from loopwright.dsl.workload import Workload
from loopwright.schedule.program.nest import Nest, is_order
from loopwright.schedule.program.plan import FusionGroup
from loopwright.schedule.program.predicates import Predicates, predicates
from loopwright.schedule.sketch.hand import HandNest
from loopwright.schedule.sketch.kernel import KernelSketch
from loopwright.schedule.sketch.naming import Derivation, SketchName
from loopwright.schedule.tree.grammar import Column

Choice = tuple[int, ...]

_MAX_UNROLL = 9  # iterations: a 3×3 window; more costs build time and gains nothing


@dataclass(frozen=True)
class Knob:
    """One open choice of a sketch: one of `choices`, each a tuple of integers."""

    name: str
    choices: tuple[Choice, ...]

    def number(self, value: object) -> int:
        """Number of the choice that a value is; an integer stands for a tuple of one."""
        choice = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        if choice not in self.choices:
            shown = ", ".join(map(_plain, self.choices[:12]))
            more = f", … ({len(self.choices)} in all)" if len(self.choices) > 12 else ""
            raise ConfigError(f"{self.name} = {value!r} is not allowed; use one of {shown}{more}")
        return self.choices.index(choice)

    @functools.cached_property
    def table(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The choices as an array of shape (choices, numbers of a choice)."""
        return np.array(self.choices, np.int64).reshape(len(self.choices), -1)


@dataclass(frozen=True)
class Packed:
    """An operand that is re-laid out before its nest, in the order in which the tile reads it.

    The operand is read as `tensor[index]`. The copy has axes [outer…, tile of `axis`, inner…,
    within the tile]; its last tile overlaps the one before it where tiles do not divide. A `local`
    copy is made inside of the nest, one tile at a time: [inner…, within the tile]. Its inner axes
    may include one of the result, whose middle loop then stands inside of the copy.
    """

    tensor: Tensor
    index: tuple[Affine, ...]
    axis: Index
    outer: tuple[Index, ...]
    inner: tuple[Index, ...]
    local: bool = False

    @property
    def name(self) -> str:
        return f"{self.tensor.name}_packed"


@dataclass(frozen=True)
class NestSketch:
    """Structure of the loops of one nest; the sizes are left to knobs.

    Attributes
    ----------
    vector: the axis whose neighbours share a vector register: a spatial one, or a reduction
        axis (partial results per lane, combined at the end); None for scalar code.
    tiled: further spatial axes of the register tile.
    order: the middle loops, outermost first.
    reduce: the reduction loops, outermost first.
    packed: operands that are re-laid out first.
    cut: whether a long sum is cut into blocks, whose number divides it.
    scan: the running result that its innermost loop keeps, along an axis without a middle loop.
    """

    nest: Nest
    vector: Index | None
    tiled: tuple[Index, ...]
    order: tuple[Index, ...]
    reduce: tuple[Index, ...]
    packed: tuple[Packed, ...] = ()
    cut: bool = True
    scan: Scan | None = None

    @property
    def tile(self) -> tuple[Index, ...]:
        """The axes of the register tile, the vector axis last; the "tile" knob has their sizes."""
        return self.tiled if self.vector is None else (*self.tiled, self.vector)

    @property
    def unrolled(self) -> tuple[Index, ...]:
        """The reduction loops whose unroll factors the "unroll" knob has: the last two,
        but for those that are written out anyway, or leave steps out."""
        if self.nest.sparse is not None or self.scan is not None or is_order(self.nest):
            return ()
        last = [k for k in self.reduce if k != self.vector][-2:]
        return tuple(k for k in last if k not in self.predicates.taps)

    @functools.cached_property
    def predicates(self) -> Predicates:
        """The predicates of its sum."""
        return predicates(self.nest, self.vector, self.tiled)

    def __str__(self) -> str:
        names = [*self.nest.axes, *self.nest.reduce]
        parts = [f"vector={'-' if self.vector is None else names.index(self.vector)}"]
        for label, axes in (("tile", self.tiled), ("order", self.order), ("reduce", self.reduce)):
            if axes:
                parts.append(f"{label}={'.'.join(str(names.index(a)) for a in axes)}")
        reads = list(dict.fromkeys(r.tensor for r in self.nest.reads()))
        if self.packed:
            packs = (f"{reads.index(p.tensor)}{_kind(p, self.nest)}" for p in self.packed)
            parts.append(f"pack={'.'.join(packs)}")
        return " ".join(parts)


def _kind(packed: Packed, nest: Nest) -> str:
    spans = any(a in nest.axes for a in packed.inner)
    return "block" if spans else "local" * packed.local


@dataclass(frozen=True)
class Sketch:
    """A structure for a whole workload: one nest sketch per nest, and their knobs."""

    name: SketchName
    workload: Workload
    groups: tuple[FusionGroup, ...]
    nests: tuple[NestSketch, ...]
    """For processors, how each nest becomes loops."""
    knobs: tuple[Knob, ...]
    default: tuple[int, ...]
    error_growth: float = 1.0
    """Factor by which rounding errors are expected to exceed those of the definition's own
    sums."""
    numerics: Numerics = Numerics.STRICT
    """Numerics that it keeps of the definition's."""
    knobs_of: tuple[int, ...] = ()
    """For every nest the number of the one whose knobs it has: its own, or one that is alike."""
    kernels: tuple[KernelSketch, ...] = ()
    """For GPUs, how each group becomes a kernel; `knobs_of` numbers these then."""
    hand: tuple[HandNest, ...] = ()
    """For processors, the loops of each nest where they are scheduled by hand."""

    @property
    def has_loops(self) -> bool:
        """Return whether it can be lowered; a table of known costs cannot."""
        return bool(self.nests or self.kernels or self.hand)

    @property
    def derivation(self) -> Derivation:
        """The rewrites that make its program."""
        return self.name.derivation

    @property
    def algorithm(self) -> Derivation:
        """The derivation, but for how many rows or tiles are computed at a time."""
        return self.derivation.algorithm

    @property
    def size(self) -> int:
        """Configs of this sketch."""
        return math.prod(len(k.choices) for k in self.knobs)

    def config(self, **values: object) -> Config:
        """The default config with some knobs set: `sketch.config(tile0=(6, 16))`."""
        return self.at(self.default).replace(self, **values)

    def at(self, numbers: Sequence[int]) -> Config:
        """The config with these choices, by number."""
        pairs = zip(self.knobs, numbers, strict=True)
        return Config(self.name, tuple((k.name, k.choices[int(n)]) for k, n in pairs))

    def numbers(self, config: Config) -> tuple[int, ...]:
        """The choices of a config, by number; `ConfigError` if it is not one of this sketch."""
        given = dict(config.values)
        missing = [k.name for k in self.knobs if k.name not in given]
        unknown = sorted(set(given) - {k.name for k in self.knobs})
        if missing or unknown:
            raise ConfigError(
                f"the knobs of this sketch are {', '.join(k.name for k in self.knobs)}; the config"
                + (f" lacks {', '.join(missing)}" if missing else "")
                + (f" has an unknown {', '.join(unknown)}" if unknown else "")
            )
        return tuple(k.number(given[k.name]) for k in self.knobs)

    def columns(self, numbers: np.ndarray[Any, Any]) -> dict[str, tuple[Column, ...]]:
        """Knob values for a batch: `numbers` has shape (configs, knobs); columns come back."""
        result: dict[str, tuple[Column, ...]] = {}
        for d, knob in enumerate(self.knobs):
            values = knob.table[numbers[:, d]]
            result[knob.name] = tuple(np.ascontiguousarray(v) for v in values.T)
        return result


@dataclass(frozen=True)
class Config:
    """One point of a space, the paper's s: a sketch by name and a choice for every knob."""

    sketch: SketchName
    values: tuple[tuple[str, Choice], ...]

    def replace(self, sketch: Sketch, **values: object) -> Config:
        """The same config with some knobs set to other choices."""
        known = {k.name: k for k in sketch.knobs}
        new = dict(self.values)
        for name, value in values.items():
            if name not in known:
                raise ConfigError(f"no knob {name!r}; this sketch has {', '.join(known)}")
            new[name] = known[name].choices[known[name].number(value)]
        return Config(self.sketch, tuple(new.items()))

    def to_json(self) -> dict[str, Any]:
        return {
            "derivation": self.sketch.derivation.to_json(),
            "sketch": self.sketch.structure,
            "values": {k: list(v) for k, v in self.values},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Config:
        """Read what `to_json` wrote; whether it fits a space is checked when it is used there."""
        try:
            values = tuple((str(k), tuple(int(n) for n in v)) for k, v in data["values"].items())
            derivation = Derivation.from_json(data["derivation"])
            return Config(SketchName(derivation, str(data["sketch"])), values)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise ConfigError(f"a damaged config: {error!r} in {data!r}") from error

    def __str__(self) -> str:
        return f"[{self.sketch}] " + " ".join(f"{k}={_plain(v)}" for k, v in self.values)

    def __repr__(self) -> str:
        return f"<Config {self}>"


def check_config(config: object) -> None:
    """Raise `ConfigError` for what is neither a config nor None."""
    if not isinstance(config, Config | None):
        raise ConfigError(
            f"{brief(config)} is no config: give a point of the workload's "
            "space, such as lw.space(workload).default or the config of what lw.tune returned, "
            "and a target by target="
        )


def _plain(choice: Choice) -> str:
    return str(choice[0]) if len(choice) == 1 else f"({', '.join(map(str, choice))})"


def counts(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, … up to `most`, and `most` itself."""
    steps = itertools.chain([1], *([2 << e, 3 << e] for e in range(40)))
    return [*itertools.takewhile(lambda q: q < most, steps), most]


def unrolls(extents: list[int]) -> list[Choice]:
    """Unroll factors of the last two reduction loops; the outer one's if the inner is whole."""
    last = [u for u in range(1, _MAX_UNROLL + 1) if extents[-1] % u == 0]
    if len(extents) == 1:
        return [(u,) for u in last]
    both: list[Choice] = [(1, u) for u in last]
    if extents[-1] in last:
        most = _MAX_UNROLL // extents[-1]
        both += [(u, extents[-1]) for u in range(2, most + 1) if extents[0] % u == 0]
    return both
