"""Functions of machine code as they can be reached from their beginning, and innermost loops."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import zip_longest

from loopwright.codegen.facts.instruction import Instruction, Reader, Use, Way

_LEAST = 16
"""Bytes below which what is between functions is padding."""


@dataclass(frozen=True)
class Run:
    """Counts of a run of instructions: bytes of code, those of the widest vector, instructions on
    vectors, fused multiply-adds of elements, loads and stores but for the frame's, and those that
    write and read a fixed place of the frame (`spills` and `reloads`)."""

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
    """A function, its innermost loops, its bytes of stack, and the place behind it."""

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
    back: dict[int, int] = {}  # the last jump back to each place
    waiting = [begin]
    while waiting:
        at = waiting.pop()
        while begin <= at < end and at not in known:
            found = reader.decode(code, at)
            if found is None:
                return None
            known[at] = found
            behind, goes, target, *_ = found
            if goes == Way.PLAIN:
                at = behind
                continue
            if goes == Way.END or (goes == Way.JUMP and behind - 4 in outside):
                break
            if begin <= target <= at:
                back[target] = max(back.get(target, 0), at)
            if goes == Way.BRANCH:
                waiting.append(target)
            at = target if goes == Way.JUMP else behind
    pointer = reader.has_frame_pointer(code, begin, end, known)
    frame = Use.BY_STACK | (Use.BY_FRAME if pointer else 0)
    places = sorted(known)
    whole = _counted([known[at] for at in places], places, frame)
    loops = []
    for first, last in _innermost(back):
        inside = places[bisect_left(places, first) : bisect_right(places, last)]
        loops.append(_counted([known[at] for at in inside], inside, frame))
    taken = reader.stack_bytes(code, begin, end, known)
    return Function(whole, tuple(loops), taken, max(found[0] for found in known.values()))


def read_gap(
    reader: Reader, code: bytes, begin: int, end: int, outside: Collection[int]
) -> Iterator[Function | None]:
    """Read functions with padding between them, up to one that cannot be read."""
    while end - begin >= _LEAST:
        found = read_function(reader, code, begin, end, outside)
        yield found
        begin = end if found is None else found.end


def _innermost(back: dict[int, int]) -> Iterator[tuple[int, int]]:
    """First and last place of innermost loops: a jump back that jumps over no other one."""
    heads = sorted(back)
    for head, following in zip_longest(heads, heads[1:]):
        if following is None or following > back[head]:
            yield head, back[head]


def _counted(run: list[Instruction], places: list[int], frame: int) -> Run:
    size = widest = vectors = fused = 0
    moves = [0] * 8  # reads and writes, of the frame or not
    for at, (end, _, _, width, products, access) in zip(places, run, strict=True):
        size += end - at
        if width:
            vectors += 1
            fused += products
            if width > widest:
                widest = width
        if access:
            moves[access & (Use.LOAD | Use.STORE) | (_OWN if access & frame else 0)] += 1
    return Run(
        len(run),
        size,
        widest,
        vectors,
        fused,
        moves[Use.LOAD],
        moves[Use.STORE],
        moves[Use.STORE | _OWN],
        moves[Use.LOAD | _OWN],
    )


_OWN = 4
