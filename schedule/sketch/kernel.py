"""Structures of GPU kernels: how one nest, or one group of nests, becomes a kernel.

A `KernelSketch` says what is chosen before any number; the sizes are left to knobs. `Elementwise`
kernels give each thread a few elements of the result. `RowReduction` kernels give a team of
threads a row, which they work on together, nest after nest. `Tiled` kernels give each block a tile
of the result, and copy the operands of a reduction to shared memory. `Mma` kernels are tiled for
tensor cores, `Transpose` ones for operands that lie another way than the result.
"""

from __future__ import annotations

from dataclasses import dataclass

from loopwright.dsl.expr import Read
from loopwright.dsl.index import Index
from loopwright.schedule.program.nest import Nest
from loopwright.schedule.program.plan import FusionGroup


@dataclass(frozen=True)
class _OneNest:
    """A kernel of a group that is one nest."""

    group: FusionGroup

    @property
    def nest(self) -> Nest:
        return self.group.nests[0]


@dataclass(frozen=True)
class Elementwise(_OneNest):
    """Each thread computes a small tile of the result, alone. Neighbouring threads walk `axes`,
    the fastest last; of those `tiled`, the last ones, a thread has more than one element."""

    axes: tuple[Index, ...]
    tiled: tuple[Index, ...]

    def __str__(self) -> str:
        return f"flat {_numbers('tile', self.nest, self.tiled)}"


@dataclass(frozen=True)
class RowReduction:
    """A team of threads computes a row of every nest of a group, results of one nest kept in
    shared memory for the next. `rows` are the group's shared loops, or the axes of a nest on its
    own whose reduction the team shares."""

    group: FusionGroup
    rows: tuple[Index, ...]

    def __str__(self) -> str:
        return "rows"


@dataclass(frozen=True)
class Tiled(_OneNest):
    """A block computes a tile of the result; its threads load what they all need of the operands
    into shared memory, one chunk of the reduction after another. Of `axes`, that of neighbouring
    threads is last; of those `tiled` a block has more than one element. The axis `chunked` need
    not be divided. `shared_reads` go through shared memory, where `sources` are computed. A
    "plain" pipeline copies, waits and computes. By "double", the next chunk is loaded into
    registers meanwhile, and by "async", the next ones are copied."""

    axes: tuple[Index, ...]
    tiled: tuple[Index, ...]
    chunked: Index
    shared_reads: tuple[Read, ...]
    sources: tuple[Nest, ...] = ()
    pipeline: str = "plain"

    @property
    def windows(self) -> tuple[Index, ...]:
        """The reduction axes that are cut at divisors only."""
        return tuple(k for k in self.nest.reduce if k != self.chunked)

    def __str__(self) -> str:
        names = list(dict.fromkeys(self.nest.reads()))
        staged = ".".join(str(names.index(r)) for r in self.shared_reads)
        inline = " inline" * bool(self.sources)
        tile = _numbers("tile", self.nest, self.tiled)
        chunk = _numbers("chunk", self.nest, (self.chunked,))
        return f"tiled={self.pipeline} {tile} {chunk} staged={staged}{inline}"


@dataclass(frozen=True)
class Mma(_OneNest):
    """A tiled matrix product on tensor cores.

    `m` and `n` are the axes of the two factors in the result, `k` the reduction axis; the other
    axes are batches.
    """

    left: Read
    right: Read
    m: Index
    n: Index
    k: Index
    pipeline: str = "plain"

    def __str__(self) -> str:
        return f"matrix={self.pipeline} {_numbers('tile', self.nest, (self.m, self.n))}"


@dataclass(frozen=True)
class Transpose(_OneNest):
    """An element-wise nest whose operands lie along another axis than its result: blocks copy
    tiles to shared memory first. `tiled` are the operands' contiguous axis and the result's."""

    tiled: tuple[Index, Index]
    shared_reads: tuple[Read, ...]

    def __str__(self) -> str:
        return f"turned {_numbers('tile', self.nest, self.tiled)}"


KernelSketch = Elementwise | RowReduction | Tiled | Mma | Transpose


def _numbers(label: str, nest: Nest, axes: tuple[Index, ...]) -> str:
    """Axes by number: names may differ in equal workloads."""
    names = [*nest.axes, *nest.reduce]
    return f"{label}={'.'.join(str(names.index(a)) for a in axes) or '-'}"
