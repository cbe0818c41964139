"""Registers of a block's vectors, and the instructions that are written with them.

Register tiles have *homes*, registers of their own from their allocation to its end. All other
values are temporary: loads, and what is computed on the way. A load is made once in a block, and
its register is taken away where another needs one and it is wanted again last of all (Belady
1966); then it is loaded again.
"""

from __future__ import annotations

from loopwright.codegen.builtin import encode as x86
from loopwright.codegen.builtin.code import FRAME, Crowded, One, Place, VectorSet
from loopwright.codegen.builtin.function import Function

TEMPORARY = 1 << 8
"""The first number of a temporary value; lower ones are homes, by their register."""
_EXTRACTS = frozenset(("vextractf128", "vextractf32x4", "vextractf32x8"))
_COMMUTE = frozenset(("vaddps", "vmulps", "vandps", "vorps", "vxorps", "vpaddd", "vpand", "vpor"))


class Assignment:
    """Writes the operations of one block, in their order."""

    def __init__(
        self,
        function: Function,
        operations: list[list],  # type: ignore[type-arg]
        homes: set[int],
        vectors: VectorSet,
    ) -> None:
        self.function, self.operations, self.vectors = function, operations, vectors
        self.emit = function.current.append
        self.free = [r for r in range(vectors.registers - 1, -1, -1) if r not in homes]
        self.free_masks = [x86.MASK + n for n in range(7, 0, -1)]  # the first one means none
        self.masks: set[int] = set()
        self.uses: dict[int, list[int]] = {}
        for at, operation in enumerate(operations):
            for value in _sources(operation):
                if value >= TEMPORARY:
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
            wide = lanes >> 3
            made = operation[3]
            if kind == "load":
                uses = self.uses.get(made)
                if not uses:
                    continue
                if name == "kmovw":
                    self.masks.add(made)
                self.loads[made] = operation
                self.made[made] = self.stores.get(operation[5], 0)
                if len(uses) == 1 and lanes >= 4:
                    if name == "vmovups" or (name == "vbroadcastss" and self.vectors.extended):
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
                values = [made, *operation[6:]]  # the second one is a mask
                register, *mask = map(self._read, values)
                self._done(values)
                self.stores[operation[5]] = self.stores.get(operation[5], 0) + 1
                chosen = mask[0] if mask else None
                emit(("vector", name, wide, register, 0, operation[4], chosen))
            elif kind == "move":
                source = operation[4]
                operand = self._operand(source, "vmovups")
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
                second = self._operand(yes, name)
                self._done([no, yes, mask])
                target = self._target(made)
                which = which if self.vectors.extended else which << 4
                emit(("vector", name, wide, target, first, second, which))
            else:
                self._fma(name, wide, made, *operation[4:])
            self.taken.clear()

    # ---- operations ----

    def _apply(
        self, name: str, wide: int, made: int, a: int, b: int | None, immediate: int | None
    ) -> None:
        if name in x86.MASKS:
            self.masks.add(made)
        if b is None:
            first, second = 0, self._operand(a, name) if immediate is None else self._read(a)
        else:
            if name in _COMMUTE and a in self.lazy and b not in self.lazy:
                a, b = b, a
            first = self._read(a)
            second = self._operand(b, name)
        self._done([a] if b is None else [a, b])
        target = self._target(made)
        if b is not None and name in _COMMUTE and second.__class__ is int:
            if second > 7 and first < 8:
                first, second = second, first  # a shorter encoding
        if name in _EXTRACTS:
            self.emit(("vector", name, 1, second, 0, target, immediate))
        elif name in ("vpslld", "vpsrad", "vpsrld"):
            self.emit(("vector", name, wide, target, 0, second, immediate))
        else:
            self.emit(("vector", name, wide, target, first, second, immediate))

    def _fma(self, sign: str, wide: int, made: int, a: int, b: int, c: int) -> None:
        """The operand that is no more needed gives its register to the result."""
        if a in self.lazy and b not in self.lazy:
            a, b = b, a
        if made == c:  # a sum in its home
            name = f"vf{sign}231ps"
            first, second = self._read(a), self._operand(b, name)
            self._done([a, b])
            self.emit(("vector", name, wide, made, first, second, None))
            return
        name = f"vf{sign}213ps"
        ra, rb = self._read(a), self._operand(b, name)
        rc = self._read(c) if rb.__class__ is tuple else self._operand(c, name)
        self._done([a, b, c])
        target = self._target(made)
        if rc.__class__ is tuple:
            if target == rb:
                ra, rb = rb, ra
            if target != ra:
                self.emit(("vector", "vmovaps", wide, target, 0, ra, None))
            self.emit(("vector", name, wide, target, rb, rc, None))
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

    def _operand(self, value: int, name: str) -> int | Place | One:
        """A register, or the memory of a load that is used once, here by the form `name`."""
        late = self.lazy.get(value)
        if late is None or (late[1] == "vbroadcastss" and name not in x86.BROADCASTS):
            return self._read(value)
        del self.lazy[value]
        base, offset = late[4]
        return (base, offset, x86.ONE) if late[1] == "vbroadcastss" else (base, offset)

    def _settle(self) -> None:
        """Make loads that wait for their use, before memory changes."""
        for value, operation in list(self.lazy.items()):
            del self.lazy[value]
            self._load(value, operation)

    def _read(self, value: int) -> int:
        if value < TEMPORARY:
            return value
        self.lazy.pop(value, None)
        register = self.where.get(value)
        if register is None:
            if value in self.spilled:
                register = self._take(value)
                place = (FRAME, self.spilled[value])
                name = "kmovw" if value in self.masks else "vmovups"
                self.emit(("vector", name, self.vectors.lanes >> 3, register, 0, place, None))
            else:
                register = self._load(value, self.loads[value])
        self.taken.append(register)
        return register

    def _load(self, value: int, operation: list) -> int:  # type: ignore[type-arg]
        kind, name, lanes, _, place, _ = operation
        register = self._take(value)
        wide = lanes >> 3
        if kind == "zero":
            self.emit(("vector", name, wide, register, register, register, None))
        else:
            self.emit(("vector", name, wide, register, 0, place, None))
        return register

    def _of_kind(self, value: int) -> list[int]:
        """Free registers that can hold a value: a vector or a mask."""
        return self.free_masks if value in self.masks else self.free

    def _take(self, value: int) -> int:
        free = self._of_kind(value)
        if not free:
            self._evict(value in self.masks)
        register = free.pop()
        self.where[value] = register
        return register

    def _evict(self, mask: bool) -> None:
        """Take the register of what is wanted again last, of masks or of vectors."""
        best, far = None, -1
        for value, register in self.where.items():
            if register in self.taken or (register > x86.MASK) != mask:
                continue
            uses = self.uses.get(value)
            following = uses[-1] if uses else 1 << 30
            if following > far:
                best, far = value, following
        if best is None:
            raise Crowded("an expression that needs more vector registers than there are")
        register = self.where.pop(best)
        if far < 1 << 30 and best not in self.spilled and not self._reloads(best):
            size = 8 if mask else 4 * self.vectors.lanes
            self.spilled[best] = self.function.reserve(size, size)
            place, name = (FRAME, self.spilled[best]), "kmovw_store" if mask else "vmovups_store"
            self.emit(("vector", name, self.vectors.lanes >> 3, register, 0, place, None))
        self._of_kind(best).append(register)

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
                self._of_kind(value).append(self.where.pop(value))

    def _target(self, made: int) -> int:
        if made < TEMPORARY:
            return made
        if self.uses.get(made):
            return self._take(made)
        free = self._of_kind(made)  # nobody wants it
        if not free:
            self._evict(made in self.masks)
        return free[-1]


def _sources(operation: list) -> list[int]:  # type: ignore[type-arg]
    kind = operation[0]
    if kind in ("load", "zero", "hint", "spread"):
        return []
    if kind == "store":
        return [operation[3], *operation[6:]]
    if kind == "move":
        return [operation[4]]
    if kind == "apply":
        _, _, _, _, a, b, _ = operation
        return [a] if b is None else [a, b]
    return operation[4:]
