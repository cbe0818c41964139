"""Shifts of the bits of integers, of which ONNX has those without a sign alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopwright.graph.importers.torch.operators.parts import like, op
from loopwright.packages import aten

_UNSIGNED = {3: 2, 5: 4, 6: 12, 7: 13}
"""Of ONNX's integers with a sign, those without one that have as many bits."""


def translations() -> dict[Any, Callable[..., Any]]:
    """The function that makes ONNX operators of a call, by torch's operator."""
    left = (aten.__lshift__, aten.bitwise_left_shift)
    right = (aten.__rshift__, aten.bitwise_right_shift)
    shifts = [(packet, _left) for packet in left] + [(packet, _right) for packet in right]
    return {
        getattr(packet, name): shift
        for packet, shift in shifts
        for name in packet.overloads()
        if not name.endswith("out")
    }


def _left(x: Any, count: Any) -> Any:
    """`x << count`: what is shifted out is lost."""
    x, count, kind = _both(x, count)
    moved = op.CastLike(op.BitShift(*_without_sign(kind, x, count), direction="LEFT"), x)
    return op.Where(_within(kind, count), moved, like(0, x))


def _right(x: Any, count: Any) -> Any:
    """`x >> count`, which rounds down: the bits that come in are those of the sign."""
    x, count, kind = _both(x, count)
    within = _within(kind, count)
    if kind not in _UNSIGNED:
        return op.Where(within, op.BitShift(x, count, direction="RIGHT"), like(0, x))
    count = op.Where(within, count, like(_bits(kind) - 1, x))
    below = op.Less(x, like(0, x))
    positive = op.Where(below, op.BitwiseNot(x), x)
    shifted = op.BitShift(*_without_sign(kind, positive, count), direction="RIGHT")
    moved = op.CastLike(shifted, x)
    return op.Where(below, op.BitwiseNot(moved), moved)


def _both(x: Any, count: Any) -> tuple[Any, Any, Any]:
    """Both as tensors, and their type."""
    if isinstance(x, int):
        return like(x, count), count, count.dtype
    return x, like(count, x) if isinstance(count, int) else count, x.dtype


def _bits(kind: Any) -> int:
    return int(8 * kind.itemsize)


def _within(kind: Any, count: Any) -> Any:
    """Whether a count is one of bits that an element has."""
    less = op.Less(count, like(_bits(kind), count))
    return op.And(less, op.GreaterOrEqual(count, like(0, count))) if kind in _UNSIGNED else less


def _without_sign(kind: Any, *tensors: Any) -> Any:
    return (op.Cast(x, to=_UNSIGNED[kind]) if kind in _UNSIGNED else x for x in tensors)
