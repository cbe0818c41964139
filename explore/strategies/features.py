"""Features of points of several sketches: a representation takes one sketch at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright.costmodel.features.representation import (
    ContextRelation,
    FlattenedTree,
    Representation,
    joined,
    make_representation,
)
from loopwright.costmodel.model import ModelError
from loopwright.explore.strategies.encoded_space import Points
from loopwright.schedule.space import Space

Rows = np.ndarray[Any, np.dtype[np.float32]]


class Features:
    """Turns points of a space into rows for a cost model."""

    def __init__(self, space: Space, representation: Representation | str = "relation") -> None:
        """A representation may be named, as a model names what it `reads`.

        A table of known costs has no loops to look at: "relation" then is the config vector, and
        the other names are a `ModelError`.
        """
        self.space = space
        if isinstance(representation, str):
            if not space.sketches[0].has_loops and representation != "config":
                if representation != "relation":
                    raise ModelError(
                        f"a model of {representation!r} features reads loops, which a table of "
                        'known costs does not have: use model="gbt"'
                    )
                representation = "config"
            representation = make_representation(representation)
        self.representation = representation

    def __call__(self, points: Points) -> Rows:
        """Shape (n, f); in as many calls of the representation as there are sketches."""
        return self._by_sketch(points, self._of_sketch)

    def directly(self, points: Points) -> Rows:
        """The same without recording programs first, for features that look at loops: faster as
        long as a sketch comes back a few times only. The last bits may differ."""
        return self._by_sketch(points, self._directly)

    def _by_sketch(self, points: Points, rows_of: Callable[[int, Points], Rows]) -> Rows:
        order = np.argsort(points[:, 0], kind="stable")
        numbers, starts = np.unique(points[order, 0], return_index=True)
        parts = [
            rows_of(int(number), points[rows])
            for number, rows in zip(numbers, np.split(order, starts[1:]), strict=True)
        ]
        together = joined(parts)
        result = np.empty_like(together)
        result[order] = together
        return result

    def _of_sketch(self, number: int, points: Points) -> Rows:
        knobs = len(self.space.sketches[number].knobs)
        return self.representation.features(self.space, number, points[:, 1 : 1 + knobs])

    def _directly(self, number: int, points: Points) -> Rows:
        if not isinstance(self.representation, ContextRelation | FlattenedTree):
            return self._of_sketch(number, points)
        knobs = len(self.space.sketches[number].knobs)
        return self.representation.directly(self.space, number, points[:, 1 : 1 + knobs])
