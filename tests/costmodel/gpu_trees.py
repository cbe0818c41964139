"""Loop trees of GPU programs built by hand, whose features a reader can check."""

from __future__ import annotations

from loopwright.dsl.expr import Binary, Expr
from loopwright.schedule.target import Gpu, Target
from loopwright.schedule.tree.grammar import (
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    Buffer,
    Linear,
    Load,
    Loop,
    MatrixFill,
    MatrixLoad,
    MatrixMultiply,
    MatrixStore,
    Quotient,
    Remainder,
    Stmt,
    Store,
    Tree,
    Var,
)
from tests.costmodel.trees import at, buffer, copy, fill, nest, tree

TARGET = Target(
    "cuda", gpu=Gpu(arch="sm_80", multiprocessors=4, tensor_cores=True, async_copies=True)
)


def kernel(*chain, body: tuple[Stmt, ...]) -> Loop:
    """Blocks and threads around the code of a thread: each (variable, extent, kind)."""
    return nest(*chain, body=body)


def row_copy(stride: int = 1, broadcast: bool = False) -> Tree:
    """`y[b, t] = x[b, t · stride]` by 8 blocks of 64 threads; with `broadcast`, of x[b, 0]."""
    b, t = Var("b"), Var("t")
    x, y = buffer("x", 8, 64 * stride), buffer("y", 8, 64)
    source = (b, 0) if broadcast else (b, ((t, stride),))
    return tree(kernel((b, 8, "block"), (t, 64, "thread"), body=(copy(y, (b, t), x, source),)))


def vector_copy(lanes: int) -> Tree:
    """A copy of 4096 floats by 64 threads a block, `lanes` elements at a time."""
    b, t, v = Var("b"), Var("t"), Var("v")
    x, y = buffer("x", 4096), buffer("y", 4096)
    place = ((b, 64 * lanes), (t, lanes), (v, 1))
    move = Loop(v, lanes, "vectorized", (copy(y, (place,), x, (place,)),))
    blocks = 4096 // 64 // lanes
    return tree(kernel((b, blocks, "block"), (t, 64, "thread"), body=(move,)))


def turned(pad: int) -> Tree:
    """Threads (i, j) of 16×32 write `s[j, i]` of shared memory, and read `s[i', j']` after."""
    b, i, j = Var("b"), Var("i"), Var("j")
    x, y = buffer("x", 16, 32), buffer("y", 32, 16)
    s = buffer("s", 32, 16 + pad, scope="shared")
    body = (Allocate(s), copy(s, (j, i), x, (i, j)), Barrier(), copy(y, (j, i), s, (j, i)))
    return tree(kernel((b, 1, "block"), (i, 16, "thread"), (j, 32, "thread"), body=body))


def matmul(n: int = 64, tile: int = 16, depth: int = 8) -> Tree:
    """C = A · B: tile × tile threads a block, each one element; A and B staged by rows of
    `depth`, the two copies guarded by nothing since tile · tile = 2 · tile · depth."""
    names = ("bi", "bj", "i", "j", "ko", "ki")
    bi, bj, i, j, ko, ki = map(Var, names)
    A, B, C = buffer("A", n, n), buffer("B", n, n), buffer("C", n, n)
    a, b = buffer("a", tile, depth, scope="shared"), buffer("b", depth, tile, scope="shared")
    acc = buffer("acc", 1, scope="register")
    mine = Linear(((i, tile), (j, 1)))
    row, column = Linear(((Quotient(mine, depth), 1),)), Linear(((Remainder(mine, depth), 1),))
    half = Linear(((Remainder(mine, tile * depth), 1),))
    down, along = Linear(((Quotient(half, tile), 1),)), Linear(((Remainder(half, tile), 1),))
    into = Linear(((bi, tile),))
    load_a = copy(a, (row, column), A, (into + row, column + Linear(((ko, depth),))))
    load_b = copy(b, (down, along), B, (down + Linear(((ko, depth),)), ((bj, tile), (j, 1))))
    product: Expr = Binary("mul", Load(a, at(i, ki)), Load(b, at(ki, j)))
    update = Store(acc, at(0), Binary("add", Load(acc, at(0)), product))
    stage = (load_a, load_b, Barrier(), Loop(ki, depth, "unrolled", (update,)), Barrier())
    body = (
        *map(Allocate, (a, b, acc)),
        fill(acc, (0,)),
        Loop(ko, n // depth, "serial", stage),
        copy(C, (((bi, tile), (i, 1)), ((bj, tile), (j, 1))), acc, (0,)),
    )
    blocks = ((bi, n // tile, "block"), (bj, n // tile, "block"))
    return tree(kernel(*blocks, (i, tile, "thread"), (j, tile, "thread"), body=body))


def products(pad: int = 8) -> Tree:
    """One warp a block: a 16×16 tile of C += A · B in tiles, B staged in shared memory by
    asynchronous copies of 16 bytes, rows `16 + pad` elements apart."""
    b, lane, k, r = map(Var, ("b", "lane", "k", "r"))
    A, B = buffer("A", 64, 64, dtype="float16"), buffer("B", 64, 16, dtype="float16")
    C = buffer("C", 64, 16)
    s = buffer("s", 16, 16 + pad, scope="shared", dtype="float16")
    left = Buffer("left", (1, 16, 16), "float16", "matrix_a")
    right = Buffer("right", (1, 16, 16), "float16", "matrix_b")
    acc = Buffer("acc", (1, 16, 16), "float32", "accumulator")
    row, half = (
        Linear(((Quotient(Linear(((lane, 1),)), 2), 1),)),
        Remainder(Linear(((lane, 1),)), 2),
    )
    place = Linear(((half, 8),))
    zero = at(0)
    stage = (
        AsyncCopy(s, (row, place), B, (row + Linear(((k, 16),)), place), 8),
        AsyncCommit(),
        AsyncWait(0),
        Barrier(),
        MatrixLoad(left, zero, A, at(((b, 16),), ((k, 16),)), 0, 1),
        MatrixLoad(right, zero, s, at(0, 0), 0, 1),
        MatrixMultiply(acc, zero, left, zero, right, zero),
        Barrier(),
    )
    body = (
        *map(Allocate, (s, left, right, acc)),
        MatrixFill(acc, zero, 0.0),
        Loop(k, 4, "serial", stage),
        MatrixStore(C, at(((b, 16),), 0), 0, 1, acc, zero),
    )
    return tree(kernel((b, 4, "block"), (r, 1, "thread"), (lane, 32, "thread"), body=body))
