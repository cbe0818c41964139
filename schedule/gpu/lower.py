"""Lowering for GPUs: each group of nests becomes a kernel."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from loopwright.schedule.gpu.context import Kernel, linear
from loopwright.schedule.gpu.heuristics import GPU
from loopwright.schedule.gpu.lower_elementwise import lower_flat
from loopwright.schedule.gpu.lower_mma import lower_matrix
from loopwright.schedule.gpu.lower_row_reduction import lower_rows
from loopwright.schedule.gpu.lower_tiled import lower_tiled
from loopwright.schedule.gpu.lower_transpose import lower_turned
from loopwright.schedule.loops.assembly import assembled, values_of
from loopwright.schedule.loops.statements import wrapped
from loopwright.schedule.loops.storage import Storage
from loopwright.schedule.sketch.kernel import Flat, KernelSketch, Rows, Tiled, Turned
from loopwright.schedule.sketch.sketch import Sketch
from loopwright.schedule.target import Gpu
from loopwright.schedule.tree.grammar import (
    Buffer,
    Column,
    Let,
    Linear,
    Load,
    Quotient,
    Remainder,
    Stmt,
    Store,
    Tree,
    Var,
    ceildiv,
)


def lower_kernels(
    sketch: Sketch,
    gpu: Gpu,
    values: Mapping[str, tuple[Column, ...]],
    n: int,
    known_ahead: frozenset[str],
) -> Tree:
    """The tree of a batch of n configs, given as the values of every knob."""
    storage = Storage(sketch.workload, known_ahead)
    prepare: list[Stmt] = []
    body: list[Stmt] = []
    for number, kernel in enumerate(sketch.kernels):
        ahead = kernel.group.nests[0].out.name in known_ahead
        made = Kernel(storage, "prepare" if ahead else "body", gpu)
        stmts = _lowered(kernel, values_of(sketch, values, number), made)
        (prepare if ahead else body).extend(stmts)
    copied = functools.partial(_copied, min(GPU.copy_threads, gpu.most_threads))
    return assembled(n, sketch.workload, storage, prepare, body, copied)


def _lowered(
    sketch: KernelSketch, values: Mapping[str, tuple[Column, ...]], kernel: Kernel
) -> list[Stmt]:
    if isinstance(sketch, Flat):
        return lower_flat(sketch, values, kernel)
    if isinstance(sketch, Rows):
        return lower_rows(sketch, values, kernel)
    if isinstance(sketch, Tiled):
        return lower_tiled(sketch, values, kernel)
    if isinstance(sketch, Turned):
        return lower_turned(sketch, values, kernel)
    return lower_matrix(sketch, values, kernel)


def _copied(threads: int, source: Buffer, target: Buffer) -> Stmt:
    """A kernel that copies a buffer, element by element, in blocks of so many threads."""
    total = source.size
    block, thread, place = (Var(f"{target.name}.{x}") for x in ("block", "thread", "place"))
    whole = linear((block, threads), (thread, 1))
    at: list[Linear] = []
    rest = linear((place, 1))
    for extent in reversed(source.shape):
        at.insert(0, Linear(((Remainder(rest, extent), 1),)))
        rest = Linear(((Quotient(rest, extent), 1),))
    body: list[Stmt] = [
        Let(place, whole, total - 1),
        Store(target, tuple(at), Load(source, tuple(at))),
    ]
    blocks = ceildiv(total, threads)
    loops = [(block, blocks, "block"), (thread, threads, "thread")]
    return wrapped(body, loops)[0]
