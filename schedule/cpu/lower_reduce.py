"""The reduction loops of a nest: which are unrolled, slide, or are written out for their tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loopwright.dsl.index import Affine, Index
from loopwright.schedule.program.nest import extent, sliding
from loopwright.schedule.sketch.sketch import NestSketch
from loopwright.schedule.tree.grammar import Column, Linear, Var

_Loop = tuple[Var, Column, str]


@dataclass(frozen=True)
class ReductionLoops:
    """The loops around the update of a register tile.

    Attributes
    ----------
    outer: one for each reduction axis.
    unrolled: inside of these, what is unrolled of some.
    inside: around the vectors alone. In the order in which a window slides, each row is read once
        for all that need it.
    place: where each axis stands.
    """

    outer: tuple[_Loop, ...]
    unrolled: tuple[_Loop, ...]
    inside: tuple[_Loop, ...]
    place: Mapping[Index, Linear]

    def depth(self, tests: Sequence[Affine]) -> int:
        """Number of the outer and the unrolled loops around what some tests depend on."""
        used = {i for test in tests for i in test.indices()}
        bound = {var for i, at in self.place.items() if i in used for var, _ in at.terms}
        loops = enumerate((*self.outer, *self.unrolled), 1)
        return max((n for n, (var, *_) in loops if var in bound), default=0)


def reduction_loops(
    sketch: NestSketch,
    values: Mapping[str, tuple[Column, ...]],
    sizes: Mapping[Index, Column],
    across: Index | None,
    variable: Callable[[str], Var],
) -> ReductionLoops:
    """The loops of a sketch's sum by the values of its knobs; `across` is its vector axis, if that
    is one of them."""
    predicates, sparse = sketch.predicates, sketch.nest.sparse is not None
    outer: list[_Loop] = []
    unrolled: list[_Loop] = []
    inside: list[_Loop] = []
    tested = {i for test in predicates.whole for i in test.indices()}
    slides = sliding(sketch.nest, sketch.vector, sketch.tiled)
    place: dict[Index, Linear] = {}
    factors = dict(zip(sketch.unrolled, values.get("unroll", ()), strict=True))
    for axis in sketch.reduce:
        var, size = variable(axis.name), extent(axis)
        if axis is across:
            outer.append((var, size // sizes[axis], "serial"))
            place[axis] = Linear(((var, sizes[axis]),))
        elif axis in predicates.taps or sparse or (axis in tested and axis not in factors):
            outer.append((var, size, "unrolled" if axis in predicates.taps else "serial"))
            place[axis] = Linear(((var, 1),))
        else:
            factor, inner = factors.get(axis, 1), variable(f"{axis.name}.in")
            outer.append((var, size // factor, "serial"))
            (inside if axis in slides else unrolled).append((inner, factor, "unrolled"))
            place[axis] = Linear(((var, factor), (inner, 1)))
    return ReductionLoops(tuple(outer), tuple(unrolled), tuple(inside), place)
