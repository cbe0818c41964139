"""One function of machine code: a list of items over numbers, which get registers at the end.

A *number* is an integer of 64 bits: a pointer, a counter, a subscript. Each lives from its first
item to its last one, and through every loop that it is used in but not made in. Linear scan
(Poletto and Sarkar 1999) gives the registers to those that are used most, in the innermost loops;
others have a place in the frame, on which most instructions work directly.

Vector registers are chosen before, block by block (`blocks.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from loopwright.codegen.direct import encode as x86
from loopwright.codegen.direct.encode import RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP

_FREE = (RCX, RDX, RSI, RDI, 8, 9, 10, 11, RBX, RBP, 12, 13, 14, 15)
"""Registers for numbers: all but the stack's and the one that items may use."""
_KEPT = (RBX, RBP, 12, 13, 14, 15)
"""Those that a called function leaves alone."""
_ALIGNMENT = 32  # bytes, of the heads of innermost loops
FRAME = -2
"""The base of an operand in the frame."""

Place = tuple[int, int]
"""Memory: a number and bytes behind it; or `FRAME` and bytes; or `x86.RIP` and a constant."""


class Uncovered(Exception):  # noqa: N818 - a reason, not an error
    """What direct code cannot say of a tree: another code generator takes it."""


class Crowded(Uncovered):
    """Too few vector registers, beside those of register tiles."""


@dataclass(eq=False)
class Block:
    """A run of items that is known where it stands before it is known what it holds."""

    items: list[tuple] = field(default_factory=list)  # type: ignore[type-arg]


@dataclass(eq=False)
class Label:
    """A place that is jumped to."""

    at: int = -1
    aligned: bool = True
    jumps: list[int] = field(default_factory=list)


@dataclass
class Code:
    """Machine code: bytes, the functions in it, and the places of calls to others.

    `homes` are the vector registers that register tiles may have.
    """

    text: bytearray = field(default_factory=bytearray)
    symbols: dict[str, int] = field(default_factory=dict)
    calls: list[tuple[int, str]] = field(default_factory=list)
    constants: list[tuple[int, bytes]] = field(default_factory=list)
    homes: int = 14

    def finish(self) -> None:
        """Place the constants behind the code, and calls of functions that are inside."""
        self.text += x86.nothing(-len(self.text) % 64)
        places: dict[bytes, int] = {}
        for at, value in self.constants:
            if value not in places:
                places[value] = len(self.text)
                self.text += value
            rest = int.from_bytes(self.text[at : at + 4], "little", signed=True)
            struct.pack_into("<i", self.text, at, places[value] - at - 4 - rest)
        self.constants.clear()
        for at, name in [c for c in self.calls if c[1] in self.symbols]:
            struct.pack_into("<i", self.text, at, self.symbols[name] - at - 4)
        self.calls = [c for c in self.calls if c[1] not in self.symbols]


class Function:
    """Collects the items of one function, then writes its code.

    Items are tuples that begin with a method's name, which writes them, and name the numbers that
    they use: see `_USES`.
    """

    def __init__(self) -> None:
        self.top = Block()
        self.current = self.top.items
        self.count = 0
        self.frame = 0  # bytes

    def number(self) -> int:
        """A new number."""
        self.count += 1
        return self.count

    def reserve(self, size: int, alignment: int = 8) -> int:
        """Bytes in the frame; where they begin."""
        self.frame += -self.frame % alignment
        self.frame += size
        return self.frame - size

    def block(self) -> Block:
        """A block that stands here."""
        made = Block()
        self.current.append(("inside", made))
        return made

    # ---- the end ----

    def write(self, name: str, code: Code, arguments: tuple[int, ...]) -> None:
        """Append the machine code; `arguments` are the numbers of the function's own."""
        items: list[tuple] = []  # type: ignore[type-arg]
        _flatten(self.top, items)
        code.text += x86.nothing(-len(code.text) % 64)
        code.symbols[name] = len(code.text)
        registers, slots = _allocate(items, self, arguments)
        _Writer(self, code, registers, slots).run(items, arguments)


def _flatten(block: Block, into: list[tuple]) -> None:  # type: ignore[type-arg]
    for item in block.items:
        if item[0] == "inside":
            _flatten(item[1], into)
        else:
            into.append(item)


# Where an item has numbers that it uses, and one that it makes or changes; places count by their
# base. All items beside these have none.
_USES: dict[str, tuple[int, ...]] = {
    "set": (1,),
    "copy": (1, 2),
    "add": (1, 2),
    "add_number": (1,),
    "lea": (1, 2),
    "scale": (1, 2),
    "least": (1,),
    "greatest": (1,),
    "shift": (1,),
    "mask": (1,),
    "divide": (1, 2),
    "remainder": (1, 2),
    "load": (1, 2),
    "load32": (1, 2),
    "over": (1, 2),
    "keep": (1,),
    "skip": (1,),
    "loop": (1,),
    "end": (1,),
    "spread": (1,),
}


