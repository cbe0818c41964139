"""Integer operators of the notation as TIR, with NumPy's wraparound.

TVM tells LLVM that arithmetic of 32 and 64 bits never overflows, and the processors trap at a
division by zero. So what may overflow is worked out in a wider type and cut off, or in halves; and
a divisor that may be 0 or -1 is not divided by where it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from loopwright.codegen.tir.bindings import Bind, dtype_of
from loopwright.dsl.dtypes import is_unsigned, item_bytes

Choose = Callable[[Any, Any, Any], Any]
"""Makes `yes` where a condition holds, else `no`."""
Power = Callable[[Any, Any, Choose, Bind], Any]
"""Makes a power of integers."""

WIDER = {
    **dict.fromkeys(("int8", "uint8", "int16"), "int32"),
    **dict.fromkeys(("int32", "uint16", "uint32"), "int64"),
}
"""Types that hold the sums and products of narrower ones."""
_OPERATORS = {"add": tirx.Add, "sub": tirx.Sub, "mul": tirx.Mul}


def wrapped(op: str, parts: list[Any], dtype: str, bind: Bind) -> Any:
    """A sum, difference or product modulo 2^n."""
    if dtype == "uint64":
        return _in_halves(op, bind(parts[0]), bind(parts[1]), bind)
    if dtype not in WIDER:
        return _OPERATORS[op](*parts)
    wide = "uint64" if (op, dtype) == ("mul", "uint32") else WIDER[dtype]
    return tirx.Cast(dtype, _OPERATORS[op](*(tirx.Cast(wide, part) for part in parts)))


def _in_halves(op: str, x: Any, y: Any, bind: Bind) -> Any:
    """The same of uint64, by parts of 32 bits that overflow nowhere."""
    mask, half = tirx.IntImm("uint64", (1 << 32) - 1), tirx.IntImm("uint64", 32)

    def halves(value: Any) -> tuple[Any, Any]:
        return tirx.bitwise_and(value, mask), tirx.shift_right(value, half)

    if op == "sub":  # x - y = x + ~y + 1
        less = _in_halves("add", x, bind(tirx.bitwise_not(y)), bind)
        return _in_halves("add", bind(less), tirx.IntImm("uint64", 1), bind)
    (low_x, high_x), (low_y, high_y) = halves(x), halves(y)
    if op == "add":
        low = bind(low_x + low_y)
        high = high_x + high_y + tirx.shift_right(low, half)
        return tirx.bitwise_or(tirx.shift_left(high, half), tirx.bitwise_and(low, mask))
    crossed = tirx.bitwise_and(low_x * high_y, mask) + tirx.bitwise_and(high_x * low_y, mask)
    return _in_halves("add", bind(low_x * low_y), bind(tirx.shift_left(crossed, half)), bind)


def shifted(op: str, x: Any, y: Any, choose: Choose, bind: Bind) -> Any:
    """x shifted by y bits; where y is negative or too large, only the sign of x is left."""
    dtype = dtype_of(x)
    bits = 8 * item_bytes(dtype)
    function = tirx.shift_left if op == "shl" else tirx.shift_right
    narrow = WIDER.get(dtype) == "int32"

    def by(count: Any) -> Any:
        if narrow:  # C computes them as integers
            return tirx.Cast(dtype, function(tirx.Cast("int32", x), tirx.Cast("int32", count)))
        return function(x, count)

    if isinstance(y, tirx.IntImm) and 0 <= int(y) < bits:
        return by(y)
    x, y = bind(x), bind(y)
    zero = tirx.IntImm(dtype, 0)
    inside = tirx.LT(y, tirx.IntImm(dtype, bits))
    if not is_unsigned(dtype):
        inside = tirx.And(inside, tirx.GE(y, zero))
    beyond = zero
    if op == "shr" and not is_unsigned(dtype):
        beyond = choose(tirx.LT(x, zero), tirx.IntImm(dtype, -1), zero)
    return choose(inside, by(choose(inside, y, zero)), beyond)


def divided(op: str, x: Any, y: Any, choose: Choose, bind: Bind) -> Any:
    """Quotient or remainder: "floordiv" and "mod" by the floor of x / y, the others cut off.

    By 0, all are 0; the least number by -1 is itself."""
    dtype = dtype_of(x)
    zero, one = tirx.IntImm(dtype, 0), tirx.IntImm(dtype, 1)
    signed = not is_unsigned(dtype)
    if isinstance(y, tirx.IntImm) and int(y) not in (0, -1):
        return _divided(op, x, y, choose)
    x, y = bind(x), bind(y)
    safe = choose(tirx.EQ(y, zero), one, y)
    if signed:
        safe = choose(tirx.EQ(y, tirx.IntImm(dtype, -1)), one, safe)
    value = _divided(op, x, bind(safe), choose)
    if op in ("mod", "fmod"):  # nothing remains of a division by 1
        return value
    if signed:
        negative = wrapped("sub", [zero, x], dtype, bind)
        value = choose(tirx.EQ(y, tirx.IntImm(dtype, -1)), negative, value)
    return choose(tirx.EQ(y, zero), zero, value)


def _divided(op: str, x: Any, y: Any, choose: Choose) -> Any:
    """The same by a divisor that is neither 0 nor -1, or is 1 in their place. TVM's own floor
    division trusts that arithmetic before it has not wrapped."""
    quotient, rest = tirx.truncdiv(x, y), tirx.truncmod(x, y)
    dtype = dtype_of(x)
    if op in ("trunc_div", "fmod") or is_unsigned(dtype):
        return quotient if op in ("floordiv", "trunc_div") else rest
    zero, one = (tirx.IntImm(dtype, n) for n in (0, 1))
    if isinstance(y, tirx.IntImm):
        beyond = (tirx.LT if int(y) > 0 else tirx.GT)(rest, zero)
    else:
        below, above = tirx.LT(rest, zero), tirx.GT(rest, zero)
        beyond = tirx.Or(tirx.And(below, tirx.GT(y, zero)), tirx.And(above, tirx.LT(y, zero)))
    if op == "mod":
        return choose(beyond, tirx.Add(rest, y), rest)
    return choose(beyond, tirx.Sub(quotient, one), quotient)


def power(x: Any, y: Any, natural: Power, choose: Choose, bind: Bind) -> Any:
    """x to the power y modulo 2^n, `natural` for y >= 0; 1 over the power for y < 0, cut off."""
    dtype = dtype_of(x)
    zero, one = tirx.IntImm(dtype, 0), tirx.IntImm(dtype, 1)
    x, y = bind(x), bind(y)
    value = natural(x, y, choose, bind)
    if is_unsigned(dtype):
        return value
    odd = tirx.EQ(tirx.bitwise_and(y, one), one)
    minus = choose(odd, x, one)
    inverse = choose(tirx.EQ(x, one), one, choose(tirx.EQ(x, tirx.IntImm(dtype, -1)), minus, zero))
    return choose(tirx.LT(y, zero), inverse, value)


def by_squares(x: Any, y: Any, choose: Choose, bind: Bind) -> Any:
    """x to the power y >= 0, as the product of x^(2^k) for all digits k of y."""
    dtype = dtype_of(x)
    one = tirx.IntImm(dtype, 1)
    result, square = one, x
    digits = 8 * item_bytes(dtype) - (not is_unsigned(dtype))
    for digit in range(digits):
        bit = tirx.bitwise_and(tirx.shift_right(y, tirx.IntImm(dtype, digit)), one)
        factor = choose(tirx.EQ(bit, one), square, one)
        result = bind(wrapped("mul", [result, factor], dtype, bind))
        if digit + 1 < digits:
            square = bind(wrapped("mul", [square, square], dtype, bind))
    return result
