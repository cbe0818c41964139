"""Several programs of one workload as functions of the same arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from loopwright.schedule.lowering import copied
from loopwright.schedule.open.family import Sized
from loopwright.schedule.open.numbers import structure
from loopwright.schedule.tree.grammar import Buffer, Stmt, Tree
from loopwright.schedule.tree.parts import renamed

_WHOLE = "whole"


@dataclass(frozen=True)
class Programs:
    """Bodies that read `inputs` and `prepared` and write `outputs`; `prepare` makes what is
    prepared for any of them from `constants`."""

    inputs: tuple[Buffer, ...]
    constants: tuple[Buffer, ...]
    prepared: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    prepare: tuple[Stmt, ...]
    bodies: tuple[tuple[Stmt, ...], ...]


def merged(workload: Sized, trees: Sequence[Tree]) -> Programs:
    """The programs of trees with formulas. Layouts that several of them read are made once."""
    every = {b.name: b for t in trees for b in (*t.inputs, *t.constants)}
    relaid = {b.name for t in trees for b in t.constants}
    order = [t.name for t in workload.inputs]
    made = _Merging(relaid, set(order) | {t.name for t in workload.outputs})
    bodies = tuple(map(made.body, trees))
    return Programs(
        tuple(every[n] for n in order if n in every and n not in relaid),
        tuple(every[n] for n in order if n in relaid),
        tuple(made.prepared),
        trees[0].outputs,
        tuple(made.prepare),
        bodies,
    )


class _Merging:
    def __init__(self, relaid: set[str], names: set[str]) -> None:
        self.relaid, self.names = relaid, names
        self.prepared: list[Buffer] = []
        self.prepare: list[Stmt] = []
        self.known: dict[Any, tuple[str, ...]] = {}

    def body(self, tree: Tree) -> tuple[Stmt, ...]:
        """The body of a tree, over the names that its prepared buffers get."""
        body = tree.body
        plain = [b for b in tree.inputs if b.name in self.relaid]
        copies = [replace(b, name=f"{b.name}_{_WHOLE}", scope="heap") for b in plain]
        laid = replace(tree, inputs=(), outputs=(), body=())
        parts = [(laid, tuple(b.name for b in tree.prepared))] if tree.prepared else []
        parts += [(_copying(b, c), (b.name,)) for b, c in zip(plain, copies, strict=True)]
        for part, olds in parts:
            for old, new in zip(olds, self._laid_out(part), strict=True):
                body = _all_renamed(body, old, new)
        return body

    def _laid_out(self, part: Tree) -> tuple[str, ...]:
        """The names of what a part prepares: those of an earlier one that is equal."""
        kind, numbers = structure(part)
        if (kind, numbers) not in self.known:
            body = part.prepare
            new = []
            for buffer in part.prepared:
                name = self._unused(buffer.name)
                body = _all_renamed(body, buffer.name, name)
                self.prepared.append(replace(buffer, name=name))
                new.append(name)
            self.prepare += body
            self.known[kind, numbers] = tuple(new)
        return self.known[kind, numbers]

    def _unused(self, name: str) -> str:
        number = 0
        while (unique := f"{name}_{number}" if number else name) in self.names:
            number += 1
        self.names.add(unique)
        return unique


def _copying(source: Buffer, copy: Buffer) -> Tree:
    """The preparation that copies a constant."""
    return Tree(1, (), (copy,), (), (source,), (copied(source, copy),), ())


def _all_renamed(body: tuple[Stmt, ...], old: str, new: str) -> tuple[Stmt, ...]:
    return tuple(renamed(s, old, new) for s in body) if old != new else body
