"""Lowering context of GPU kernels: variables, places, values, vector widths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import Expr, IndexValue, Read
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.traversal import children, rebuild
from loopwright.dsl.workload import tensor_shape
from loopwright.schedule.loops.statements import to_linear, wrapped
from loopwright.schedule.loops.storage import Storage
from loopwright.schedule.program.nest import Nest, extent, leaves, stride
from loopwright.schedule.target import Gpu
from loopwright.schedule.tree import grammar as g
from loopwright.schedule.tree.index_analysis import IndexAnalysis

MOST_LANES = 8

At = Mapping[Index, g.Linear]
Held = Callable[[Read], Expr | None]
"""Replacement of a read: an accumulator, a register; None for the tensor's own element."""


class KernelLowering:
    """One kernel while it is lowered. `local` are the tensors that live in shared memory, where
    each row of threads has its own, at the leading subscript `row`."""

    def __init__(self, storage: Storage, part: str, gpu: Gpu) -> None:
        self.storage, self.part, self.gpu = storage, part, gpu
        self.analysis = IndexAnalysis()
        self.local: dict[str, g.Buffer] = {}
        self.row = g.Linear()
        self.rows: g.Column = 1
        self._names: dict[str, int] = {}
        self._buffers: dict[str, int] = {}

    def var(self, name: str, extent: g.Column) -> g.Var:
        """A new loop's counter."""
        var = g.Var(self._name(name))
        self.analysis.loop(var, extent)
        return var

    def let(self, name: str, value: g.Linear, limit: g.Column) -> tuple[g.Let, g.Linear]:
        """`name = min(value, limit)`, and the name as an index expression."""
        var = g.Var(self._name(name))
        self.analysis.let(var, value, limit)
        return g.Let(var, value, limit), g.Linear(((var, 1),))

    def _name(self, name: str) -> str:
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return f"{name}.{count}" if count else name

    def own(
        self, name: str, shape: tuple[g.Column, ...], dtype: str, scope: str = "register"
    ) -> g.Buffer:
        """A new buffer of this kernel."""
        count = self._buffers.get(name, 0)
        self._buffers[name] = count + 1
        return g.Buffer(self.storage.unused(name + str(count or "")), shape, dtype, scope)

    def decode(
        self, value: g.Linear, counts: Sequence[tuple[str, g.Column]]
    ) -> tuple[list[g.Stmt], list[g.Linear]]:
        """The subscripts of element number `value` of an array, the last one fastest."""
        lets: list[g.Stmt] = []
        found: list[g.Linear] = []
        rest = value
        for place, (name, count) in enumerate(reversed(counts)):
            if isinstance(count, int) and count == 1:
                found.append(g.Linear())
                continue
            last = place == len(counts) - 1
            here = rest if last else g.Linear(((g.Remainder(rest, count), 1),))
            let, at = self.let(name, here, count - 1)
            lets.append(let)
            found.append(at)
            if not last:
                rest = g.Linear(((g.Quotient(rest, count), 1),))
        return lets, found[::-1]

    def buffer(self, tensor: Tensor) -> g.Buffer:
        """Buffer of a tensor, seen with the shape of this view of it."""
        if tensor.name in self.local:
            shape = (self.rows, *tensor_shape(tensor))
            return g.Buffer(self.local[tensor.name].name, shape, tensor.dtype, "shared")
        return self.storage.touch(tensor, self.part)

    def place(
        self, tensor: Tensor, index: Sequence[Affine], at: At
    ) -> tuple[g.Buffer, tuple[g.Linear, ...]]:
        """An element of a tensor."""
        where = tuple(to_linear(p, at) for p in index)
        buffer = self.buffer(tensor)
        return buffer, (self.row, *where) if tensor.name in self.local else where

    def value(self, x: Expr, at: At, extents: Mapping[Index, int], held: Held) -> Expr:
        """An element expression of the notation over the loops."""
        if isinstance(x, IndexValue):
            return g.Position(to_linear(x.value, at))
        if isinstance(x, Read):
            found = held(x)
            if found is not None:
                return found
            buffer, where = self.place(x.tensor, x.index, at)
            return g.Load(buffer, where, leaves(x, extents))
        return rebuild(x, lambda child: self.value(child, at, extents, held))

    def store(self, tensor: Tensor, index: Sequence[Affine], at: At, value: Expr) -> g.Store:
        return g.Store(*self.place(tensor, index, at), value)

    def finish(self, nest: Nest, at: At, extents: Mapping[Index, int], reduced: g.Load) -> g.Store:
        """The result's element, after the epilogue of what was reduced."""

        def held(read: Read) -> g.Load | None:
            return reduced if read.tensor is nest.result else None

        after = nest.epilogue
        value = reduced if after is None else self.value(after, at, extents, held)
        return self.store(nest.out, nest.index, at, value)

    def lanes(
        self,
        wanted: g.Column,
        accesses: Sequence[tuple[Tensor, tuple[Affine, ...]]],
        axis: Index,
        at: At,
        most: int = MOST_LANES,
    ) -> g.Column:
        """Number of neighbours along an axis, at most `wanted` and a divisor of it, that can be
        vectors in all accesses. `at` says where the first of them is, as far as it is a multiple
        of what is known."""
        widest = max((item_bytes(t.dtype) for t, _ in accesses), default=4)
        count: g.Column = np.gcd(wanted, min(most, self.gpu.vector_bytes // widest))
        for tensor, index in accesses:
            step = stride(tensor, index, axis)
            if step == 0:
                continue
            if step != 1:
                return 1
            count = np.gcd(count, self.analysis.step(g.flat(*self.place(tensor, index, at))))
        return count

    def nest_loops(
        self,
        sizes: Sequence[tuple[Index, g.Column]],
        name: str,
        make: Callable[[dict[Index, g.Linear]], Sequence[g.Stmt]],
        lanes: g.Column | None = None,
    ) -> list[g.Stmt]:
        """Unrolled loops over a small tile; with `lanes`, the innermost one is in vectors."""
        at: dict[Index, g.Linear] = {}
        loops: list[tuple[g.Var, g.Column, str]] = []
        for number, (axis, size) in enumerate(sizes):
            if lanes is not None and number == len(sizes) - 1:
                var = self.var(f"{axis.name}.{name}", size // lanes)
                lane = self.var(f"{axis.name}.{name}lane", lanes)
                loops += [(var, size // lanes, "unrolled"), (lane, lanes, "vectorized")]
                at[axis] = g.Linear(((var, lanes), (lane, 1)))
            else:
                var = self.var(f"{axis.name}.{name}", size)
                loops.append((var, size, "unrolled"))
                at[axis] = g.Linear(((var, 1),))
        return wrapped(make(at), loops)


def linear(*terms: tuple[g.Var, g.Column]) -> g.Linear:
    """Σ coefficient · variable."""
    return g.Linear(tuple(terms))


def nothing(read: Read) -> None:
    """No read stands for anything but its element."""


def contiguous_axis(nest: Nest) -> Index | None:
    """The axis along which the result is contiguous."""
    for axis in reversed(nest.axes):
        if stride(nest.out, nest.index, axis) == 1:
            return axis
    return None


def walk_order(nest: Nest) -> tuple[Index, ...]:
    """The axes, the one along which the result is contiguous last."""
    fast = contiguous_axis(nest)
    return (*(a for a in nest.axes if a != fast), *(() if fast is None else (fast,)))


def accesses(nest: Nest, *exprs: Expr | None) -> list[tuple[Tensor, tuple[Affine, ...]]]:
    """Accesses of expressions of a nest, accumulators excepted."""
    found: list[tuple[Tensor, tuple[Affine, ...]]] = []
    stack = [x for x in exprs if x is not None]
    while stack:
        x = stack.pop()
        if isinstance(x, Read) and x.tensor is not nest.result:
            found.append((x.tensor, x.index))
        elif not isinstance(x, Read):
            stack += children(x)
    return found


def extents_of(nest: Nest, rows: At) -> dict[Index, int]:
    """The loops of a nest and those around it."""
    return nest.extents | {row: extent(row) for row in rows}
