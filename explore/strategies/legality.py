"""Legal points of a space, where not all are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from loopwright.explore.strategies.encoded_space import Mask, Points
from loopwright.schedule.lowering import lower
from loopwright.schedule.space import Space
from loopwright.schedule.tree.verifier import legal


def legal_points(points: Space) -> Callable[[Points], Mask] | None:
    """Mask of the points of a space whose programs fit its GPU; a processor's space has no
    gaps."""
    if points.target.gpu is None:
        return None
    target = points.target
    return by_sketch(
        points, lambda n, rows: legal(lower(points.sketches[n], target, rows), target.gpu)
    )


def by_sketch(points: Space, legal_of: Callable[[int, Points], Mask]) -> Callable[[Points], Mask]:
    """A test of points, from one of the numbers of one sketch."""

    def test(rows: Points) -> Mask:
        found = np.zeros(len(rows), np.bool_)
        for number in np.unique(rows[:, 0]).tolist():
            at = np.flatnonzero(rows[:, 0] == number)
            numbers = rows[at, 1 : 1 + len(points.sketches[number].knobs)]
            found[at] = legal_of(number, numbers)
        return found

    return test
