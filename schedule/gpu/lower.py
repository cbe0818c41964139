"""Lowering for GPUs: each group of nests becomes a kernel."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from loopwright.schedule.gpu.context import KernelLowering, linear
from loopwright.schedule.gpu.heuristics import GPU
from loopwright.schedule.gpu.lower_elementwise import lower_elementwise
from loopwright.schedule.gpu.lower_mma import MmaLowering
from loopwright.schedule.gpu.lower_row_reduction import lower_row_reduction
from loopwright.schedule.gpu.lower_tiled import TiledLowering
from loopwright.schedule.gpu.lower_transpose import lower_transpose
from loopwright.schedule.loops.assembly import assembled, values_of
from loopwright.schedule.loops.statements import wrapped
from loopwright.schedule.loops.storage import Storage
from loopwright.schedule.sketch.kernel import (
    Elementwise,
    KernelSketch,
    RowReduction,
    Tiled,
    Transpose,
)
from loopwright.schedule.sketch.sketch import Sketch
from loopwright.schedule.target import Gpu
from loopwright.schedule.tree import grammar as g


def lower_kernels(
    sketch: Sketch,
    gpu: Gpu,
    values: Mapping[str, tuple[g.Column, ...]],
    n: int,
    constants: frozenset[str],
) -> g.Tree:
    """The tree of a batch of n configs, given as the values of every knob."""
    storage = Storage(sketch.workload, constants)
    prepare: list[g.Stmt] = []
    body: list[g.Stmt] = []
    for kernel, own in zip(sketch.kernels, values_of(sketch, values), strict=True):
        constant = kernel.group.nests[0].out.name in constants
        made = KernelLowering(storage, "prepare" if constant else "body", gpu)
        stmts = _lowered(kernel, own, made)
        (prepare if constant else body).extend(stmts)
    copied = functools.partial(_copied, min(GPU.copy_threads, gpu.most_threads))
    return assembled(n, sketch.workload, storage, prepare, body, copied)


def _lowered(
    sketch: KernelSketch, values: Mapping[str, tuple[g.Column, ...]], kernel: KernelLowering
) -> list[g.Stmt]:
    if isinstance(sketch, Elementwise):
        return lower_elementwise(sketch, values, kernel)
    if isinstance(sketch, RowReduction):
        return lower_row_reduction(sketch, values, kernel)
    if isinstance(sketch, Tiled):
        return TiledLowering(sketch, values, kernel).lower()
    if isinstance(sketch, Transpose):
        return lower_transpose(sketch, values, kernel)
    return MmaLowering(sketch, values, kernel).lower()


def _copied(threads: int, source: g.Buffer, target: g.Buffer) -> g.Stmt:
    """A kernel that copies a buffer, element by element, in blocks of so many threads."""
    total = source.size
    block, thread, place = (g.Var(f"{target.name}.{x}") for x in ("block", "thread", "place"))
    whole = linear((block, threads), (thread, 1))
    at: list[g.Linear] = []
    rest = linear((place, 1))
    for extent in reversed(source.shape):
        at.insert(0, g.Linear(((g.Remainder(rest, extent), 1),)))
        rest = g.Linear(((g.Quotient(rest, extent), 1),))
    body: list[g.Stmt] = [
        g.Let(place, whole, total - 1),
        g.Store(target, tuple(at), g.Load(source, tuple(at))),
    ]
    blocks = g.ceildiv(total, threads)
    loops = [(block, blocks, "block"), (thread, threads, "thread")]
    return wrapped(body, loops)[0]
