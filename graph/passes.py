"""Relax's part: from a module of operators to one of fused functions on bound constants."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from loopwright.codegen.target import tvm_target
from loopwright.graph.errors import ModelError
from loopwright.graph.scales import FoldScales
from loopwright.schedule.target import Target

_TAKE = tvm.ir.Op.get("relax.take")


def fused(module: Any, target: Target) -> Any:
    """Operators legalized to TIR functions, each fused with what follows element by element.

    Batch norms and other factors of channels go into the weights before them, what follows from
    constants alone is computed now. Raises `ModelError` with TVM's words.
    """
    t = relax.transform
    passes = tvm.transform.Sequential(
        [
            Bounded(),
            FoldScales(),
            t.DeadCodeElimination(),
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


@relax.expr_functor.mutator
class _Bounds(relax.PyExprMutator):
    """Indices from outside wrap around: negative ones count from the end, as in the models, and
    none reads what is not the tensor's. TVM's importers ask for no check at all."""

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if call.op == _TAKE and call.attrs.mode == "fast":
            return relax.op.take(*call.args, axis=call.attrs.axis, mode="wrap")
        return call


@tvm.transform.module_pass(opt_level=0)
class Bounded:
    """`_Bounds` for every Relax function of a module."""

    def transform_module(self, module: Any, _: Any) -> Any:
        """The module with its gathers in bounds."""
        bounds = _Bounds(module)
        for name, function in module.functions_items():
            if isinstance(function, relax.Function):
                bounds.builder_.update_func(name, bounds.visit_expr(function))
        return bounds.builder_.get()


def _first(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
