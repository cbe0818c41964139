"""Relax's part: from a module of operators to one of fused functions on bound constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx

from loopwright.codegen.tvm_target import tvm_target
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.batch_norm_folding import FoldBatchNorm
from loopwright.schedule.target import Target

_TAKE = tvm.ir.Op.get("relax.take")
_BY_AXIS = tuple(
    tvm.ir.Op.get(f"relax.{name}") for name in ("gather_elements", "scatter_elements")
)
_BY_LISTS = tuple(tvm.ir.Op.get(f"relax.{name}") for name in ("index_tensor", "index_put"))
_BY_TUPLES = tuple(tvm.ir.Op.get(f"relax.{name}") for name in ("gather_nd", "scatter_nd"))


def fused(module: Any, target: Target) -> Any:
    """Operators legalized to TIR functions, each fused with what follows element by element.

    Batch norms and other factors of channels go into the weights before them, what follows from
    constants alone is computed now. Raises `ModelError` with TVM's words.
    """
    t = relax.transform
    passes = tvm.transform.Sequential(
        [
            Bounded(),
            FoldBatchNorm(),
            t.DeadCodeElimination(),
            t.DecomposeOpsForInference(),
            t.CanonicalizeBindings(),
            t.LegalizeOps(),
            Serial(),
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
    none reads or writes what is not the tensor's. TVM's importers ask for no check at all."""

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if call.op == _TAKE and call.attrs.mode == "fast":
            return relax.op.take(*call.args, axis=call.attrs.axis, mode="wrap")
        if call.op in _BY_AXIS:
            return self.changed(call, lambda x, shape: [shape[int(call.attrs.axis)]])
        if call.op in _BY_TUPLES:
            first = int(getattr(call.attrs, "batch_dims", 0))
            return self.changed(call, lambda x, shape: shape[first:][: int(x.ty.shape[-1])])
        if call.op in _BY_LISTS and isinstance(call.args[1], relax.Tuple):
            shape = _extents(call.args[0])
            pairs = zip(call.args[1].fields, shape)
            lists = relax.Tuple([self.wrapped(x, [n]) for x, n in pairs])
            return _with_indices(call, lists)
        return call

    def changed(self, call: Any, extents: Callable[[Any, list[int]], list[int]]) -> Any:
        """The call of an operator whose second argument is an array of indices."""
        x = call.args[1]
        return _with_indices(call, self.wrapped(x, extents(x, _extents(call.args[0]))))

    def wrapped(self, x: Any, extents: list[int]) -> Any:
        """Indices along axes of some extents, in the last axis of `x` if there are several."""
        if not str(x.ty.dtype).startswith("int"):  # truth values choose by themselves
            return x
        dtype = str(x.ty.dtype)
        several = len(extents) > 1
        most = relax.const(np.array(extents, dtype) if several else extents[0], dtype)
        return self.builder_.emit(relax.op.floor_mod(x, most))


def _extents(x: Any) -> list[int]:
    return [int(n) for n in x.ty.shape]


def _with_indices(call: Any, indices: Any) -> Any:
    return relax.Call(call.op, [call.args[0], indices, *call.args[2:]], call.attrs, call.ty_args)


@tvm.transform.module_pass(opt_level=0)
class Serial:
    """Loops that TVM makes parallel in functions that it legalizes become serial ones: some of
    them add to one element from several iterations (index_put with `accumulate`)."""

    def transform_module(self, module: Any, _: Any) -> Any:
        """The module with serial loops alone."""
        for name, function in module.functions_items():
            if isinstance(function, tirx.PrimFunc):
                body = tvm_ffi.structural_map(function.body, (tirx.For, _serial))
                module.update_func(name, function.with_body(body))
        return module


def _serial(loop: Any) -> Any:
    if loop.kind != tirx.ForKind.PARALLEL:
        return loop
    return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)


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
