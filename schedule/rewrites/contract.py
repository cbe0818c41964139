"""The contract of a rewrite: other programs that compute what a workload defines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from loopwright.dsl.numerics import Numerics
from loopwright.dsl.workload import Workload
from loopwright.schedule.program.canonical import Program
from loopwright.schedule.program.plan import FusionGroup
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Target


@dataclass(frozen=True)
class Rewritten:
    """Program that a rewrite makes of another.

    Attributes
    ----------
    groups: the program, ready to be scheduled.
    error_growth: how many times the direct sum's rounding errors are to be expected, as root mean
        squares on random data.
    numerics: what it keeps of the definition's numerics, the base's own program included.
    workload: where it is another one than the base's: one that is equal, with other stages.
    program: nests that a GPU's kernels may compute where they read them; none if none may.
    prior: times the estimate that it is taken for, where that is known to be wrong.
    """

    groups: tuple[FusionGroup, ...]
    error_growth: float = 1.0
    numerics: Numerics = Numerics.STRICT
    workload: Workload | None = None
    program: Program = ()
    prior: float = 1.0


class Rewrite(ABC):
    """Derives programs from those of a workload; `registry.REWRITES` lists them all.

    A subclass says in its docstring *before ↦ after*, and where the transformation comes from.

    Attributes
    ----------
    name: the step's name in derivations, and in records.
    needs: what a workload or machine has where it may gain, in words.
    of: the rewrites on whose programs it works, "direct" among them.
    numerics: the strictest word under which any of its programs is allowed.
    prior: times the analytical estimate that its programs are taken for.
    minor: see `Variant`.
    data_dependent: see `Variant`.
    gpu: whether it is for GPUs too.
    even_rows: whether its blocks of at most `rows` rows have equally many.
    """

    name: ClassVar[str]
    needs: ClassVar[str]
    of: ClassVar[tuple[str, ...]] = ("direct",)
    numerics: ClassVar[Numerics] = Numerics.STRICT
    prior: ClassVar[float] = 1.0
    minor: ClassVar[float] = 0.0
    data_dependent: ClassVar[bool] = False
    gpu: ClassVar[bool] = False
    even_rows: ClassVar[bool] = False

    def choices(self, base: Variant, target: Target) -> Iterator[Mapping[str, int]]:
        """The parameters that are worth trying, in a fixed order; cheap beside `make`."""
        yield {}

    @abstractmethod
    def make(self, base: Variant, target: Target, **parameters: Any) -> Rewritten | None:
        """The program for some parameters; None where nothing of the base gains by it."""

    def variant(
        self, base: Variant, target: Target, parameters: Mapping[str, int]
    ) -> Variant | None:
        """The variant for some parameters, with what it has from its base."""
        made = self.make(base, target, **parameters)
        if made is None:
            return None
        return Variant(
            base.derivation.then(self.name, parameters),
            base.source,
            made.workload or base.workload,
            made.groups,
            base.error_growth * made.error_growth,
            made.numerics,
            made.program,
            self.prior * made.prior * (base.prior if base.derivation else 1.0),
            max(base.minor, self.minor),
            base.data_dependent or self.data_dependent,
        )
