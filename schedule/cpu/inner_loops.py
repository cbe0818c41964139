"""Vectors and unrolled loops of a schedule by hand, chosen by LoopNest's rules.

The innermost loop becomes vectors where all accesses are contiguous along it. The outermost loop
inside of which all results fit the registers is found: the loops of the result inside of it are
written out, so that their accumulators stay in registers, and reductions too while the code stays
short (Wasti et al. 2022, section 4).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.index import Index
from loopwright.schedule.program.nest import lanes, stride
from loopwright.schedule.sketch.hand import KINDS, HandLoop, HandNest, Split, Step
from loopwright.schedule.target import Target

_OPERANDS = 2
"""Registers that hold no results."""
_MOST_OPERATIONS = 64
"""Operations, vectors or scalars, that reductions may be written out to."""


@dataclass(frozen=True)
class Place:
    """What a loop is of: an axis of the nest, and how far an iteration moves along it."""

    axis: str
    step: int


def places(hand: HandNest) -> dict[str, Place]:
    """Places of the loops, by name. Fused loops have none."""
    found = {index.name: Place(index.name, 1) for index in hand.nest.extents}
    for r in hand.relations:
        if isinstance(r, Split) and r.parent in found:
            place = found[r.parent]
            found[r.inner] = place
            found[r.outer] = Place(place.axis, place.step * r.factor)
    return found


def axis_strides(hand: HandNest) -> tuple[Mapping[str, int | None], ...]:
    """Elements that every access moves along each axis, None where that varies; the last access
    is the result's."""
    nest = hand.nest

    def along(read: Iterator[tuple[Index, int | None]]) -> dict[str, int | None]:
        return {axis.name: step for axis, step in read}

    accesses = [(r.tensor, r.index) for r in dict.fromkeys(nest.reads())]
    accesses.append((nest.out, nest.index))
    return tuple(
        along((axis, stride(tensor, index, axis)) for axis in nest.extents)
        for tensor, index in accesses
    )


@dataclass(frozen=True)
class InnerLoops:
    """Choice for the inner loops of a nest.

    Attributes
    ----------
    vector: lanes of the vectors of the innermost loop; 1 for scalars.
    outside: number of the outer loops around those whose results stay in registers.
    registers: results in registers, in vectors.
    unrolled: positions of the loops that are written out.
    """

    vector: int
    outside: int
    registers: int
    unrolled: tuple[int, ...]


def inner_loops(
    hand: HandNest, target: Target, strides: tuple[Mapping[str, int | None], ...] | None = None
) -> InnerLoops:
    """Choose vectors and unrolled loops for a nest all of whose loops are serial; `strides` are
    its `axis_strides`, where they are known."""
    loops, at = hand.loops, places(hand)
    strides = strides or axis_strides(hand)
    vector = _vector(hand, target, at, strides)
    free, held = target.vector_registers - _OPERANDS, 1
    outside = len(loops)
    for n in range(len(loops) - 1, -1, -1):
        if not loops[n].reduce:
            more = held * (-(-loops[n].extent // vector) if n == len(loops) - 1 else loops[n].extent)
            if more > free:
                break
            held = more
        outside = n
    first = next((n for n, x in enumerate(loops) if x.reduce), len(loops))
    outside = max(outside, min(first, len(loops)))
    unrolled, copies = [], 1
    for n in range(len(loops) - 1, outside - 1, -1):
        loop, last = loops[n], n == len(loops) - 1
        if loop.reduce:
            continue
        copies *= -(-loop.extent // vector) if last else loop.extent
        if not (last and vector > 1):
            unrolled.append(n)
    for n in range(len(loops) - 1, outside - 1, -1):
        loop = loops[n]
        if loop.reduce:
            if copies * loop.extent > _MOST_OPERATIONS or _ragged(hand, loop):
                break
            copies *= loop.extent
            unrolled.append(n)
    return InnerLoops(vector, outside, held, tuple(sorted(unrolled)))


def kind_steps(hand: HandNest, number: int, target: Target) -> tuple[Step, ...]:
    """The steps that vectorize and unroll the inner loops of the nest of this number; none where
    a loop is no longer serial, since its kind was chosen before."""
    if any(loop.kind in ("vectorized", "unrolled") for loop in hand.loops):
        return ()
    chosen, made = inner_loops(hand, target), []
    steps = [(n, "unrolled") for n in chosen.unrolled]
    if chosen.vector > 1:
        steps.append((len(hand.loops) - 1, "vectorized"))
    for n, kind in steps:
        step = Step(number, "kind", (n, KINDS.index(kind)))
        try:
            hand = hand.after(step)
        except ConfigError:
            continue
        made.append(step)
    return tuple(made)


def _vector(
    hand: HandNest,
    target: Target,
    at: Mapping[str, Place],
    strides: tuple[Mapping[str, int | None], ...],
) -> int:
    loop = hand.loops[-1]
    place = at.get(loop.name)
    if loop.reduce or place is None or place.step != 1 or loop.extent < 2:
        return 1
    along = [access[place.axis] for access in strides]
    if along[-1] != 1 or any(step not in (0, 1) for step in along):
        return 1
    most = lanes(hand.nest, target)
    return max(d for d in range(1, most + 1) if loop.extent % d == 0)


def _ragged(hand: HandNest, loop: HandLoop) -> bool:
    """Return whether tests stand in a loop of a reduction whose tiles do not divide it."""
    return any(
        isinstance(r, Split) and not r.divides and loop.name in hand.leaves(r.parent)
        for r in hand.relations
    )


def written_out(hand: HandNest, chosen: InnerLoops) -> int:
    """Copies of the body in the code."""
    return math.prod(hand.loops[n].extent for n in chosen.unrolled)
