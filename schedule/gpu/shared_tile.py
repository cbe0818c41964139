"""Shared-memory tiles: the part of an operand that a block keeps in shared memory.

The operand is read at subscripts p_d = Σ coefficient · index + const. While a block computes a
tile of B_i places along each index, p_d takes values in a box: from the *origin*, where all
indices are at their bases (those with negative coefficients at their ends), over
S_d = Σ |c|·(B_i - 1) + 1 places, in steps of g_d, the greatest common divisor of the
coefficients. So windows that slide are copied once for all positions, and strides leave no gaps.

The axes of a shared-memory tile are those of the tensor, the one along which neighbouring threads
compute last, so that registers are loaded from it in vectors; its rows begin at multiples of 16
bytes. Where that is not the axis along which the tensor is contiguous, the copy is a
transposition: rows are padded, so that the threads that write a column write to different banks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from loopwright.dsl.dtypes import is_float, item_bytes
from loopwright.dsl.expr import Binary, Const, Expr, Read, Select, Table
from loopwright.dsl.index import Index
from loopwright.schedule.gpu.context import At, KernelLowering, extents_of, linear, nothing
from loopwright.schedule.loops.statements import wrapped
from loopwright.schedule.program.nest import Nest, extent, leaves
from loopwright.schedule.tree import grammar as g

Sizes = Mapping[Index, g.Column]
Team = tuple[g.Linear, g.Column]
"""The number of a thread, and of all that work together."""


@dataclass(frozen=True)
class _Axis:
    """One subscript: coefficients of the indices over their common divisor `step`."""

    terms: tuple[tuple[Index, int], ...]
    const: int
    step: int

    def size(self, sizes: Sizes) -> g.Column:
        """Places of the shared-memory tile."""
        return 1 + sum(abs(c) * (sizes[index] - 1) for index, c in self.terms)

    def low(self, sizes: Sizes) -> g.Column:
        """Places of the origin before the place of all bases."""
        return sum(c * (sizes[index] - 1) for index, c in self.terms if c < 0)

    def origin(self, sizes: Sizes, bases: At) -> g.Linear:
        """The least subscript."""
        begin = g.Linear((), self.const + self.low(sizes) * self.step)
        return sum((bases[index] * (c * self.step) for index, c in self.terms), begin)

    def place(self, sizes: Sizes, local: At) -> g.Linear:
        """Place of an element in the shared-memory tile, `local` from the bases."""
        begin = g.Linear((), self.low(sizes) * -1)
        return sum((local[index] * c for index, c in self.terms if index in local), begin)


def is_affine(read: Read, nest: Nest) -> bool:
    """Return whether all subscripts are affine in the loops of the nest."""
    known, atoms = set(nest.extents), [atom for p in read.index for atom, _ in p.terms]
    affine = all(isinstance(atom, Index) and atom in known for atom in atoms)
    return affine and not isinstance(read, Table)


def is_transposed(read: Read, fast: tuple[Index, ...]) -> bool:
    """Return whether a shared-memory tile is a transposition of its operand. `fast` are the axes
    of the block's tile, that of neighbouring threads last."""
    order = shared_order(read, fast)
    return bool(order) and order[-1] != len(order) - 1


def shared_order(read: Read, fast: tuple[Index, ...]) -> tuple[int, ...]:
    """The axes of a tensor in the order of its shared-memory tile."""
    dims = range(len(read.index))
    for axis in reversed(fast):
        for d in reversed(dims):
            if axis in set(read.index[d].indices()):
                return (*(e for e in dims if e != d), d)
    return tuple(dims)


