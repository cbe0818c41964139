"""The registry of rewrites: what there is, and what of it a workload gains by."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.ops.comparisons import by_comparisons
from loopwright.dsl.ops.scan_blocks import in_blocks
from loopwright.dsl.tensor import Definition
from loopwright.dsl.workload import Workload
from loopwright.schedule.cpu.heuristics import CPU
from loopwright.schedule.gpu.plan import gpu_plan, gpu_program
from loopwright.schedule.program.canonical import Program
from loopwright.schedule.program.nest import extent, nests
from loopwright.schedule.program.padding import pads_some
from loopwright.schedule.program.plan import grouped
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.activation_sparsity import ActivationSparsity
from loopwright.schedule.rewrites.bilinear.strassen import Strassen
from loopwright.schedule.rewrites.bilinear.winograd import Winograd, WinogradByPhase
from loopwright.schedule.rewrites.boundary_peeling import BoundaryPeeling, ClampedPadding
from loopwright.schedule.rewrites.chain_at_blocks import ChainAtBlocks
from loopwright.schedule.rewrites.contract import Rewrite
from loopwright.schedule.rewrites.explicit_zeros import ExplicitZeros
from loopwright.schedule.rewrites.im2col import Im2col
from loopwright.schedule.rewrites.int24_weights import Int24Weights
from loopwright.schedule.rewrites.kn2row import Kn2row
from loopwright.schedule.rewrites.padding_at_blocks import PaddingAtBlocks
from loopwright.schedule.rewrites.producer_at_blocks import ProducerAtBlocks
from loopwright.schedule.rewrites.rfactor import Rfactor
from loopwright.schedule.rewrites.scan_in_parts import ScanInParts
from loopwright.schedule.rewrites.ttgt import Ttgt
from loopwright.schedule.sketch.naming import Derivation
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Target

REWRITES: tuple[Rewrite, ...] = (
    Rfactor(),
    ScanInParts(),
    ExplicitZeros(),
    Im2col(),
    Ttgt(),
    Kn2row(),
    ChainAtBlocks(),
    PaddingAtBlocks(),
    BoundaryPeeling(),
    ProducerAtBlocks(),
    ClampedPadding(),
    Strassen(),
    Winograd(),
    WinogradByPhase(),
    Int24Weights(),
    ActivationSparsity(),
)
"""All rewrites. Those that work on the programs of others stand behind these."""

_DIRECT_PRIOR = 0.8
"""The definition's own loops are the simplest and the most exact program."""


class Named:
    """A workload that is equal to those alone that have the same names: trees carry them. A family
    is equal to itself alone."""

    def __init__(self, workload: Any) -> None:
        self.workload = workload
        known = isinstance(workload, Workload)
        self.identity = f"{workload.key} {workload}" if known else workload

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and bool(self.identity == other.identity)

    def __hash__(self) -> int:
        return hash(self.identity)


@functools.lru_cache(maxsize=256)
def direct(
    named: Named,
    target: Target,
    like: tuple[tuple[str, ...], ...] | None = None,
    fills: bool = False,
) -> Variant:
    """The definition's own loops, which rewrites start from; `like` and `fills` as `grouped` has
    them."""
    made = by_comparisons(named.workload, lambda d: compares(d, target))
    program: Program = ()
    if target.gpu is None:
        fills = fills or pads_some(nests(made))
        source = Source.of(made, fills)
        groups = grouped(source.program, source.program, source.outputs, like, fills)
    else:
        source = Source.of(in_blocks(made), fills)
        program = gpu_program(source)
        groups = gpu_plan(program, source.outputs, target.gpu)
    prior = _DIRECT_PRIOR
    return Variant(
        Derivation(), source, source.workload, groups, 1.0, source.numerics, program, prior
    )


def compares(order: Definition, target: Target) -> bool:
    """Return whether an order is made of comparisons: for GPUs, which have no run-time to call,
    and of rows so short that a call costs more than vectors of comparisons."""
    return target.gpu is not None or math.prod(map(extent, order.reduce)) <= CPU.compared_elements


def variants(
    named: Named,
    target: Target,
    numerics: Numerics,
    data_dependent: bool = False,
    without: frozenset[str] = frozenset(),
) -> Iterator[Variant]:
    """Every program of a workload that `numerics` allows, in the order of the registry; those
    whose time depends on data where asked for, and none of the rewrites `without`."""
    base = direct(named, target)
    made = {"direct": [base]}
    if base.numerics <= numerics:
        yield base
    for rewrite in REWRITES:
        if not _serves(rewrite, target, numerics, data_dependent) or rewrite.name in without:
            continue
        found = [
            variant
            for start in (v for name in rewrite.of for v in made.get(name, ()))
            for parameters in rewrite.choices(start, target)
            if (variant := rewrite.variant(start, target, parameters)) is not None
            and variant.numerics <= numerics
        ]
        made[rewrite.name] = found
        yield from found


def _serves(rewrite: Rewrite, target: Target, numerics: Numerics, data_dependent: bool) -> bool:
    if isinstance(rewrite, ExplicitZeros) and numerics != Numerics.STRICT:
        return False
    allowed = rewrite.numerics <= numerics and (data_dependent or not rewrite.data_dependent)
    return allowed and (rewrite.gpu or target.gpu is None)


def rows_of_even_blocks(derivation: Derivation) -> list[int]:
    """The most rows of each step's blocks, where these have equally many."""
    even = {rewrite.name for rewrite in REWRITES if rewrite.even_rows}
    steps = (dict(step.parameters) for step in derivation.steps if step.rewrite in even)
    return [parameters["rows"] for parameters in steps]


def derive(
    named: Named,
    target: Target,
    derivation: Derivation,
    like: tuple[tuple[str, ...], ...] | None = None,
    fills: bool = False,
) -> Variant:
    """The one program of a derivation; `like` and `fills` as `grouped` has them. Raises
    `ConfigError` where there is none."""
    known = {rewrite.name: rewrite for rewrite in REWRITES}
    variant: Variant | None = direct(named, target, like, fills)
    for step in derivation.steps:
        rewrite = known.get(step.rewrite)
        if rewrite is None:
            raise ConfigError(
                f"{step.rewrite!r} is no rewrite of this version; there are {', '.join(known)}"
            )
        assert variant is not None
        try:
            variant = rewrite.variant(variant, target, dict(step.parameters))
        except (IndexError, KeyError, TypeError, ZeroDivisionError) as error:
            raise ConfigError(f"{step} has parameters that it does not take: {error}") from error
        if variant is None:
            raise ConfigError(f"this workload has no program by {derivation} on this target")
    assert variant is not None
    return variant
