"""Reductions along axes, and norms along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from loopwright.dsl import functions as f
from loopwright.dsl import ops
from loopwright.dsl.dtypes import is_float
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import SCANS, Call, operator
from loopwright.graph.importers.onnx.halves import in_float32
from loopwright.graph.importers.onnx.operators.shapes import reshaped
from loopwright.graph.importers.onnx.values import Value, define

_REDUCERS: dict[str, Callable[[Expr], Expr]] = {
    "sum": f.sum, "max": f.max, "min": f.min, "prod": f.prod,
}  # fmt: skip


def along(
    x: Tensor,
    axes: Sequence[int],
    op: str,
    keep: bool = True,
    of: Callable[[Expr], Expr] = lambda e: e,
    name: str = "",
) -> Tensor:
    """`x` reduced along axes by sum, max, min or prod; `of` is applied to each element before."""
    shape = x.shape or ()
    inner = {a: Index(f"k{a}", shape[a]) for a in axes}
    out = tuple(1 if d in inner else n for d, n in enumerate(shape) if keep or d not in inner)

    def body(*i: Index) -> Expr:
        rest = iter(i)
        own = []
        for d in range(len(shape)):
            index = next(rest) if keep or d not in inner else None
            own.append(inner.get(d, index))
        return _REDUCERS[op](of(x[tuple(own)]))

    if not axes:
        return define(name or op, out, lambda *i: of(x[i]))
    return define(name or op, out, body)


_BEFORE: dict[str, tuple[str, Callable[[Expr], Expr]]] = {
    "ReduceSum": ("sum", lambda x: x),
    "ReduceMean": ("sum", lambda x: x),
    "ReduceMax": ("max", lambda x: x),
    "ReduceMin": ("min", lambda x: x),
    "ReduceProd": ("prod", lambda x: x),
    "ReduceL1": ("sum", f.abs),
    "ReduceL2": ("sum", lambda x: x * x),
    "ReduceSumSquare": ("sum", lambda x: x * x),
    "ReduceLogSum": ("sum", lambda x: x),
}


@operator(*_BEFORE)
@in_float32
def _reduce(call: Call) -> Value:
    axes = _axes(call)
    op, before = _BEFORE[call.op]
    x, keep = call.tensor(0), bool(call.get("keepdims", 1))
    if x.dtype == "bool" or (call.op == "ReduceL1" and x.dtype.startswith("u")):
        narrow = x.dtype
        made = along(_as(x, "int32"), axes, op, keep, name=call.op.lower())
        return _as(made, narrow)
    out = along(x, axes, op, keep, before, call.op.lower())
    count = math.prod((x.shape or ())[a] for a in axes)
    after: dict[str, Callable[[Expr], Expr]] = {
        "ReduceMean": lambda e: e * (1 / count) if is_float(e.dtype) else f.trunc_div(e, count),
        "ReduceL2": lambda e: _of_float(f.sqrt, e),
        "ReduceLogSum": lambda e: _of_float(f.log, e),
    }
    if call.op in after:
        return define(call.op.lower(), out.shape or (), lambda *i: after[call.op](out[i]))
    return out


def _of_float(function: Callable[[Expr], Expr], e: Expr) -> Expr:
    """A function of floats, of an integer rounded towards zero as in onnxruntime."""
    return function(e) if is_float(e.dtype) else f.cast(function(f.cast(e, "float64")), e.dtype)


def _as(x: Tensor, dtype: str) -> Tensor:
    return define("cast", x.shape or (), lambda *i: f.cast(x[i], dtype))


def _axes(call: Call) -> list[int]:
    """The axes of a reduction, all where none are named; none where a call says so."""
    rank = len(call.shape())
    given = call.ints(1, "axes")
    if not given:
        return [] if call.get("noop_with_empty_axes", 0) else list(range(rank))
    return sorted(call.checked_axes(given, rank))


@operator("ReduceLogSumExp")
@in_float32
def _log_sum_exp(call: Call) -> Value:
    axes = _axes(call)
    x, keep = call.tensor(0), bool(call.get("keepdims", 1))
    if not is_float(x.dtype):
        made = _log_sum_exp(replace(call, inputs=(_as(x, "float64"), *call.inputs[1:])))
        assert isinstance(made, Tensor)
        return _as(made, x.dtype)
    peak = along(x, axes, "max", name="peak")
    finite = define(
        "shift", peak.shape or (), lambda *i: f.where(f.abs(peak[i]) < math.inf, peak[i], 0)
    )
    shifted = define(
        "exp",
        x.shape or (),
        lambda *i: f.exp(x[i] - finite[tuple(0 if d in axes else k for d, k in enumerate(i))]),
    )
    total = along(shifted, axes, "sum", name="total")
    out = define("logsumexp", total.shape or (), lambda *i: f.log(total[i]) + finite[i])
    return out if keep else squeezed(out, axes)


def squeezed(x: Tensor, axes: Sequence[int]) -> Tensor:
    """`x` without axes of extent 1."""
    shape = x.shape or ()
    left = [d for d in range(len(shape)) if d not in axes]

    def body(*i: Index) -> Expr:
        place = dict(zip(left, i))
        return x[tuple(place.get(d, 0) for d in range(len(shape)))]

    return define("squeeze", [shape[d] for d in left], body)


@operator("Softmax", "LogSoftmax", "Hardmax")
def _softmax(call: Call) -> Value:
    functions = {"Softmax": ops.softmax, "LogSoftmax": ops.log_softmax, "Hardmax": _hardmax}
    function, shape = functions[call.op], call.shape()
    if call.version >= 13:
        return function(call.tensor(0), call.axis(-1))
    axis = call.axis(1)  # of the older ones, it divides all axes into rows and columns
    if axis == len(shape) - 1:
        return function(call.tensor(0), axis)
    flat = (math.prod(shape[:axis]), math.prod(shape[axis:]))
    return reshaped(call, function(call.as_tensor(reshaped(call, call.value(0), flat)), 1), shape)


def _hardmax(x: Tensor, axis: int) -> Tensor:
    """1 at the first greatest element along an axis, else 0."""
    best = ops.argmax(x, axis, keepdims=True, dtype="int32")

    def body(*i: Index) -> Expr:
        at = tuple(0 if d == axis else k for d, k in enumerate(i))
        return f.cast(f.equal(i[axis], best[at]), x.dtype)

    return define("hardmax", x.shape or (), body)


@operator("ArgMax", "ArgMin")
def _arg(call: Call) -> Value:
    function = ops.argmax if call.op == "ArgMax" else ops.argmin
    keep, last = bool(call.get("keepdims", 1)), bool(call.get("select_last_index", 0))
    return function(call.tensor(0), call.axis(0), keep, last)


@operator("CumSum", "CumProd", f"{SCANS}:CumProd")
def _cumulative(call: Call) -> Value:
    function = ops.cumsum if call.op == "CumSum" else ops.cumprod
    axis = call.checked_axis(call.integer(1), len(call.shape()))
    exclusive, backward = bool(call.get("exclusive", 0)), bool(call.get("reverse", 0))
    return function(call.tensor(0), axis, exclusive, backward)


@operator(f"{SCANS}:CumMax", f"{SCANS}:CumMin")
def _extremes(call: Call) -> Value:
    function = ops.cummax if call.op == "CumMax" else ops.cummin
    return function(call.tensor(0), call.checked_axis(call.integer(1), len(call.shape())))


@operator("TopK", limit="the count must be known")
def _top_k(call: Call) -> Sequence[Value]:
    count = call.integer(1, call.get("k"))
    return ops.topk(call.tensor(0), count, call.axis(-1), bool(call.get("largest", 1)))


@operator("LpNormalization")
@in_float32
def _lp_normalization(call: Call) -> Value:
    x, axis, p = call.tensor(0), call.axis(-1), int(call.get("p", 2))
    total = along(x, [axis], "sum", True, (lambda e: e * e) if p == 2 else f.abs)

    def body(*i: Index) -> Expr:
        norm = total[tuple(0 if d == axis else k for d, k in enumerate(i))]
        norm = f.sqrt(norm) if p == 2 else norm
        return f.where(f.equal(norm, 0), 0, x[i] / f.where(f.equal(norm, 0), 1, norm))

    return define("lpnormalization", x.shape or (), body)