class SharedTile:
    """The shared-memory tile of one operand: `sizes` places along every index, in `slots` copies
    that alternate. `source` is an element-wise nest that makes the operand here. `padded` rows are
    16 bytes longer than need be, also if this is no transposition."""

    def __init__(
        self,
        kernel: KernelLowering,
        read: Read,
        nest: Nest,
        sizes: Sizes,
        fast: tuple[Index, ...],
        slots: g.Column,
        source: Nest | None,
        padded: bool = False,
    ) -> None:
        self.kernel, self.read, self.nest, self.source = kernel, read, nest, source
        self.axes = [_axis(read, d) for d in range(len(read.index))]
        self.order, self.transposed = shared_order(read, fast), is_transposed(read, fast)
        self.sizes = sizes
        bytes_ = item_bytes(read.dtype)
        self.aligned = kernel.gpu.vector_bytes // bytes_
        counts = [self.axes[d].size(sizes) for d in self.order]
        if counts:
            counts[-1] = g.ceildiv(counts[-1], self.aligned) * self.aligned
            counts[-1] = counts[-1] + (self.aligned if self.transposed or padded else 0)
        self.slots = slots
        name = f"{read.tensor.name}_shared"
        self.buffer = kernel.own(name, (slots, *counts), read.dtype, "shared")

    @property
    def bytes(self) -> g.Column:
        """Bytes of all slots."""
        return self.buffer.size * item_bytes(self.buffer.dtype)

    def place(self, local: At, slot: g.Linear) -> tuple[g.Linear, ...]:
        """Place of an element of the operand."""
        where = [axis.place(self.sizes, local) for axis in self.axes]
        return (slot, *(where[d] for d in self.order))

    def axis_of(self, index: Index) -> int:
        """The axis of the buffer along which an index runs that one subscript has."""
        d = next(d for d, p in enumerate(self.read.index) if index in p.indices())
        return self.order.index(d) + 1

    def copy(
        self, sizes: Sizes, bases: At, team: Team, slot: g.Linear, fill: Index | None = None
    ) -> list[g.Stmt]:
        """Copy what a tile of these `sizes` at these `bases` reads, by all threads together; zeros
        beyond the end of index `fill`."""
        most = None if fill is None else 1
        this_round, rounds, lets, source, target, width = self._round(sizes, bases, team, most)
        kernel = self.kernel
        value = self._value if fill is None else functools.partial(self._filled, fill)
        lane = kernel.var("lane", width)
        if self.transposed:
            held = kernel.own("moved", (width,), self.buffer.dtype)
            here, back = linear((lane, 1)), kernel.var("lane", width)
            load = g.Store(held, (here,), value(source, here))
            store = g.Store(
                self.buffer,
                (slot, *self._lane(target, linear((back, 1)))),
                g.Load(held, (linear((back, 1)),)),
            )
            body = [
                g.Allocate(held),
                *wrapped([load], [(lane, width, "vectorized")]),
                *wrapped([store], [(back, width, "unrolled")]),
            ]
        else:
            here = linear((lane, 1))
            place = (slot, *self._lane(target, here))
            move = g.Store(self.buffer, place, value(source, here))
            body = wrapped([move], [(lane, width, "vectorized")])
        return wrapped([*lets, *body], [(this_round, rounds, "unrolled")])

    def fetch(self, sizes: Sizes, bases: At, team: Team) -> tuple[g.Buffer, list[g.Stmt]]:
        """Load into registers what `put` will store: the registers, and the statements."""
        this_round, rounds, lets, source, _, width = self._round(sizes, bases, team)
        held = self.kernel.own("fetched", (rounds, width), self.buffer.dtype)
        lane = self.kernel.var("lane", width)
        here = linear((lane, 1))
        load = g.Store(held, (linear((this_round, 1)), here), self._value(source, here))
        body = [*lets, *wrapped([load], [(lane, width, "vectorized")])]
        return held, wrapped(body, [(this_round, rounds, "unrolled")])

    def put(
        self, held: g.Buffer, sizes: Sizes, bases: At, team: Team, slot: g.Linear
    ) -> list[g.Stmt]:
        """Store what was fetched."""
        this_round, rounds, lets, _, target, width = self._round(sizes, bases, team)
        lane = self.kernel.var("lane", width)
        here = linear((lane, 1))
        place = (slot, *self._lane(target, here))
        store = g.Store(self.buffer, place, g.Load(held, (linear((this_round, 1)), here)))
        kind = "unrolled" if self.transposed else "vectorized"
        body = [*lets, *wrapped([store], [(lane, width, kind)])]
        return wrapped(body, [(this_round, rounds, "unrolled")])

    def copy_async(self, sizes: Sizes, bases: At, team: Team, slot: g.Linear) -> list[g.Stmt]:
        """Start to copy."""
        most = None if not self.transposed else 1
        this_round, rounds, lets, source, target, width = self._round(sizes, bases, team, most)
        tensor = self.kernel.buffer(self.read.tensor)
        move = g.AsyncCopy(self.buffer, (slot, *target), tensor, tuple(source), width)
        return wrapped([*lets, move], [(this_round, rounds, "unrolled")])

    def _round(
        self, sizes: Sizes, bases: At, team: Team, most: int | None = None
    ) -> tuple[g.Var, g.Column, list[g.Stmt], list[g.Linear], list[g.Linear], g.Column]:
        """One round of the copy: its counter and how many there are; which element is this
        thread's, in the tensor and in the shared-memory tile; and how many of its neighbours
        are."""
        kernel, (thread, threads) = self.kernel, team
        counts = [axis.size(sizes) for axis in self.axes]
        width = self._width(sizes, bases, counts) if most is None else most
        total: g.Column = 1
        named: list[tuple[str, g.Column]] = []
        for d, count in enumerate(counts):
            whole = count // width if d == len(counts) - 1 else count
            named.append((f"{self.read.tensor.name}.{d}", whole))
            total = total * whole
        rounds = g.ceildiv(total, threads)
        this_round = kernel.var("round", rounds)
        clip, number = kernel.let("copied", linear((this_round, threads)) + thread, total - 1)
        lets, places = kernel.decode(number, named)
        if places:
            places[-1] = places[-1] * width
        source = [
            axis.origin(sizes, bases) + place * axis.step
            for axis, place in zip(self.axes, places, strict=True)
        ]
        # What a smaller tile reads stands where `place` looks for it.
        target = [places[d] + self._shift(d, sizes) for d in self.order]
        return this_round, rounds, [clip, *lets], source, target, width

    def _width(self, sizes: Sizes, bases: At, counts: list[g.Column]) -> g.Column:
        """Neighbours that one thread copies at once."""
        clamped = leaves(self.read, self.nest.extents)
        if not self.axes or self.source is not None or clamped or self.axes[-1].step != 1:
            return 1
        buffer = self.kernel.buffer(self.read.tensor)
        where = [
            axis.origin(sizes, bases) + linear((self.kernel.var("any", count), axis.step))
            for axis, count in zip(self.axes, counts, strict=True)
        ]
        where[-1] = self.axes[-1].origin(sizes, bases)
        step = self.kernel.analysis.step(g.flat(buffer, tuple(where)))
        along = np.gcd(counts[-1], self._shift(-1, sizes))
        return np.gcd(np.gcd(self.aligned, along), step)

    def _shift(self, d: int, sizes: Sizes) -> g.Column:
        """Places by which what a tile of these sizes reads stands further in than what a whole one
        does: 0 but for negative coefficients."""
        return self.axes[d].low(sizes) - self.axes[d].low(self.sizes)

    def _lane(self, places: list[g.Linear], lane: g.Linear) -> list[g.Linear]:
        """The places of a neighbour along the tensor's last axis."""
        last = self.order.index(len(self.order) - 1) if self.order else None
        return [p + lane if d == last else p for d, p in enumerate(places)]

    def _filled(self, fill: Index, source: list[g.Linear], lane: g.Linear) -> Expr:
        """An element, or zero where a subscript that is the index `fill` leaves the tensor."""
        d = next(d for d, p in enumerate(self.read.index) if p.plain() == fill)
        where = (*source[:-1], source[-1] + lane)
        inside = Binary("lt", g.Position(where[d]), Const(extent(fill), "int32"))
        value = g.Load(self.kernel.buffer(self.read.tensor), where, True)
        zero = Const(0.0 if is_float(value.dtype) else 0, value.dtype)
        return Select(inside, value, zero)

    def _value(self, source: list[g.Linear], lane: g.Linear) -> Expr:
        where = [*source[:-1], source[-1] + lane] if source else []
        if self.source is None:
            clamped = leaves(self.read, extents_of(self.nest, {}))
            return g.Load(self.kernel.buffer(self.read.tensor), tuple(where), clamped)
        at = {
            axis: position
            for p, position in zip(self.source.index, where, strict=True)
            if (axis := p.plain()) is not None
        }
        return self.kernel.value(self.source.body, at, self.source.extents, nothing)


def _axis(read: Read, d: int) -> _Axis:
    terms = [(i, c) for i, c in read.index[d].terms if isinstance(i, Index)]
    step = math.gcd(*(c for _, c in terms)) or 1
    return _Axis(tuple((i, c // step) for i, c in terms), read.index[d].const, step)
