"""Features of points of several sketches: a representation takes one sketch at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from loopwright.costmodel.representation import ConfigVector, ContextRelation, Representation
from loopwright.explore.points import Points
from loopwright.schedule.space import Space

Rows = np.ndarray[Any, np.dtype[np.float32]]


class Features:
    """Turns points of a space into rows for a cost model."""

    def __init__(self, space: Space, representation: Representation | None = None) -> None:
        """By default `ContextRelation`, or `ConfigVector` for a table of known costs, which has
        no loops to look at."""
        loops = space.sketches[0].has_loops
        self.space = space
        self.representation = representation or (ContextRelation() if loops else ConfigVector())

    def __call__(self, points: Points) -> Rows:
        """Shape (n, f); in as many calls of the representation as there are sketches."""
        order = np.argsort(points[:, 0], kind="stable")
        numbers, starts = np.unique(points[order, 0], return_index=True)
        parts = [
            self._of_sketch(int(number), points[rows])
            for number, rows in zip(numbers, np.split(order, starts[1:]), strict=True)
        ]
        joined = np.concatenate(parts)
        result = np.empty_like(joined)
        result[order] = joined
        return result

    def _of_sketch(self, number: int, points: Points) -> Rows:
        knobs = len(self.space.sketches[number].knobs)
        return self.representation.features(self.space, number, points[:, 1 : 1 + knobs])
