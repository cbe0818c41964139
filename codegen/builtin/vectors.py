"""Vector operations of a block: what is known of memory and of values is not made again."""

from __future__ import annotations

import itertools
import struct

from loopwright.codegen.builtin import encode as x86
from loopwright.codegen.builtin.assignment import TEMPORARY, Assignment
from loopwright.codegen.builtin.code import Place, VectorSet
from loopwright.codegen.builtin.function import Function

_LOADS = {16: "vmovups", 8: "vmovups", 4: "vmovups", 2: "vmovsd", 1: "vmovss"}
_STORES = {lanes: f"{name}_store" for lanes, name in _LOADS.items()}

_PREDICATES = {"lt": 0x11, "le": 0x12, "gt": 0x1E, "ge": 0x1D, "eq": 0x00, "ne": 0x04}
_INTEGER = {  # the instruction, whether its operands and its result are turned round
    "gt": ("vpcmpgtd", False, False),
    "lt": ("vpcmpgtd", True, False),
    "le": ("vpcmpgtd", False, True),
    "ge": ("vpcmpgtd", True, True),
    "eq": ("vpcmpeqd", False, False),
    "ne": ("vpcmpeqd", False, True),
}
_INTEGER_PREDICATES = {"eq": 0, "lt": 1, "le": 2, "ne": 4, "ge": 5, "gt": 6}
_UNORDERED = 0x03
WORDS = frozenset(_PREDICATES)
"""Comparisons, in the words of the notation."""

Value = int
"""A temporary, or a register that is a home."""


