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
from loopwright.dsl.expr import Read
from loopwright.dsl.index import Index
from loopwright.schedule.program.nest import Nest, extent, predicated_reads
from loopwright.schedule.program.plan import FusionGroup
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.cache_read import factors, with_copies
from loopwright.schedule.rewrites.contract import Rewrite, Rewritten
from loopwright.schedule.rewrites.heuristics import REWRITE
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Target


def im2col(source: Source, target: Target) -> tuple[FusionGroup, ...] | None:
    """The groups of a workload with each sum of products that gains reading a copy of its windows;
    None if there is none."""
    return with_copies(source, "columns", lambda nest: _windows(nest, target))


def _windows(nest: Nest, target: Target) -> tuple[Read, tuple[Index, ...]] | None:
    """The operand of a sum of products whose windows are worth copying, and their order."""
    for read in factors(nest):
        if all(not p.terms or p.plain() is not None for p in read.index):
            continue
        used = {i for p in read.index for i in p.indices()}
        if not used <= set(nest.extents):
            continue
        size = math.prod(map(extent, used))
        small = size * item_bytes(read.dtype) <= 2 * target.l2_bytes
        if small and nest.steps >= REWRITE.copy_uses * size and not _predicated(nest, read):
            return read, tuple(i for i in (*nest.reduce, *nest.axes) if i in used)
    return None


def _predicated(nest: Nest, read: Read) -> bool:
    return any(predicated for other, predicated in predicated_reads(nest.body) if other == read)


class Im2col(Rewrite):
    """`D_columns[c, r, y] = D[c, y + r]; O[k, y] += D_columns[c, r, y] * W[k, c, r]`."""

    name = "im2col"
    needs = "a product whose windows slide or stride over few data, each used 32 times or more"
    gpu = True

    def make(self, base: Variant, target: Target, **parameters: int) -> Rewritten | None:
        if target.gpu is not None:
            target = replace(target, l2_bytes=REWRITE.gpu_columns_l2_bytes)
        groups = im2col(base.source, target)
        return None if groups is None else Rewritten(groups, numerics=base.source.numerics)
