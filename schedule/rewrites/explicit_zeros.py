"""Explicit zeros: the definition's own products, those with zeros included.

    S[u] = where(u % 2 == 0, X[u // 2], 0);  O[y] += S[y + r] * W[r]     stays as it is

where all other programs leave out what is multiplied by a zero that is known to be one. Only this
has NaN where the definition multiplies a zero by an infinity.
"""

from __future__ import annotations

from dataclasses import replace

from loopwright.dsl.numerics import Numerics
from loopwright.schedule.gpu.plan import gpu_plan
from loopwright.schedule.program.plan import grouped
from loopwright.schedule.rewrites.contract import Rewrite, Rewritten
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Target


class ExplicitZeros(Rewrite):
    """The definition's own products where other programs skip zeros."""

    name = "explicit_zeros"
    gpu = True
    needs = "strict numerics, and a product with zeros that other programs skip"

    def make(self, base: Variant, target: Target, **parameters: int) -> Rewritten | None:
        if base.source.numerics == Numerics.STRICT:
            return None  # its own program has them
        program = tuple(replace(nest, keeps_zeros=True) for nest in base.source.combined)
        outputs = base.source.outputs
        if target.gpu is not None:
            return Rewritten(gpu_plan(program, outputs, target.gpu))
        return Rewritten(grouped(program, program, outputs))
