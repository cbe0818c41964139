"""Footprints of a nest: how much it touches, and how often."""

from __future__ import annotations

import math
from dataclasses import dataclass

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import Read
from loopwright.dsl.index import Index
from loopwright.dsl.workload import tensor_bytes
from loopwright.schedule.program.heuristics import PROGRAM
from loopwright.schedule.program.nest import Nest, extent, lanes
from loopwright.schedule.target import Target

LINE = 64  # bytes of a line of the caches


@dataclass(frozen=True)
class NestContext:
    """Context of the rules: the machine, the common loops around the nest, the constants, and what
    the nests in these loops make."""

    target: Target
    rows: tuple[Index, ...] = ()
    constants: frozenset[str] = frozenset()
    made: frozenset[str] = frozenset()

    def lanes(self, nest: Nest) -> int:
        """Elements of a vector."""
        return lanes(nest, self.target)


def indices(read: Read) -> set[Index]:
    """The loops that a read moves with."""
    return {i for p in read.index for i in p.indices()}


def uses(nest: Nest, read: Read) -> float:
    """Number of uses of an element that a read touches."""
    return nest.steps / math.prod(extent(i) for i in indices(read) if i in nest.extents)


def touched(nest: Nest, read: Read) -> int:
    """Bytes of a tensor that a read may touch."""
    used = indices(read) & set(nest.extents)
    size = math.prod(extent(i) for i in used) * item_bytes(read.tensor.dtype)
    return min(size, tensor_bytes(read.tensor))


def mostly_written(nest: Nest) -> bool:
    """Return whether the result is much larger than its operands: its own order counts then."""
    read = sum(touched(nest, r) for r in dict.fromkeys(nest.reads()))
    return nest.size * item_bytes(nest.out.dtype) > PROGRAM.large_result_ratio * read
