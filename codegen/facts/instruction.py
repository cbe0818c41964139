"""Facts of an instruction of any processor: its length, where it goes, what it does to memory."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass


class Way:
    """Ways of an instruction: on; on or to a target; to a target; out of the function."""

    PLAIN, BRANCH, JUMP, END = range(4)


class Use:
    """Uses of memory: a read, a write; by the stack pointer and a constant, or by the register
    that may be a frame pointer."""

    LOAD, STORE, BY_STACK, BY_FRAME = 1, 2, 4, 8


Instruction = tuple[int, int, int, int, int, int]
"""The place behind it; where it goes; the target; bytes of its vectors, 0 of other instructions;
fused multiply-adds of elements; what it does to memory."""


@dataclass(frozen=True)
class Reader:
    """Reader of one processor family's code: `decode` gives the instruction at a place, or None;
    `stack_bytes` and `has_frame_pointer` tell of the frame that instructions at some places
    make."""

    decode: Callable[[bytes, int], Instruction | None]
    stack_bytes: Callable[[bytes, int, int, Collection[int]], int]
    has_frame_pointer: Callable[[bytes, int, int, Collection[int]], bool]
