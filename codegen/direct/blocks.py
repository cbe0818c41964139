"""Straight code over vectors: operations of a block, and the registers that they get.

Register tiles have *homes*, registers of their own from their allocation to its end. All other
values are temporary: loads, and what is computed on the way. A load is made once in a block, and
its register is taken away where another needs one and it is wanted again last of all (Belady
1966); then it is loaded again.
"""

from __future__ import annotations

import itertools
import struct

from loopwright.codegen.direct import encode as x86
from loopwright.codegen.direct.code import FRAME, Crowded, Place
from loopwright.codegen.direct.function import Function

REGISTERS = 16
_LANES = 8
_TEMPORARY = 1 << 8  # temporaries count from here, homes are registers
_LOADS = {8: "vmovups", 4: "vmovups", 2: "vmovsd", 1: "vmovss"}
_STORES = {8: "vmovups_store", 4: "vmovups_store", 2: "vmovsd_store", 1: "vmovss_store"}
_COMMUTE = frozenset(("vaddps", "vmulps", "vandps", "vorps", "vxorps", "vpaddd", "vpand", "vpor"))

Value = int
"""A temporary, or a register that is a home."""


class Vectors:
    """The vector operations of a function, and the registers that are homes."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.homes: set[int] = set()
        self._count = _TEMPORARY
        self._operations: list[list] = []  # type: ignore[type-arg]
        self._known: dict[object, Value] = {}
        self._by_buffer: dict[str, dict[int, dict[int, list[tuple[object, int]]]]] = {}
        self._versions: dict[int | None, int] = {}  # of what homes hold

    # ---- homes ----

    def home(self) -> int | None:
        """A register that stays; None if no more can be spared."""
        for register in range(REGISTERS):
            if register not in self.homes:
                self.homes.add(register)
                return register
        return None

    def leave(self, registers: list[int]) -> None:
        """Give homes back."""
        self.flush()
        self.homes.difference_update(registers)

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
        key = (bits, lanes)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._new()
            if bits:
                where = (x86.RIP, bits)
                self._operations.append(["load", "vbroadcastss", lanes, found, where, ""])
            else:
                self._operations.append(["zero", "vxorps", lanes, found, None, ""])
        return found

    def pattern(self, values: tuple[int, ...]) -> Value:
        """A vector of integers that is known."""
        key = ("pattern", values)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._new()
            data = struct.pack(f"<{len(values)}i", *values)
            where = (x86.RIP, data)
            self._operations.append(["load", _LOADS[len(values)], len(values), found, where, ""])
        return found

    def spread(self, number: int, lanes: int) -> Value:
        """The lower half of a number in all lanes."""
        made = self._new()
        self._operations.append(["spread", number, lanes, made])
        return made

    def store(self, buffer: str, place: Place, lanes: int, value: Value) -> None:
        """Write neighbours; what is known of them is what was written."""
        base, offset = place
        by_base = self._by_buffer.setdefault(buffer, {})
        for other in [b for b in by_base if b != base]:  # which may be the same place
            for key, _ in itertools.chain(*by_base.pop(other).values()):
                self._known.pop(key, None)
        same = by_base.setdefault(base, {})
        end = offset + 4 * lanes
        for start in range(offset - 4 * (_LANES - 1), end, 4):
            if start in same:
                for key, length in same[start]:
                    if start + length > offset:
                        self._known.pop(key, None)
                same[start] = [entry for entry in same[start] if start + entry[1] <= offset]
        self._operations.append(["store", _STORES[lanes], lanes, value, place, buffer])
        if value >= _TEMPORARY:
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
        """The lanes of `yes` where those of the mask begin with a bit that is set."""
        made = self._made(into)
        self._operations.append(["blend", "vblendvps", lanes, made, no, yes, mask])
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

    # ---- registers ----

    def flush(self) -> None:
        """Write the block: what follows knows nothing of what is in registers but homes."""
        if self._operations:
            _Assignment(self.function, self._operations, self.homes).run()
            self._operations = []
        self._known.clear()
        self._by_buffer.clear()


def _sources(operation: list) -> list[int]:  # type: ignore[type-arg]
    kind = operation[0]
    if kind in ("load", "zero", "hint", "spread"):
        return []
    if kind == "store":
        return [operation[3]]
    if kind == "move":
        return [operation[4]]
    if kind == "apply":
        _, _, _, _, a, b, _ = operation
        return [a] if b is None else [a, b]
    return operation[4:]


class _Assignment:
    def __init__(
        self,
        function: Function,
        operations: list[list],  # type: ignore[type-arg]
        homes: set[int],
    ) -> None:
        self.function, self.operations = function, operations
        self.emit = function.current.append
        self.free = [r for r in range(REGISTERS - 1, -1, -1) if r not in homes]
        self.uses: dict[int, list[int]] = {}
        for at, operation in enumerate(operations):
            for value in _sources(operation):
                if value >= _TEMPORARY:
                    self.uses.setdefault(value, []).append(at)
        for uses in self.uses.values():
            uses.reverse()  # the next one is the last
        self.where: dict[int, int] = {}
        self.loads: dict[int, list] = {}  # type: ignore[type-arg]
        self.spilled: dict[int, int] = {}
        self.stores: dict[str, int] = {}  # by buffer
        self.made: dict[int, int] = {}  # stores to its buffer before a load
        self.lazy: dict[int, list] = {}  # type: ignore[type-arg]
        self.taken: list[int] = []  # registers that the operation at hand reads

    def run(self) -> None:
        emit = self.emit
        for operation in self.operations:
            kind, name, lanes = operation[0], operation[1], operation[2]
            if kind == "hint":
                emit(("hint", name, lanes))
                continue
            wide = 1 if lanes == 8 else 0
            made = operation[3]
            if kind == "load":
                uses = self.uses.get(made)
                if not uses:
                    continue
                self.loads[made] = operation
                self.made[made] = self.stores.get(operation[5], 0)
                if len(uses) == 1 and name == "vmovups" and lanes >= 4:
                    self.lazy[made] = operation
                    continue
                self._load(made, operation)
            elif kind == "zero":
                if self.uses.get(made):
                    self.loads[made] = operation
                    self._load(made, operation)
            elif kind == "spread":
                if self.uses.get(made):
                    emit(("spread", name, wide, self._take(made)))
            elif kind == "store":
                self._settle()
                register = self._read(made)
                self._done([made])
                self.stores[operation[5]] = self.stores.get(operation[5], 0) + 1
                emit(("vector", name, wide, register, 0, operation[4], None))
            elif kind == "move":
                source = operation[4]
                operand = self._operand(source)
                self._done([source])
                if operand.__class__ is tuple:
                    emit(("vector", "vmovups", wide, made, 0, operand, None))
                else:
                    emit(("vector", name, wide, made, 0, operand, None))
            elif kind == "apply":
                self._apply(name, wide, made, *operation[4:])
            elif kind == "blend":
                no, yes, mask = operation[4:]
                which, first = self._read(mask), self._read(no)
                second = self._operand(yes)
                self._done([no, yes, mask])
                target = self._target(made)
                emit(("vector", name, wide, target, first, second, which << 4))
            else:
                self._fma(name, wide, made, *operation[4:])
            self.taken.clear()

    # ---- operations ----

    def _apply(
        self, name: str, wide: int, made: int, a: int, b: int | None, immediate: int | None
    ) -> None:
        if b is None:
            first, second = 0, self._operand(a) if immediate is None else self._read(a)
        else:
            if name in _COMMUTE and a in self.lazy and b not in self.lazy:
                a, b = b, a
            first = self._read(a)
            second = self._operand(b)
        self._done([a] if b is None else [a, b])
        target = self._target(made)
        if b is not None and name in _COMMUTE and second.__class__ is int:
            if second > 7 and first < 8:
                first, second = second, first  # a shorter encoding
        if name == "vextractf128":
            self.emit(("vector", name, 1, second, 0, target, immediate))
        elif name in ("vpslld", "vpsrad", "vpsrld"):
            self.emit(("vector", name, wide, target, 0, second, immediate))
        else:
            self.emit(("vector", name, wide, target, first, second, immediate))

    def _fma(self, sign: str, wide: int, made: int, a: int, b: int, c: int) -> None:
        """The operand that is no more needed gives its register to the result."""
        if made == c:  # a sum in its home
            if a in self.lazy and b not in self.lazy:
                a, b = b, a
            first, second = self._read(a), self._operand(b)
            self._done([a, b])
            self.emit(("vector", f"vf{sign}231ps", wide, made, first, second, None))
            return
        if a in self.lazy and b not in self.lazy:
            a, b = b, a
        ra, rb = self._read(a), self._operand(b)
        rc = self._read(c) if rb.__class__ is tuple else self._operand(c)
        self._done([a, b, c])
        target = self._target(made)
        if rc.__class__ is tuple:
            if target == rb:
                ra, rb = rb, ra
            if target != ra:
                self.emit(("vector", "vmovaps", wide, target, 0, ra, None))
            self.emit(("vector", f"vf{sign}213ps", wide, target, rb, rc, None))
        elif target == ra:
            self.emit(self._form(sign, wide, target, rb, rc))
        elif target == rb:
            self.emit(self._form(sign, wide, target, ra, rc))
        else:
            if target != rc:
                self.emit(("vector", "vmovaps", wide, target, 0, rc, None))
            self.emit(("vector", f"vf{sign}231ps", wide, target, ra, rb, None))

    def _form(
        self, sign: str, wide: int, target: int, by: x86.Operand, plus: object
    ) -> tuple[object, ...]:
        """The product of `target` and another one, with what is added to it."""
        if isinstance(by, tuple):
            return ("vector", f"vf{sign}132ps", wide, target, plus, by, None)
        return ("vector", f"vf{sign}213ps", wide, target, by, plus, None)

    # ---- registers ----

    def _operand(self, value: int) -> int | Place:
        """A register, or the memory of a load that is used once."""
        late = self.lazy.pop(value, None)
        return self._read(value) if late is None else late[4]

    def _settle(self) -> None:
        """Make loads that wait for their use, before memory changes."""
        for value, operation in list(self.lazy.items()):
            del self.lazy[value]
            self._load(value, operation)

    def _read(self, value: int) -> int:
        if value < _TEMPORARY:
            return value
        self.lazy.pop(value, None)
        register = self.where.get(value)
        if register is None:
            if value in self.spilled:
                register = self._take(value)
                place = (FRAME, self.spilled[value])
                self.emit(("vector", "vmovups", 1, register, 0, place, None))
            else:
                register = self._load(value, self.loads[value])
        self.taken.append(register)
        return register

    def _load(self, value: int, operation: list) -> int:  # type: ignore[type-arg]
        kind, name, lanes, _, place, _ = operation
        register = self._take(value)
        wide = 1 if lanes == 8 else 0
        if kind == "zero":
            self.emit(("vector", name, wide, register, register, register, None))
        else:
            self.emit(("vector", name, wide, register, 0, place, None))
        return register

    def _take(self, value: int) -> int:
        if not self.free:
            self._evict()
        register = self.free.pop()
        self.where[value] = register
        return register

    def _evict(self) -> None:
        """Take the register of what is wanted again last."""
        best, far = None, -1
        for value, register in self.where.items():
            if register in self.taken:
                continue
            uses = self.uses.get(value)
            following = uses[-1] if uses else 1 << 30
            if following > far:
                best, far = value, following
        if best is None:
            raise Crowded("an expression that needs more vector registers than there are")
        register = self.where.pop(best)
        if far < 1 << 30 and best not in self.spilled and not self._reloads(best):
            self.spilled[best] = self.function.reserve(32, 32)
            place = (FRAME, self.spilled[best])
            self.emit(("vector", "vmovups_store", 1, register, 0, place, None))
        self.free.append(register)

    def _reloads(self, value: int) -> bool:
        """Return whether a value can be loaded again: no store came behind its load."""
        if value not in self.loads:
            return False
        return self.stores.get(self.loads[value][5], 0) == self.made.get(value, 0)

    def _done(self, values: list[int]) -> None:
        for value in values:
            uses = self.uses.get(value)
            if not uses:
                continue
            uses.pop()
            if not uses and value in self.where:
                self.free.append(self.where.pop(value))

    def _target(self, made: int) -> int:
        if made < _TEMPORARY:
            return made
        if not self.uses.get(made):  # nobody wants it
            return self._spare()
        if not self.free:
            self._evict()
        register = self.free.pop()
        self.where[made] = register
        return register

    def _spare(self) -> int:
        if not self.free:
            self._evict()
        return self.free[-1]
