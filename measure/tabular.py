"""`TabularDevice`: a table of costs in place of a machine, so that searches repeat exactly."""

from __future__ import annotations

import csv
import functools
import gzip
import math
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.dsl.index import indices
from loopwright.dsl.tensor import tensor
from loopwright.dsl.workload import Workload
from loopwright.dsl.workload import workload as make_workload
from loopwright.measure.device import (
    Comparison,
    Device,
    DeviceError,
    Failure,
    Measurement,
    Stop,
    never,
)
from loopwright.paths import file_at
from loopwright.schedule.sketch.naming import Derivation, SketchName
from loopwright.schedule.sketch.sketch import Config, Knob, Sketch
from loopwright.schedule.space import Space
from loopwright.schedule.target import Target


class TabularDevice(Device):
    """Looks costs up. Nothing is built or run, and nothing depends on time or chance.

    Attributes
    ----------
    space: of which the table is.
    optimum: the lowest cost of the table, in seconds.
    best: the config that has it.
    """

    def __init__(self, space: Space, costs: Mapping[Config, float], name: str = "table") -> None:
        """`costs` are seconds, infinite for points that are known to fail.

        A point of the space that is not in it is a failure of kind "illegal". Raises
        `DeviceError` if no cost is finite.
        """
        self.space, self.target, self.name = space, space.target, name
        self._costs = dict(costs)
        self.optimum = min(self._costs.values(), default=math.inf)
        self.check()
        self.best = min(self._costs, key=self._costs.__getitem__)

    def legal(self, sketch: int, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Mask of the points, given as numbers of shape (n, knobs), that are in the table. A
        search over the table's points alone proposes no others."""
        known = self._known[self.space.sketches[sketch].name]
        return np.array([tuple(row) in known for row in numbers.tolist()], np.bool_)

    @functools.cached_property
    def _known(self) -> dict[SketchName, set[tuple[int, ...]]]:
        """The points in the table, by their sketches: quicker to look up than configs."""
        known: dict[SketchName, set[tuple[int, ...]]] = {
            s.name: set() for s in self.space.sketches
        }
        for config in self._costs:
            known[config.sketch].add(self.space.sketch(config.sketch).numbers(config))
        return known

    def fingerprint(self) -> dict[str, str]:
        return {"processor": f"replayed from {self.name}"}

    def check(self) -> None:
        if not math.isfinite(self.optimum):
            raise DeviceError(f"{self.name}: no point has a cost; give a table with seconds in it")

    def measure(
        self, workload: Workload, configs: Sequence[Config], stop: Stop = never
    ) -> Iterator[Measurement]:
        for number, config in enumerate(configs):
            if number and stop():
                return
            failure = self.verify(workload, config)
            seconds = () if failure else (self._costs[config],)
            yield Measurement(config, seconds, failure, 0.0, 0.0, "warm", self.target.threads, 0.0)

    def verify(self, workload: Workload, config: Config) -> Failure | None:
        if workload != self.space.workload:
            raise DeviceError(f"{self.name} is a table of another workload; use device.space")
        if config not in self._costs:
            return Failure("illegal", f"{config} is not in the table")
        failed = not math.isfinite(self._costs[config])
        return Failure("run", f"{config} is known to fail") if failed else None

    def compare(self, workload: Workload, configs: Sequence[Config], rounds: int) -> Comparison:
        samples = tuple((m.cost,) * rounds for m in self.measure(workload, configs))
        return Comparison(samples, (0,) * len(samples))


def load_brute_forced(path: str | os.PathLike[str]) -> TabularDevice:
    """The device of a space that was measured exhaustively. Its workload stands for the table, and
    is the same for all tables with as many lines.

    Parameters
    ----------
    path: a CSV file, gzipped if it ends in ".gz". The first line names the columns, which become
        knobs; the last one is the cost in milliseconds, empty where a point fails; the others
        are integers. The default config is the first that works.

    Raises `DeviceError` for a file of another form.
    """
    path = file_at(path, "the table", DeviceError)
    names, points, seconds = _read(path)
    columns = [sorted(set(column)) for column in zip(*points)]
    knobs = tuple(Knob(n, tuple((v,) for v in c)) for n, c in zip(names, columns))
    name = path.name.partition(".")[0]
    workload = _stand_in(len(points))
    first = next((p for p, cost in zip(points, seconds) if math.isfinite(cost)), points[0])
    default = tuple(c.index(v) for c, v in zip(columns, first))
    sketch = Sketch(SketchName(Derivation(), name), workload, (), (), knobs, default)
    costs = {
        Config(sketch.name, tuple((n, (v,)) for n, v in zip(names, point))): cost
        for point, cost in zip(points, seconds)
    }
    target = Target(kind="replayed", triple="", mcpu=name)
    return TabularDevice(Space(workload, target, (sketch,)), costs, name)


def _read(path: Path) -> tuple[list[str], list[tuple[int, ...]], list[float]]:
    """Names of the columns, points, and their costs in seconds."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", newline="") as file:
            header, *lines = csv.reader(file)
        points = [tuple(int(value) for value in line[:-1]) for line in lines]
        seconds = [float(line[-1]) * 1e-3 if line[-1] else math.inf for line in lines]
    except (OSError, EOFError, ValueError, IndexError, csv.Error, zlib.error) as error:
        raise DeviceError(f"{path}: not a table of integers and milliseconds: {error}") from error
    if not points or {len(p) for p in points} != {len(header) - 1}:
        raise DeviceError(f"{path}: there must be lines, each of {len(header)} columns")
    return header[:-1], points, seconds


def _stand_in(points: int) -> Workload:
    (i,) = indices("i")
    x, y = tensor("x", (points,)), tensor("y")
    y[i] = x[i]
    return make_workload(y)
