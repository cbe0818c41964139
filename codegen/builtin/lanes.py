"""Vector loops, and plain loops that go by vectors."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod

from loopwright.codegen.builtin.code import Uncovered, VectorSet
from loopwright.codegen.builtin.places import ITEM, Places
from loopwright.codegen.builtin.values import ROWS, Values
from loopwright.dsl.expr import Binary, Const, Expr, Unary
from loopwright.dsl.traversal import children, walk
from loopwright.schedule.tree import grammar as g

_MOST_STATEMENTS = 6000  # of a function, once it is unrolled
_MOST_HOISTED = 9  # registers that stay, those of tiles included
_FEWEST = 8  # lanes by which a plain loop goes


class Lanes(Places, ABC):
    """Stores of one function, by lanes."""

    def __init__(self, vectors: VectorSet, most_homes: int) -> None:
        super().__init__(vectors)
        self.most_lanes, self.most_homes = vectors.lanes, most_homes
        self.values = Values(self)
        self._widths: dict[int, tuple[g.Loop, int]] = {}
        self._statements = 0

    @abstractmethod
    def repeat_vectors(self, var: g.Var, count: int, loop: g.Loop, lanes: int) -> None:
        """A loop over so many whole vectors of a plain loop."""

    def _vector(self, loop: g.Loop) -> None:
        """A loop over the lanes of one store."""
        (store,) = loop.body
        assert isinstance(store, g.Store), store
        self._in_vectors(loop, 0, self._most_lanes(loop, store))

    def _in_vectors(self, loop: g.Loop, at: int, width: int) -> None:
        """The lanes of a loop from one on, by vectors of at most so many."""
        while left := int(loop.extent) - at:
            while width > left:
                width //= 2
            self._lanes(loop, at, width)
            at += width

    def _lanes(self, loop: g.Loop, at: int, width: int) -> None:
        """Some lanes of a vector loop, at once."""
        (store,) = loop.body
        if loop.var not in self.fixed:
            self._scope += 1
        self.fixed[loop.var] = at
        self.lane = (loop.var, width)  # of one lane too: what is kept of an access has its step
        self.store(store)  # type: ignore[arg-type]
        self.lane = None

    def _most_lanes(self, loop: g.Loop, store: g.Store) -> int:
        """Lanes that can be worked on at once: one, where a subscript divides their number."""
        kept = self._widths.get(id(loop))
        if kept is not None:
            return kept[1]
        places = [(store.buffer, store.index)]
        loads = [x for x in walk(store.value) if isinstance(x, g.Load)]
        places += [(x.buffer, x.index) for x in loads]
        width = self.most_lanes
        if _is_divided(loop, store):
            return 1
        self.lane, self.fixed[loop.var] = (loop.var, int(loop.extent)), 0
        outside = [x for x in loads if x.clamped and not self.inside(x)]
        self.lane = None
        if any(loop.var in set(g.variables(s)) for x in outside for s in x.index):
            return 1
        for buffer, index in places:
            for subscript in index:
                for term, _ in subscript.terms:
                    if not isinstance(term, g.Var) and loop.var in set(g.variables(term.value)):
                        return 1
            if buffer.name in self.homes:
                moves = any(loop.var in set(g.variables(s)) for s in index)
                if moves or buffer is store.buffer:
                    width = min(width, self.homes[buffer.name].width)
        if not any(loop.var in set(g.variables(s)) for s in store.index):
            width = 1
        if not any(x.clamped for x in loads):
            self._widths[id(loop)] = (loop, width)
        return width

    def _transposed(self, loop: g.Loop) -> int:
        """Iterations of a loop over neighbours in memory around a store whose lanes stand apart:
        some at a time, transposed in registers. How many there were."""
        rest = int(loop.extent) % ROWS
        whole = int(loop.extent) - rest
        if rest > 1 and self.vectors.set.extended:  # whose store is masked
            whole += rest
        if not whole:
            return 0
        inner: list[g.Loop] = []
        body = loop.body
        while len(body) == 1 and isinstance(body[0], g.Loop):
            inner.append(body[0])
            body = body[0].body
        store = body[0] if len(body) == 1 else None
        if not isinstance(store, g.Store) or not self._apart(loop, inner, store):
            return 0
        for first in range(0, whole, ROWS):
            for counts in itertools.product(*(range(int(each.extent)) for each in inner[:-1])):
                for each, count in zip(inner, counts):
                    self.fixed[each.var] = count
                self._rows(loop, first, min(ROWS, whole - first), inner[-1], store)
        return whole

    def _apart(self, loop: g.Loop, inner: list[g.Loop], store: g.Store) -> bool:
        """Return whether a store is one whose rows can be transposed."""
        if not inner or inner[-1].kind != "vectorized" or int(inner[-1].extent) not in (4, 8, 16):
            return False
        if any(each.kind != "unrolled" or each.bound is not None for each in inner[:-1]):
            return False
        loads = [x for x in walk(store.value) if isinstance(x, g.Load)]
        if store.buffer.name in {x.buffer.name for x in loads} | self.homes.keys():
            return False
        if any(x.clamped for x in loads):
            return False
        terms = self._access(store).terms
        if any(not isinstance(term, g.Var) for term, _ in terms):
            return False
        steps = {term: step for term, step in terms if isinstance(term, g.Var)}
        lane = inner[-1]
        apart = steps.get(lane.var, 0) > ITEM and steps.get(loop.var) == ITEM
        return apart and self._most_lanes(lane, store) >= int(lane.extent)

    def _rows(self, loop: g.Loop, first: int, count: int, lane: g.Loop, store: g.Store) -> None:
        """Some rows, each a vector, stored as columns."""
        width = int(lane.extent)
        for var in (loop.var, lane.var):
            if var not in self.fixed:
                self._scope += 1
            self.fixed[var] = 0
        self.lane = (lane.var, width)
        rows = []
        for row in range(count):
            self._counted()
            self.fixed[loop.var] = first + row
            rows.append(self.values.value(store.value, width))
        rows += rows[-1:] * (ROWS - count)
        self.fixed[loop.var] = first
        (base, offset), step = self.place(store)
        self.lane = None
        for number, column in enumerate(self.values.columns(rows, width)):
            for first in range(0, width, ROWS):
                part = self.values.part(column, first, ROWS)
                at = offset + (number + first) * step
                self.vectors.store(store.buffer.name, (base, at), ROWS, part, count)

    def _hoist(self, var: g.Var, body: tuple[g.Stmt, ...]) -> list[int]:
        """Work out before a loop what is the same in it, as far as there are registers."""
        made: list[int] = []
        most = min(_MOST_HOISTED, self.most_homes)
        for x in invariants(var, body):
            if id(x) in self.hoisted or len(self.vectors.homes) >= most:
                continue
            register = self.vectors.home()
            assert register is not None
            self.values.into(x, self.most_lanes, register)
            self.hoisted[id(x)] = register
            made.append(register)
        return made

    def _vectorizable(self, loop: g.Loop) -> bool:
        """Return whether iterations of a plain loop are independent and go along memory."""
        if len(loop.body) != 1 or not isinstance(store := loop.body[0], g.Store):
            return False
        if loop.bound is not None or int(loop.extent) < _FEWEST:
            return False
        loads = [x for x in walk(store.value) if isinstance(x, g.Load)]
        if any(x.buffer.name == store.buffer.name or x.clamped for x in loads):
            return False
        places: list[g.Load | g.Store] = [store, *loads]
        if _is_divided(loop, store):
            return False
        for place in places:
            step = 0
            for term, c in self._access(place).terms:
                if term is loop.var:
                    step = c
                elif not isinstance(term, g.Var) and loop.var in set(g.variables(term.value)):
                    return False
            if step not in ((ITEM,) if place is store else (0, ITEM)):
                return False
            if place.buffer.name in self.homes:
                return False
        return True

    def _by_vectors(self, loop: g.Loop) -> None:
        """A plain loop, by vectors, and what is left of it by shorter ones."""
        lanes = self.most_lanes
        whole = int(loop.extent) // lanes
        if whole > 1:
            self.repeat_vectors(g.Var(f"{loop.var.name}.vector"), whole, loop, lanes)
        self._in_vectors(loop, whole * lanes if whole > 1 else 0, lanes)

    def _counted(self) -> None:
        self._statements += 1
        if self._statements > _MOST_STATEMENTS:
            raise Uncovered(f"more than {_MOST_STATEMENTS} statements once it is unrolled")

    def store(self, store: g.Store) -> None:
        self._counted()
        if store.buffer.dtype != "float32":
            raise Uncovered(f"elements of {store.buffer.dtype}")
        lanes = 1 if self.lane is None else self.lane[1]
        homes = self.homes.get(store.buffer.name)
        if homes is not None:
            _, offset, _ = self.where(store)
            register = homes.register(offset // ITEM, lanes)
            self.values.into(store.value, lanes, register)
            return
        place, step = self.place(store)
        value = self.values.value(store.value, lanes)
        name = store.buffer.name
        if lanes == 1 or step == ITEM:
            self.vectors.store(name, place, lanes, value)
            return
        base, offset = place
        for lane in range(lanes):
            element = self.values.part(value, lane, 1)
            self.vectors.store(name, (base, offset + lane * step), 1, element)


_CHEAP = frozenset(("add", "sub", "mul", "neg", "abs", "min", "max"))


def _is_divided(loop: g.Loop, store: g.Store) -> bool:
    """Return whether an element takes a quotient or a remainder of a loop's counter."""
    at = [x.value for x in walk(store.value) if isinstance(x, g.Position)]
    inner = (t.value for x in at for t, _ in x.terms if not isinstance(t, g.Var))
    return any(loop.var in set(g.variables(value)) for value in inner)


def invariants(var: g.Var, body: tuple[g.Stmt, ...]) -> list[Expr]:
    """Quotients, roots and functions in a loop that are the same in all of its iterations."""
    inside = list(g.statements(body))
    bound = {var} | {s.var for s in inside if isinstance(s, (g.Loop, g.Let))}
    stores = [s for s in inside if isinstance(s, g.Store)]
    written = {s.buffer.name for s in stores}
    found: dict[int, Expr] = {}

    def same(x: Expr) -> bool:
        for part in walk(x):
            if isinstance(part, g.Load):
                places = part.index
                if part.buffer.name in written or part.clamped:
                    return False
            elif isinstance(part, g.Position):
                places = (part.value,)
            elif not isinstance(part, (Const, Unary, Binary)):
                return False
            else:
                continue
            if any(bound & set(g.variables(place)) for place in places):
                return False
        return True

    def look(x: Expr) -> None:
        if isinstance(x, (Unary, Binary)) and x.op not in _CHEAP and x.dtype == "float32":
            if same(x):
                found[id(x)] = x
                return
        for child in children(x):
            look(child)

    for store in stores:
        look(store.value)
    return list(found.values())
