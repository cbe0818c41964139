"""im2col: windows that slide or stride become a matrix product over a copy of what they read.

    O[k, y, x] += D[c, 2*y + r, 2*x + s] * W[k, c, r, s]
     ↦  D_columns[c, r, s, y, x] = D[c, 2*y + r, 2*x + s]
        O[k, y, x] += D_columns[c, r, s, y, x] * W[k, c, r, s]

after which the positions and the reduction merge into one axis each (Chellapilla et al. 2006). It
pays for small images, whose rows are no multiple of a register tile, and for a stride without a
window, where the copy is small.
"""

from __future__ import annotations

import math
from dataclasses import replace

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import Binary, Expr, Read, children
from loopwright.dsl.index import Affine
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload
from loopwright.schedule.nest import Nest, extent, guarded_reads
from loopwright.schedule.plan import Group, fused, grouped
from loopwright.schedule.target import Target

_USES = 32  # of each copied element that repay the copy


def im2col(workload: Workload, target: Target) -> tuple[Group, ...] | None:
    """The groups of a workload with each sum of products that gains reading a copy of its windows;
    None if there is none."""
    program = fused(workload)
    taken = {t.name for t in (*workload.inputs, *workload.stages)}
    taken |= {n.out.name for n in program}
    done: list[Nest] = []
    for nest in program:
        read = _windows(nest, target)
        if read is None:
            done.append(nest)
            continue
        used = {i for p in read.index for i in p.indices()}
        axes = tuple(i for i in (*nest.reduce, *nest.axes) if i in used)
        name = f"{read.tensor.name}_columns"
        while name in taken:
            name += "_"
        taken.add(name)
        columns = Tensor(name, tuple(map(extent, axes)), read.dtype)
        at = tuple(a.affine() for a in axes)
        done.append(Nest(columns, at, axes, (), None, read, columns))
        done.append(_reading(nest, read, Read(columns, at)))
    if len(done) == len(program):
        return None
    return grouped(tuple(done), tuple(done), workload.outputs)


def _windows(nest: Nest, target: Target) -> Read | None:
    """The operand of a sum of products whose windows are worth copying."""
    x = nest.body
    if nest.reducer != "sum" or not isinstance(x, Binary) or x.op != "mul":
        return None
    for read in children(x):
        if not isinstance(read, Read) or all(_plain(p) for p in read.index):
            continue
        used = {i for p in read.index for i in p.indices()}
        if not used <= set(nest.extents):
            continue
        size = math.prod(map(extent, used))
        small = size * item_bytes(read.dtype) <= 2 * target.l2_bytes
        if small and nest.steps >= _USES * size and not _guarded(nest, read):
            return read
    return None


def _plain(p: Affine) -> bool:
    return not p.terms or p.plain() is not None


def _guarded(nest: Nest, read: Read) -> bool:
    return any(guarded for other, guarded in guarded_reads(nest.body) if other == read)


def _reading(nest: Nest, old: Read, new: Read) -> Nest:
    """The nest with one operand of its product replaced."""
    assert isinstance(nest.body, Binary)
    x, y = (new if side is old else side for side in (nest.body.x, nest.body.y))
    body: Expr = replace(nest.body, x=x, y=y)
    return replace(nest, body=body)
