"""Questions of Python and NumPy that elements refuse: they have no value before a call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import numpy as np

from loopwright.dsl.elements import FLOAT_FUNCTIONS, REDUCERS
from loopwright.dsl.errors import NoAttributeError, NotationError

_Operator = TypeVar("_Operator", bound=Callable[..., Any])


class Valueless:
    """An element of the notation: whoever asks for its value learns what to write."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            raise NoAttributeError(
                f"an element has no .{name}: what is done to elements are functions, lw.exp(x) or "
                'lw.cast(x, "int32"); dir(lw) lists them'
            )

    def __array_function__(self, function: Any, *given: object) -> NoReturn:
        raise of_arrays(function)

    def __array__(self, *given: object, **options: object) -> Any:
        raise NotationError(
            "an element expression has no value before a call, so no array is made of it"
        )

    def __iter__(self) -> Any:
        raise NotationError(
            "an element is one number: lw.sum(x) and lw.max(x) go over the indices that are "
            "absent on the left, and lw.max(x, y) is the larger of two"
        )

    def __float__(self) -> float:
        raise NotationError(
            "an element expression has no value before a call: write lw.exp(x), not math.exp(x), "
            "and lw.cast in place of float and int"
        )

    def __int__(self) -> int:
        return int(float(self))

    def __matmul__(self, other: object) -> NoReturn:
        raise NotationError(
            "@ is for matrices, and these are elements: write C[i, j] += A[i, k] * B[k, j], or "
            "lw.ops.matmul(A, B)"
        )

    __rmatmul__ = __matmul__

    def __bool__(self) -> bool:
        raise NotationError(
            "an element expression has no truth value: use lw.where(cond, a, b), and & | ~ "
            "in place of and, or, not"
        )


def of_arrays(function: Any) -> NotationError:
    """The error for a function of NumPy's that is none of the notation's."""
    name = str(function.__name__)
    if name in (*REDUCERS, "where"):
        return NotationError(f"np.{name} works on arrays: write lw.{name}, which is of elements")
    return NotationError(
        f"np.{name} works on arrays, and the notation has no such function of elements; it has "
        f"{', '.join(sorted(FLOAT_FUNCTIONS))} and those of dir(lw)"
    )


def refuse_truth(value: object, where: str) -> None:
    """Raises `NotationError` for a truth value of Python's, which `==` of elements or indices
    gives: it compares the notation."""
    if isinstance(value, (bool, np.bool_)):
        raise NotationError(
            f"{where} is Python's {value}, and == compares notation: write lw.equal(i, j), or "
            "~lw.equal(i, j) for !="
        )


def beside_elements(method: _Operator) -> _Operator:
    """An operator of other things that leaves elements to theirs: `n - X[i]` is an element."""

    @functools.wraps(method)
    def operator(self: Any, other: Any) -> Any:
        return NotImplemented if isinstance(other, Valueless) else method(self, other)

    return cast(_Operator, operator)
