"""Element expressions: what one element of a tensor is worth.

    expr = Const(value, dtype)            | Read(tensor, index…)
         | Extent(size, dtype)
         | IndexValue(affine)             | Unary(op, x)
         | Binary(op, x, y)               | Select(cond, x, y)
         | Cast(x, dtype)                 | Reduce(op, x)   -- of a definition, its whole body
         | Gather(table, at…)

Both sides of an operator have one dtype: a Python number takes that of the other side, two
tensors of different types want an explicit `lw.cast`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from loopwright.dsl.dtypes import is_float, limits
from loopwright.dsl.elements import BINARY, FLOAT_FUNCTIONS, UNARY
from loopwright.dsl.errors import NotationError
from loopwright.dsl.index import Affine, IndexExpr
from loopwright.dsl.size import Size
from loopwright.dsl.valueless import Valueless, of_arrays, refuse_truth
from loopwright.dsl.words import no_element

if TYPE_CHECKING:
    from loopwright.dsl.tensor import Tensor

ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%"}
COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
LOGICAL = {"and": "&", "or": "|"}
SHIFTS = {"shl": "<<", "shr": ">>"}
BITWISE = {**LOGICAL, "xor": "^", **SHIFTS}
DIVISIONS = {"floordiv": "//", "mod": "%", "trunc_div": "trunc_div", "fmod": "fmod"}
FLOAT_ONLY = (*FLOAT_FUNCTIONS, "div", "atan2")
ORDERS = ("greatest", "least")
"""Reducers whose value is the place of the r-th element along the reduction: the greatest or the
least first. An index of the left that is not on the right counts ranks r; without one, r is 0.
Equal elements are in the order of their places, and NaN is greater than all numbers."""
_UFUNCS = {f: name for name, f in (UNARY | BINARY).items() if isinstance(f, np.ufunc)}
_UFUNCS[np.power] = "pow"
_MOST_PRODUCTS = 8  # factors of a power that is written as a product


_Method = Callable[["Expr", object], "Expr"]


def _methods(op: str) -> tuple[_Method, _Method]:
    """Two methods for an operator: of what stands on its left, and of what stands on its right."""

    def left(self: Expr, other: object) -> Expr:
        return binary(op, self, other)

    def right(self: Expr, other: object) -> Expr:
        return binary(op, other, self)

    return left, right


class Expr(Valueless):
    """An element expression, shown as it is written; Python's operators build larger ones."""

    shown: ClassVar[Callable[[Expr], str]] = object.__repr__

    def __repr__(self) -> str:
        return type(self).shown(self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: object, **options: Any) -> Expr:
        """NumPy's functions are those of the notation: `np.exp(A[i])` is `lw.exp(A[i])`."""
        op = _UFUNCS.get(ufunc) if method == "__call__" and not options else None
        if op is None:
            raise of_arrays(ufunc)
        return unary(op, *inputs) if len(inputs) == 1 else binary(op, *inputs)

    def __round__(self, digits: int | None = None) -> Expr:
        if digits is not None:
            raise NotationError("round: elements are rounded to whole numbers; leave digits out")
        return unary("round", self)

    @property
    def dtype(self) -> str:
        raise TypeError(f"{type(self).__name__} has no dtype")

    __add__, __radd__ = _methods("add")
    __sub__, __rsub__ = _methods("sub")
    __mul__, __rmul__ = _methods("mul")
    __truediv__, __rtruediv__ = _methods("div")
    __floordiv__, __rfloordiv__ = _methods("floordiv")
    __mod__, __rmod__ = _methods("mod")
    __and__, __rand__ = _methods("and")
    __or__, __ror__ = _methods("or")
    __xor__, __rxor__ = _methods("xor")
    __lshift__, __rlshift__ = _methods("shl")
    __rshift__, __rrshift__ = _methods("shr")
    __lt__, __le__ = _methods("lt")[0], _methods("le")[0]
    __gt__, __ge__ = _methods("gt")[0], _methods("ge")[0]

    def __pow__(self, exponent: object) -> Expr:
        return power(self, exponent)

    def __rpow__(self, base: object) -> Expr:
        return power(base, self)

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def __abs__(self) -> Expr:
        return unary("abs", self)

    def __invert__(self) -> Expr:
        return unary("not", self)


class _Typed(Expr):
    """An element that says its type."""

    type: str

    @property
    def dtype(self) -> str:
        return self.type


@dataclass(frozen=True, repr=False)
class Const(_Typed):
    """A number."""

    value: float | int | bool
    type: str


