"""One function of machine code: a list of items over numbers, which get registers at the end.

A *number* is an integer of 64 bits: a pointer, a counter, a subscript (`registers.py`). Vector
registers are chosen before, block by block (`assignment.py`).
"""

from __future__ import annotations

from loopwright.codegen.builtin import encode as x86
from loopwright.codegen.builtin.code import Block, Code
from loopwright.codegen.builtin.registers import allocate
from loopwright.codegen.builtin.writer import Writer


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
        registers, slots = allocate(items, self.reserve, arguments)
        Writer(code, self.frame, registers, slots).run(items, arguments)


def _flatten(block: Block, into: list[tuple]) -> None:  # type: ignore[type-arg]
    for item in block.items:
        if item[0] == "inside":
            _flatten(item[1], into)
        else:
            into.append(item)
