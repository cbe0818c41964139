"""Tasks of a network: the distinct workloads of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from loopwright.dsl.numerics import Numerics
from loopwright.dsl.words import counted
from loopwright.dsl.workload import Workload
from loopwright.graph.errors import ModelError, UnsupportedOperator
from loopwright.graph.importers.read import Source
from loopwright.graph.importers.tir import Imported, import_function
from loopwright.graph.network import Network, Step
from loopwright.graph.transforms.choices import Choices
from loopwright.graph.transforms.joined_steps import join_steps
from loopwright.graph.transforms.layout import channels_last
from loopwright.graph.transforms.reshape import view_offset
from loopwright.schedule.target import Target


@dataclass(frozen=True, eq=False)
class Task:
    """Equal work in a network, tuned once, with the names of the first step that does it. `steps`
    are the numbers of all that do; one call does it `count` times, iterations included."""

    workload: Workload
    name: str
    steps: tuple[int, ...]
    count: int

    @property
    def flops(self) -> int:
        """Operations of one call, all of its steps together."""
        return self.count * self.workload.flops


@dataclass(frozen=True, eq=False)
class Work:
    """The steps of a network as the notation says them: each `imported` as a workload or the
    reason why it is none, and the distinct workloads, most arithmetic first. `sparse`: programs
    may be chosen whose time depends on zeros in the data. `fixed` inputs, whose values decide what
    is computed, are arrays here, and no inputs of the network."""

    network: Network
    imported: tuple[Imported | str, ...]
    tasks: tuple[Task, ...]
    source: Source | None = None
    numerics: Numerics = Numerics.STANDARD
    sparse: bool = False
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Work: {self.network}, {counted(len(self.tasks), 'task')}>"

    @property
    def fallback(self) -> dict[str, str]:
        """The functions that keep TVM's path, with the reasons."""
        pairs = zip(self.network.steps, self.imported)
        return {step.function: said for step, said in pairs if isinstance(said, str)}

    def for_calls(self) -> Work:
        """The same without the model that it was read of."""
        return self if self.source is None else replace(self, source=self.source.for_calls())

    def output_names(self) -> list[str]:
        """The model's names of the outputs, where it has some; none is an input's."""
        count = len(self.network.outputs)
        labels = list(self.source.outputs) if self.source is not None else []
        if len(labels) != count:
            labels = [f"output{n}" for n in range(count)] if count > 1 else ["output"]
        taken = [v.name for v in self.network.inputs]
        for label in labels:
            while label in taken:  # an input that is returned
                label += "_"
            taken.append(label)
        return taken[len(self.network.inputs) :]

    def notes(self) -> list[str]:
        """One line for each function that cannot be tuned."""
        kept = [f"{name} keeps TVM's path: {why}" for name, why in self.fallback.items()]
        return kept + [f"{n} is fixed to {x.tolist()}" for n, x in self.fixed.items()]


LAYOUTS = ("auto", "given")
"""Layouts of images between steps: as suits the steps, or as the model says."""


def work_of(
    network: Network, target: Target, layout: str = "auto", choices: Choices | None = None
) -> Work:
    """The workloads of a network's steps; arguments that are constants are constant.

    `layout` is one of `LAYOUTS`; `ModelError` for another. Where the model's is given, its steps
    are those of a pipeline of TVM's, too. `choices` are those of other sizes.
    """
    if layout not in LAYOUTS:
        raise ModelError(f"layout is {layout!r}; it must be one of {', '.join(LAYOUTS)}")
    known: dict[tuple[str, tuple[int, ...]], Imported | str] = {}
    imported = []
    for step in network.steps:
        key = (step.function, constants_of(step))
        if key not in known:
            known[key] = _import(network.functions[step.function], key[1])
        imported.append(known[key])
    laid_out = tuple(imported)
    if layout == "auto":
        laid_out = channels_last(network, imported, {} if choices is None else choices)
        network, laid_out = join_steps(network, laid_out, target, choices)
    groups: dict[str, list[int]] = {}
    for number, said in enumerate(laid_out):
        if (
            isinstance(said, Imported) and view_offset(said.workload) is None
        ):  # which costs nothing
            groups.setdefault(said.workload.key, []).append(number)
    tasks = []
    for numbers in groups.values():
        first = laid_out[numbers[0]]
        assert isinstance(first, Imported)
        name = network.steps[numbers[0]].function
        count = sum(network.steps[n].times for n in numbers)
        tasks.append(Task(first.workload, name, tuple(numbers), count))
    ordered = sorted(tasks, key=lambda t: (-t.flops, t.steps))
    return Work(network, laid_out, tuple(ordered))


def constants_of(step: Step) -> tuple[int, ...]:
    """The numbers of the parameters that a step gives constants to."""
    return tuple(n for n, value in enumerate(step.args) if value.data is not None)


def _import(function: Any, constants: tuple[int, ...]) -> Imported | str:
    if isinstance(function, Imported):
        return function
    try:
        return import_function(function, constants)
    except UnsupportedOperator as reason:
        return str(reason)
