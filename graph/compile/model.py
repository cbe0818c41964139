"""`TunedModel`: a whole network as one library."""

from __future__ import annotations

import ctypes
import functools
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.codegen.either.placed import addresses
from loopwright.codegen.library.arrays import Array, as_array, empty
from loopwright.codegen.library.arrays import check as check_array
from loopwright.codegen.library.binary import PartialCall
from loopwright.codegen.library.calls import Slot
from loopwright.codegen.library.library import Library
from loopwright.codegen.library.signature import Parameter
from loopwright.codegen.library.torch_tensors import any_tensor, to_numpy
from loopwright.dsl.dtypes import is_float
from loopwright.dsl.errors import LibraryError, RangeError, ShapeError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.words import counted, html_table
from loopwright.graph.compile.call import ModelCall
from loopwright.graph.compile.link import Linked
from loopwright.graph.tasks import Work
from loopwright.measure.timing import Timer, Timing
from loopwright.schedule.target import Target
from loopwright.transfer.records.store import Record

_UNTIMED = 3
"""Calls after which weights lie as near as they will: after another model's calls, the first ones
read them from memory."""

_SAMPLES = 5
"""Calls, at least, whose median is what a call takes."""


@dataclass(frozen=True, eq=False)
class TunedModel:
    """A network, compiled.

    ::

        model(x)                     # NumPy in, NumPy out; torch in, torch out
        model.export("net.so")       # and net.h, net.json: needs libc alone; `lw.load` loads it

    Attributes
    ----------
    work: its steps and tasks.
    linked: its library and how that was made.
    records: the record that each tuned task was built by, by the workload's key.
    unchecked: why its results could not be compared with those of the model, if so.
    """

    work: Work
    linked: Linked
    target: Target
    records: Mapping[str, Record]
    unchecked: str = ""

    def __repr__(self) -> str:
        tasks = self.work.tasks
        tuned = sum(t.workload.key in self.records for t in tasks)
        steps = counted(len(self.work.network.steps), "step")
        of = counted(len(tasks), "task")
        return f"<TunedModel: {steps}, {tuned} of {of} tuned, {self.numerics} numerics>"

    def _repr_html_(self) -> str:
        library, tasks = self.library, self.work.tasks
        rows = {
            "inputs": "\n".join(map(str, library.inputs)),
            "outputs": "\n".join(map(str, library.signature.outputs)),
            "steps": len(self.work.network.steps),
            "tasks": len(tasks),
            "tuned": sum(t.workload.key in self.records for t in tasks),
            "numerics": self.numerics,
        }
        return html_table("TunedModel", rows)

    @property
    def library(self) -> Library:
        """Library that runs the model."""
        return self.linked.library

    @property
    def numerics(self) -> Numerics:
        """What its programs may do to rounding errors."""
        return self.work.numerics

    @property
    def notes(self) -> tuple[str, ...]:
        """One line for everything that TVM's path was kept for, or that is not tuned, and for a
        comparison that could not be made."""
        left = f"its results were not compared: {self.unchecked}"
        return (*self.work.notes(), *self.linked.notes, *([left] if self.unchecked else []))

    @property
    def estimate(self) -> float | None:
        """The sum of the recorded times of all tasks, in seconds; None if one has no record."""
        tasks = self.work.tasks
        if any(t.workload.key not in self.records for t in tasks):
            return None
        return sum(t.count * self.records[t.workload.key].cost for t in tasks)

    def __call__(self, /, *inputs: Any, **named: Any) -> Any:
        """Computes. Inputs are arrays in the model's order, or by name.

        Returns arrays of the same kind: torch tensors if any input is one, else NumPy arrays; in
        a tuple, a dict and so on where the model returns one. Raises `ShapeError` for a wrong
        input.
        """
        return self._call(*inputs, **named)

    @functools.cached_property
    def _call(self) -> ModelCall:
        source, several = self.work.source, self.work.network.several
        if source is None:
            return ModelCall(self.library, several, fixed=self.work.fixed)
        return ModelCall(
            self.library,
            several,
            source.structure,
            source.order,
            self.work.fixed,
            source.arguments,
        )

    def export(self, path: str | os.PathLike[str], extras: Sequence[str] = ()) -> Path:
        """Writes NAME.so with the weights, NAME.h and NAME.json; see `Library.export`."""
        return self.library.export(path, extras)

    def measure(self, seconds: float = 0.5) -> float:
        """The median seconds of a whole call on the data of `examples`, warm, taking about
        `seconds`, or a few calls where these take longer."""
        return measured(self.library, self.examples(), seconds)

    def examples(self) -> list[Any]:
        """Arrays for a call: copies of those the model was given with, or random numbers."""
        source, wanted = self.work.source, self.library.signature.inputs
        given = () if source is None else source.examples
        arrays = [to_numpy(x) if any_tensor((x,)) else x for x in given]
        made = [empty(p) for p in wanted]
        try:
            for array, value, parameter in zip(made, arrays, wanted, strict=True):
                check_array(as_array(value, parameter), parameter)
                array[...] = value
        except (ShapeError, ValueError):  # none, or of other types: they stood for their shapes
            extents = self.library.origin.extra.get("indexed", {})
            return [random_array(p, extents.get(p.name, 2)) for p in wanted]
        return made

    def profile(self, *inputs: Any, calls: int = 20) -> list[tuple[str, float]]:
        """The median seconds of every entry of the plan, by the name of its function, "copy" for
        copies, on the data of `examples` if no inputs are given. An entry in a loop has those of
        all iterations. Raises `ShapeError`, and `LibraryError` for another machine's model."""
        steps = self.linked.steps
        spent = seconds_of(self.library, inputs or self.examples(), len(steps), calls)
        names = ["copy" if n < 0 else self.work.network.steps[n].function for n in steps]
        return list(zip(names, spent, strict=True))

    def step_seconds(self, calls: int = 20) -> dict[int, float]:
        """The median seconds of every step in a call on the data of `examples`, by its number;
        those of all copies by -1."""
        every = [seconds for _, seconds in self.profile(calls=calls)]
        return summed(self.linked.steps, every)


