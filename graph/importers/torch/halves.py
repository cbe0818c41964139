"""Operators of halves that torch computes in float32, and rounds once.

ONNX has several operators for one of these, or a half for a number that torch does not round.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loopwright.graph.importers.torch.promotion import promote
from loopwright.graph.importers.torch.strides import read_in_order
from loopwright.packages import aten, torch


@contextmanager
def rounded_once(program: Any) -> Iterator[None]:
    """Let a program of torch.export have float32 inside of these operators for a while, floats for
    integers where it computes in floats, of float64 the factors of sums as operators, and storage
    in the order of axes where it is read by strides."""
    own = program.graph_module.graph
    program.graph_module.graph = graph = copy.deepcopy(own)
    several = _several()
    for node in list(graph.nodes):
        promote(graph, node)
        read_in_order(graph, node)
        has_factor = node.kwargs.get("alpha", 1) != 1
        in_one_step = node.target in several and not _rounded_twice(node)
        if _half(node) and (in_one_step or has_factor or _by_number(node)):
            _widen(graph, node)
        elif has_factor:
            _multiply_before(graph, node)
    try:
        yield
    finally:
        program.graph_module.graph = own


def has_halves(program: Any) -> bool:
    """Return whether a program computes in halves anywhere, as under autocast."""
    graphs = (m.graph for m in program.graph_module.modules() if hasattr(m, "graph"))
    return any(_half(node) for graph in graphs for node in graph.nodes)


def _several() -> set[Any]:
    """The operators for which ONNX has several."""
    names = (
        *("addcdiv", "addcmul", "atan2", "baddbmm", "expm1", "floor_divide", "glu", "group_norm"),
        *("hypot", "leaky_relu", "log10", "log1p", "log2", "logaddexp", "logaddexp2", "rrelu"),
        *("rsqrt", "silu", "sinc", "special_expm1", "special_sinc"),
    )
    return {
        *(getattr(aten, name).default for name in names),
        *(aten.div.Scalar_mode, aten.div.Tensor_mode, aten.lerp.Scalar, aten.lerp.Tensor),
        *(aten.pow.Scalar, aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor),
        aten.scatter_reduce.two,
    }


def _by_number(node: Any) -> bool:
    """Return whether halves are multiplied or divided by a number that is no half, or may be
    none: a size, or a tensor without axes."""
    if node.target not in (aten.mul.Tensor, aten.div.Tensor):
        return False
    return any(not _exact(x, node.meta["val"].dtype) for x in node.args)


def _rounded_twice(node: Any) -> bool:
    """Return whether a quotient is a half before it is rounded to zero: torch computes it in one
    step by a single number alone."""
    if node.kwargs.get("rounding_mode") != "trunc":
        return False
    shape = getattr(node.args[1], "meta", {}).get("val", node.args[1])
    return any(extent != 1 for extent in getattr(shape, "shape", ()))


def _exact(x: Any, kind: Any) -> bool:
    """Return whether an operand has no more digits than halves of this kind."""
    value = x.meta["val"] if hasattr(x, "meta") else x
    if isinstance(value, (int, float)):
        return bool(value != value or torch.tensor(value, dtype=kind).item() == value)
    return bool(getattr(value, "dtype", None) == kind)


def _half(node: Any) -> bool:
    value = getattr(node.meta.get("val"), "dtype", None)
    return value in (torch.float16, torch.bfloat16)


def _widen(graph: Any, node: Any) -> None:
    """Compute a node in float32, and have the node itself round the result."""
    cast = torch.ops.aten._to_copy.default

    def wide(x: Any) -> Any:
        if not hasattr(x, "meta") or not _half(x):
            return x
        made = graph.call_function(cast, (x,), {"dtype": torch.float32})
        made.meta["val"] = x.meta["val"].to(torch.float32)
        return made

    with graph.inserting_before(node):
        args = tuple(wide(x) for x in node.args)
        inside = graph.call_function(node.target, args, dict(node.kwargs))
    value = node.meta["val"]
    inside.meta["val"] = value.to(torch.float32)
    node.target, node.args, node.kwargs = cast, (inside,), {"dtype": value.dtype}


def _multiply_before(graph: Any, node: Any) -> None:
    """Give a sum or difference of float64 the product with its factor as an operand."""
    if getattr(node.target, "overloadpacket", None) not in (
        torch.ops.aten.add,
        torch.ops.aten.sub,
    ):
        return
    first, second = node.args
    value = getattr(second, "meta", {}).get("val", second)
    if any(getattr(v, "dtype", torch.float64) != torch.float64 for v in (value, node.meta["val"])):
        return
    factor = node.kwargs["alpha"]
    if hasattr(second, "meta"):
        with graph.inserting_before(node):
            product = graph.call_function(torch.ops.aten.mul.Tensor, (second, factor))
        product.meta["val"] = value
    else:
        product = second * factor
    node.args, node.kwargs = (first, product), {}
