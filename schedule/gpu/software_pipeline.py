"""Pipelines: the chunks of a reduction, each of which is copied to shared memory and then used by
a whole block.

"plain" copies a chunk, waits, and uses it. "double" loads the next chunk into registers while one
is used, and puts it into the other of two slots of each shared-memory tile then. "async" has the
next chunks copied while one is used, into as many slots as the "slots" knob says.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loopwright.dsl.expr import Read
from loopwright.dsl.index import Index
from loopwright.schedule.gpu.context import KernelLowering, linear
from loopwright.schedule.gpu.shared_tile import SharedTile, Team
from loopwright.schedule.loops.statements import wrapped
from loopwright.schedule.program.nest import Nest, extent
from loopwright.schedule.tree import grammar as g

Values = Mapping[str, tuple[g.Column, ...]]
_HALVINGS = 6  # of a chunk that does not fit shared memory


@dataclass(frozen=True, eq=False)
class _Run:
    """Chunks of some extents: how many there are along each axis, and where the first begins. What
    is copied beyond the end of index `fill` is zeros."""

    chunk: Mapping[Index, g.Column]
    counts: Sequence[tuple[Index, g.Column]]
    start: g.Linear
    fill: Index | None = None

    @functools.cached_property
    def total(self) -> g.Column:
        """Number of chunks."""
        return math.prod(n for _, n in self.counts)


class SoftwarePipeline(ABC):
    """A reduction in chunks: of the first axis of `names` in pieces that need not divide it, of
    the others at divisors. The pieces are multiples of `least`; what is left is filled up with
    zeros to one, where `least` is more than 1."""

    least: g.Column = 1

    def __init__(
        self,
        nest: Nest,
        names: tuple[Index, ...],
        pipeline: str,
        values: Values,
        kernel: KernelLowering,
    ) -> None:
        self.nest, self.kernel, self.values, self.pipeline = nest, kernel, values, pipeline
        self.chunked, self.windows = names[0], names[1:]
        (self.slots,) = values.get("slots", (2 if pipeline == "double" else 1,))
        self.chunk = self._fitting(dict(zip(names, values["chunk"], strict=True)))
        self.shared_tiles = self.shared_tiles_of(self.chunk, kernel)
        self.bases: dict[Index, g.Linear] = {}
        self.thread = g.Linear()
        self.threads: g.Column = 1

    @property
    def team(self) -> Team:
        """The threads of a block."""
        return self.thread, self.threads

    @abstractmethod
    def shared_tiles_of(
        self, chunk: Mapping[Index, g.Column], kernel: KernelLowering
    ) -> dict[Read, SharedTile]:
        """The shared-memory tiles of a chunk."""

    @abstractmethod
    def sizes_of(self, chunk: Mapping[Index, g.Column]) -> dict[Index, g.Column]:
        """Number of places of a block along every index."""

    @abstractmethod
    def compute(
        self, chunk: Mapping[Index, g.Column], bases: Mapping[Index, g.Linear], slot: g.Linear
    ) -> list[g.Stmt]:
        """Use one chunk."""

    def spare(self) -> g.Column:
        """Shared bytes that are taken by other things than shared-memory tiles."""
        return 0

    def _fitting(self, chunk: dict[Index, g.Column]) -> dict[Index, g.Column]:
        """The extents of a chunk, halved until its shared-memory tiles fit shared memory."""
        for _ in range(_HALVINGS):
            scratch = KernelLowering(self.kernel.storage, self.kernel.part, self.kernel.gpu)
            tiles = self.shared_tiles_of(chunk, scratch).values()
            size = sum((tile.bytes for tile in tiles), self.spare())
            large = np.greater(size, self.kernel.gpu.shared_bytes) * 1
            wide = chunk[self.chunked]
            smaller = np.maximum(wide // (2 * self.least), 1) * self.least
            chunk = {**chunk, self.chunked: wide + (smaller - wide) * large}
        return chunk

    def chunks(self) -> list[g.Stmt]:
        """All chunks, and what they leave."""
        pipelines = {"plain": self._plain, "double": self._double, "async": self._async}
        chunked = self.chunked
        size = self.chunk[chunked]
        rest = extent(chunked) % size
        whole = [(chunked, extent(chunked) // size)]
        windows = [(k, extent(k) // self.chunk[k]) for k in self.windows]
        stmts = pipelines[self.pipeline](_Run(self.chunk, [*whole, *windows], g.Linear()))
        short = {**self.chunk, chunked: g.ceildiv(np.maximum(rest, 1), self.least) * self.least}
        start = g.Linear((), extent(chunked) - rest)
        fill = chunked if np.any(extent(chunked) % self.least) else None
        tail = self._plain(_Run(short, [(chunked, 1), *windows], start, fill))
        guard = self.kernel.var("rest", np.minimum(rest, 1))
        return [*stmts, g.Loop(guard, np.minimum(rest, 1), "serial", tuple(tail))]

    def _bases_of(self, step: g.Linear, run: _Run) -> tuple[list[g.Stmt], dict[Index, g.Linear]]:
        """Tile origins of chunk number `step`."""
        counts = [(f"{k.name}.chunk", n) for k, n in run.counts]
        lets, numbers = self.kernel.decode(step, counts)
        places = zip(run.counts, numbers, strict=True)
        bases = {**self.bases, **{k: number * run.chunk[k] for (k, _), number in places}}
        bases[self.chunked] = bases[self.chunked] + run.start
        return lets, bases

    def _plain(self, run: _Run) -> list[g.Stmt]:
        step, slot = self.kernel.var("step", run.total), g.Linear()
        lets, bases = self._bases_of(linear((step, 1)), run)
        sizes = self.sizes_of(run.chunk)
        copies: list[g.Stmt] = []
        for shared_tile in self.shared_tiles.values():
            copies += shared_tile.copy(sizes, bases, self.team, slot, run.fill)
        wait: list[g.Stmt] = [g.Barrier()] if self.shared_tiles else []
        body = [*lets, *copies, *wait, *self.compute(run.chunk, bases, slot), *wait]
        return wrapped(body, [(step, run.total, "serial")])

    def _double(self, run: _Run) -> list[g.Stmt]:
        total, sizes, team = run.total, self.sizes_of(run.chunk), self.team
        lets, bases = self._bases_of(g.Linear(), run)
        stmts: list[g.Stmt] = list(lets)
        for shared_tile in self.shared_tiles.values():
            stmts += shared_tile.copy(sizes, bases, team, g.Linear())
        step = self.kernel.var("step", total)
        now, then = (g.Linear(((g.Remainder(g.Linear(((step, 1),), d), 2), 1),)) for d in (0, 1))
        clip, after = self.kernel.let("next", g.Linear(((step, 1),), 1), total - 1)
        lets, bases = self._bases_of(after, run)
        loads: list[g.Stmt] = []
        puts: list[g.Stmt] = []
        for shared_tile in self.shared_tiles.values():
            held, load = shared_tile.fetch(sizes, bases, team)
            loads += [g.Allocate(held), *load]
            puts += shared_tile.put(held, sizes, bases, team, then)
        here_lets, here = self._bases_of(linear((step, 1)), run)
        body = [clip, *lets, *loads, *here_lets, *self.compute(run.chunk, here, now), *puts]
        return [*stmts, g.Barrier(), *wrapped([*body, g.Barrier()], [(step, total, "serial")])]

    def _async(self, run: _Run) -> list[g.Stmt]:
        kernel, slots = self.kernel, self.slots
        total, sizes = run.total, self.sizes_of(run.chunk)

        def copies(number: g.Linear, slot: g.Linear) -> list[g.Stmt]:
            lets, bases = self._bases_of(number, run)
            made: list[g.Stmt] = list(lets)
            for shared_tile in self.shared_tiles.values():
                made += shared_tile.copy_async(sizes, bases, self.team, slot)
            return made

        def slot(number: g.Linear) -> g.Linear:
            return g.Linear(((g.Remainder(number, slots), 1),))

        first = kernel.var("first", slots - 1)
        clip, number = kernel.let("ahead", linear((first, 1)), total - 1)
        head = [clip, *copies(number, slot(linear((first, 1)))), g.AsyncCommit()]
        step = kernel.var("step", total)
        later = g.Linear(((step, 1),), slots - 1)
        clip, number = kernel.let("ahead", later, total - 1)
        guard = kernel.var("more", 1)
        more = g.Loop(guard, 1, "serial", (clip, *copies(number, slot(later))), later * -1 + total)
        here_lets, here = self._bases_of(linear((step, 1)), run)
        body: list[g.Stmt] = [
            g.AsyncWait(slots - 2),
            g.Barrier(),
            more,
            g.AsyncCommit(),
            *here_lets,
        ]
        body += self.compute(run.chunk, here, slot(linear((step, 1))))
        return [
            *wrapped(head, [(first, slots - 1, "serial")]),
            *wrapped(body, [(step, total, "serial")]),
            g.AsyncWait(0),
            g.Barrier(),
        ]
