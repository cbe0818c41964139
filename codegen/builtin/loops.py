"""Loops: written out, by vectors, or as loops of the machine."""

from __future__ import annotations

from abc import ABC, abstractmethod

from loopwright.codegen.builtin.code import Block, Label, Uncovered, VectorSet
from loopwright.codegen.builtin.lanes import Lanes
from loopwright.codegen.builtin.subscripts import value_range
from loopwright.dsl.expr import ORDERS
from loopwright.schedule.tree.grammar import Allocate, Loop, Stmt, Store, Var, statements

_MOST_KEPT = 20  # registers that stay, those of constants included
_SHORT, _MOST_WRITTEN_OUT = 8, 96  # iterations of a short loop, and the vectors of all of them
_MOST_OVERLAPPING = 8  # the vectors of all iterations of a short loop over tiles


class Loops(Lanes, ABC):
    """The loops of one function. Those of kind "parallel" run on `threads`; those that count
    inside of register tiles are `unrolled`."""

    def __init__(self, vectors: VectorSet, most_homes: int, threads: int) -> None:
        super().__init__(vectors, most_homes)
        self.threads = threads
        self.unrolled: set[Var] = set()
        self._machine_loops = 0  # inside of the loop at hand

    @abstractmethod
    def statements(self, body: tuple[Stmt, ...]) -> None:
        """Statements one after the other."""

    @abstractmethod
    def parallel(self, loop: Loop) -> None:
        """A loop whose iterations go to several threads."""

    def loop(self, loop: Loop) -> None:
        if loop.sparse is not None:
            raise Uncovered("a loop that leaves zeros out")
        if loop.kind in ORDERS:
            raise Uncovered("a row in order")
        extent = int(loop.extent)
        if loop.kind == "parallel" and self.threads > 1:
            self.parallel(loop)
        elif loop.kind == "vectorized":
            self._vector(loop)
        elif extent == 1 and loop.bound is not None and not self._whole(loop):
            self._guarded(loop)
        elif extent == 1 or self._is_unrolled(loop):
            if loop.bound is not None and not self._whole(loop):
                self._some(loop)
                return
            if loop.var not in self.fixed:
                self._scope += 1
            done = self._transposed(loop)
            for at in range(done, extent):
                self.fixed[loop.var] = at
                self.statements(loop.body)
        elif self._vectorizable(loop):
            self._by_vectors(loop)
        else:
            self._real(loop)

    def _is_unrolled(self, loop: Loop) -> bool:
        """Return whether iterations are written out: where the tree says so, inside of register
        tiles, and where there are few, which costs less than to guess wrong at their end."""
        if loop.kind == "unrolled" or loop.var in self.unrolled:
            return True
        if loop.kind != "serial" or int(loop.extent) > _SHORT:
            return False
        most = _MOST_WRITTEN_OUT
        if loop.bound is not None:  # the last tile overlaps: its place is a number then
            if not (self.vectors.set.extended and self._whole(loop)):
                return False
            most = _MOST_OVERLAPPING
        return _size(loop, self.most_lanes) <= most

    def _some(self, loop: Loop) -> None:
        """Iterations that are written out, of which the last ones may not run."""
        assert loop.bound is not None
        self.vectors.flush()
        count, end = self._count(loop), Label()
        for at in range(int(loop.extent)):
            self.function.current.append(("skip", count, end))
            self.fixed[loop.var] = at
            self.statements(loop.body)
            self.vectors.flush()
            self.function.current.append(("add_number", count, -1))
        self.function.current.append(("label", end))

    def _whole(self, loop: Loop) -> bool:
        """Return whether a loop runs over all of its extent."""
        if loop.bound is None:
            return True
        return value_range(*self._linear(loop.bound))[0] >= int(loop.extent)

    def _count(self, loop: Loop) -> int:
        """The number of iterations of a loop with a bound."""
        assert loop.bound is not None
        const, parts = self._linear(loop.bound)
        number, items = self.function.number(), self.function.current
        self._evaluate(number, const, parts, items)
        if value_range(const, parts)[1] > int(loop.extent):
            items.append(("least", number, int(loop.extent)))
        return number

    def _guarded(self, loop: Loop) -> None:
        """A loop of at most one iteration."""
        assert loop.bound is not None
        const, parts = self._linear(loop.bound)
        if value_range(const, parts)[1] < 1:
            return
        self.vectors.flush()
        number, end = self.function.number(), Label()
        self._evaluate(number, const, parts, self.function.current)
        self.function.current.append(("skip", number, end))
        self.fixed[loop.var] = 0
        self.statements(loop.body)
        self.vectors.flush()
        self.function.current.append(("label", end))

    def _real(self, loop: Loop) -> None:
        whole = self._whole(loop)
        counter = None if whole else self._count(loop)
        at_least = True if whole else value_range(*self._linear(loop.bound))[0] >= 1  # type: ignore[arg-type]
        self._repeat(loop.var, int(loop.extent), loop.body, counter, at_least)

    def _repeat(
        self,
        var: Var,
        extent: int,
        body: tuple[Stmt, ...],
        counter: int | None = None,
        at_least_one: bool = True,
        start: int | None = None,
        lanes: int = 0,
    ) -> None:
        """A loop of `extent` iterations, or of as many as `counter` says, from `start` on; with
        `lanes`, each runs so many of the one loop that is the body."""
        function = self.function
        made = self._hoist(var, body)
        self.vectors.flush()
        end, label = Label(), Label()
        if counter is None:
            counter = function.number()
            function.current.append(("set", counter, extent))
        elif not at_least_one:
            function.current.append(("skip", counter, end))
        before = function.block()
        function.current.append(("loop", counter, label))
        variable = self._bind(var, 0, extent - 1)
        behind = Block()
        variable.before, variable.behind, variable.start = before, behind, start
        outer, self._machine_loops = self._machine_loops, 0
        if self.vectors.set.extended and (lanes or _is_innermost(body)):
            self.vectors.keep_constants(before.items, min(_MOST_KEPT, self.most_homes))
        if lanes:
            (vector,) = body
            assert isinstance(vector, Loop)
            self.split[vector.var] = (variable, lanes)
            self._lanes(vector, 0, lanes)
            del self.split[vector.var]
            self._scope += 1
        else:
            self.statements(body)
        self.vectors.flush()
        function.current.append(("inside", behind))
        function.current.append(("end", counter, label))
        function.current.append(("label", end))
        self.vectors.leave_constants()
        if made:
            self.vectors.leave(made)
            self.hoisted = {x: r for x, r in self.hoisted.items() if r not in made}
        label.aligned = not self._machine_loops
        self._machine_loops = outer + 1

    def repeat_vectors(self, var: Var, count: int, loop: Loop, lanes: int) -> None:
        self._repeat(var, count, (loop,), lanes=lanes)


def _is_innermost(body: tuple[Stmt, ...]) -> bool:
    """Return whether statements have no machine loops, and no register tiles of their own."""
    return not any(
        isinstance(s, Allocate)
        or (isinstance(s, Loop) and s.kind not in ("vectorized", "unrolled") and s.extent != 1)
        for s in statements(body)
    )


def _size(stmt: Stmt, lanes: int) -> int:
    """Vectors of so many lanes that a statement stores, once it is unrolled."""
    if not isinstance(stmt, Loop):
        return int(isinstance(stmt, Store))
    extent = int(stmt.extent)
    count = -(-extent // lanes) if stmt.kind == "vectorized" else extent
    return count * sum(_size(inner, lanes) for inner in stmt.body)
