"""The loop tree: what every sketch lowers to, what codegen emits and what the models read.

    tree   = Tree(inputs, prepared, outputs, prepare: stmt*, body: stmt*)
    stmt   = Loop(var, extent, kind, body: stmt*, bound)      extent may be 0: no iteration
                  which may leave out iterations where some loads are 0 (`Sparse`)
           | Let(var, value, limit)                           var = min(value, limit), to the end
           | Allocate(buffer)                                                   of this block
           | Store(buffer, index*, value)
           | Prefetch(buffer, index*)                         a hint
           | Barrier | AsyncCopy | AsyncCommit | AsyncWait                      for GPUs
           | MatrixFill | MatrixLoad | MatrixMultiply | MatrixStore             for their warps
    kind   = "serial" | "parallel" | "unrolled" | "vectorized" | "block" | "thread"
             | "greatest" | "least"
    value  = the element expressions of the notation, with these leaves:
             Const | Load(buffer, index*, clamped) | Position(linear); the table of a `Gather`
             is a load, 0 where elements are subscripts
    index  = Linear: const + Σ coefficient · (Var | Quotient | Remainder)
    buffer = Buffer(name, shape, dtype, scope)
    scope  = "argument" | "heap" | "register" | "shared" | "matrix_a" | "matrix_b" | "accumulator"

A loop of kind "greatest" or "least" puts a row in order, and is one call of the run-time. It
counts ranks, and its body is a loop over places around one store of one load (cast to int32, in
which places are). What is stored at a rank is the place of the element of that rank.

In the tree of a GPU program every top-level statement that is not an `Allocate` is a *kernel*: a
chain of directly nested "block" loops, and directly inside of it `Let`s and one chain of "thread"
loops that holds the code of one thread. All iterations of the chains run at once. Buffers of scope
"shared" are allocated inside of the threads, but there is one of each for a block; "register"
buffers are a thread's own.

The matrix statements work on tiles of 16×16 elements that the lanes of a warp hold together, in
buffers of shape (…, 16, 16) and of scope "matrix_a" and "matrix_b" (factors) or "accumulator". A
warp is a run of consecutive threads, the innermost thread loop; all its lanes run the statement
together, with equal subscripts.

The tree is *batched*: extents, coefficients, shapes are columns, NumPy int64 arrays of shape
(n,), or plain integers where all configs agree. In the tree of a program of open sizes they may be
formulas of these sizes (`schedule.open`). Lowering n configs of one sketch makes one tree;
`Tree.row(i)` is the tree of one of them, with integers throughout.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, get_args

import numpy as np

from loopwright.dsl.expr import Expr
from loopwright.dsl.traversal import rebuild

Column = int | np.ndarray[Any, np.dtype[np.int64]]
KINDS = ("serial", "parallel", "unrolled", "vectorized")
GPU_KINDS = ("block", "thread")
MATRIX = 16  # rows and columns of a matrix tile


@dataclass(frozen=True, eq=False)
class Var:
    """An integer variable: a loop's counter or the name of a `Let`."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Linear:
    """const + Σ coefficient · term, over loop variables, with columns for numbers."""

    terms: tuple[tuple[Term, Column], ...] = ()
    const: Column = 0

    def __add__(self, other: Linear | Column) -> Linear:
        if not isinstance(other, Linear):
            return Linear(self.terms, self.const + other)
        merged: dict[Term, Column] = dict(self.terms)
        for term, coefficient in other.terms:
            merged[term] = merged[term] + coefficient if term in merged else coefficient
        return Linear(tuple(merged.items()), self.const + other.const)

    def __mul__(self, factor: Column) -> Linear:
        if isinstance(factor, int) and factor == 1:
            return self
        return Linear(tuple((t, c * factor) for t, c in self.terms), self.const * factor)


@dataclass(frozen=True, eq=False)
class Quotient:
    """The term ⌊value / divisor⌋."""

    value: Linear
    divisor: Column