class Vectors:
    """The vector operations of a function, and the registers that are homes."""

    def __init__(self, function: Function, vectors: VectorSet) -> None:
        self.function, self.set = function, vectors
        self.homes: set[int] = set()
        self._count = TEMPORARY
        self._operations: list[list] = []  # type: ignore[type-arg]
        self._known: dict[object, Value] = {}
        self._by_buffer: dict[str, dict[int, dict[int, list[tuple[object, int]]]]] = {}
        self._versions: dict[int | None, int] = {}  # of what homes hold
        self._kept: dict[int, int] = {}  # homes of constants in the loop at hand
        self._keeping: list[tuple] | None = None  # type: ignore[type-arg]
        self._most_kept = 0

    # ---- homes ----

    def home(self) -> int | None:
        """A register that stays; None if no more can be spared."""
        for register in range(self.set.registers):
            if register not in self.homes:
                self.homes.add(register)
                return register
        return None

    def leave(self, registers: list[int]) -> None:
        """Give homes back."""
        self.flush()
        self.homes.difference_update(registers)

    def keep_constants(self, before: list[tuple], most: int) -> None:  # type: ignore[type-arg]
        """Let constants of the block that begins have homes, as long as there are fewer than
        `most`. They are loaded by items in `before`, in front of a loop."""
        self._keeping, self._most_kept = before, most

    def leave_constants(self) -> None:
        """Give the homes of constants back, behind the loop."""
        if self._kept:
            self.leave(list(self._kept.values()))
            self._kept.clear()
        self._keeping = None

    def _home_of(self, bits: int) -> int | None:
        """The home of a constant, which is loaded before the loop at hand."""
        register = self._kept.get(bits)
        if register is None and self._keeping is not None and len(self.homes) < self._most_kept:
            register = self._kept[bits] = self.home()  # type: ignore[assignment]
            wide = self.set.lanes >> 3
            item = ("vector", "vbroadcastss", wide, register, 0, (x86.RIP, bits), None)
            self._keeping.append(item)
        return register

    # ---- operations ----

    def _new(self) -> Value:
        self._count += 1
        return self._count

    def load(self, buffer: str, place: Place, lanes: int, one: bool = False) -> Value:
        """`lanes` neighbours, or `one` element in all lanes."""
        key = (place, lanes, one)
        found = self._known.get(key)
        if found is not None:
            return found
        name = "vbroadcastss" if one and lanes > 1 else _LOADS[lanes]
        made = self._new()
        self._operations.append(["load", name, lanes, made, place, buffer])
        self._known[key] = made
        size = 4 if one else 4 * lanes
        same = self._by_buffer.setdefault(buffer, {}).setdefault(place[0], {})
        same.setdefault(place[1], []).append((key, size))
        return made

    def constant(self, bits: int, lanes: int) -> Value:
        """A number of 32 bits in all lanes."""
        if bits and (home := self._home_of(bits)) is not None:
            return home
        if not bits:
            return self._once((bits, lanes), "zero", "vxorps", lanes, None)
        return self._once((bits, lanes), "load", "vbroadcastss", lanes, (x86.RIP, bits))

    def pattern(self, values: tuple[int, ...]) -> Value:
        """A vector of integers that is known."""
        lanes = len(values)
        where = x86.RIP, struct.pack(f"<{lanes}i", *values)
        return self._once(("pattern", values), "load", _LOADS[lanes], lanes, where)

    def first(self, count: int) -> Value:
        """A mask of so many lanes."""
        return self._once(("first", count), "load", "kmovw", 1, (x86.RIP, (1 << count) - 1))

    def _once(self, key: object, kind: str, name: str, lanes: int, where: object) -> Value:
        """What an operation makes of a known number, made once in a block."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._new()
            self._operations.append([kind, name, lanes, found, where, ""])
        return found

    def spread(self, number: int, lanes: int) -> Value:
        """The lower half of a number in all lanes."""
        made = self._new()
        self._operations.append(["spread", number, lanes, made])
        return made

    def store(
        self, buffer: str, place: Place, lanes: int, value: Value, count: int | None = None
    ) -> None:
        """Write neighbours, or the first `count` by a mask; memory is known to hold them then."""
        mask = () if count is None or count == lanes else (self.first(count),)
        base, offset = place
        by_base = self._by_buffer.setdefault(buffer, {})
        for other in [b for b in by_base if b != base]:  # which may be the same place
            for key, _ in itertools.chain(*by_base.pop(other).values()):
                self._known.pop(key, None)
        same = by_base.setdefault(base, {})
        end = offset + 4 * lanes
        for start in range(offset - 4 * (self.set.lanes - 1), end, 4):
            if start in same:
                for key, length in same[start]:
                    if start + length > offset:
                        self._known.pop(key, None)
                same[start] = [entry for entry in same[start] if start + entry[1] <= offset]
        name = "vmovups_some" if mask else _STORES[lanes]
        self._operations.append(["store", name, lanes, value, place, buffer, *mask])
        if value >= TEMPORARY and not mask:
            key = (place, lanes, False)
            self._known[key] = value
            same.setdefault(offset, []).append((key, 4 * lanes))

    def apply(
        self,
        name: str,
        lanes: int,
        a: Value,
        b: Value | None = None,
        immediate: int | None = None,
        into: int | None = None,
    ) -> Value:
        """An operation of one or two vectors. It goes `into` a home, or a new value."""
        versions = self._versions
        key = (name, lanes, a, versions.get(a), b, versions.get(b), immediate)
        if into is None and (found := self._known.get(key)) is not None:
            return found
        made = self._made(into)
        self._operations.append(["apply", name, lanes, made, a, b, immediate])
        if into is None:
            self._known[key] = made
        return made

    def _made(self, into: int | None) -> Value:
        """A new value, or a home, which has another one from here on."""
        if into is None:
            return self._new()
        self._versions[into] = self._versions.get(into, 0) + 1
        return into

    def blend(self, lanes: int, no: Value, yes: Value, mask: Value, into: int | None) -> Value:
        """The lanes of `yes` where those of the mask are true."""
        made = self._made(into)
        name = "vblendmps" if self.set.extended else "vblendvps"
        self._operations.append(["blend", name, lanes, made, no, yes, mask])
        return made

    def multiply_add(
        self, sign: str, lanes: int, a: Value, b: Value, c: Value, into: int | None
    ) -> Value:
        """a · b + c; `sign` is "madd", "msub" for - c, "nmadd" for -(a · b), "nmsub" for both."""
        made = self._made(into)
        self._operations.append(["fma", sign, lanes, made, a, b, c])
        return made

    def move(self, lanes: int, value: Value, into: int) -> None:
        """A value into a home."""
        if value != into:
            self._made(into)
            self._operations.append(["move", "vmovaps", lanes, into, value])

    def hint(self, level: int, place: Place) -> None:
        """Prefetch."""
        self._operations.append(["hint", level, place])

    # ---- truth values: vectors of all bits or none, or masks of AVX-512 ----

    def compared(self, word: str, lanes: int, one: Value, other: Value) -> Value:
        """A comparison of float32."""
        return self._floats(_PREDICATES[word], lanes, one, other)

    def unordered(self, lanes: int, value: Value) -> Value:
        """Return whether a value is NaN."""
        return self._floats(_UNORDERED, lanes, value, value)

    def _floats(self, predicate: int, lanes: int, one: Value, other: Value) -> Value:
        name = "vcmpps_mask" if self.set.extended else "vcmpps"
        return self.apply(name, lanes, one, other, predicate)

    def compared_integers(self, word: str, lanes: int, one: Value, other: Value) -> Value:
        """A comparison of int32."""
        if self.set.extended:
            predicate = _INTEGER_PREDICATES[word]
            return self.apply("vpcmpd_mask", lanes, one, other, predicate)
        name, turned, negated = _INTEGER[word]
        one, other = (other, one) if turned else (one, other)
        mask = self.apply(name, lanes, one, other)
        return self.negated(lanes, mask) if negated else mask

    def both(self, lanes: int, one: Value, other: Value) -> Value:
        """One and the other."""
        return self.apply("kandw" if self.set.extended else "vandps", lanes, one, other)

    def either(self, lanes: int, one: Value, other: Value) -> Value:
        """One or the other."""
        return self.apply("korw" if self.set.extended else "vorps", lanes, one, other)

    def negated(self, lanes: int, mask: Value) -> Value:
        """The negation of a mask."""
        if self.set.extended:
            return self.apply("knotw", lanes, mask)
        ones = self.constant(0xFFFFFFFF, lanes)
        return self.apply("vxorps", lanes, mask, ones)

    # ---- registers ----

    def flush(self) -> None:
        """Write the block: what follows knows nothing of what is in registers but homes."""
        if self._operations:
            Assignment(self.function, self._operations, self.homes, self.set).run()
            self._operations = []
            self._keeping = None  # what follows may use registers that are written here
        self._known.clear()
        self._by_buffer.clear()
