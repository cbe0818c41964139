"""Loop trees built by hand, whose features a reader can check."""

from __future__ import annotations

from loopwright.dsl.expr import Binary, Const, Expr
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Buffer, Linear, Load, Loop, Stmt, Store, Tree, Var

TARGET = Target(vector_bytes=32, vector_registers=16, threads=2)


def buffer(name, *shape, scope="argument", dtype="float32"):
    return Buffer(name, shape, dtype, scope)


def at(*positions):
    """Subscripts: each a variable, or a sum of (variable, coefficient) pairs and numbers."""
    return tuple(_linear(p) for p in positions)


def _linear(position):
    if isinstance(position, Linear):
        return position
    if isinstance(position, Var):
        return Linear(((position, 1),))
    if isinstance(position, int):
        return Linear((), position)
    return Linear(tuple(position))


def multiply_add(c: Buffer, at_c, a: Buffer, at_a, b: Buffer, at_b) -> Store:
    """`c[…] = c[…] + a[…] * b[…]`"""
    product: Expr = Binary("mul", Load(a, at(*at_a)), Load(b, at(*at_b)))
    return Store(c, at(*at_c), Binary("add", Load(c, at(*at_c)), product))


def copy(to: Buffer, at_to, source: Buffer, at_source) -> Store:
    """`to[…] = source[…]`"""
    return Store(to, at(*at_to), Load(source, at(*at_source)))


def fill(to: Buffer, at_to) -> Store:
    """`to[…] = 0`"""
    return Store(to, at(*at_to), Const(0.0, "float32"))


def nest(*loops, body) -> Loop:
    """Loops inside each other, outermost first: each (variable, extent) or with a kind."""
    stmts: tuple[Stmt, ...] = body if isinstance(body, tuple) else (body,)
    for var, extent, *kind in reversed(loops):
        stmts = (Loop(var, extent, kind[0] if kind else "serial", stmts),)
    (outermost,) = stmts
    return outermost


def tree(*body: Stmt, n: int = 1) -> Tree:
    """A tree of `body`; nothing in the features depends on its arguments."""
    return Tree(n, (), (), (), (), (), tuple(body))


def matmul(rows=4, inner=16, columns=32) -> Tree:
    """`for i: for k: vector for j: C[i, j] += A[i, k] * B[k, j]`"""
    i, k, j = Var("i"), Var("k"), Var("j")
    A, B, C = buffer("A", rows, inner), buffer("B", inner, columns), buffer("C", rows, columns)
    update = multiply_add(C, (i, j), A, (i, k), B, (k, j))
    return tree(nest((i, rows), (k, inner), (j, columns, "vectorized"), body=update))