def summed(steps: Iterable[int], seconds: Sequence[float]) -> dict[int, float]:
    """The seconds of every step, by its number, from those of a plan's entries."""
    spent: dict[int, float] = {}
    for step, own in zip(steps, seconds, strict=True):
        spent[step] = spent.get(step, 0.0) + own
    return spent


def measured(library: Library, inputs: Sequence[Any], seconds: float) -> float:
    """The median seconds of a whole call, as `TunedModel.measure` has it."""
    call = library.prepare_call(*inputs)
    call.repeat(_UNTIMED)
    once, _ = call.repeat(1)
    timing = Timing(relative=0.02, cap=max(seconds, _SAMPLES * once))
    return statistics.median(Timer(call, timing).run())


def seconds_of(
    library: Library, inputs: Sequence[Any], count: int, calls: int = 20
) -> list[float]:
    """The median seconds of each of the entries of a plan, in a few calls after some others.
    Raises `ShapeError` for wrong inputs, `RangeError` for no `calls`, and `LibraryError` for
    another machine's library."""
    if isinstance(calls, bool) or not isinstance(calls, int) or calls < 1:
        raise RangeError(f"calls is {calls!r}: give an integer of at least 1")
    if library._binary is None:
        raise LibraryError("a model for another machine cannot be profiled here")
    if any_tensor(inputs):
        inputs = [to_numpy(x) for x in inputs]
    wanted = library.inputs
    if len(inputs) != len(wanted):
        takes = ", ".join(map(str, wanted))
        raise ShapeError(f"{len(inputs)} inputs given; the model takes {takes}")
    given = [Slot.of(p).read(x) for p, x in zip(wanted, inputs, strict=True)]
    made = [Slot.of(p).make() for p in library.signature.outputs]
    call = PartialCall(library._binary, addresses(library, given, made))
    samples = []
    for _ in range(_UNTIMED + calls):
        times = (ctypes.c_int64 * max(count, 1))()
        call(0, count, times=times)
        samples.append(list(times))
    return [statistics.median(s[i] for s in samples[_UNTIMED:]) * 1e-9 for i in range(count)]


def random_array(parameter: Parameter, extent: int) -> Array:
    """Random numbers for a parameter; integers that index an axis of such an extent."""
    rng, array = np.random.default_rng(0), empty(parameter)
    floating = is_float(parameter.dtype)
    shape = parameter.shape
    array[...] = rng.standard_normal(shape) if floating else rng.integers(0, min(extent, 2), shape)
    return array
