"""`Space`: every program that is considered for a workload on a target, the paper's S_e."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.words import html_table
from loopwright.dsl.workload import Workload
from loopwright.schedule.cpu.lower_hand import hand_sketch
from loopwright.schedule.cpu.sketches import CpuSketches
from loopwright.schedule.gpu.sketches import gpu_sketches
from loopwright.schedule.loops.nothing import refuse_nothing
from loopwright.schedule.lowering import lower
from loopwright.schedule.registry import Named, derive, variants
from loopwright.schedule.sketch.hand import is_hand
from loopwright.schedule.sketch.naming import Derivation, SketchName
from loopwright.schedule.sketch.sketch import Config, Sketch
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Target
from loopwright.schedule.tree.verifier import legal

_DRAWS = 100


@dataclass(frozen=True)
class Space:
    """The sketches of a workload; each has knobs, and a config sets them.

    `sketches[0].default` is the default config, chosen by rules of thumb.
    """

    workload: Workload
    target: Target
    sketches: tuple[Sketch, ...]
    numerics: Numerics = Numerics.STANDARD

    def __repr__(self) -> str:
        return (
            f"<Space of {', '.join(t.name for t in self.workload.outputs)}: sketches: "
            f"{len(self.sketches)}, configs: {self.size:.3g}, {self.numerics} numerics>"
        )

    def _repr_html_(self) -> str:
        rows = {
            "workload": self.workload,
            "target": self.target,
            "numerics": self.numerics,
            "sketches": len(self.sketches),
            "configs": f"{self.size:,}",
            "default": self.default,
        }
        return html_table("Space", rows)

    @functools.cached_property
    def data_dependent(self) -> tuple[Sketch, ...]:
        """The first sketch of each program whose time depends on values: no search draws them."""
        return _data_dependent(Named(self.workload), self.target, self.numerics)

    @functools.cached_property
    def whole(self) -> Space:
        """The space with the sketches whose time depends on values."""
        return replace(self, sketches=(*self.sketches, *self.data_dependent))

    @property
    def size(self) -> int:
        """Configs in all."""
        return sum(s.size for s in self.sketches)

    @property
    def default(self) -> Config:
        """The config that is used when none is given."""
        return self.sketches[0].at(self.sketches[0].default)

    def config(self, sketch: int | SketchName = 0, **values: object) -> Config:
        """A sketch's default config with some knobs set; sketches go by number or by name."""
        chosen = self.sketches[sketch] if isinstance(sketch, int) else self.sketch(sketch)
        return chosen.config(**values)

    def sketch(self, name: SketchName) -> Sketch:
        """The sketch of a name; `ConfigError` if there is none."""
        if name in self._by_name:
            return self._by_name[name]
        known = "\n  ".join(str(s.name) for s in self.sketches[:8])
        raise ConfigError(
            f"this workload has no sketch '{name}' on this target with {self.numerics} numerics; "
            f"among its {len(self.sketches)} sketches are\n  {known}"
        )

    @functools.cached_property
    def _by_name(self) -> dict[SketchName, Sketch]:
        return {s.name: s for s in self.sketches}

    def __contains__(self, config: object) -> bool:
        """Return whether a config is of this space; rules change between versions."""
        if not isinstance(config, Config):
            return False
        try:
            self.sketch(config.sketch).numbers(config)
        except ConfigError:
            return False
        return True

    def sample(self, rng: np.random.Generator) -> Config:
        """A config drawn evenly over sketches, and then over the choices of each knob. For a GPU
        it is drawn again until it is within the limits, or is the default one."""
        for _ in range(_DRAWS):
            sketch = self.sketches[rng.integers(len(self.sketches))]
            numbers = np.array([[int(rng.integers(len(k.choices))) for k in sketch.knobs]])
            gpu = self.target.gpu
            if gpu is None or legal(lower(sketch, self.target, numbers), gpu).all():
                return sketch.at(numbers[0].tolist())
        return self.default


