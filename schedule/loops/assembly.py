"""The parts of a lowered program put together: which tensors are arguments, which workspaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from loopwright.dsl.workload import Workload
from loopwright.schedule.loops.storage import Storage
from loopwright.schedule.sketch.sketch import Sketch
from loopwright.schedule.tree.grammar import Buffer, Column, Stmt, Tree
from loopwright.schedule.tree.parts import renamed


def assembled(
    n: int,
    workload: Workload,
    storage: Storage,
    prepare: list[Stmt],
    body: list[Stmt],
    copied: Callable[[Buffer, Buffer], Stmt],
) -> Tree:
    """The tree of a program whose statements touch what `storage` knows. `copied` makes the
    statement that copies a buffer: "main" is given no constant that "prepare" is given, but a
    copy of those that both read."""
    used = storage.used
    prepared = [b for b in storage.prepacked.values() if b.name in used["body"]]
    prepacked = used["prepare"] if prepared else set()
    for constant in workload.constants:
        if constant.name in prepacked & used["body"]:
            source = storage.buffer(constant)
            kept = replace(source, name=storage.unused(f"{constant.name}_kept"))
            prepared.append(kept)
            prepare = [*prepare, copied(source, kept)]
            body = [renamed(stmt, constant.name, kept.name) for stmt in body]
    return Tree(
        n=n,
        inputs=tuple(
            storage.buffer(t) for t in workload.inputs if not (t.constant and t.name in prepacked)
        ),
        prepared=tuple(prepared),
        outputs=tuple(storage.buffer(t) for t in workload.outputs),
        constants=tuple(storage.buffer(t) for t in workload.constants if t.name in prepacked),
        prepare=(*storage.allocations("prepare", prepared), *prepare) if prepared else (),
        body=(*storage.allocations("body", prepared), *body),
    )


def values_of(
    sketch: Sketch, values: Mapping[str, tuple[Column, ...]]
) -> list[Mapping[str, tuple[Column, ...]]]:
    """The knobs of every nest, or kernel, without its number."""
    found: dict[str, dict[str, tuple[Column, ...]]] = {}
    for name, columns in values.items():
        short = name.rstrip("0123456789")
        found.setdefault(name[len(short) :], {})[short] = columns
    return [found.get(str(number), {}) for number in sketch.knobs_of]