@dataclass(frozen=True, repr=False)
class Extent(_Typed):
    """The value of a size, a `Const` once its dims are chosen."""

    size: Size
    type: str

    def at(self, extent: int | Size) -> Const | Extent:
        """The same of another size; a constant where it is a number."""
        if isinstance(extent, Size):
            return Extent(extent, self.type)
        return _const(extent, self.type)


@dataclass(frozen=True, repr=False)
class Read(Expr):
    """One element of a tensor: `A[i, 2*k + 1]`."""

    tensor: Tensor
    index: tuple[Affine, ...]

    @property
    def dtype(self) -> str:
        return self.tensor.dtype

    # `T[i] += x` defines T, whose type may yet be open; that of an input is not.
    def __iadd__(self, value: object) -> Any:
        x = as_expr(value, like=self)
        open_type = self.tensor.open_dtype and x.dtype != self.dtype
        return Accumulation(self, x) if open_type else self + x


@dataclass(frozen=True, repr=False)
class Table(Read):
    """The read in a `Gather`: 0 stands where elements are subscripts. Only what a tensor is made
    of may be learned from it; rewrites that replace reads leave it alone."""


@dataclass(frozen=True, repr=False)
class Gather(Expr):
    """An element of a tensor at places that elements name: `X[I[i], j]`.

    `at` has the element for each axis of the table, None where the table's own subscript holds. A
    negative element counts from the end, as in Python. What is outside of the tensor then is moved
    to the nearest element. `shape` is the tensor's own: the table may be a view with axes merged.
    """

    table: Any  # a `Table`; in a loop tree, a load
    at: tuple[Expr | None, ...]
    shape: tuple[int, ...]

    @property
    def dtype(self) -> str:
        return str(self.table.dtype)


@dataclass(frozen=True)
class Accumulation:
    """Right-hand side of `T[i] += x` before it is assigned, for a T that takes its type from x."""

    read: Read
    x: Expr


@dataclass(frozen=True, repr=False)
class IndexValue(Expr):
    """The value of an index expression, as an int32 element."""

    value: Affine

    @property
    def dtype(self) -> str:
        return "int32"


@dataclass(frozen=True, repr=False)
class Unary(Expr):
    """A function or a sign of an element: one of `UNARY`."""

    op: str
    x: Expr

    @property
    def dtype(self) -> str:
        return self.x.dtype


@dataclass(frozen=True, repr=False)
class Binary(Expr):
    """An operator or a function of two elements: one of `BINARY`."""

    op: str
    x: Expr
    y: Expr

    @property
    def dtype(self) -> str:
        return "bool" if self.op in COMPARISONS else self.x.dtype


@dataclass(frozen=True, repr=False)
class Select(Expr):
    """`x` where `cond` holds, else `y`; the side not taken has no effect, reads included."""

    cond: Expr
    x: Expr
    y: Expr

    @property
    def dtype(self) -> str:
        return self.x.dtype


@dataclass(frozen=True, repr=False)
class Cast(_Typed):
    """The element converted to another type."""

    x: Expr
    type: str


@dataclass(frozen=True, repr=False)
class Reduce(Expr):
    """The reduction of `x` over the indices that are absent on the left of the definition."""

    op: str
    x: Expr

    @property
    def dtype(self) -> str:
        return "int32" if self.op in ORDERS else self.x.dtype


