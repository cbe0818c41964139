"""Factors of channels go into the weights before them: inference has no batch norm left.

    (x * W + b) · s + t  =  x * (W · s) + (b · s + t)

for constants s, one for each channel of the result, t as many, and W the weights of a convolution,
also of a transposed one, or the second operand of a matrix product.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax import op

_ADD, _MULTIPLY, _MATMUL, _NORM = (
    tvm.ir.Op.get(f"relax.{name}") for name in ("add", "multiply", "matmul", "nn.batch_norm")
)
_CONVOLUTIONS = [tvm.ir.Op.get(f"relax.nn.conv{dims}d") for dims in (1, 2, 3)]
_TRANSPOSED = [tvm.ir.Op.get(f"relax.nn.conv{dims}d_transpose") for dims in (1, 2, 3)]
_ALL = -1  # the axis of a factor that all channels share


@tvm.transform.module_pass(opt_level=0)
class FoldBatchNorm:
    """Batch norms become a factor and a summand for each channel; the first factor behind weights
    goes into these, as an expression of constants that is yet to be folded."""

    def transform_module(self, module: Any, _: Any) -> Any:
        """The module without the factors."""
        for name, function in module.functions_items():
            if isinstance(function, relax.Function):
                scales = _Scales(module, function)
                scales.builder_.update_func(name, scales.visit_expr(function))
                module = scales.builder_.get()
        return module


@relax.expr_functor.mutator
class _Scales(relax.PyExprMutator):
    """Finds factors among the bindings of the function as it was; what stands in their place reads
    what these became. A factor is a vector: one element for each channel, or one for all."""

    def __init__(self, module: Any, function: Any) -> None:
        super().__init__(module)
        self._values = relax.analysis.get_var2val(function)
        self._constants = set(relax.analysis.computable_at_compile_time(function))
        self._readers: Counter[Any] = Counter(relax.analysis.free_vars(function.body.body))
        for block in function.body.blocks:
            own = {binding.var for binding in block.bindings}
            for binding in block.bindings:
                for read in relax.analysis.free_vars(binding.value):
                    # What another block reads stays: it does not see what that is made of.
                    self._readers[read] += 1 if read in own else 2

    def visit_tuple_getitem_(self, item: Any) -> Any:
        norm = self._values.get(item.tuple_value)
        if item.index or getattr(norm, "op", None) != _NORM or norm.attrs.training:
            return super().visit_tuple_getitem_(item)
        x = norm.args[0]
        gamma, beta, mean, variance = map(self.visit_expr, norm.args[1:])
        rank, dtype = len(x.ty.shape), x.ty.dtype
        axis = int(norm.attrs.axis) % rank
        scale = op.rsqrt(op.add(variance, relax.const(norm.attrs.epsilon, dtype)))
        scale = self.builder_.emit(op.multiply(scale, gamma) if norm.attrs.scale else scale)
        shift = op.negative(op.multiply(mean, scale))
        shift = self.builder_.emit(op.add(shift, beta) if norm.attrs.center else shift)
        known = all(map(self._constant, norm.args[1:]))
        folded = self._scaled(x, scale, axis) if known else None
        shift = _along(shift, axis, rank)
        if folded is None:
            folded = op.multiply(self.visit_expr(x), _along(scale, axis, rank))
        if folded.op == _ADD:
            folded, summand = folded.args
            shift = op.add(summand, shift)
        return op.add(folded, shift)

    def visit_call_(self, call: Any) -> Any:
        if call.op == _MULTIPLY:
            for x, factor in itertools.permutations(call.args):
                axis = self._channels(factor, x, call)
                if axis is not None:
                    scale = self.builder_.emit(op.reshape(self.visit_expr(factor), [-1]))
                    folded = self._scaled(x, scale, axis)
                    if folded is not None:
                        return folded
        return super().visit_call_(call)

    def _scaled(self, x: Any, scale: Any, axis: int) -> Any:
        """x times a factor along an axis; None if no weights can take it, or others read x too."""
        call = self._values.get(x)
        if not isinstance(call, relax.Call) or self._readers[x] != 1:
            return None
        if call.op != _ADD:
            weights = self._weights(call, scale, axis)
            if weights is None:
                return None
            return relax.Call(call.op, [self.visit_expr(call.args[0]), weights], call.attrs)
        for part, summand in itertools.permutations(call.args):
            along = self._channels(summand, part, call)
            if along in (axis, _ALL) or (along is not None and axis == _ALL):
                folded = self._scaled(part, scale, axis)
                if folded is not None:
                    summand = self.visit_expr(summand)
                    factor = _along(scale, axis, len(call.ty.shape))
                    return op.add(folded, op.multiply(summand, factor))
        return None

    def _channels(self, factor: Any, x: Any, call: Any) -> int | None:
        """The axis of a call's result along which a constant operand varies, `_ALL` if it does
        not; None if it does along several, is no constant, or makes the other operand larger."""
        if not self._constant(factor):
            return None
        shape, rank = tuple(factor.ty.shape), len(call.ty.shape)
        varying = [rank - len(shape) + i for i, n in enumerate(shape) if n != 1]
        if len(varying) > 1 or not tvm_ffi.structural_equal(x.ty, call.ty):
            return None
        return varying[0] if varying else _ALL

    def _weights(self, call: Any, scale: Any, axis: int) -> Any:
        """A call's constant weights times a factor along an axis of the result; None if it has no
        weights that make the elements along this axis."""
        if call.op not in (_MATMUL, *_CONVOLUTIONS, *_TRANSPOSED):
            return None
        weights = call.args[1]
        if not self._constant(weights) or weights.ty.dtype != call.ty.dtype:
            return None
        rank = len(weights.ty.shape)
        if call.op == _MATMUL:
            channels, place = len(call.ty.shape) - 1, rank - 1
        else:
            channels, place = call.attrs.out_layout.find("C"), call.attrs.kernel_layout.find("O")
            grouped = call.op in _TRANSPOSED and call.attrs.groups > 1
            if grouped or not (call.attrs.out_layout + call.attrs.kernel_layout).isupper():
                return None  # the channels are along two axes of the weights, or of the result
        if rank < 2 or axis not in (channels, _ALL):
            return None
        return op.multiply(self.visit_expr(weights), _along(scale, place, rank))

    def _constant(self, x: Any) -> bool:
        return isinstance(x, GenericConst) or x in self._constants


def _along(vector: Any, axis: int, rank: int) -> Any:
    """A vector as an operand that varies along one axis of so many."""
    return op.reshape(vector, [-1, *[1] * (rank - 1 - axis)] if axis != _ALL else [1])