def space(
    workload: Workload, target: Target, numerics: str | Numerics = Numerics.STANDARD
) -> Space:
    """Derive the space of a workload: the union of the spaces of its rewrites that `numerics`
    allows. Raises `ConfigError` for another word, and `NotationError` where a tensor has no
    elements."""
    refuse_nothing(workload)
    return _space(Named(workload), target, Numerics.of(numerics))


def default_sketch(
    workload: Workload, target: Target, numerics: Numerics, without: frozenset[str] = frozenset()
) -> Sketch:
    """The first sketch of a space, without deriving the others of its program; of one that has
    none of the rewrites `without`, for a processor."""
    return _default(Named(workload), target, numerics, without)


def sketches_of_each(
    workload: Workload, target: Target, numerics: Numerics
) -> list[tuple[Variant, tuple[Sketch, ...]]]:
    """Every program of a space with its sketches, in the space's order."""
    every: dict[Derivation, list[Sketch]] = {}
    for sketch in space(workload, target, numerics).sketches:
        every.setdefault(sketch.derivation, []).append(sketch)
    known = {v.derivation: v for v in variants(Named(workload), target, numerics)}
    return [(known[derivation], tuple(found)) for derivation, found in every.items()]


def find_sketch(workload: Workload, target: Target, name: SketchName) -> Sketch:
    """A sketch by its name; no other program is derived. Raises `ConfigError` if there is none."""
    return _found(Named(workload), target, name)


@functools.lru_cache(maxsize=256)
def _space(named: Named, target: Target, numerics: Numerics) -> Space:
    every: Iterable[Iterable[Sketch]]
    if target.gpu is None:
        every = _programs(named, target, numerics)
    else:
        ordered = sorted(variants(named, target, numerics), key=lambda v: v.prior)
        every = (gpu_sketches(variant, target.gpu) for variant in ordered)
    sketches = tuple(itertools.chain.from_iterable(every))
    if target.gpu is not None:
        sketches = _legal_first(sketches, target)
    return Space(named.workload, target, sketches, numerics)


@functools.lru_cache(maxsize=256)
def _default(named: Named, target: Target, numerics: Numerics, without: frozenset[str]) -> Sketch:
    if target.gpu is not None:
        return _space(named, target, numerics).sketches[0]
    return _programs(named, target, numerics, without)[0].first


@functools.lru_cache(maxsize=1024)
def _found(named: Named, target: Target, name: SketchName) -> Sketch:
    if is_hand(name.structure):
        if target.gpu is not None or name.derivation:
            raise ConfigError("a schedule by hand is of the definition itself, for a processor")
        return hand_sketch(named.workload, name.structure)
    variant = derive(named, target, name.derivation)
    if target.gpu is None:
        return CpuSketches(variant, target).named(name.structure)
    for sketch in gpu_sketches(variant, target.gpu):
        if sketch.name == name:
            return sketch
    raise ConfigError(f"this workload has no sketch '{name}' on this target")


@functools.lru_cache(maxsize=256)
def _data_dependent(named: Named, target: Target, numerics: Numerics) -> tuple[Sketch, ...]:
    found = variants(named, target, numerics, data_dependent=True)
    return tuple(CpuSketches(v, target).first for v in found if v.data_dependent)


def _programs(
    named: Named, target: Target, numerics: Numerics, without: frozenset[str] = frozenset()
) -> Sequence[CpuSketches]:
    """The sketches of every program for a processor, the most promising program first."""
    every = variants(named, target, numerics, without=without)
    found = [CpuSketches(variant, target) for variant in every]
    return sorted(found, key=lambda sketches: sketches.rank) if len(found) > 1 else found


def _legal_first(sketches: tuple[Sketch, ...], target: Target) -> tuple[Sketch, ...]:
    """The sketches of a GPU, those before the first one whose default is legal behind it."""
    for number, sketch in enumerate(sketches):
        if legal(lower(sketch, target, np.array([sketch.default])), target.gpu).all():
            return (sketch, *sketches[:number], *sketches[number + 1 :])
    return sketches