@dataclass(frozen=True, eq=False)
class Remainder:
    """The term value mod divisor, in 0 … divisor-1."""

    value: Linear
    divisor: Column


Term = Var | Quotient | Remainder


@dataclass(frozen=True)
class Buffer:
    """Storage, seen with a shape (row-major); buffers of one name are views of one storage."""

    name: str
    shape: tuple[Column, ...]
    dtype: str
    scope: str

    @property
    def size(self) -> Column:
        """Elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class Load(Expr):
    """An element of a buffer; a clamped load moves each subscript to the nearest legal one."""

    buffer: Buffer
    index: tuple[Linear, ...]
    clamped: bool = False

    @property
    def dtype(self) -> str:
        return self.buffer.dtype


@dataclass(frozen=True, eq=False)
class Position(Expr):
    """The value of an index expression, as an int32 element."""

    value: Linear

    @property
    def dtype(self) -> str:
        return "int32"


@dataclass(frozen=True, eq=False)
class Store:
    """`buffer[index] = value`."""

    buffer: Buffer
    index: tuple[Linear, ...]
    value: Expr


@dataclass(frozen=True, eq=False)
class Prefetch:
    """A hint that the cache line of `buffer[index]` will be wanted; each subscript is moved to the
    nearest legal one."""

    buffer: Buffer
    index: tuple[Linear, ...]


@dataclass(frozen=True, eq=False)
class Let:
    """`var = min(value, limit)` for the rest of the block."""

    var: Var
    value: Linear
    limit: Column


@dataclass(frozen=True, eq=False)
class Allocate:
    """A buffer that lives to the end of the block."""

    buffer: Buffer


@dataclass(frozen=True, eq=False)
class Loop:
    """`for var in range(min(extent, bound))`; `bound` is None where extent always holds.
    Iterations that `sparse` tells of may be left out."""

    var: Var
    extent: Column
    kind: str
    body: tuple[Stmt, ...]
    bound: Linear | None = None
    sparse: Sparse | None = None


@dataclass(frozen=True, eq=False)
class Sparse:
    """Iterations of a loop that do nothing: those in which a load, of neighbours in memory one
    after the other, is 0 for all values of the variables `over`, each below its extent."""

    load: Load
    over: tuple[tuple[Var, Column], ...]


@dataclass(frozen=True, eq=False)
class Barrier:
    """Waits until all threads of the block are here, and have done what they did to shared
    buffers. All threads reach it equally often."""


@dataclass(frozen=True, eq=False)
class AsyncCopy:
    """`buffer[index + l] = source[at + l]` for l < count, along the last axis: 4, 8 or 16 bytes
    from global to shared memory, some time before the `AsyncWait` for its group ends."""

    buffer: Buffer
    index: tuple[Linear, ...]
    source: Buffer
    at: tuple[Linear, ...]
    count: Column


@dataclass(frozen=True, eq=False)
class AsyncCommit:
    """Ends a group of this thread's asynchronous copies; a group may be empty."""


@dataclass(frozen=True, eq=False)
class AsyncWait:
    """Waits until at most `pending` of this thread's groups, the latest ones, are not done."""

    pending: Column


@dataclass(frozen=True, eq=False)
class MatrixFill:
    """`tile[index, :, :] = value`."""

    tile: Buffer
    index: tuple[Linear, ...]
    value: float


@dataclass(frozen=True, eq=False)
class MatrixLoad:
    """`tile[index, r, c] = source[at + r along axis `rows` + c along axis `columns`]`.

    One of `rows` and `columns` is the last axis of the source.
    """

    tile: Buffer
    index: tuple[Linear, ...]
    source: Buffer
    at: tuple[Linear, ...]
    rows: int
    columns: int


