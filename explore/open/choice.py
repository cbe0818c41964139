"""The choice among the programs of a library: NN+C predicts the time of each at every size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.costmodel.models.time_model import TimeModel
from loopwright.dsl.size import Dim
from loopwright.explore.open.tuned import Sizes
from loopwright.schedule.open.cover import Cover
from loopwright.schedule.open.rule import Rule
from loopwright.schedule.open.selection import rules
from loopwright.schedule.open.work import Array, Floats, inputs, operations
from loopwright.schedule.tree.formula import in_json

Lines = Mapping[str, Sequence[int]]

_CELLS = 64  # in the middle of each of which programs are measured
_ALONE = 32  # least sizes of one dim that are cells of their own
_CHOSEN = 1024  # least sizes of one dim, for each of which a program is chosen
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
        along.append([_between(low, high - d.multiple, d) for low, high in ends])
    return [dict(zip(lines, cell, strict=True)) for cell in itertools.product(*along)]


def _between(low: int, high: int, known: Dim) -> int:
    """The size in the middle of two sizes of a dim, in the logarithm."""
    away = int(math.sqrt(low * high) + 1e-9) - low
    return low + away // known.multiple * known.multiple


class Choice:
    """Models of the times of programs, each corrected by what was measured near a size.

    Parameters
    ----------
    made: the programs, those that were measured first.
    sizes: at which programs were measured.
    seconds: of every program, a row of one time per size; not finite where it cannot run.
    """

    def __init__(self, made: Cover, sizes: Sequence[Sizes], seconds: Any, seed: int) -> None:
        self._made, self._seed = made, seed
        self.operations = [operations(p.tree, p.target.threads) for p in made.programs]
        self._measured = np.isfinite(seconds).any(axis=1)
        self.models: list[TimeModel] = []
        self._residuals: list[Callable[[Floats], Floats]] = []
        for row, number in zip(seconds, self.operations, strict=True):
            able = np.isfinite(row)
            asked = [inputs(each, number) for each in itertools.compress(sizes, able)]
            known = np.reshape(asked, (len(asked), 1 + len(made.dims)))
            self.models.append(self._model(known, row[able]))
            self._residuals.append(_residual(self.models[-1], known, row[able]))

    def rules(self, lines: Lines) -> tuple[Rule, ...]:
        """Rules that choose among the programs, for cells with such starts and each of the least
        sizes of one dim."""
        dims = self._made.dims
        if len(dims) == 1:
            ((name, starts),) = lines.items()
            lines = {name: [*starts, *dims[0].values[:_CHOSEN]]}
        return rules(dims, self._made.programs, self._expected, lines)

    def _expected(self, k: int, sizes: Mapping[str, Array]) -> Floats:
        """Seconds of a program at many sizes."""
        asked = inputs(sizes, self.operations[k])
        launch = _LAUNCH if self._made.programs[k].target.threads > 1 else 0.0
        off: Floats = np.exp(self._residuals[k](asked))
        return self.models[k].predict(asked) * off + launch

    def to_json(self) -> list[dict[str, Any] | None]:
        """The model of each program and its operations, as `OpenLibrary.explain` reads them; None
        of a program that was not measured."""
        found = zip(self.models, self.operations, self._measured, strict=True)
        return [
            model.to_json() | {"operations": in_json(number)} if known else None
            for model, number, known in found
        ]

    def _model(self, known: Any, seconds: Any) -> TimeModel:
        model = TimeModel([*(d.name for d in self._made.dims), "c"], self._seed)
        if len(known) < 2:  # a program for next to no sizes: it is not compared with others there
            known = np.repeat(known if len(known) else np.ones((1, len(model.names))), 2, axis=0)
            seconds = np.repeat(seconds if len(seconds) else [1.0], 2)
        model.fit(known, seconds)
        return model


def _residual(model: TimeModel, known: Any, seconds: Any) -> Callable[[Floats], Floats]:
    """The error of a model as a function of its inputs: the mean of the logarithms of measured
    over predicted seconds at sizes near by."""
    off = np.log(seconds / model.predict(known)) if len(known) else np.zeros(0)
    places = np.log(known[:, :-1])

    def mean(asked: Floats) -> Floats:
        apart = np.log(asked[:, None, :-1]) - places
        weights = np.exp(-(apart**2).sum(axis=2) / (2 * _NEIGHBOURS**2))
        found: Floats = (weights @ off) / (weights.sum(axis=1) + 1e-3)
        return found

    return mean
