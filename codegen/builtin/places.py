"""Places in memory: a pointer and a displacement.

Parts of a subscript that are known go to the displacement. For each set of loops that a subscript
moves with there is one pointer, which goes up with the innermost of them (strength reduction).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from loopwright.codegen.builtin.code import FRAME, Place, Uncovered, VectorSet
from loopwright.codegen.builtin.homes import Homes
from loopwright.codegen.builtin.subscripts import MOST, Parts, Subscripts, value_range
from loopwright.codegen.builtin.vectors import Vectors
from loopwright.schedule.tree.grammar import Load, Prefetch, Store, Term, Var, flat

ITEM = 4
"""Bytes of an element."""


@dataclass(eq=False)
class Access:
    """A subscript in bytes, split once for all copies of a statement."""

    node: object
    terms: list[tuple[Term, int]]
    const: int
    scope: int = -1  # for which the following hold
    parts: Parts = ()
    counted: list[tuple[Var, int]] = field(default_factory=list)
    step: int = 0
    pointer: int | None = None


class Places(Subscripts):
    """Places of the buffers of one function: `homes` of register tiles by the buffer's name,
    others `on_stack`, and `slots` of pointers to all other buffers. `hoisted` are registers of
    what was worked out before a loop, by an expression's identity. A task has who starts it
    `around`, and the number of its frame."""

    def __init__(self, vectors: VectorSet) -> None:
        super().__init__()
        self.entry = self.function.block()
        self._allocated = self.function.block()
        self._first = self.function.block()  # behind what is allocated, before all loops
        self.vectors = Vectors(self.function, vectors)
        self.homes: dict[str, Homes] = {}
        self.hoisted: dict[int, int] = {}
        self.on_stack: dict[str, int] = {}
        self.slots: dict[str, int] = {}
        self.around: tuple[Places, int] | None = None
        self._bases: dict[str, int] = {}
        self._pointers: dict[object, int] = {}
        self._accesses: dict[int, Access] = {}

    def slot(self, buffer: str) -> int:
        """Place in the frame of the pointer to a buffer."""
        if buffer not in self.slots:
            self.slots[buffer] = self.function.reserve(8)
        return self.slots[buffer]

    def inside(self, x: Load) -> bool:
        """Return whether no subscript of a load leaves its buffer."""
        for subscript, extent in zip(x.index, x.buffer.shape, strict=True):
            low, high = value_range(*self._linear(subscript))
            if self.lane is not None:
                steps = sum(int(c) for t, c in subscript.terms if t is self.lane[0])
                reach = steps * (self.lane[1] - 1)
                low, high = low + min(reach, 0), high + max(reach, 0)
            if low < 0 or high >= int(extent):
                return False
        return True

    def _access(self, node: Load | Store | Prefetch) -> Access:
        found = self._accesses.get(id(node))
        if found is None:
            place = flat(node.buffer, node.index)
            terms = [(t, int(c) * ITEM) for t, c in place.terms if int(c)]
            found = self._accesses[id(node)] = Access(node, terms, int(place.const) * ITEM)
        return found

    def where(self, node: Load | Store | Prefetch) -> tuple[Parts, int, int]:
        """Variable parts of a place, bytes, and the step from lane to lane in bytes."""
        access = self._access(node)
        if access.scope == self._scope:
            offset, fixed = access.const, self.fixed
            for var, factor in access.counted:
                offset += fixed[var] * factor
            return access.parts, offset, access.step
        return self._split(access)

    def _split(self, access: Access) -> tuple[Parts, int, int]:
        """`where` for the first time in a scope."""
        offset, whole, counted = self._sum(access.const, access.terms)
        lane = None if self.lane is None else self.lane[0]
        step = next((factor for term, factor in access.terms if term is lane), 0)
        if all(isinstance(term, Var) for term, _ in access.terms):
            access.scope, access.parts, access.pointer = self._scope, whole, None
            access.counted, access.step = counted, step
        return whole, offset, step

    def place(self, node: Load | Store | Prefetch) -> tuple[Place, int]:
        """Pointer and displacement, and the step from lane to lane in bytes."""
        access = self._access(node)
        if access.scope == self._scope and access.pointer is not None:
            offset, fixed = access.const, self.fixed
            for var, factor in access.counted:
                offset += fixed[var] * factor
            return (access.pointer, offset), access.step
        parts, offset, step = self._split(access)
        name = node.buffer.name
        if isinstance(node, Load) and node.clamped and not self.inside(node):
            return self._nearest(node), step
        if not parts and name in self.on_stack:
            return (FRAME, self.on_stack[name] + offset), step
        if not -MOST < offset < MOST:
            raise Uncovered("a place too far from its pointer")
        pointer = self._pointer(name, parts)
        if access.scope == self._scope and not (isinstance(node, Load) and node.clamped):
            access.pointer = pointer
        return (pointer, offset), step

    def _nearest(self, x: Load) -> Place:
        """The place of a load whose subscripts move to the nearest legal ones."""
        items, pointer = self.function.current, self.function.number()
        place = self.on_stack.get(x.buffer.name)
        items.append(("copy", pointer, self._base(x.buffer.name)))
        step, offset = ITEM, 0
        assert place is None or place >= 0
        for subscript, size in zip(reversed(x.index), reversed(x.buffer.shape), strict=True):
            extent = int(size)
            const, parts = self._linear(subscript)
            low, high = value_range(const, parts)
            if not parts:
                offset += min(max(const, 0), extent - 1) * step
            else:
                number = self.function.number()
                self._evaluate(number, const, parts, items)
                if low < 0:
                    items.append(("greatest", number, 0))
                if high >= extent:
                    items.append(("least", number, extent - 1))
                self._scaled(number, number, step, items)
                items.append(("add", pointer, number))
            step *= extent
        return (pointer, offset)

    def _pointer(self, buffer: str, parts: Parts) -> int:
        if not parts:
            return self._base(buffer)
        key = (buffer, self.on_stack.get(buffer), parts)
        found = self._pointers.get(key)
        if found is not None:
            return found
        before = self._pointer(buffer, parts[:-1])
        variable, step = parts[-1]
        number = self._pointers[key] = self.function.number()
        if not -MOST < step < MOST:
            raise Uncovered("a step too long for an instruction")
        if variable.behind is not None:
            assert variable.before is not None
            items = variable.before.items
            if variable.start is None:
                items.append(("copy", number, before))
            else:
                items.append(("scale", number, variable.start, step))
                items.append(("add", number, before))
            variable.behind.items.append(("add_number", number, step))
        else:
            assert variable.value is not None
            items = variable.head.items
            items.append(("scale", number, variable.value, step))
            items.append(("add", number, before))
        return number

    def _base(self, buffer: str) -> int:
        if buffer not in self._bases:
            number = self._bases[buffer] = self.function.number()
            top = self._first.items
            if buffer in self.on_stack:
                top.append(("lea", number, (FRAME, self.on_stack[buffer])))
            elif buffer in self.slots:
                top.append(("load", number, (FRAME, self.slots[buffer])))
            else:
                assert self.around is not None
                other, frame = self.around
                top.append(("load", number, (frame, other.slots[buffer])))
        return self._bases[buffer]
