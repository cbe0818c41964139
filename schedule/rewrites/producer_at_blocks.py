"""A producer at its consumer's blocks of rows: a window over each plane, then a sum over planes.

    D[y, x, c] = sum over r, s of P[y + r, x + s, c] * W[r, s, c];
    O[y, x, d] = sum over c of D[y, x, c] * V[c, d]
     ↦  for b < H / R: D'[y, x, c] = …, for the R rows of the block;
                       O[b * R + y, x, d] = sum over c of D'[y, x, c] * V[c, d]

Between the two there is little to compute and much to move. Here a core reads the block of D that
it has just computed from its own cache, and each block takes the place of the one before. Two
nests would write the whole of D, and wait for lines that other cores hold. Windows are in parts,
as of `peel_boundaries`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import Read
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import tensor_bytes, tensor_shape
from loopwright.schedule.program import plan
from loopwright.schedule.program.canonical import Program
from loopwright.schedule.program.nest import Nest, extent, fresh
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.boundary_peeling import PaddedWindow, padded_windows, sliced
from loopwright.schedule.rewrites.contract import Rewrite, Rewritten
from loopwright.schedule.rewrites.heuristics import REWRITE
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Target


def fuse_at_blocks(
    source: Source, target: Target, rows: int
) -> tuple[plan.FusionGroup, ...] | None:
    """The groups of a workload with each window and the sum behind it in blocks of so many rows;
    None if there is none whose rows are a multiple of that."""
    program = source.program
    chains = [c for c in _chains(program, source, target) if c.count % rows == 0]
    if not chains:
        return None
    names = source.names()
    made = {id(chain.consumer): [chain.group(rows, names, target)] for chain in chains}
    gone = {t for c in chains for t in (c.window.producer.out, c.window.nest.out)}
    return plan.with_groups(program, made, gone, source.outputs)


def fused_row_choices(source: Source, target: Target) -> tuple[int, ...]:
    """Numbers of rows at a time for which that may pay: the most whose results fit a cache, all
    threads being as busy as with single rows."""
    chains = list(_chains(source.program, source, target))
    if not chains:
        return ()
    largest = max(chains, key=lambda chain: chain.consumer.steps)
    even = plan.even_blocks(largest.images, largest.count, target.threads)
    divisors = [rows for rows in even if largest.count % rows == 0 and rows < largest.count]
    found = set()
    for share in REWRITE.producer_l2_shares:
        fitting = [r for r in divisors if r * largest.row_bytes <= share * target.l2_bytes]
        found.update(fitting[-1:])
    return tuple(sorted(found))


def _chains(program: Program, source: Source, target: Target) -> Iterator[_Chain]:
    """Chains that have no nest in common, the first ones first."""
    taken: set[Tensor] = set()
    for window in padded_windows(program, source.outputs):
        chain = _Chain.of(window, program, source) if window.pays(target) else None
        if chain is not None and not taken & {window.nest.out, chain.consumer.out}:
            taken |= {window.nest.out, chain.consumer.out}
            yield chain


@dataclass(frozen=True)
class _Chain:
    """A window over planes, and the only nest that reads its results, by `read`. Their rows lie
    along axis `at`; axes before it count images."""

    window: PaddedWindow
    consumer: Nest
    read: Read
    at: int

    @staticmethod
    def of(window: PaddedWindow, program: Program, source: Source) -> _Chain | None:
        out = window.nest.out
        uses = [(n, r) for n in program for r in n.reads() if r.tensor is out]
        if len(uses) != 1 or out in source.outputs or len(window.rows) != 1:
            return None
        ((consumer, read),) = uses
        own = [p.plain() for p in window.nest.index]
        if window.rows[0] not in own or sum(n.out is out for n in program) != 1:
            return None  # one phase of several
        at = own.index(window.rows[0])
        planes = {i for p in read.index[at + 1 :] for i in p.indices()}
        if consumer.reducer != "sum" or not planes & set(consumer.reduce):
            return None
        every = [i for p in read.index for i in p.indices()]
        for mine, p in zip(own[: at + 1], read.index):
            theirs = p.plain()
            if mine is None and not p.terms:
                continue  # one image
            if mine is None or theirs not in consumer.axes or every.count(theirs) != 1:
                return None
            if extent(theirs) != extent(mine):
                return None
        return _Chain(window, consumer, read, at)

    @property
    def count(self) -> int:
        """Rows of an image."""
        return extent(self.window.rows[0])

    @property
    def images(self) -> int:
        """Number of images in all."""
        return math.prod(tensor_shape(self.window.nest.out)[: self.at])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the window's results."""
        out = self.window.nest.out
        return math.prod(tensor_shape(out)[self.at + 1 :]) * item_bytes(out.dtype)

    def group(self, rows: int, names: set[str], target: Target) -> plan.FusionGroup:
        """The parts of the window and the sum, of one block, in the loops over blocks."""
        out, at = self.window.nest.out, self.at
        shape = tensor_shape(out)
        halved = (*shape[:at], shape[at] // rows, rows, *shape[at + 1 :])
        local = Tensor(fresh(f"{out.name}_rows", names), halved, out.dtype)
        parts = self.window.parts()
        ours, theirs = self.window.nest.index, self.read.index
        classes = [
            [a] * len(parts) + [b]
            for mine, p in zip(ours[:at], theirs)
            if (a := mine.plain()) is not None and (b := p.plain()) is not None
        ]
        row = theirs[at].plain()
        assert row is not None
        high, parts = sliced(parts, self.window.rows[0], rows)
        last, (consumer,) = sliced([self.consumer], row, rows)
        parts = [_halved(nest, out, local, at, high * rows) for nest in parts]
        run = [*parts, _halved(consumer, out, local, at, last * rows)]
        shared, inner = plan.under(run, [*classes, [high] * len(parts) + [last]])
        group = plan.FusionGroup(*plan.with_scratch(shared, inner, {local}))
        return plan.finished(replace(group, prefetch=_prefetch(group, target)))


def _halved(nest: Nest, tensor: Tensor, local: Tensor, at: int, begin: Affine) -> Nest:
    """The nest with `local` in place of a tensor, whose rows are counted by block and row of the
    block, which begins at row `begin`."""
    ((block, _),) = begin.terms

    def place(t: Tensor, index: tuple[Affine, ...]) -> tuple[Tensor, tuple[Affine, ...]]:
        if t is not tensor:
            return t, index
        assert isinstance(block, Index)
        return local, (*index[:at], block.affine(), index[at] - begin, *index[at + 1 :])

    return nest.relocated(place)


def _prefetch(group: plan.FusionGroup, target: Target) -> tuple[plan.Prefetch, ...]:
    """The rows that the next block of a thread reads of a tensor that the second-level caches do
    not hold: they are there when it begins, where windows would wait for them."""
    *images, block = group.outer
    if math.prod(map(extent, group.outer)) <= target.threads:
        return ()
    found: dict[Tensor, plan.Prefetch] = {}
    for read in (r for nest in group.nests[:-1] for r in nest.reads()):
        shape, steps = tensor_shape(read.tensor), [dict(p.terms).get(block, 0) for p in read.index]
        d = next((d for d, step in enumerate(steps) if step > 0), None)
        far = tensor_bytes(read.tensor) > target.threads * target.l2_bytes
        if d is None or not far or shape[d] % steps[d]:
            continue
        number = Affine((), 0)
        for p, size in zip(read.index[:d], shape):
            number = number * size + (p if p.plain() in images else 0)
        number = number * (shape[d] // steps[d]) + block
        found[read.tensor] = plan.Prefetch(
            read.tensor, steps[d] * math.prod(shape[d + 1 :]), number
        )
    return tuple(found.values())


class ProducerAtBlocks(Rewrite):
    """`for b: D'[y] = … for R rows; O[b * R + y] += D'[y] * V`: producer fusion at row blocks."""

    name = "producer_at_blocks"
    needs = "a window over each channel, and a sum over channels that alone reads it"
    numerics = Numerics.STANDARD
    prior = 0.6  # as `boundary_peeling`, whose windows it has
    minor = 0.3

    def choices(self, base: Variant, target: Target) -> Iterator[Mapping[str, int]]:
        for rows in fused_row_choices(base.source, target):
            yield {"rows": rows}

    def make(self, base: Variant, target: Target, **parameters: int) -> Rewritten | None:
        groups = fuse_at_blocks(base.source, target, parameters["rows"])
        return None if groups is None else Rewritten(groups, numerics=Numerics.STANDARD)
