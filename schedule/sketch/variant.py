"""`Variant`: a program that computes what a workload defines."""

from __future__ import annotations

from dataclasses import dataclass

from loopwright.dsl.numerics import Numerics
from loopwright.dsl.workload import Workload
from loopwright.schedule.program.canonical import Program
from loopwright.schedule.program.plan import FusionGroup
from loopwright.schedule.program.source import Source
from loopwright.schedule.sketch.naming import Derivation


@dataclass(frozen=True)
class Variant:
    """A program that computes what a workload defines, and the rewrites that derived it. `source`
    is the workload that was asked for, `workload` the same, or one with other stages. Nests with
    less than the share `minor` of the work of the largest one that writes the same tensor have one
    structure. `data_dependent` time depends on values. All else is as in
    `rewrites.contract.Rewritten`."""

    derivation: Derivation
    source: Source
    workload: Workload
    groups: tuple[FusionGroup, ...]
    error_growth: float = 1.0
    numerics: Numerics = Numerics.STRICT
    program: Program = ()
    prior: float = 1.0
    minor: float = 0.0
    data_dependent: bool = False