@dataclass(frozen=True, eq=False)
class MatrixMultiply:
    """`tile[index] += left[left_at] · right[right_at]`, a product of matrices in float32."""

    tile: Buffer
    index: tuple[Linear, ...]
    left: Buffer
    left_at: tuple[Linear, ...]
    right: Buffer
    right_at: tuple[Linear, ...]


@dataclass(frozen=True, eq=False)
class MatrixStore:
    """`target[at + r along axis `rows` + c along axis `columns`] = tile[index, r, c]`.

    One of `rows` and `columns` is the last axis of the target.
    """

    target: Buffer
    at: tuple[Linear, ...]
    rows: int
    columns: int
    tile: Buffer
    index: tuple[Linear, ...]


GpuStmt = (
    Barrier
    | AsyncCopy
    | AsyncCommit
    | AsyncWait
    | MatrixFill
    | MatrixLoad
    | MatrixMultiply
    | MatrixStore
)
Stmt = Loop | Let | Allocate | Store | Prefetch | GpuStmt


@dataclass(frozen=True, eq=False)
class Tree:
    """A batch of n loop programs of one structure.

    `prepare` re-lays constants out, once, into `prepared`; `body` computes `outputs` from
    `inputs` (constants that were re-laid out are not among them) and `prepared`.
    """

    n: int
    inputs: tuple[Buffer, ...]
    prepared: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    constants: tuple[Buffer, ...]
    prepare: tuple[Stmt, ...]
    body: tuple[Stmt, ...]

    def row(self, i: int, prune: bool = True) -> Tree:
        """The tree of config `i` alone; with `prune`, without loops that never run."""
        row: Tree = replace(_Row(i, prune)(self), n=1)
        return row


def column(value: Column, n: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A column as an array of shape (n,)."""
    return np.broadcast_to(np.asarray(value, np.int64), (n,))


def ceildiv(a: Column, b: Column) -> Column:
    """⌈a / b⌉."""
    return -(-a // b)


def flat(buffer: Buffer, index: tuple[Linear, ...]) -> Linear:
    """The place in row-major storage."""
    total = Linear()
    step: Column = 1
    for position, extent in zip(reversed(index), reversed(buffer.shape), strict=True):
        total = total + position * step
        step = step * extent
    return total


def variables(linear: Linear) -> Iterator[Var]:
    """Every variable in an index expression, inside quotients and remainders too."""
    for term, _ in linear.terms:
        if isinstance(term, Var):
            yield term
        else:
            yield from variables(term.value)


def statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement of a body, inside of loops too."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, Loop):
            yield from statements(stmt.body)


class _Row:
    """Picks one config out of a batched tree: columns become integers."""

    def __init__(self, i: int, prune: bool) -> None:
        self.i, self.prune = i, prune

    def __call__(self, x: Any) -> Any:
        """The same of any part of a tree."""
        kind = x.__class__
        if kind in _LEAVES:
            return x  # most parts
        if kind is tuple:
            made = [self(y) for y in x]
            if self.prune:
                return tuple(y for y in made if y.__class__ is not Loop or y.extent)
            return tuple(made)
        if kind is Linear:
            number = self._number
            terms = [(t if t.__class__ is Var else self(t), number(c)) for t, c in x.terms]
            return Linear(tuple([(t, n) for t, n in terms if n]), number(x.const))
        if names := _FIELDS.get(kind):
            return kind(*[self(getattr(x, name)) for name in names])
        if isinstance(x, (np.ndarray, np.integer)):
            return self._number(x)
        return rebuild(x, self) if isinstance(x, Expr) else x

    def _number(self, x: Any) -> int:
        if x.__class__ is int:
            return x
        return int(x[self.i]) if isinstance(x, np.ndarray) else int(x)


_LEAVES = frozenset((int, str, Var, bool, float, type(None)))
_FIELDS = {
    part: tuple(f.name for f in fields(part))
    for part in (Quotient, Remainder, Buffer, Load, Position, Sparse, *get_args(Stmt), Tree)
}
