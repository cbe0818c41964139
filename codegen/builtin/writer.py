"""Items of a function as bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable

from loopwright.codegen.builtin import encode as x86
from loopwright.codegen.builtin.code import FRAME, Code, Label, One, Place
from loopwright.codegen.builtin.encode import RAX, RDI, RDX, RSI, RSP
from loopwright.codegen.builtin.registers import KEPT

_ALIGNMENT = 32  # bytes, of the heads of innermost loops


class Writer:
    """Writes items as code."""

    def __init__(
        self, code: Code, frame: int, registers: dict[int, int], slots: dict[int, int]
    ) -> None:
        self.code, self.text = code, code.text
        self.registers, self.slots = registers, slots
        self.saved = [r for r in KEPT if r in set(registers.values())]
        self.size = frame + (-frame % 64)

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
                    rm = (registers[rm[0]], *rm[1:])
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

    def _memory(self, place: Place | One) -> x86.Memory:
        base = place[0]
        if base == FRAME:
            return (RSP, *place[1:])
        register = self.registers.get(base)
        if register is None:
            self.text += x86.move(RAX, (RSP, self.slots[base]))
            register = RAX
        return (register, *place[1:])

    def _into(self, number: int, write: Callable[[int], bytes]) -> None:
        """Write to a number through its register, or through the one that is free."""
        register = self.registers.get(number)
        if register is None:
            self.text += write(RAX) + x86.store((RSP, self.slots[number]), RAX)
        else:
            self.text += write(register)

    # ---- items ----

    def vector(
        self,
        name: str,
        wide: int,
        reg: int,
        source: int,
        rm: int | Place | One,
        immediate: int | None,
    ) -> None:
        """A vector instruction; a place with base RIP has the number of a constant."""
        if isinstance(rm, int):
            self.text += x86.vector(name, wide, reg, source, rm, immediate)
        elif rm[0] == x86.RIP:
            self.text += x86.vector(name, wide, reg, source, (x86.RIP, 0, *rm[2:]), immediate)
            behind = int(immediate is not None and not x86.FORMS[name].masked)
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
        by = self._where(other)
        self.text += x86.move(RAX, by) + x86.store((RSP, self.size + 16), RAX)
        self._divide(number, number, None, RAX)

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

    def _divide(self, number: int, other: int, value: int | None, result: int) -> None:
        """Division takes rax and rdx; who lives there waits behind the frame, and behind that the
        divisor, which is there already if no `value` is given."""
        self.text += x86.move(RAX, self._where(other))
        kept = self.size + 8
        self.text += x86.store((RSP, kept), RDX)
        if value is not None:
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
