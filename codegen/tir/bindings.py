"""Names for values that an expression uses more than once.

TIR has an expression for that, `Let`, and the vectorizer widens it. But TVM's analyzer substitutes
the bound values into each other, in several passes and again in the LLVM code generator (`Bind`
statements too), so that the time to compile multiplies with every level of nesting: an exp takes
25 ms, exp(exp(x)) a second, x tanh(log(1 + exp(x))) more than five minutes. `Scratch` stores the
values in small arrays instead, which no analysis looks through and LLVM keeps in registers: its
cost is linear. So whatever works out a shared value takes a `Bind`, and its caller chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import tirx
from tvm.ir import Expr

Bind = Callable[[Expr], Expr]
"""Takes a value, returns an expression of one node that stands for it from then on."""


def with_lets(body: Callable[[Bind], Expr]) -> Expr:
    """`body(bind)` inside a `Let` for each value that it bound; for one function, not for more.

    bind(a), bind(b), e  ↦  let t0 = a in let t1 = b in e
    """
    bound: list[tuple[tirx.Var, Expr]] = []

    def bind(value: Expr) -> Expr:
        variable = tirx.Var(f"t{len(bound)}", dtype_of(value))
        bound.append((variable, value))
        return variable

    result = body(bind)
    for variable, value in reversed(bound):
        result = tirx.Let(variable, value, result)
    return result


class Scratch:
    """Binds values by storing them, one statement each, in small arrays of `lanes` elements.

        bind(a), bind(b), O[i] = e  ↦  t0[lane] = a; t1[lane] = b; O[i] = e

    `vector(v)` does the same for a value that is a vector already, ahead of the loop.

    Life cycle: make one for each innermost loop of `lanes` iterations over `lane` (for scalar code
    leave both out); use it as the `bind` of every function in the loop's body; then put
    `statements(...)` into the loop and `around(...)` around it. The arrays must be declared
    outside of the vectorized loop: inside, TVM gives all lanes the value of the first.

    The values are worked out unconditionally. What must be guarded, such as a load behind
    `if_then_else`, has to bring its guard along.

    The scope of the arrays is "global": TVM puts those under 1024 bytes on the stack, and takes
    arrays of scope "local" from the heap.
    """

    def __init__(self, lane: Expr | None = None, lanes: int = 1) -> None:
        self._index = tirx.IntImm("int32", 0) if lane is None else lane
        self._lanes = lanes
        self._stores: list[tirx.Stmt] = []
        self._buffers: list[tirx.Var] = []
        self._ahead: list[tirx.Stmt] = []

    def __call__(self, value: Expr) -> Expr:
        buffer = self._declared(dtype_of(value))
        self._stores.append(tirx.BufferStore(buffer, value, [self._index]))
        return tirx.BufferLoad(buffer, [self._index])

    def vector(self, value: Expr, dtype: str) -> Expr:
        """The element at `lane` of a vector of `lanes` elements of `dtype`."""
        buffer = self._declared(dtype)
        lanes = tirx.Ramp(tirx.IntImm("int32", 0), tirx.IntImm("int32", 1), self._lanes)
        self._ahead.append(tirx.BufferStore(buffer, value, [lanes]))
        return tirx.BufferLoad(buffer, [self._index])

    def statements(self, body: Sequence[tirx.Stmt]) -> tirx.Stmt:
        """The stores so far, then `body`."""
        return sequence([*self._stores, *body])

    def around(self, loop: tirx.Stmt) -> tirx.Stmt:
        """The declarations of the arrays and the vectors that stand ahead, then `loop`."""
        return sequence([*map(tirx.AllocBuffer, self._buffers), *self._ahead, loop])

    def _declared(self, dtype: str) -> tirx.Var:
        name = f"t{len(self._buffers)}"
        self._buffers.append(tirx.decl_buffer((self._lanes,), dtype, name, scope="global"))
        return self._buffers[-1]


def dtype_of(value: Expr) -> str:
    """The element type of an expression, by name."""
    return str(value.ty.dtype)


def sequence(statements: Sequence[tirx.Stmt]) -> tirx.Stmt:
    """Statements as one."""
    if not statements:
        return tirx.Evaluate(tirx.IntImm("int32", 0))
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))
