"""Vectors and unrolled loops of a schedule by hand, chosen by LoopNest's rules.

The innermost loop becomes vectors where all accesses are contiguous along it. The outermost loop
inside of which all results fit the registers is found: the loops of the result inside of it are
written out, so that their accumulators stay in registers, and reductions too while the code stays
short (Wasti et al. 2022, section 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loopwright.dsl.errors import ConfigError
from loopwright.schedule.program.nest import lanes, stride
from loopwright.schedule.sketch.hand import KINDS, HandNest, Split, Step
from loopwright.schedule.target import Target

Strides = tuple[Mapping[str, int | None], ...]

_OPERANDS = 2
"""Registers that hold no results."""
_MOST_OPERATIONS = 64
"""Operations, vectors or scalars, that reductions may be written out to."""


@dataclass(frozen=True)
class PlainLoop:
    """A loop in numbers: its iterations, and those of a shorter last tile or 0; the axis of the
    nest that it goes along, the step of an iteration, whether that is summed over, and whether
    some tile of the axis is shorter, or overlaps another (`ragged`)."""

    name: str
    size: int
    tail: int
    axis: str
    step: int
    reduce: bool
    ragged: bool = False

    def split(self, factor: int) -> tuple[PlainLoop, PlainLoop]:
        """The two loops that it becomes by a split."""
        tail, axis, step, reduce = self.size % factor, self.axis, self.step, self.reduce
        ragged, outer, inner = self.ragged or tail > 0, f"{self.name}.outer", f"{self.name}.inner"
        count = -(-self.size // factor)
        return (
            PlainLoop(outer, count, tail, axis, step * factor, reduce, ragged),
            PlainLoop(inner, factor, 0, axis, step, reduce, ragged),
        )


def plain_loops(hand: HandNest) -> tuple[PlainLoop, ...]:
    """The loops of a nest, outermost first; none where some are fused."""
    made = {
        index.name: PlainLoop(index.name, size, 0, index.name, 1, index in hand.nest.reduce)
        for index, size in hand.nest.extents.items()
    }
    for r in hand.relations:
        if not isinstance(r, Split):
            return ()
        made |= {loop.name: loop for loop in made[r.parent].split(r.factor)}
    return tuple(made[loop.name] for loop in hand.loops)


def axis_strides(hand: HandNest) -> Strides:
    """Elements that every access moves along each axis, None where that varies; the last access
    is the result's."""
    nest = hand.nest
    accesses = [(r.tensor, r.index) for r in dict.fromkeys(nest.reads())]
    accesses.append((nest.out, nest.index))
    return tuple(
        {axis.name: stride(tensor, index, axis) for axis in nest.extents}
        for tensor, index in accesses
    )


@dataclass(frozen=True)
class InnerLoops:
    """Choice for the inner loops of a nest: lanes of the innermost loop's `vector`, 1 for scalars;
    loops `outside` of those whose results stay in `registers` (vectors), and positions of the
    `unrolled` ones."""

    vector: int
    outside: int
    registers: int
    unrolled: tuple[int, ...]


def inner_loops(
    loops: Sequence[PlainLoop], strides: Strides, most_lanes: int, registers: int
) -> InnerLoops:
    """Choose vectors of at most so many lanes, and the loops that are written out."""
    vector = _vector(loops[-1], strides, most_lanes)
    copies = [x.size for x in loops]
    copies[-1] = -(-copies[-1] // vector)
    outside, held = len(loops), 1
    while outside:
        loop = loops[outside - 1]
        more = held if loop.reduce else held * copies[outside - 1]
        if more > registers - _OPERANDS:
            break
        outside, held = outside - 1, more
    first = next((n for n, x in enumerate(loops) if x.reduce), len(loops))
    while outside < first:  # they stand around the whole sum
        held //= copies[outside]
        outside += 1
    unrolled = [n for n in range(outside, len(loops)) if not loops[n].reduce]
    if vector > 1 and unrolled and unrolled[-1] == len(loops) - 1:
        unrolled.pop()
    operations = held
    for n in range(len(loops) - 1, outside - 1, -1):
        if not loops[n].reduce:
            continue
        operations *= copies[n]
        if operations > _MOST_OPERATIONS or loops[n].ragged:
            break
        unrolled.append(n)
    return InnerLoops(vector, outside, held, tuple(sorted(unrolled)))


def _vector(loop: PlainLoop, strides: Strides, most: int) -> int:
    """Lanes of the vectors that the innermost loop becomes."""
    along = [access[loop.axis] for access in strides]
    if loop.reduce or loop.step != 1 or along[-1] != 1 or any(x not in (0, 1) for x in along):
        return 1
    return max(d for d in range(1, most + 1) if loop.size % d == 0)


def kind_steps(hand: HandNest, number: int, target: Target) -> tuple[Step, ...]:
    """The steps that vectorize and unroll the inner loops of the nest of this number; none where
    loops are fused, or some are vectorized or unrolled already."""
    loops = plain_loops(hand)
    if not loops or any(loop.kind in ("vectorized", "unrolled") for loop in hand.loops):
        return ()
    most = lanes(hand.nest, target)
    chosen = inner_loops(loops, axis_strides(hand), most, target.vector_registers)
    kinds = [(n, "unrolled") for n in chosen.unrolled if hand.loops[n].kind == "serial"]
    if chosen.vector > 1 and hand.loops[-1].kind == "serial":
        kinds.append((len(loops) - 1, "vectorized"))
    made: list[Step] = []
    for n, kind in kinds:
        step = Step(number, "kind", (n, KINDS.index(kind)))
        try:
            hand = hand.after(step)
        except ConfigError:  # too long, or a copy is made there
            continue
        made.append(step)
    return tuple(made)
