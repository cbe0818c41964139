"""Circular padding of torch by widths of any size, as one operator.

torch.export takes `F.pad(x, …, mode="circular")` apart by whether each width is 0, which fixes it.
While a program of open sizes is traced, it is an operator of ours, which becomes ONNX's `Pad`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from loopwright.graph.importers.torch.operators.parts import op, whole
from loopwright.packages import torch


def padded(x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """A call of torch's, one of our operator where it is circular."""
    if mode != "circular":
        return torch.nn.functional.pad(x, pad, mode, value)
    return _operator()(x, list(pad))


def translations() -> dict[Any, Callable[..., Any]]:
    """The function that makes an ONNX operator of a call, by our operator."""
    _operator()
    return {torch.ops.loopwright.circular_pad.default: _translated}


@functools.cache
def _operator() -> Any:
    made = torch.library.custom_op(
        "loopwright::circular_pad",
        lambda x, pad: torch.nn.functional.pad(x, pad, "circular"),
        mutates_args=(),
        schema="(Tensor x, SymInt[] pad) -> Tensor",
    )
    made.register_fake(_shape)
    return made


def _shape(x: Any, pad: Sequence[Any]) -> Any:
    more = [a + b for a, b in zip(pad[::2], pad[1::2])][::-1]
    kept = x.dim() - len(more)
    return x.new_empty([*x.shape[:kept], *(n + m for n, m in zip(x.shape[kept:], more))])


def _translated(x: Any, pad: Sequence[Any]) -> Any:
    rank = len(x.shape)
    widths = [whole(n) if isinstance(n, int) else op.Reshape(n, whole(-1)) for n in pad]
    sides = [widths[side::2][::-1] for side in (0, 1)]
    kept = [whole(0)] * (rank - len(pad) // 2)
    return op.Pad(
        x, op.Concat(*(n for side in sides for n in (*kept, *side)), axis=0), mode="wrap"
    )
