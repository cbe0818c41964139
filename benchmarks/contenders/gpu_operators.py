"""The rows' operators as functions of torch tensors, on whatever device those are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from suites.row import Arrays, Row
from torch.nn import functional as F  # noqa: N812

from contenders.contract import filled, strides_and_pads

Operator = Callable[[Mapping[str, Any]], Any]


def module(row: Row) -> torch.nn.Module:
    """The row as a module: it takes the row's inputs in their order, weights too."""
    names = [t.name for t in row.request.workload.inputs]

    class Operation(torch.nn.Module):
        def forward(self, *values: Any) -> Any:
            return OPERATORS[row.operator](filled(row, dict(zip(names, values, strict=True))))

    return Operation().eval()


def tensors(inputs: Arrays, device: str) -> list[Any]:
    """The inputs on a device; on "meta" their shapes and types alone."""
    return [torch.from_numpy(a).to(device) for a in inputs.values()]


def _convolution(a: Mapping[str, Any], groups: int) -> Any:
    stride, pad = strides_and_pads(a)
    return F.conv2d(a["x"], a["w"], None, stride, pad, 1, groups)


def _product(a: Mapping[str, Any]) -> Any:
    return torch.matmul(a["a"], a["b"].mT if a.get("transpose_b") else a["b"])


OPERATORS: dict[str, Operator] = {
    "matmul": _product,
    "batch_matmul": _product,
    "dense": lambda a: F.linear(a["x"], a["w"]),
    "conv2d": lambda a: _convolution(a, a.get("groups", 1)),
    "depthwise_conv2d": lambda a: _convolution(a, a["x"].shape[1]),
    "softmax": lambda a: F.softmax(a["x"], -1),
    "layer_norm": lambda a: F.layer_norm(a["x"], a["x"].shape[-1:], a["scale"], a["shift"]),
    "attention": lambda a: F.scaled_dot_product_attention(
        a["q"][None], a["k"][None], a["v"][None]
    )[0],
}
