"""Registers of numbers.

A number lives from its first item to its last one, and through every loop that it is used in but
not made in. Linear scan (Poletto and Sarkar 1999) gives the registers to those that are used most,
in the innermost loops. Others have a place in the frame, on which most instructions work directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from loopwright.codegen.builtin.encode import RBP, RBX, RCX, RDI, RDX, RSI

_FREE = (RCX, RDX, RSI, RDI, 8, 9, 10, 11, RBX, RBP, 12, 13, 14, 15)
"""Registers for numbers: all but the stack's and the one that items may use."""
KEPT = (RBX, RBP, 12, 13, 14, 15)
"""Registers that a called function leaves alone."""

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
    "hint": (2,),
}


@dataclass
class _Lives:
    """The first and the last item of every number, how much it is used, and where calls are."""

    first: dict[int, int]
    last: dict[int, int]
    weight: dict[int, float]
    calls: list[int]


def _lives(items: list[tuple], arguments: tuple[int, ...]) -> _Lives:  # type: ignore[type-arg]
    """When the numbers of items live: through each loop that they are used in but not made in."""
    lives = _Lives(dict.fromkeys(arguments, -1), {}, {}, [])
    depth_of: dict[int, int] = dict.fromkeys(arguments, 0)
    stack: list[set[int]] = []
    value = 1.0
    for at, item in enumerate(items):
        kind = item[0]
        for number in _numbers(item):
            if number not in lives.first:
                lives.first[number], depth_of[number] = at, len(stack)
            lives.last[number] = at
            lives.weight[number] = lives.weight.get(number, 0.0) + value
            if depth_of[number] < len(stack):
                stack[depth_of[number]].add(number)
        if kind == "loop":
            stack.append(set())
            value *= 8
        elif kind == "end":
            value /= 8
            lives.last.update(dict.fromkeys(stack.pop(), at))
        elif kind == "call":
            lives.calls.append(at)
    return lives


def _numbers(item: tuple) -> Iterator[int]:  # type: ignore[type-arg]
    """The numbers that an item uses, makes or changes."""
    kind = item[0]
    if kind == "vector":  # its last operand is a register or a place
        used = item[5:6] if item[5].__class__ is tuple else ()
    else:
        used = tuple(item[part] for part in _USES.get(kind, ()))
    for number in used:
        base = number[0] if number.__class__ is tuple else number
        if base > 0:
            yield base


def allocate(
    items: list[tuple],  # type: ignore[type-arg]
    reserve: Callable[[int], int],
    arguments: tuple[int, ...],
) -> tuple[dict[int, int], dict[int, int]]:
    """Registers of numbers, and places in the frame of those that have none: `reserve` gives so
    many bytes of it."""
    lives = _lives(items, arguments)
    registers: dict[int, int] = {}
    slots: dict[int, int] = {}
    active: list[int] = []
    free = dict.fromkeys(_FREE)
    for number in sorted(lives.last, key=lives.first.__getitem__):
        for other in [n for n in active if lives.last[n] < lives.first[number]]:
            active.remove(other)
            free[registers[other]] = None
        called = any(lives.first[number] < at < lives.last[number] for at in lives.calls)
        usable = KEPT if called else _FREE
        register = next((r for r in usable if r in free), None)
        if register is None:
            victims = [n for n in active if registers[n] in usable]
            victim = min(victims, key=lives.weight.__getitem__, default=number)
            if lives.weight[victim] >= lives.weight[number]:
                slots[number] = reserve(8)
                continue
            register = registers.pop(victim)
            active.remove(victim)
            slots[victim] = reserve(8)
        registers[number] = register
        free.pop(register, None)
        active.append(number)
    return registers, slots
