"""Tables made quick to search: features computed once, and what is in them as bit masks."""

from __future__ import annotations

import functools

import numpy as np

from loopwright.costmodel.features.representation import Numbers, Representation, resized
from loopwright.explore.strategies.encoded_space import Mask, Points
from loopwright.measure.tabular import TabularDevice
from loopwright.schedule.sketch.sketch import Sketch
from loopwright.schedule.space import Space

MOST = 1 << 17  # configs of a sketch whose features are kept


class Remembered(Representation):
    """Another representation for one space, computed once for all configs of a small sketch.

    `width` is that of the rows; where it is given, they are cut, or filled with zeros, to what a
    model of several spaces has.
    """

    def __init__(self, of: Representation, space: Space, width: int | None = None) -> None:
        self.of, self.space = of, space
        self.width = len(of.names(space)) if width is None else width
        self._rows: dict[int, np.ndarray] = {}

    def features(self, space: Space, sketch: int, numbers: Numbers) -> np.ndarray:
        chosen = self.space.sketches[sketch]
        if chosen.size > MOST:
            return resized(self.of.features(self.space, sketch, numbers), self.width)
        if sketch not in self._rows:
            rows = self.of.features(self.space, sketch, every_number(chosen))
            self._rows[sketch] = resized(rows, self.width)
        return self._rows[sketch][places(chosen, numbers)]

    def names(self, space: Space) -> tuple[str, ...]:
        return self.of.names(space)


class Legal:
    """Which points of a space are in a table."""

    def __init__(self, device: TabularDevice) -> None:
        self._device, self._masks = device, dict[int, Mask]()

    @functools.cached_property
    def size(self) -> int:
        """Points in the table."""
        every = enumerate(self._device.space.sketches)
        return sum(int(self.of_sketch(n, every_number(s)).sum()) for n, s in every)

    def __call__(self, points: Points) -> Mask:
        found = np.zeros(len(points), np.bool_)
        for n in np.unique(points[:, 0]).tolist():
            at, knobs = np.flatnonzero(points[:, 0] == n), self._device.space.sketches[n].knobs
            found[at] = self.of_sketch(n, points[at, 1 : 1 + len(knobs)])
        return found

    def of_sketch(self, sketch: int, numbers: Numbers) -> Mask:
        """Which points of one sketch are; `numbers` has shape (n, knobs)."""
        chosen = self._device.space.sketches[sketch]
        if chosen.size > MOST:
            return self._device.legal(sketch, numbers)
        if sketch not in self._masks:
            self._masks[sketch] = self._device.legal(sketch, every_number(chosen))
        return self._masks[sketch][places(chosen, numbers)]


def every_number(sketch: Sketch) -> Numbers:
    """The numbers of all configs, shape (configs, knobs), the last knob fastest."""
    shape = [len(knob.choices) for knob in sketch.knobs]
    return np.stack(np.unravel_index(np.arange(sketch.size), shape), axis=1)


def places(sketch: Sketch, numbers: Numbers) -> np.ndarray:
    """The inverse of `every_number`: at which row each config is."""
    return np.ravel_multi_index(tuple(numbers.T), [len(knob.choices) for knob in sketch.knobs])