def _allocate(
    items: list[tuple],  # type: ignore[type-arg]
    function: Function,
    arguments: tuple[int, ...],
) -> tuple[dict[int, int], dict[int, int]]:
    """Registers of numbers, and places in the frame of those that have none."""
    first: dict[int, int] = dict.fromkeys(arguments, -1)
    last: dict[int, int] = {}
    weight: dict[int, float] = {}
    depth_of: dict[int, int] = dict.fromkeys(arguments, 0)
    stack: list[set[int]] = []
    calls: list[int] = []
    value = 1.0

    def seen(number: int, at: int) -> None:
        if number not in first:
            first[number], depth_of[number] = at, len(stack)
        last[number] = at
        weight[number] = weight.get(number, 0.0) + value
        if depth_of[number] < len(stack):
            stack[depth_of[number]].add(number)

    for at, item in enumerate(items):
        kind = item[0]
        if kind == "vector":
            place = item[5]
            if place.__class__ is tuple and place[0] > 0:
                seen(place[0], at)
            continue
        if kind == "end":
            seen(item[1], at)
            value /= 8
            for number in stack.pop():
                last[number] = at
            continue
        if kind == "call":
            calls.append(at)
            continue
        if kind == "hint":
            if item[2][0] > 0:
                seen(item[2][0], at)
            continue
        for part in _USES.get(kind, ()):
            number = item[part]
            if number.__class__ is tuple:
                number = number[0]
            if number > 0:
                seen(number, at)
        if kind == "loop":
            stack.append(set())
            value *= 8
    registers: dict[int, int] = {}
    slots: dict[int, int] = {}
    active: list[int] = []
    free = dict.fromkeys(_FREE)
    for number in sorted(last, key=first.__getitem__):
        start = first[number]
        for other in [n for n in active if last[n] < start]:
            active.remove(other)
            free[registers[other]] = None
        crosses = any(start < at < last[number] for at in calls)
        usable = [r for r in (_KEPT if crosses else _FREE) if r in free]
        if usable:
            register = usable[0]
        else:
            victims = [n for n in active if not crosses or registers[n] in _KEPT]
            victim = min(victims, key=weight.__getitem__, default=number)
            if weight[victim] >= weight[number]:
                slots[number] = function.reserve(8)
                continue
            register = registers.pop(victim)
            active.remove(victim)
            slots[victim] = function.reserve(8)
        registers[number] = register
        free.pop(register, None)
        active.append(number)
    return registers, slots


