"""TVM's expressions as the notation's: index arithmetic, and values of elements."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import check_dtype, is_float, limits
from loopwright.dsl.elements import FLOAT_FUNCTIONS
from loopwright.dsl.expr import Const, Expr, IndexValue, as_expr, binary, unary
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.tensor import Tensor
from loopwright.graph.errors import UnsupportedOperator

_BINARY = {
    tirx.Add: "add", tirx.Sub: "sub", tirx.Mul: "mul", tirx.Min: "min", tirx.Max: "max",
    tirx.EQ: "eq", tirx.NE: "ne", tirx.LT: "lt", tirx.LE: "le", tirx.GT: "gt", tirx.GE: "ge",
    tirx.And: "and", tirx.Or: "or", tirx.FloorDiv: "floordiv", tirx.FloorMod: "mod",
}  # fmt: skip
_LOGICAL = {tirx.Mul: "and", tirx.Min: "and", tirx.Add: "or", tirx.Max: "or"}
"""Arithmetic on truth values, as their operators."""
_UNARY: dict[str, Callable[[Any], Expr]] = {
    **{name: functools.partial(unary, name) for name in FLOAT_FUNCTIONS},
    "fabs": f.abs,
    "abs": f.abs,
    "nearbyint": f.round,
    "bitwise_not": functools.partial(unary, "not"),
    "exp10": lambda x: f.pow(10.0, x),
    "isnan": f.isnan,
    "isinf": f.isinf,
    "isfinite": lambda x: f.abs(x) < float("inf"),
}
_OF_TWO = {
    "pow": "pow", "power": "pow", "atan2": "atan2", "fmod": "fmod",
    "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor",
    "shift_left": "shl", "shift_right": "shr",
}  # fmt: skip
_POWERS: dict[float, Callable[[Expr], Expr]] = {
    -1.0: lambda x: 1 / x,
    -0.5: f.rsqrt,
    0.25: lambda x: f.sqrt(f.sqrt(x)),
    0.5: f.sqrt,
    0.75: lambda x: f.sqrt(x) * f.sqrt(f.sqrt(x)),  # local response norms
    1.0: lambda x: x,
    1.5: lambda x: x * f.sqrt(x),
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    4.0: lambda x: (x * x) * (x * x),
}


class Values:
    """Meaning of expressions inside of one block.

    `tensors` are the buffers' counterparts, `indices` those of the block's variables, `lets` what
    other variables stand for.
    """

    def __init__(
        self, tensors: Mapping[Any, Tensor], indices: Mapping[Any, Index], lets: Mapping[Any, Any]
    ) -> None:
        self.tensors, self.indices, self.lets = tensors, indices, dict(lets)
        self.extents = {i: i.extent or 1 for i in indices.values()}

    def resolved(self, x: Any) -> Any:
        """An expression that is not just a name for another one."""
        while isinstance(x, tirx.Var) and x in self.lets:
            x = self.lets[x]
        return x

    def affine(self, x: Any) -> Affine | None:
        """An index expression; None if it is something else."""
        x = self.resolved(x)
        if isinstance(x, tirx.IntImm):
            return Affine((), int(x))
        if isinstance(x, tirx.Var):
            return self.indices[x].affine() if x in self.indices else None
        if isinstance(x, tirx.Cast) and _dtype(x).startswith("int"):
            return self.affine(x.value)
        if not isinstance(x, (tirx.Add, tirx.Sub, tirx.Mul, *_DIVISIONS)):
            return None
        a, b = self.affine(x.a), self.affine(x.b)
        return None if a is None or b is None else self._combined(x, a, b)

    def _combined(self, x: Any, a: Affine, b: Affine) -> Affine | None:
        if isinstance(x, tirx.Add):
            return a + b
        if isinstance(x, tirx.Sub):
            return a - b
        if isinstance(x, tirx.Mul):
            if b.terms:
                a, b = b, a
            return None if b.terms else a * b.const
        if b.terms or b.const < 1:
            return None
        rounds_to_zero = isinstance(x, (tirx.Div, tirx.Mod))
        if rounds_to_zero and a.bounds(self.extents)[0] < 0:
            return None
        return a // b.const if isinstance(x, (tirx.FloorDiv, tirx.Div)) else a % b.const

    def expr(self, x: Any) -> Expr:
        """The value of an element; numbers made of indices are int32."""
        x = self.resolved(x)
        if isinstance(x, (tirx.IntImm, tirx.FloatImm)):
            return _constant(x)
        if _dtype(x).startswith("int") and (form := self.affine(x)) is not None:
            return IndexValue(form)
        if isinstance(x, TensorLoad):
            return self._load(x)
        if isinstance(x, tirx.Cast):
            return f.cast(self.expr(x.value), check_dtype(_dtype(x)))
        if isinstance(x, tirx.Not):
            return unary("not", self.expr(x.a))
        if isinstance(x, tirx.Select):
            return self._select(x.condition, x.true_value, x.false_value)
        if isinstance(x, tirx.Let):
            self.lets[x.var] = x.value
            return self.expr(x.body)
        if isinstance(x, tirx.Div):
            return self._divided(x)
        if isinstance(x, tirx.Mod):
            return f.fmod(*_agreeing(self.expr(x.a), self.expr(x.b)))
        if type(x) in _BINARY:
            a, b = _agreeing(self.expr(x.a), self.expr(x.b))
            named = _LOGICAL if a.dtype == "bool" else _BINARY
            return binary(named.get(type(x), _BINARY[type(x)]), a, b)
        if isinstance(x, Call):
            return self._call(x)
        raise UnsupportedOperator(f"the notation has no {type(x).__name__}")

    def _load(self, x: Any) -> Expr:
        tensor = self.tensors.get(x.source)
        if tensor is None:
            raise UnsupportedOperator(f"it reads {x.source.name}, a view")
        index: list[Affine | Expr] = []
        for at, size in zip(x.indices, tensor.shape or ()):
            form = self.affine(at)
            if form is None:
                index.append(self.expr(at))
                continue
            plain = form.plain()
            if plain is not None and self.extents[plain] < size:
                # A plain index runs over the whole axis, by the notation's rules; this one not.
                form = plain % self.extents[plain]
            index.append(form)
        return tensor[tuple(index)]

    def _select(self, cond: Any, x: Any, y: Any) -> Expr:
        return f.where(self.expr(cond), *_agreeing(self.expr(x), self.expr(y)))

    def _divided(self, x: Any) -> Expr:
        a, b = _agreeing(self.expr(x.a), self.expr(x.b))
        return a / b if is_float(a.dtype) else f.trunc_div(a, b)

    def _call(self, x: Any) -> Expr:
        name = str(getattr(x.op, "name", x.op)).split(".", 1)[-1]
        if name in ("if_then_else", "likely", "assume"):
            return self._select(*x.args) if name == "if_then_else" else self.expr(x.args[0])
        if name in ("pow", "power"):
            exponent = self.resolved(x.args[1])
            if isinstance(exponent, (tirx.FloatImm, tirx.IntImm)) and exponent.value in _POWERS:
                return _POWERS[float(exponent.value)](self.expr(x.args[0]))
        if name in _OF_TWO:
            return binary(_OF_TWO[name], *_agreeing(*map(self.expr, x.args)))
        if name not in _UNARY:
            raise UnsupportedOperator(f"the notation has no {name}")
        return _UNARY[name](self.expr(x.args[0]))


_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)


def _dtype(x: Any) -> str:
    return str(x.ty.dtype)


def _constant(x: Any) -> Expr:
    dtype = check_dtype(_dtype(x))
    value = bool(x.value) if dtype == "bool" else x.value
    return as_expr(value, like=Const(0, dtype))


def _agreeing(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Both sides in one type. TVM counts indices in 64 bits, the notation in 32."""
    if a.dtype == b.dtype:
        return a, b
    for one, other, swap in ((a, b, False), (b, a, True)):
        if {one.dtype, other.dtype} != {"int32", "int64"}:
            raise UnsupportedOperator(f"{a.dtype} meets {b.dtype}")
        if isinstance(one, Const) and one.dtype == "int64" and _fits(one):
            new: Expr = Const(one.value, "int32")
            return (other, new) if swap else (new, other)
    return f.cast(a, "int64"), f.cast(b, "int64")


def _fits(x: Const) -> bool:
    low, high = limits("int32")
    return low <= x.value <= high
