"""Pass lists as sequences of decisions, and LLVM IR as the context in which they are made."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from loopwright.costmodel.model import ModelError
from loopwright.costmodel.sequence.description import NUMBERS, Context, Described, Floats
from loopwright.costmodel.sequence.grammar import Decision, Prefix

LONGEST = 12
"""Elements of a list at most."""
END = "end"
"""The choice that ends a list."""
_OPCODES = (
    "add", "alloca", "and", "ashr", "atomicrmw", "bitcast", "br", "call", "extractelement",
    "fadd", "fcmp", "fdiv", "fmul", "fneg", "fpext", "fptosi", "fptrunc", "fsub",
    "getelementptr", "icmp", "insertelement", "load", "lshr", "mul", "or", "phi", "ptrtoint",
    "ret", "sdiv", "select", "sext", "shl", "shufflevector", "sitofp", "srem", "store", "sub",
    "switch", "trunc", "udiv", "urem", "xor", "zext",
)  # fmt: skip
_CALLS = ("fmuladd", "prefetch", "llvm.m", "lifetime", "exp", "@")
"""Parts of the names of functions that are called, of which the first that fits counts."""
_KINDS = ("float", "double", "half", "i8", "i16", "i32", "i64", "ptr", "<")
"""Beginnings of the types of loads and stores."""
_FUNCTION = re.compile(r"^define (.*?)\{$(.*?)^\}$", re.DOTALL | re.MULTILINE)
_ACCESS = re.compile(r"= load (\S+)|^  store (\S+)", re.MULTILINE)
_CALLED = re.compile(r"call .*?(@[\w.$]+)")
_OPCODE = re.compile(r"^  (?:%\S+ = )?(?:tail )?(\w+)", re.MULTILINE)


def context_of(text: str) -> Context:
    """The functions of unoptimized LLVM IR, and the sum of what they are made of.

    Numbers are counts on a logarithmic scale: instructions by opcode, calls by what is called,
    memory accesses by type, blocks, arguments, bytes of text and functions.
    """
    rows = [_function(head, body) for head, body in _FUNCTION.findall(text) if "weak" not in head]
    if not rows:
        raise ModelError("the LLVM IR defines no function: give the text of a module")
    counts = np.array(rows, np.float64)
    whole = np.append(counts.sum(axis=0), len(rows))
    return Context(_logs(counts), _logs(whole))


def _function(head: str, body: str) -> list[int]:
    opcodes = Counter(_OPCODE.findall(body))
    called = Counter(
        next(part for part in _CALLS if part in name) for name in _CALLED.findall(body)
    )
    kinds = Counter(
        next((kind for kind in _KINDS if found.startswith(kind)), "")
        for pair in _ACCESS.findall(body)
        for found in pair
        if found
    )
    blocks = 1 + len(re.findall(r"^[\w.$-]+:", body, re.MULTILINE))
    size = [blocks, head.count("%"), len(body), sum(opcodes.values())]
    return [
        *(opcodes[o] for o in _OPCODES),
        *(called[c] for c in _CALLS),
        *(kinds[k] for k in _KINDS),
        *size,
    ]


def _logs(counts: np.ndarray[Any, np.dtype[np.float64]]) -> Floats:
    logs: Floats = np.log2(1.0 + counts).astype(np.float32)
    return logs


class Vocabulary:
    """The elements that a list may have, numbered from 0; the number behind the last ends it.

    Decisions are the same for all kernels, so that each is embedded once.
    """

    def __init__(self, elements: Sequence[str]) -> None:
        self.elements = tuple(elements)
        words = tuple((word,) for word in (*self.elements, END))
        end = len(self.elements)
        described = Described(np.zeros((end + 1, NUMBERS), np.float32), words)
        self.first = Decision(tuple(range(end)), _part(described, slice(end)))
        self.next = Decision(tuple(range(end + 1)), described)
        self.last = Decision((end,), _part(described, slice(end, None)))

    def sequence(self, elements: Sequence[str]) -> Prefix:
        """A list as numbers. Raises `ModelError` for an element that is not in the table."""
        try:
            numbers = [self.elements.index(e) for e in elements]
        except ValueError as error:
            raise ModelError(f"{error}: it is none of the {len(self.elements)} elements") from None
        return (*numbers, len(self.elements))

    def list_of(self, sequence: Prefix) -> tuple[str, ...]:
        """The list of a whole sequence."""
        return tuple(self.elements[n] for n in sequence[:-1])


def _part(described: Described, choices: slice) -> Described:
    return Described(described.numbers[choices], described.words[choices])


class PassGrammar:
    """Pass lists for one kernel: elements, one or more, and an end."""

    def __init__(self, vocabulary: Vocabulary, context: Context) -> None:
        self.vocabulary, self.context = vocabulary, context

    def decision(self, prefix: Prefix) -> Decision | None:
        """The choices that may follow a prefix; None where the list is whole."""
        if not prefix:
            return self.vocabulary.first
        if prefix[-1] == len(self.vocabulary.elements):
            return None
        return self.vocabulary.last if len(prefix) >= LONGEST else self.vocabulary.next