def as_expr(value: object, like: Expr | None = None) -> Expr:
    """An element expression; a Python number takes the type of `like`."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, IndexExpr):
        return IndexValue(value.affine())
    if isinstance(value, Size):
        return Extent(value, "int32" if like is None else like.dtype)
    number: Any = value
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.shape == ()):
        number = value.item()  # comparisons of NumPy's numbers come as arrays without axes
    if not isinstance(number, (bool, int, float)):
        raise NotationError(no_element(value))
    natural = {bool: "bool", float: "float32"}.get(type(number), "int32")
    return _const(number, natural if like is None else like.dtype)


def unary(op: str, x: object) -> Expr:
    """Apply a one-argument function, checking that the type admits it."""
    value = as_expr(x)
    if op in FLOAT_ONLY and not is_float(value.dtype):
        raise NotationError(f"{op} of {value.dtype}: cast to a floating type first")
    if value.dtype == "bool" if op != "not" else is_float(value.dtype):
        raise NotationError(f"{op} of {value.dtype} is not in the notation: cast first")
    return Unary(op, value)


def gather(tensor: Tensor, index: tuple[Affine | Expr, ...]) -> Gather:
    """An element of a tensor at index expressions and integer elements."""
    for x in index:
        if isinstance(x, Expr) and (is_float(x.dtype) or x.dtype == "bool"):
            raise NotationError(
                f"{tensor.name} is indexed by an element of {x.dtype}: use an integer element, "
                'lw.cast(…, "int32")'
            )
    zero = Affine((), 0)
    places = tuple(zero if isinstance(x, Expr) else x for x in index)
    at = tuple(x if isinstance(x, Expr) else None for x in index)
    return Gather(Table(tensor, places), at, tensor.shape or ())


def binary(op: str, x: object, y: object) -> Expr:
    """Apply an operator to two sides of one type."""
    if op in BITWISE:
        for side in (x, y):
            refuse_truth(side, f"a side of {BITWISE[op]}")
    a, b = sides(x, y)
    sign = {**ARITHMETIC, **COMPARISONS, **BITWISE}.get(op, op)
    if a.dtype != b.dtype:
        raise NotationError(
            f"{a.dtype} {sign} {b.dtype}: the sides differ in type; cast one, e.g. "
            f'lw.cast(…, "{a.dtype}")'
        )
    if op == "xor" and a.dtype == "bool":
        op = "ne"
    wrong = is_float(a.dtype) if op in BITWISE else a.dtype == "bool" and op not in COMPARISONS
    if wrong or (op in SHIFTS and a.dtype == "bool"):
        raise NotationError(f"{a.dtype} {sign} {b.dtype} is not in the notation: cast first")
    if op == "div" and not is_float(a.dtype):
        raise NotationError(f"{a.dtype} / {b.dtype}: use // for integers, or cast to a float")
    if op in FLOAT_ONLY and not is_float(a.dtype):
        raise NotationError(f"{op} of {a.dtype}: cast to a floating type first")
    if op == "trunc_div" and is_float(a.dtype):
        raise NotationError(f"trunc_div of {a.dtype} is for integers: use lw.trunc(x / y)")
    if op in DIVISIONS and not is_float(a.dtype) and isinstance(b, Const) and b.value == 0:
        raise NotationError(f"{a.dtype} {sign} 0: divide an integer by another number")
    return Binary(op, a, b)


def power(base: object, exponent: object) -> Expr:
    """The base to an exponent: as products and square roots where these say it, else as "pow"."""
    number = exponent.item() if isinstance(exponent, np.generic) else exponent
    if isinstance(base, Expr) and isinstance(number, (int, float)):
        if number in range(1, _MOST_PRODUCTS + 1):
            return functools.reduce(operator.mul, [base] * int(number))
        if number == -1 and is_float(base.dtype):
            return binary("div", 1, base)
        if number == 0.5 and is_float(base.dtype):
            return unary("sqrt", base)
    return binary("pow", base, exponent)


def sides(x: object, y: object) -> tuple[Expr, Expr]:
    """Two operands as expressions; a number takes the type of the other side."""
    if isinstance(x, (int, float)) and isinstance(y, (int, float)):
        like = as_expr(float(x)) if isinstance(x, float) or isinstance(y, float) else None
        return as_expr(x, like), as_expr(y, like)
    right = None if isinstance(y, (int, float, np.generic, Size)) else as_expr(y)
    a = as_expr(x, like=right)
    b = as_expr(y, like=a) if right is None else right
    return _beside(a, b), _beside(b, a)


def _beside(x: Expr, other: Expr) -> Expr:
    """An operand; an index beside an int64 is one, too."""
    return Cast(x, "int64") if isinstance(x, IndexValue) and other.dtype == "int64" else x


def _const(number: bool | int | float, dtype: str) -> Const:
    """A constant of a type that can hold it."""
    if dtype != "bool":
        refuse_truth(number, f"a side of an expression of {dtype}")
    if is_float(dtype):
        try:
            return Const(float(number), dtype)
        except OverflowError:
            raise NotationError(
                f"an integer of {int(number).bit_length()} bits is too large for {dtype}"
            ) from None
    if isinstance(number, float):
        raise NotationError(f"the number {number} meets an expression of {dtype}: cast one")
    if dtype == "bool":
        if not isinstance(number, bool):
            raise NotationError(f"the number {number} meets a truth value: cast it, or use ~ & |")
        return Const(number, dtype)
    lowest, highest = limits(dtype)
    if not lowest <= number <= highest:
        raise NotationError(f"the number {number} is outside of {dtype}, {lowest} to {highest}")
    return Const(int(number), dtype)


def _compare_indices(op: str, left: IndexExpr, right: object) -> Any:
    if not isinstance(right, (IndexExpr, int, np.integer, Size)):
        return NotImplemented
    value = as_expr(left)
    return Binary(op, value, as_expr(right, like=value))


IndexExpr.compare = _compare_indices
IndexExpr.element = as_expr
