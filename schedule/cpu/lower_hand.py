"""Lowering of schedules by hand: the loops as they are said, sums in a tile of accumulators.

for outer loops of the result:            all that stand outside of the first reduction
    acc[tile] = 0                         tile: the loops of the result inside of it
    for the other loops, in order: acc[tile] += body
    out[…] = epilogue(acc[tile])

Where inner loops of the result are written out around a reduction, and the tile has other loops
too, their part of it is in registers meanwhile, as in LoopNest (Wasti et al. 2022).

    for k.inner: acc[i, j] += …   ↦   part = acc[i, j]; for k.inner: part += …; acc[i, j] = part
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.elements import COMBINE
from loopwright.dsl.expr import Binary, Expr, IndexValue, Read, Table
from loopwright.dsl.index import Index
from loopwright.dsl.ops.comparisons import by_comparisons
from loopwright.dsl.ops.scan_blocks import in_blocks
from loopwright.dsl.traversal import rebuild
from loopwright.dsl.workload import Workload
from loopwright.schedule.loops.statements import identity, to_linear
from loopwright.schedule.loops.storage import Storage
from loopwright.schedule.program.combine import combined
from loopwright.schedule.program.constants import constants_of
from loopwright.schedule.program.heuristics import PROGRAM
from loopwright.schedule.program.nest import lanes, leaves, terms
from loopwright.schedule.program.plan import FusionGroup
from loopwright.schedule.sketch.hand import Fused, HandLoop, HandNest, applied, steps_of
from loopwright.schedule.sketch.naming import Derivation, SketchName
from loopwright.schedule.sketch.sketch import Sketch
from loopwright.schedule.target import Target
from loopwright.schedule.tree import grammar as g

_At = Mapping[str, g.Linear]


def hand_sketch(workload: Workload, text: str) -> Sketch:
    """The sketch of a structure by hand. Raises `ConfigError` for a step that is not legal."""
    program = combined(in_blocks(by_comparisons(workload, lambda order: True)))
    groups = tuple(FusionGroup((), (nest,)) for nest in program)
    constants = constants_of(workload, groups)
    plain = [HandNest.of(nest, nest.out.name in constants) for nest in program]
    name = SketchName(Derivation(), text)
    return Sketch(name, workload, groups, (), (), (), hand=applied(plain, steps_of(text)))


def _outside_of_part(loops: Sequence[HandLoop]) -> int | None:
    """Number of the outer loops of a sum that stand around the part of its tile in registers:
    loops of the result inside of them are all written out, around one reduction at least. None
    where that is the whole tile, or nothing."""
    serial = [n for n, x in enumerate(loops) if not x.reduce and x.kind == "serial"]
    if not serial or loops[-1].kind == "serial":
        return None
    outside = serial[-1] + 1
    return outside if any(x.reduce for x in loops[outside:]) else None


class HandLowering:
    """Lowers a nest by hand, into `body`, and what is made ahead of all calls into `prepare`."""

    def __init__(
        self, hand: HandNest, storage: Storage, target: Target, number: int, ahead: frozenset[str]
    ) -> None:
        self.hand, self.nest, self.number = hand, hand.nest, number
        self.storage, self.ahead = storage, ahead
        self.part = "prepare" if hand.constant else "body"
        self.lanes, self.registers = lanes(hand.nest, target), target.vector_registers
        self.copies: dict[Read, tuple[g.Buffer, tuple[str, ...]]] = {}
        self.prepare: list[g.Stmt] = []
        self.body: list[g.Stmt] = []

    def lower(self) -> None:
        """Fill `prepare` and `body`."""
        for operand, place in self.hand.packed:
            if place is None:
                for read in self.hand.reads(operand):
                    self._whole_copy(read)
        loops, reducer = self.hand.loops, self.nest.reducer
        first = next(
            (n for n, x in enumerate(loops) if x.reduce or x.kind == "vectorized"), len(loops)
        )
        if reducer is None:
            made = self._around(loops, {}, "", self._write)
        else:
            made = self._around(loops[:first], {}, "", lambda at: self._sum(loops[first:], at))
        (self.prepare if self.hand.constant else self.body).extend(made)

    def _sum(self, loops: Sequence[HandLoop], at: _At) -> list[g.Stmt]:
        tile = [loop for loop in loops if not loop.reduce]
        outside = _outside_of_part(loops)
        dtype = self.nest.result.dtype
        size = math.prod(loop.extent for loop in tile) * item_bytes(dtype)
        scope = "register" if size <= PROGRAM.stack_tensor_bytes else "heap"
        name = self.storage.unused(f"acc{self.number or ''}")
        acc = g.Buffer(name, tuple(loop.extent for loop in tile), dtype, scope)

        def index(at: _At) -> tuple[g.Linear, ...]:
            return tuple(at[loop.name] for loop in tile)

        def start(at: _At) -> list[g.Stmt]:
            begin = self.nest.start
            value = identity(self.nest.reducer, dtype) if begin is None else self._load(begin, at)
            return [g.Store(acc, index(at), value)]

        def inside(at: _At) -> list[g.Stmt]:
            return self._part(loops[outside:], at, lambda at: g.Load(acc, index(at)))

        return [
            g.Allocate(acc),
            *self._around(tile, at, "init", start),
            *(
                self._around(loops, at, "", lambda at: [self._added(g.Load(acc, index(at)), at)])
                if outside is None
                else self._around(loops[:outside], at, "", inside)
            ),
            *self._around(tile, at, "out", lambda at: self._write(at, g.Load(acc, index(at)))),
        ]

    def _part(
        self, loops: Sequence[HandLoop], at: _At, whole: Callable[[_At], g.Load]
    ) -> list[g.Stmt]:
        """The innermost loops, with their part of a tile in registers."""
        tile = [loop for loop in loops if not loop.reduce]
        name = self.storage.unused(f"part{self.number or ''}")
        part = g.Buffer(name, tuple(x.extent for x in tile), self.nest.result.dtype, "register")

        def own(at: _At) -> g.Load:
            return g.Load(part, tuple(at[loop.name] for loop in tile))

        def keep(at: _At) -> list[g.Stmt]:
            return [g.Store(whole(at).buffer, whole(at).index, own(at))]

        return [
            g.Allocate(part),
            *self._around(tile, at, "take", lambda at: [g.Store(part, own(at).index, whole(at))]),
            *self._around(loops, at, "", lambda at: [self._added(own(at), at)]),
            *self._around(tile, at, "keep", keep),
        ]

    def _added(self, held: g.Load, at: _At) -> g.Store:
        """A term added to what is held, in its place."""
        combine = COMBINE[self.nest.reducer or "sum"]
        value = self._value(self.nest.body, at, None, True)
        result: Expr = held
        for term in terms(value) if combine == "add" else (value,):
            result = Binary(combine, result, term)
        return g.Store(held.buffer, held.index, result)

    def _write(self, at: _At, held: g.Load | None = None) -> list[g.Stmt]:
        nest = self.nest
        body = nest.body if held is None else nest.epilogue
        value: Expr | None = held
        if body is not None:
            value = self._value(body, at, held, held is None)
        assert value is not None
        place = self._place(at)
        index = tuple(to_linear(p, place) for p in nest.index)
        return [g.Store(self.storage.touch(nest.out, self.part), index, value)]

    def _around(
        self, loops: Sequence[HandLoop], at: _At, name: str, inside: Callable[[_At], list[g.Stmt]]
    ) -> list[g.Stmt]:
        """Statements inside of loops, the outermost first, with what follows from their counters.
        `name` tells the loops of initial and last steps, and of copies, from the nest's own."""
        if not loops:
            return inside(at)
        loop, rest = loops[0], loops[1:]
        if loop.kind == "vectorized":
            return self._vectors(loop, at, name, inside)
        var = self._var(loop.name, name)
        known = {**at, loop.name: g.Linear(((var, 1),))}
        follows: list[g.Let | g.Linear] = []
        bound = None
        if not (rest and loop.kind == rest[0].kind == "parallel"):  # nothing stands between these
            follows, bound = self._follow(known, loop, name)
        local = self._local_copies(loop.name, known) if not name else []
        body = [*local, *self._around(rest, known, name, inside)]
        for part in reversed(follows):
            if isinstance(part, g.Let):
                body = [part, *body]
            else:
                body = [g.Loop(self._var("guard", name), 1, "serial", tuple(body), part)]
        return [g.Loop(var, loop.extent, loop.kind, tuple(body), bound)]

    def _vectors(
        self, loop: HandLoop, at: _At, name: str, inside: Callable[[_At], list[g.Stmt]]
    ) -> list[g.Stmt]:
        """The innermost loop in vectors, the longest ones of this machine that divide it."""
        step = max(d for d in range(1, self.lanes + 1) if loop.extent % d == 0)
        count = loop.extent // step
        var, lane = self._var(loop.name, name), self._var(loop.name, f"{name}lane")
        place = g.Linear(((lane, 1),))
        if count > 1:
            place = g.Linear(((var, step),)) + place
        known = {**at, loop.name: place}
        self._follow(known, loop, name)  # needs no `Let` and no test: `HandNest` sees to that
        vector = g.Loop(lane, step, "vectorized", tuple(inside(known)))
        kind = "unrolled" if count <= self.registers else "serial"
        return [g.Loop(var, count, kind, (vector,))] if count > 1 else [vector]

    def _follow(
        self, known: dict[str, g.Linear], loop: HandLoop, name: str
    ) -> tuple[list[g.Let | g.Linear], g.Linear | None]:
        """Add to `known` what follows from it; the `Let`s and, of reductions that do not
        divide, what must be more than 0, in order; the bound of the loop in place of a test."""
        lets: list[g.Let | g.Linear] = []
        bound = None
        for r in reversed(self.hand.relations):
            if isinstance(r, Fused):
                if r.fused in known and r.first not in known:
                    value = known[r.fused]
                    known[r.first] = g.Linear(((g.Quotient(value, r.extent), 1),))
                    known[r.second] = g.Linear(((g.Remainder(value, r.extent), 1),))
                continue
            if r.parent in known or r.outer not in known:
                continue
            base = known[r.outer] * r.factor
            if not r.divides and not r.reduce:  # the last tile overlaps the one before it
                first = f"{r.parent} base"  # no loop has this name
                if first not in known:
                    known[first] = self._let(lets, r.parent, name, base, r.extent - r.factor)
                base = known[first]
            if r.inner not in known:
                continue
            known[r.parent] = base + known[r.inner]
            if not r.divides and r.reduce:  # the last tile is shorter
                if r.inner == loop.name and loop.kind == "serial":
                    bound = base * -1 + r.extent
                else:
                    lets.append(known[r.parent] * -1 + r.extent)
                value = known[r.parent]
                known[r.parent] = self._let(lets, r.parent, name, value, r.extent - 1)
        return lets, bound

    def _let(
        self, lets: list[g.Let | g.Linear], of: str, name: str, value: g.Linear, limit: int
    ) -> g.Linear:
        var = self._var(of, f"{name}at")
        lets.append(g.Let(var, value, limit))
        return g.Linear(((var, 1),))

    def _whole_copy(self, read: Read) -> None:
        """A copy of an operand before the nest."""
        ahead = read.tensor.name in self.ahead
        loops = self._copied(read, 0)
        buffer = self._copy_buffer(read, loops, "heap")
        self.storage.add_copy(buffer, ahead)
        kind = "serial" if ahead or not loops or loops[0].kind != "serial" else "parallel"
        if kind == "parallel":
            loops = (replace(loops[0], kind=kind), *loops[1:])
        made = self._copy(read, buffer, loops, {}, "prepare" if ahead else "body")
        (self.prepare if ahead else self.body).extend(made)

    def _local_copies(self, place: str, at: _At) -> list[g.Stmt]:
        """Copies of the operands that are packed in a loop."""
        stmts: list[g.Stmt] = []
        for operand in (o for o, p in self.hand.packed if p == place):
            for read in self.hand.reads(operand):
                loops = self._copied(read, self.hand.position(place) + 1)
                size = math.prod(x.extent for x in loops) * item_bytes(read.tensor.dtype)
                scope = "register" if size <= PROGRAM.stack_tensor_bytes else "heap"
                buffer = self._copy_buffer(read, loops, scope)
                stmts.append(g.Allocate(buffer))
                stmts += self._copy(read, buffer, loops, at, self.part)
        return stmts

    def _copied(self, read: Read, start: int) -> tuple[HandLoop, ...]:
        """The loops of a copy: those inside of its place that the operand moves with."""
        moving = self.hand.moving(read)
        own = (x for x in self.hand.loops[start:] if x.name in moving)
        return tuple(x if x.kind == "vectorized" else replace(x, kind="serial") for x in own)

    def _copy_buffer(self, read: Read, loops: Sequence[HandLoop], scope: str) -> g.Buffer:
        name = self.storage.unused(f"{read.tensor.name}_packed{self.number or ''}")
        taken = {b.name for b, _ in self.copies.values()}
        while name in taken:
            name += "_"
        shape = tuple(x.extent for x in loops)
        return g.Buffer(name, shape, read.tensor.dtype, scope)

    def _copy(
        self, read: Read, buffer: g.Buffer, loops: Sequence[HandLoop], at: _At, part: str
    ) -> list[g.Stmt]:
        def copy(at: _At) -> list[g.Stmt]:
            place = tuple(at[x.name] for x in loops)
            return [g.Store(buffer, place, self._load(read, at, part))]

        made = self._around(loops, at, buffer.name, copy)
        self.copies[read] = buffer, tuple(x.name for x in loops)
        return made

    def _place(self, at: _At) -> dict[Index, g.Linear]:
        """The place of every axis, as far as it is known."""
        return {axis: at[axis.name] for axis in self.nest.extents if axis.name in at}

    def _value(self, x: Expr, at: _At, held: g.Load | None, packed: bool) -> Expr:
        """An element expression of the notation over the loops."""
        if isinstance(x, IndexValue):
            return g.Position(to_linear(x.value, self._place(at)))
        if isinstance(x, Read):
            if held is not None and x.tensor is self.nest.result:
                return held
            if packed and x in self.copies and not isinstance(x, Table):
                buffer, loops = self.copies[x]
                return g.Load(buffer, tuple(at[name] for name in loops))
            return self._load(x, at)
        return rebuild(x, lambda child: self._value(child, at, held, packed))

    def _load(self, read: Read, at: _At, part: str | None = None) -> g.Load:
        place = self._place(at)
        index = tuple(to_linear(p, place) for p in read.index)
        buffer = self.storage.touch(read.tensor, part or self.part)
        return g.Load(buffer, index, leaves(read, self.nest.extents))

    def _var(self, name: str, suffix: str) -> g.Var:
        return g.Var(
            ".".join(filter(None, (name.replace("*", "_"), suffix, str(self.number or ""))))
        )
