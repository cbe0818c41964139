"""Checks of the operators' arguments; every error names the operator and the argument.

Tensors that do not fit raise `ShapeError`, options that do not fit raise `NotationError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

from loopwright.dsl.dtypes import check_dtype, is_float, sum_type
from loopwright.dsl.errors import NotationError, ShapeError
from loopwright.dsl.size import check_dims
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.words import brief

PerAxis = int | Sequence[int]
Padding = int | Sequence[int | Sequence[int]]


def any_shape(op: str, argument: str, x: Tensor, least: int = 0) -> tuple[int, ...]:
    """The shape of an argument that must be a tensor of at least `least` axes."""
    if not isinstance(x, Tensor) or x.shape is None:
        raise ShapeError(f"{op}: {argument} is {brief(x)}; give a tensor that has a shape")
    if len(x.shape) < least:
        raise ShapeError(f"{op}: {argument} has shape {x.shape}; it needs {least} or more axes")
    return x.shape


def shape_of(op: str, argument: str, x: Tensor, axes: Sequence[str]) -> tuple[int, ...]:
    """The shape of an argument that must have one axis for each name in `axes`."""
    shape = any_shape(op, argument, x)
    if len(shape) != len(axes):
        raise ShapeError(
            f"{op}: {argument} has {len(shape)} axes, shape {shape}; it needs {len(axes)}: "
            f"({', '.join(axes)})"
        )
    return shape


def same_extent(op: str, one: tuple[str, int], two: tuple[str, int]) -> None:
    """Two extents, each with what it is called, must be equal."""
    if one[1] != two[1]:
        check_dims(one[1], two[1])
        raise ShapeError(f"{op}: {one[0]} is {one[1]} but {two[0]} is {two[1]}; make them equal")


def same_dtype(op: str, accumulate: str | None, **tensors: Tensor | None) -> None:
    """Arguments must have one dtype, unless all are cast to that of the accumulator, which keeps
    fractions."""
    given = {name: t for name, t in tensors.items() if t is not None}
    if accumulate is None and len({t.dtype for t in given.values()}) > 1:
        found = ", ".join(f"{name} is {t.dtype}" for name, t in given.items())
        raise ShapeError(f"{op}: the dtypes differ: {found}; lw.cast to one of them")
    if accumulate is None or is_float(check_dtype(accumulate)):
        return
    for name, t in given.items():
        if is_float(t.dtype):
            raise ShapeError(
                f"{op}: {name} is {t.dtype}, whose fractions accumulate={accumulate!r} would cut "
                "off: give a floating type"
            )


def floating(op: str, argument: str, x: Tensor) -> None:
    """An argument must be of a floating type."""
    any_shape(op, argument, x)
    if not is_float(x.dtype):
        raise ShapeError(f"{op}: {argument} is {x.dtype}; lw.cast it to a floating type first")


def axis_of(op: str, axis: int, rank: int) -> int:
    """An axis counted from the front; negative ones count from the end."""
    if isinstance(axis, bool) or not isinstance(axis, int) or not -rank <= axis < rank:
        raise NotationError(f"{op}: axis is {axis!r}; it is an integer from {-rank} to {rank - 1}")
    return axis % rank


def flags(op: str, **options: bool) -> None:
    """Options must be True or False."""
    for name, given in options.items():
        if not isinstance(given, (int, np.bool_)) or given not in (0, 1):
            raise NotationError(f"{op}: {name} is {brief(given)}; it is True or False")


def layout_of(op: str, layout: str, allowed: Sequence[str]) -> str:
    """A layout that the operator knows."""
    if layout not in allowed:
        raise NotationError(f"{op}: layout is {layout!r}; use {' or '.join(map(repr, allowed))}")
    return layout


def per_axis(op: str, option: str, value: PerAxis, count: int, least: int) -> tuple[int, ...]:
    """One integer of at least `least` for each of `count` axes; a single one serves all."""
    numbers = _each(value, count)
    if len(numbers) != count or not all(_at_least(n, least) for n in numbers):
        many = "" if count == 1 else f", or {count} of them"
        raise NotationError(f"{op}: {option} is {value!r}; give an integer ≥ {least}{many}")
    return tuple(int(n) for n in numbers)


def pads_of(op: str, value: Padding, count: int) -> tuple[tuple[int, int], ...]:
    """`(before, after)` for each of `count` axes: from one integer, one an axis, or pairs."""
    pairs = [_each(p, 2) for p in _each(value, count)]
    if len(pairs) != count or not all(
        len(pair) == 2 and all(_at_least(n, 0) for n in pair) for pair in pairs
    ):
        raise NotationError(
            f"{op}: padding is {value!r}; give an integer ≥ 0, one for each of {count} axes, or "
            "(before, after) for each"
        )
    return tuple((int(before), int(after)) for before, after in pairs)


def fits(op: str, extent: int, window: int, what: str) -> None:
    """A window must not be larger than the axis, padding included, over which it moves."""
    if window > extent:
        raise ShapeError(
            f"{op}: the window spans {window} but {what}, padding included, has extent {extent}; "
            "pad more, or use a smaller window or dilation"
        )


def sum_types(x: Tensor, accumulate: str | None) -> tuple[str, str]:
    """The dtypes in which to sum and to return, for x; those of `accumulate` if it is given."""
    return (sum_type(x.dtype), x.dtype) if accumulate is None else (accumulate, accumulate)


def _each(value: Any, count: int) -> tuple[Any, ...]:
    """The items of a sequence, or anything else so many times."""
    return tuple(value) if isinstance(value, Sequence) else (value,) * count


def _at_least(number: object, least: int) -> bool:
    if isinstance(number, bool) or not isinstance(number, SupportsIndex):
        return False
    return int(number) >= least
