"""Relax's part: from a module of operators to one of fused functions on bound constants."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from loopwright.codegen.target import tvm_target
from loopwright.graph.errors import ModelError
from loopwright.schedule.target import Target


def fused(module: Any, target: Target) -> Any:
    """Operators legalized to TIR functions, each fused with what follows element by element.

    Batch norms behind a convolution go into its weights, what follows from constants alone is
    computed now. Raises `ModelError` with TVM's words.
    """
    t = relax.transform
    passes = tvm.transform.Sequential(
        [
            t.FoldBatchnormToConv2D(),
            t.DecomposeOpsForInference(),
            t.CanonicalizeBindings(),
            t.LegalizeOps(),
            t.AnnotateTIROpPattern(),
            t.FoldConstant(),
            t.FuseOps(),
            t.FuseTIR(),
            t.DeadCodeElimination(),
        ]
    )
    try:
        with tvm_target(target):
            return passes(module)
    except Exception as error:  # TVM's errors have no root of their own
        raise ModelError(f"TVM's Relax could not lower the model: {_first(error)}") from error


def _first(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
