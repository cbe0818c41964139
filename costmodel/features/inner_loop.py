"""The inner loops of a program's heaviest nest: what the compiler makes instructions of.

The heaviest nest is the one with the most operations on the busiest thread. Of it, the loops
around the store that runs most often count, from the innermost one outwards.

    column            meaning, before log₂(1 + x) is taken of every one
    loose             loads and stores of vectors that may lie across two cache lines
    vectors           vector registers along the vectorized loop
    rows              iterations of the unrolled loops that move the accumulator
    taps              those of the others
    row stride        elements by which the former move what is broadcast
    and of the first, second, third and fourth loop that is not unrolled and runs more than once:
    k.extent          iterations
    k.footprint       cache lines that one run of it touches
    k.<role>          elements by which one iteration moves what is written, vector or broadcast

`loose` is that of the whole program, like the counts of `summary`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from loopwright.costmodel.features.access import MEMORY, ROLES
from loopwright.costmodel.features.batch_arithmetic import (
    Mask,
    Real,
    both,
    log,
    most,
    only,
    real,
    times,
    total,
    where,
)
from loopwright.costmodel.features.context import Context, LoopContext, StoreContext
from loopwright.costmodel.features.summary import Totals

LOOPS = 4
TILE = ("vectors", "rows", "taps", "row stride")
LOOP = ("extent", "footprint", *(ROLES[role] for role in MEMORY))
_REGISTER, _BROADCAST = ROLES.index("register"), ROLES.index("broadcast")


def inner_loop_names() -> tuple[str, ...]:
    """Names of the columns of `inner_loop`."""
    return ("loose", *TILE, *(f"{k}.{name}" for k in range(1, LOOPS + 1) for name in LOOP))


@dataclass(frozen=True, eq=False)
class InnerLoop:
    """Features of a nest: operations, loose vectors, both of the busiest thread, and columns."""

    operations: Real
    loose: Real
    columns: Sequence[Real]

    @staticmethod
    def of(node: Context, whole: Totals) -> InnerLoop:
        return InnerLoop(whole.operations, whole.loose * whole.share, _columns(node))


def inner_loop(nests: Sequence[InnerLoop]) -> list[Real]:
    """The columns of the module's table, in the order of `inner_names`."""
    heaviest, columns = nests[0].operations, nests[0].columns
    for nest in nests[1:]:
        heavier = nest.operations > heaviest
        heaviest = most(heaviest, nest.operations)
        columns = [where(heavier, *pair) for pair in zip(nest.columns, columns, strict=True)]
    return list(map(log, [total(nest.loose for nest in nests), *columns]))


def _columns(node: Context) -> Sequence[Real]:
    found = _inside(node)
    return [
        found.vectors,
        found.rows,
        found.taps,
        found.stride,
        *(c for k in found.loops for c in k),
    ]


class _Inside(NamedTuple):
    """The loops in a loop on the way to the store that runs most often: the `width` of its
    vectors, the `number` of those that are not unrolled, and the columns of the first `LOOPS`."""

    width: Real
    vectors: Real = 1.0
    rows: Real = 1.0
    taps: Real = 1.0
    stride: Real = 0.0
    number: Real = 0.0
    loops: tuple[tuple[Real, ...], ...] = ((0.0,) * len(LOOP),) * LOOPS

    def or_else(self, other: _Inside, better: Mask) -> _Inside:
        """The other one where it is better."""
        if isinstance(better, bool):
            return other if better else self

        def chosen(own: Real, others: Real) -> Real:
            return where(better, others, own)

        return _Inside(
            chosen(self.width, other.width),
            chosen(self.vectors, other.vectors),
            chosen(self.rows, other.rows),
            chosen(self.taps, other.taps),
            chosen(self.stride, other.stride),
            chosen(self.number, other.number),
            tuple(tuple(map(chosen, *pair)) for pair in zip(self.loops, other.loops)),
        )

    def within(self, loop: LoopContext) -> _Inside:
        """The same from one loop further out."""
        if loop.kind == "vectorized":
            return self._replace(vectors=loop.extent / self.width)
        if loop.kind == "unrolled":
            moves = both(loop.touch[_REGISTER].stride > 0.0, loop.extent > 1.0)
            return self._replace(
                rows=times(self.rows, where(moves, loop.extent, 1.0)),
                taps=times(self.taps, where(moves, 1.0, loop.extent)),
                stride=most(self.stride, only(moves, loop.touch[_BROADCAST].stride)),
            )
        if loop.same is not None:
            return self
        repeats = loop.extent > 1.0
        own = (loop.extent, loop.lines, *(loop.touch[role].stride for role in MEMORY))
        loops = list(self.loops)
        for k, known in enumerate(loops):
            here = both(self.number == float(k), repeats)
            if here is not False:
                loops[k] = tuple([where(here, o, c) for c, o in zip(known, own)])
        return self._replace(number=self.number + real(repeats), loops=tuple(loops))


def _inside(node: Context) -> _Inside:
    if isinstance(node, StoreContext):
        return _Inside(node.width)
    first, *others = node.children
    found, runs = _inside(first), _runs(first)
    for child in others:
        better = _runs(child) > runs
        found, runs = found.or_else(_inside(child), better), most(runs, _runs(child))
    return found.within(node)


def _runs(node: Context) -> Real:
    """Stores that one run executes."""
    return node.inside if isinstance(node, LoopContext) else 1.0
