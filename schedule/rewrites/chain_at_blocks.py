"""A chain at blocks of rows: two products, and what lies between them.

    S[i, j] = sum over k of Q[i, k] * K[j, k];    E[i, j] = exp(S[i, j] - M[i]);
    O[i, d] = sum over j of E[i, j] * V[j, d]
     ↦  for b < B = ⌈N / R⌉: S'[i, j] = …; E'[i, j] = …, for the ⌈N / B⌉ rows of the block;
                             O[b * ⌈N / B⌉ + i, d] = sum over j of E'[i, j] * V[j, d]

Attention of N places makes N² scores of each head, and reads them several times. The whole of them
goes through memory; those of a block stay in its core's cache, and take the place of the block
before. Nothing is summed in another order. Blocks of at most R rows have equally many, so that the
last one, which overlaps the one before it, computes less than a row of each block again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from loopwright.dsl.index import Affine, Index
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import tensor_bytes, tensor_shape
from loopwright.schedule.program import plan
from loopwright.schedule.program.canonical import Program, substitute_axes, unused
from loopwright.schedule.program.footprint import indices, touched
from loopwright.schedule.program.nest import extent
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.contract import Rewrite, Rewritten
from loopwright.schedule.rewrites.heuristics import REWRITE
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Target


def chain_at_blocks(source: Source, rows: int) -> tuple[plan.FusionGroup, ...] | None:
    """The groups of a workload with each chain in blocks of at most so many rows; None if there is
    none with more rows."""
    chains = [c for c in _chains(source.program, source.outputs) if c.count > rows]
    made = {id(chain.run[-1]): [chain.blocks(rows)] for chain in chains}
    gone = {nest.out for chain in chains for nest in chain.run[:-1]}
    return plan.with_groups(source.program, made, gone, source.outputs) if chains else None


def has_chain(source: Source) -> bool:
    """Return whether a workload has a chain, of any number of rows."""
    return any(True for _ in _chains(source.program, source.outputs))


def chain_row_choices(source: Source, target: Target) -> tuple[int, ...]:
    """Numbers of rows at a time for which that may pay: the best whose intermediate results fit a
    share of a cache that does not hold all of them, threads being about as busy as with single
    rows. The most rows come first: of equal estimates the first one counts."""
    chains = [*_chains(source.program, source.outputs)]
    if not chains:
        return ()
    largest = max(chains, key=lambda chain: chain.row_bytes * chain.count * chain.images)
    whole = largest.row_bytes * largest.count * largest.images
    if (
        whole < target.l2_bytes
        or largest.again_bytes > REWRITE.chain_again_l2_caches * target.l2_bytes
    ):
        return ()
    found = set()
    for share in REWRITE.chain_l2_shares:
        fitting = [
            rows
            for rows in REWRITE.chain_rows
            if rows < largest.count
            and rows * largest.row_bytes <= share * target.l2_bytes
            and largest.idle(rows, target.threads) <= REWRITE.chain_idle_share
        ]
        if fitting:
            found.add(min(fitting, key=lambda rows: largest.cost(rows, target.threads)))
    return tuple(sorted(found, reverse=True))


def _chains(program: Program, outputs: tuple[Tensor, ...]) -> Iterator[_Chain]:
    """The longest runs that begin and end with a product, the first ones first."""
    start = 0
    while start < len(program):
        ends = (n for n in range(len(program), start + 1, -1) if plan.has_reuse(program[n - 1]))
        runs = (program[start:end] for end in ends if plan.has_reuse(program[start]))
        chain = next((c for run in runs if (c := _Chain.of(run, program, outputs))), None)
        start += 1 if chain is None else len(chain.run)
        if chain is not None:
            yield chain


@dataclass(frozen=True)
class _Chain:
    """Nests that share `axes`, one of each nest for each: the last are of rows, those before count
    images. The `local` tensors are needed by no other nest."""

    run: Program
    axes: tuple[tuple[Index, ...], ...]
    local: frozenset[Tensor]

    @staticmethod
    def of(run: Program, program: Program, outputs: tuple[Tensor, ...]) -> _Chain | None:
        axes, local = plan.common_axes(run), plan.local_tensors(run, program, outputs)
        if not axes or not {nest.out for nest in run[:-1]} <= local:
            return None
        return _Chain(run, tuple(axes), frozenset(local))

    @property
    def count(self) -> int:
        """Rows of an image."""
        return extent(self.axes[-1][0])

    @property
    def images(self) -> int:
        """Number of images in all."""
        return math.prod(extent(axes[0]) for axes in self.axes[:-1])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the largest intermediate result."""
        return max(map(tensor_bytes, self.local)) // (self.count * self.images)

    @property
    def again_bytes(self) -> int:
        """Bytes that each block of an image reads again: what does not depend on the row."""
        total = 0
        for number, nest in enumerate(self.run):
            images = {c[number] for c in self.axes[:-1]}
            for read in nest.reads():
                if self.axes[-1][number] not in (within := indices(read)):
                    total += touched(nest, read) // math.prod(map(extent, images & within))
        return total

    def even(self, rows: int) -> int:
        """The rows of each block, where blocks of at most `rows` have equally many."""
        return -(-self.count // -(-self.count // rows))

    def idle(self, rows: int, threads: int) -> float:
        """The share of the time of all threads in which some have no block."""
        rounds = -(-self.images * -(-self.count // rows) // threads)
        return 1 - self.count * self.images / (rounds * self.even(rows) * threads)

    def cost(self, rows: int, threads: int) -> float:
        """The time of a row, that of its own work being 1."""
        return (1 + REWRITE.chain_block_rows / self.even(rows)) / (1 - self.idle(rows, threads))

    def blocks(self, most: int) -> plan.FusionGroup:
        """The nests of one block, of at most so many rows, in the loops over images and blocks."""
        rows = self.even(most)
        taken = tuple(i for nest in self.run for i in nest.extents)
        *batch, row = self.axes
        images = [Index(unused(f"image{d}", taken), extent(c[0])) for d, c in enumerate(batch)]
        block, base = plan.TileOrigin.of_blocks(unused("row", taken), self.count, rows)
        places = {n.out: n.index.index(a.affine()) for n, a in zip(self.run, row)}
        blocks = {t: _resized(t, places[t], rows) for t in self.local}

        def place(t: Tensor, index: tuple[Affine, ...]) -> tuple[Tensor, tuple[Affine, ...]]:
            if t not in blocks:
                return t, index
            at = places[t]
            return blocks[t], (*index[:at], index[at] - base.index, *index[at + 1 :])

        nests = []
        for number, nest in enumerate(self.run):
            within = Index(row[number].name, rows)
            outer = {c[number]: image.affine() for c, image in zip(batch, images)}
            moved = substitute_axes(
                nest,
                tuple(within if a == row[number] else a for a in nest.axes if a not in outer),
                nest.reduce,
                {**outer, row[number]: base.index + within},
            )
            nests.append(moved.relocated(place))
        loops, inner, scratch = plan.with_scratch(
            (*images, block), tuple(nests), {*blocks.values()}
        )
        groups = plan.groups_of(inner, inner, (self.run[-1].out,))
        body = [part for g in groups for part in ((g,) if g.outer else g.body)]
        group = plan.FusionGroup(loops, tuple(body), scratch, (base,))
        # Groups inside have their own slices of some of it.
        touched = {t for n in group.nests for t in (n.out, *(r.tensor for r in n.reads()))}
        return plan.finished(replace(group, scratch=tuple(t for t in scratch if t in touched)))


def _resized(tensor: Tensor, at: int, rows: int) -> Tensor:
    shape = tensor_shape(tensor)
    return Tensor(tensor.name, (*shape[:at], rows, *shape[at + 1 :]), tensor.dtype)


class ChainAtBlocks(Rewrite):
    """`for b: S'[i] = …; E'[i] = exp(S'[i]); O[b * R + i] = E'[i] * V` for blocks of R rows."""

    name = "chain_at_blocks"
    needs = "two products in a row, between them more than a cache holds, each row for itself"
    prior = 0.8  # the loops are the definition's own, in blocks
    even_rows = True

    def choices(self, base: Variant, target: Target) -> Iterator[Mapping[str, int]]:
        for rows in chain_row_choices(base.source, target):
            yield {"rows": rows}

    def make(self, base: Variant, target: Target, **parameters: int) -> Rewritten | None:
        groups = chain_at_blocks(base.source, parameters["rows"])
        if groups is None:
            return None
        beside = 1 + REWRITE.chain_block_rows / parameters["rows"]
        return Rewritten(groups, numerics=base.source.numerics, prior=beside)
