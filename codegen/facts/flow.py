"""Functions of machine code as they can be reached from their beginning, and innermost loops."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from loopwright.codegen.facts.instruction import (
    BRANCH,
    BY_FRAME,
    BY_STACK,
    END,
    JUMP,
    LOAD,
    STORE,
    Instruction,
    Reader,
)


_LEAST = 16
"""Bytes below which what is between functions is padding."""


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
    """A function: all of it, its innermost loops, bytes that it takes of the stack, and the place
    behind it."""

    whole: Run
    loops: tuple[Run, ...]
    stack_bytes: int
    end: int


def read_function(
    reader: Reader, code: bytes, begin: int, end: int, outside: Collection[int]
) -> Function | None:
    """Read the function from `begin` to `end`; None where it has an instruction that is not known.

    What follows it, such as constants, is not read: only what its instructions lead to is.
    `outside` are the places of addresses that a linker will write, so that jumps by them leave.
    """
    known: dict[int, Instruction] = {}
    waiting = [begin]
    while waiting:
        at = waiting.pop()
        while begin <= at < end and at not in known:
            found = reader.decode(code, at)
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
    pointer = reader.has_frame_pointer(code, begin, end, known)
    frame = BY_STACK | (BY_FRAME if pointer else 0)
    places = sorted(known)
    whole = _counted([known[at] for at in places], places, frame)
    loops = []
    for first, last in _innermost(known):
        inside = [at for at in places if first <= at <= last]
        loops.append(_counted([known[at] for at in inside], inside, frame))
    taken = reader.stack_bytes(code, begin, end, known)
    return Function(whole, tuple(loops), taken, max(found[0] for found in known.values()))


def read_gap(
    reader: Reader, code: bytes, begin: int, end: int, outside: Collection[int]
) -> Iterator[Function | None]:
    """Read functions that follow each other, with padding between them, up to one that cannot be
    read."""
    while end - begin >= _LEAST:
        found = read_function(reader, code, begin, end, outside)
        yield found
        begin = end if found is None else found.end


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
