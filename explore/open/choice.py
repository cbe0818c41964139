"""The choice among the programs of a library: NN+C predicts the time of each at every size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.costmodel.models.time_model import TimeModel, inputs_of_call
from loopwright.dsl.size import Dim, named
from loopwright.dsl.workload import Workload
from loopwright.explore.open.tuned import Sizes
from loopwright.schedule.open.cover import Cover, middle, rules
from loopwright.schedule.open.rule import Rule

Lines = Mapping[str, Sequence[int]]

_CELLS = 64  # in each of which a program is chosen, by measurements in its middle
_ALONE = 32  # least sizes of one dim that are cells of their own
_LAUNCH = 5e-7  # seconds that a launch of threads may take more than when it was measured
_NEIGHBOURS = 0.05  # of logarithms of sizes: how far a measurement corrects a model


def cells(dims: Sequence[Dim]) -> Lines:
    """The starts of the cells in which a program is chosen, along every dim. Of one dim the
    least sizes are cells of their own: times are stairs there."""
    count = max(2, round(_CELLS ** (1 / len(dims))))
    lines = {}
    for d in dims:
        alone = [*d.values][: _ALONE if len(dims) == 1 else 1]
        spaced = np.rint(np.geomspace(alone[-1], d.high, max(2, count - len(alone))))
        starts = np.union1d(alone, spaced // d.multiple * d.multiple)
        lines[d.name] = [*map(int, starts)]
    return lines


def middles(dims: Sequence[Dim], lines: Lines) -> list[Sizes]:
    """The middles of all cells."""
    along = []
    for d in dims:
        ends = itertools.pairwise([*lines[d.name], d.high + d.multiple])
        along.append([middle(low, high - d.multiple, d) for low, high in ends])
    return [dict(zip(lines, cell, strict=True)) for cell in itertools.product(*along)]


class Choice:
    """Models of the times of programs, each corrected by what was measured near a size.

    Parameters
    ----------
    sizes: at which programs were measured.
    seconds: of every program, a row of one time per size; not finite where it cannot run.
    """

    def __init__(
        self, workload: Workload, sizes: Sequence[Sizes], seconds: Any, seed: int
    ) -> None:
        self._workload, self._seed = workload, seed
        self._known: dict[tuple[int, ...], list[float]] = {}
        self.models: list[TimeModel] = []
        self._residuals: list[Callable[[Sequence[float]], float]] = []
        for row in seconds:
            able = np.isfinite(row)
            inputs = np.array([self._inputs(each) for each in sizes])[able]
            self.models.append(self._model(inputs, row[able]))
            self._residuals.append(_residual(self.models[-1], inputs, row[able]))

    def rules(self, made: Cover, lines: Lines) -> tuple[Rule, ...]:
        """Rules that choose among the programs of a cover, those that were measured first."""

        def best(able: Sequence[int], sizes: Sizes) -> int:
            inputs = self._inputs(sizes)

            def expected(k: int) -> float:
                seconds = float(self.models[k].predict([inputs])[0])
                launch = _LAUNCH if made.programs[k].target.threads > 1 else 0.0
                return seconds * math.exp(self._residuals[k](inputs)) + launch

            return min(able, key=expected)

        return rules(made.dims, made.programs, best, lines)

    def _inputs(self, sizes: Sizes) -> list[float]:
        """Inputs of a model: the sizes, and c, the number of operations."""
        key = tuple(sizes[d.name] for d in self._workload.dims)
        if key not in self._known:
            self._known[key] = inputs_of_call(self._workload, named(self._workload.dims, key))
        return self._known[key]

    def _model(self, inputs: Any, seconds: Any) -> TimeModel:
        model = TimeModel([*(d.name for d in self._workload.dims), "c"], self._seed)
        if len(inputs) < 2:  # a program for next to no sizes: it is not compared with others there
            inputs = np.repeat(
                inputs if len(inputs) else np.ones((1, len(model.names))), 2, axis=0
            )
            seconds = np.repeat(seconds if len(seconds) else [1.0], 2)
        model.fit(inputs, seconds)
        return model


def _residual(model: TimeModel, inputs: Any, seconds: Any) -> Callable[[Sequence[float]], float]:
    """The error of a model as a function of sizes: the mean of the logarithms of measured over
    predicted seconds near them."""
    if not len(inputs):
        return lambda _: 0.0
    off = np.log(seconds / model.predict(inputs))
    places = np.log(inputs[:, :-1])

    def mean(asked: Sequence[float]) -> float:
        apart = ((places - np.log(asked[:-1])) ** 2).sum(axis=1)
        weights = np.exp(-apart / (2 * _NEIGHBOURS**2))
        return float((weights @ off) / (weights.sum() + 1e-3))

    return mean
