"""Functions of x86-64 as they can be reached from their beginning, and their innermost loops."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from loopwright.codegen.facts.x86 import (
    BRANCH,
    BY_RBP,
    BY_RSP,
    END,
    JUMP,
    LOAD,
    STORE,
    Instruction,
    decode,
)

_FRAMES = ((b"\x48\x83\xec", 1), (b"\x48\x81\xec", 4), (b"\x48\x83\xc4", 1))
"""SUB RSP, n and ADD RSP, -n: their beginnings, and bytes of the number."""
_FRAME_POINTER = b"\x48\x89\xe5"
"""MOV RBP, RSP."""


@dataclass(frozen=True)
class Run:
    """Counts of a run of instructions.

    Attributes
    ----------
    bytes: of code.
    vector_bytes: of the widest vector.
    vectors: instructions on vectors.
    multiply_adds: fused ones, of elements.
    loads, stores: instructions that read and write memory, those of the frame left out.
    spills, reloads: those that write and read a fixed place of the frame.
    """

    instructions: int
    bytes: int
    vector_bytes: int
    vectors: int
    multiply_adds: int
    loads: int
    stores: int
    spills: int
    reloads: int


@dataclass(frozen=True)
class Function:
    """A function: all of it, its innermost loops, and bytes that it takes of the stack."""

    whole: Run
    loops: tuple[Run, ...]
    stack_bytes: int


def read_function(code: bytes, begin: int, end: int, outside: Collection[int]) -> Function | None:
    """Read the function from `begin` to `end`; None where it has an instruction that is not known.

    What follows it, such as constants, is not read: only what its instructions lead to is.
    `outside` are the places of addresses that a linker will write, so that jumps by them leave.
    """
    known: dict[int, Instruction] = {}
    waiting = [begin]
    while waiting:
        at = waiting.pop()
        while begin <= at < end and at not in known:
            found = decode(code, at)
            if found is None:
                return None
            behind, goes, target = found[:3]
            if goes == JUMP and behind - 4 in outside:
                goes = END
            known[at] = found
            if goes == BRANCH:
                waiting.append(target)
            elif goes == END:
                break
            at = target if goes == JUMP else behind
    pointer = _contains(code, _FRAME_POINTER, begin, end, known)
    frame = BY_RSP | (BY_RBP if pointer else 0)
    places = sorted(known)
    whole = _counted([known[at] for at in places], places, frame)
    loops = []
    for first, last in _innermost(known):
        inside = [at for at in places if first <= at <= last]
        loops.append(_counted([known[at] for at in inside], inside, frame))
    return Function(whole, tuple(loops), _stack(code, begin, end, known))


def _innermost(known: dict[int, Instruction]) -> Iterator[tuple[int, int]]:
    """The first and the last place of every innermost loop: a jump back that jumps over no
    other one."""
    ends: dict[int, int] = {}
    for at, (_, goes, target, *_) in known.items():
        if goes in (BRANCH, JUMP) and target <= at and target in known:
            ends[target] = max(ends.get(target, 0), at)
    heads = sorted(ends)
    for number, head in enumerate(heads):
        if number + 1 == len(heads) or heads[number + 1] > ends[head]:
            yield head, ends[head]


def _counted(run: list[Instruction], places: list[int], frame: int) -> Run:
    size = sum(found[0] - at for found, at in zip(run, places, strict=True))
    vectors = [found[3] for found in run if found[3]]
    moves = [found[5] for found in run if found[5]]
    own = [move & (LOAD | STORE) for move in moves if move & frame]
    others = [move & (LOAD | STORE) for move in moves if not move & frame]
    return Run(
        len(run),
        size,
        max(vectors, default=0),
        len(vectors),
        sum(found[4] for found in run),
        others.count(LOAD),
        others.count(STORE),
        own.count(STORE),
        own.count(LOAD),
    )


def _stack(code: bytes, begin: int, end: int, known: Collection[int]) -> int:
    """Bytes of the largest frame that an instruction makes."""
    most = 0
    for start, size in _FRAMES:
        at = code.find(start, begin, end)
        while at >= 0:
            if at in known:
                behind = at + len(start)
                taken = int.from_bytes(code[behind : behind + size], "little", signed=True)
                most = max(most, -taken if start[2] == 0xC4 else taken)
            at = code.find(start, at + 1, end)
    return most


def _contains(code: bytes, what: bytes, begin: int, end: int, known: Collection[int]) -> bool:
    at = code.find(what, begin, end)
    while at >= 0:
        if at in known:
            return True
        at = code.find(what, at + 1, end)
    return False
