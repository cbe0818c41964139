"""Registers of numbers.

A number lives from its first item to its last one, and through every loop that it is used in but
not made in. Linear scan (Poletto and Sarkar 1999) gives the registers to those that are used most,
in the innermost loops. Others have a place in the frame, on which most instructions work directly.
"""

from __future__ import annotations

from collections.abc import Callable

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
}


def allocate(
    items: list[tuple],  # type: ignore[type-arg]
    reserve: Callable[[int], int],
    arguments: tuple[int, ...],
) -> tuple[dict[int, int], dict[int, int]]:
    """Registers of numbers, and places in the frame of those that have none: `reserve` gives so
    many bytes of it."""
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
        usable = [r for r in (KEPT if crosses else _FREE) if r in free]
        if usable:
            register = usable[0]
        else:
            victims = [n for n in active if not crosses or registers[n] in KEPT]
            victim = min(victims, key=weight.__getitem__, default=number)
            if weight[victim] >= weight[number]:
                slots[number] = reserve(8)
                continue
            register = registers.pop(victim)
            active.remove(victim)
            slots[victim] = reserve(8)
        registers[number] = register
        free.pop(register, None)
        active.append(number)
    return registers, slots