class _Writer:
    """Writes items as code."""

    def __init__(
        self, function: Function, code: Code, registers: dict[int, int], slots: dict[int, int]
    ) -> None:
        self.code, self.text = code, code.text
        self.registers, self.slots = registers, slots
        self.saved = [r for r in _KEPT if r in set(registers.values())]
        self.size = function.frame + (-function.frame % 64)

    def run(self, items: list[tuple], arguments: tuple[int, ...]) -> None:  # type: ignore[type-arg]
        """The whole function. Behind the frame stand the registers that it saves, and the stack
        pointer from before the frame was aligned."""
        for register in self.saved:
            self.text += x86.push(register)
        self.text += x86.move(RAX, RSP)
        self.text += x86.with_number("sub", RSP, self.size + 64)
        self.text += x86.with_number("and", RSP, -64)
        self.text += x86.store((RSP, self.size), RAX)
        self._arguments(arguments)
        methods: dict[str, Callable[..., None]] = {}
        text = self.text
        registers = self.registers
        for item in items:
            kind = item[0]
            if kind == "vector":
                _, name, wide, reg, source, rm, immediate = item
                if rm.__class__ is tuple and rm[0] in registers:
                    rm = (registers[rm[0]], rm[1])
                    text += x86.vector(name, wide, reg, source, rm, immediate)
                else:
                    self.vector(name, wide, reg, source, rm, immediate)
                continue
            method = methods.get(kind)
            if method is None:
                method = methods[kind] = getattr(self, kind)
            method(*item[1:])

    def _arguments(self, arguments: tuple[int, ...]) -> None:
        """Move the arguments to where they are wanted; the first three of a call."""
        moves = {}
        for number, register in zip(arguments, (RDI, RSI, RDX)):
            if number in self.slots:
                self.text += x86.store((RSP, self.slots[number]), register)
            elif number in self.registers and self.registers[number] != register:
                moves[register] = self.registers[number]
        while moves:
            ready = [r for r, to in moves.items() if to not in moves]
            if not ready:  # a cycle
                source = next(iter(moves))
                self.text += x86.move(RAX, source)
                moves = {RAX: moves.pop(source), **moves}
                continue
            source = ready[0]
            self.text += x86.move(moves.pop(source), source)

    def _where(self, number: int) -> x86.Operand:
        register = self.registers.get(number)
        return (RSP, self.slots[number]) if register is None else register

    def _memory(self, place: Place) -> x86.Memory:
        base, offset = place
        if base == FRAME:
            return (RSP, offset)
        register = self.registers.get(base)
        if register is None:
            self.text += x86.move(RAX, (RSP, self.slots[base]))
            register = RAX
        return (register, offset)

    def _into(self, number: int, write: Callable[[int], bytes]) -> None:
        """Write to a number through its register, or through the one that is free."""
        register = self.registers.get(number)
        if register is None:
            self.text += write(RAX) + x86.store((RSP, self.slots[number]), RAX)
        else:
            self.text += write(register)

    # ---- items ----

    def vector(
        self, name: str, wide: int, reg: int, source: int, rm: int | Place, immediate: int | None
    ) -> None:
        """A vector instruction; a place with base RIP has the number of a constant."""
        if isinstance(rm, int):
            self.text += x86.vector(name, wide, reg, source, rm, immediate)
        elif rm[0] == x86.RIP:
            self.text += x86.vector(name, wide, reg, source, (x86.RIP, 0), immediate)
            behind = int(immediate is not None)
            at = len(self.text) - 4 - behind
            struct.pack_into("<i", self.text, at, behind)
            value: int | bytes = rm[1]
            constant = value if isinstance(value, bytes) else value.to_bytes(4, "little")
            self.code.constants.append((at, constant))
        else:
            self.text += x86.vector(name, wide, reg, source, self._memory(rm), immediate)

    def spread(self, number: int, wide: int, register: int) -> None:
        """The lower half of a number in all lanes."""
        self.text += x86.vector("vmovd", 0, register, 0, self._where(number))
        self.text += x86.vector("vpbroadcastd", wide, register, 0, register)

    def hint(self, level: int, place: Place) -> None:
        """Prefetch."""
        self.text += x86.prefetch(level, self._memory(place))

    def set(self, number: int, value: int) -> None:
        """`number = value`."""
        self.text += x86.set_number(self._where(number), value)

    def copy(self, number: int, other: int) -> None:
        """`number = other`."""
        source = self._where(other)
        if self._where(number) != source:
            self._into(number, lambda r: x86.move(r, source) if r != source else b"")

    def add(self, number: int, other: int) -> None:
        """`number += other`."""
        register = self.registers.get(number)
        if register is None:
            self.text += x86.move(RAX, self._where(number))
            self.text += x86.with_operand("add", RAX, self._where(other))
            self.text += x86.store((RSP, self.slots[number]), RAX)
        else:
            self.text += x86.with_operand("add", register, self._where(other))

    def add_number(self, number: int, value: int) -> None:
        """`number += value`."""
        if value:
            self.text += x86.with_number("add", self._where(number), value)

    def lea(self, number: int, place: Place) -> None:
        """`number = &place`."""
        where = self._memory(place)
        self._into(number, lambda r: x86.address_of(r, where))

    def scale(self, number: int, other: int, value: int) -> None:
        """`number = other · value`."""
        source = self._where(other)
        self._into(number, lambda r: x86.multiply(r, source, value))

    def over(self, number: int, other: int) -> None:
        """`number = number / other`, of what is not negative."""
        where, by = self._where(number), self._where(other)
        self.text += x86.move(RAX, by) + x86.store((RSP, self.size + 16), RAX)
        self.text += x86.move(RAX, where) + x86.store((RSP, self.size + 8), RDX)
        self.text += x86.WIDEN + x86.divide((RSP, self.size + 16))
        self.text += x86.move(RDX, (RSP, self.size + 8))
        self.text += x86.store(where, RAX) if isinstance(where, tuple) else x86.move(where, RAX)

    def _limit(self, number: int, value: int, condition: str) -> None:
        where = self._where(number)
        self.text += x86.set_number(RAX, value)
        if isinstance(where, tuple):  # the other way round, in the free register
            self.text += x86.with_operand("cmp", RAX, where)
            self.text += x86.move_if(condition, RAX, where)
            self.text += x86.store(where, RAX)
        else:
            self.text += x86.with_operand("cmp", where, RAX)
            self.text += x86.move_if(condition, where, RAX)

    def least(self, number: int, value: int) -> None:
        """`number = min(number, value)`."""
        self._limit(number, value, "g")

    def greatest(self, number: int, value: int) -> None:
        """`number = max(number, value)`."""
        self._limit(number, value, "l")

    def shift(self, number: int, count: int) -> None:
        """`number >>= count`."""
        self.text += x86.shift_right(self._where(number), count)

    def mask(self, number: int, value: int) -> None:
        """`number &= value`."""
        self.text += x86.with_number("and", self._where(number), value)

    def _divide(self, number: int, other: int, value: int, result: int) -> None:
        """Division takes rax and rdx; who lives there waits behind the frame."""
        self.text += x86.move(RAX, self._where(other))
        kept = self.size + 8
        self.text += x86.store((RSP, kept), RDX)
        self.text += x86.set_number((RSP, kept + 8), value)
        self.text += x86.WIDEN + x86.divide((RSP, kept + 8))
        if result != RAX:
            self.text += x86.move(RAX, result)
        self.text += x86.move(RDX, (RSP, kept))
        where = self._where(number)
        self.text += x86.store(where, RAX) if isinstance(where, tuple) else x86.move(where, RAX)

    def divide(self, number: int, other: int, value: int) -> None:
        """`number = other / value`, of what is not negative."""
        self._divide(number, other, value, RAX)

    def remainder(self, number: int, other: int, value: int) -> None:
        """`number = other mod value`, of what is not negative."""
        self._divide(number, other, value, RDX)

    def load(self, number: int, place: Place) -> None:
        """`number = place`, 64 bits."""
        where = self._memory(place)
        self._into(number, lambda r: x86.move(r, where))

    def load32(self, number: int, place: Place | int) -> None:
        """`number = place`, or another number, 32 bits with their sign."""
        where = self._where(place) if isinstance(place, int) else self._memory(place)
        self._into(number, lambda r: x86.load_int32(r, where))

    def set_slot(self, slot: int, value: int) -> None:
        """Set a place in the frame."""
        self.text += x86.set_number((RSP, slot), value)

    def keep(self, number: int, slot: int) -> None:
        """Store a number in the frame."""
        where = self._where(number)
        if isinstance(where, tuple):
            self.text += x86.move(RAX, where)
            where = RAX
        self.text += x86.store((RSP, slot), where)

    def skip(self, number: int, label: Label) -> None:
        """Go to `label` if a number is 0 or less."""
        self.text += x86.with_number("cmp", self._where(number), 0)
        self._jump("le", label)

    def failed(self, label: Label) -> None:
        """Go to `label` if rax, a pointer, is null; its lower half is the status then."""
        self.text += x86.with_number("cmp", RAX, 0)
        self._jump("e", label)

    def failed_status(self, label: Label) -> None:
        """Go to `label` if eax, a status, is not 0."""
        self.text += b"\x85\xc0"  # test eax, eax
        self._jump("ne", label)

    def _jump(self, condition: str | None, label: Label) -> None:
        self.text += x86.jump(condition, 1 << 20)
        label.jumps.append(len(self.text))

    def jump(self, label: Label) -> None:
        """Go to `label`."""
        self._jump(None, label)

    def label(self, label: Label) -> None:
        """The place of a label."""
        for at in label.jumps:
            struct.pack_into("<i", self.text, at - 4, len(self.text) - at)

    def loop(self, counter: int, label: Label) -> None:
        """The head of a loop, whose counter goes down to 0."""
        if label.aligned:
            self.text += x86.nothing(-len(self.text) % _ALIGNMENT)
        label.at = len(self.text)

    def end(self, counter: int, label: Label) -> None:
        """The end of a loop."""
        self.text += x86.with_number("sub", self._where(counter), 1)
        size = 6
        self.text += x86.jump("ne", label.at - len(self.text) - size)

    def call(self, name: str, numbers: tuple[tuple[int, object], ...]) -> None:
        """Call a function; arguments are a register and what goes there: a number of 64 bits, a
        place of the frame ("frame", offset), a function ("code", name)."""
        for register, value in numbers:
            if isinstance(value, int):
                self.text += x86.set_number(register, value)
            elif isinstance(value, tuple) and value[0] == "frame":
                self.text += x86.address_of(register, (RSP, value[1]))
            elif isinstance(value, tuple) and value[0] == "load":
                self.text += x86.move(register, (RSP, value[1]))
            else:
                assert isinstance(value, tuple), value
                self.text += x86.address_of(register, (x86.RIP, 0))
                self.code.calls.append((len(self.text) - 4, value[1]))
        self.text += x86.ZERO_UPPER
        self.text += b"\xe8\0\0\0\0"
        self.code.calls.append((len(self.text) - 4, name))

    def result(self, slot: int) -> None:
        """Keep what a call returned in the frame."""
        self.text += x86.store((RSP, slot), RAX)

    def returns(self, slot: int | None) -> None:
        """The end of the function: it returns 0, or the status in a slot."""
        if slot is None:
            self.text += x86.set_number(RAX, 0)
        else:
            self.text += x86.move(RAX, (RSP, slot))
        self.text += x86.ZERO_UPPER
        self.text += x86.move(RSP, (RSP, self.size))
        for register in reversed(self.saved):
            self.text += x86.pop(register)
        self.text += x86.RETURN
