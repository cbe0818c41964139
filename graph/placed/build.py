"""From a compiled network to one that runs on two devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loopwright.graph.compile.model import TunedModel
from loopwright.graph.compile.stored_records import best_records
from loopwright.graph.compile.vm_fallback import VmModel, VmWork
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.read import Source
from loopwright.graph.importers.reference import Reference
from loopwright.graph.placed.model import PlacedModel, Placement
from loopwright.graph.placed.path import CPU, GPU, Problem, Seconds, units_of
from loopwright.graph.placed.steps import GpuStep, GpuSteps, transfer_times
from loopwright.graph.tasks import Work
from loopwright.measure.accelerator import facts
from loopwright.measure.machine import fingerprint
from loopwright.schedule.target import Target
from loopwright.transfer.records.location import GivenLocation
from loopwright.transfer.records.store import Record


def check_placeable(work: object) -> None:
    """Raise `ModelError` for a network whose steps cannot be placed one by one."""
    if isinstance(work, VmWork | VmModel):
        raise ModelError(
            "the network needs TVM's run-time, which the processor alone has: leave out targets"
        )


def placed_model(
    built: TunedModel | VmModel,
    gpu: Target,
    records: GivenLocation | None,
    policy: str = "exact",
    besides: Mapping[str, Record] | None = None,
) -> PlacedModel:
    """A network that was built for the processor, with each step where the whole is predicted to
    end first. Each kind of step is timed on both devices, and so are transfers. Records `besides`,
    which could not be stored, go before others. Raises `ModelError`, `BuildError`."""
    check_placeable(built)
    assert isinstance(built, TunedModel)
    made = gpu_steps(built.work, gpu, records, policy, besides)
    placement, steps = placement_of(built.work, built.step_seconds(), made)
    return PlacedModel(built, placement, steps, (*built.notes, *made.notes))


def gpu_steps(
    work: Work,
    gpu: Target,
    records: GivenLocation | None,
    policy: str,
    besides: Mapping[str, Record] | None = None,
) -> GpuSteps:
    """The builder of a network's steps for a GPU, by the best records there are."""
    found: Mapping[str, Record] = {}
    if records is not None:
        found = best_records(work, gpu, records, policy, fingerprint() | facts(gpu))
    known = {**found, **(besides or {})}
    return GpuSteps(work, gpu, {key: record.config for key, record in known.items()})


def check_placed(model: Any, source: Source | None, tuned: bool = False) -> None:
    """Compare a network on two devices with its source, where that runs. Raises `ModelError`."""
    reference = None if source is None else source.reference
    if isinstance(reference, Reference):
        reference.check(model, tuned)


def placement_of(
    work: Work, here: Mapping[int, float], made: GpuSteps
) -> tuple[Placement, tuple[GpuStep | None, ...]]:
    """The best placement of a network, and its GPU steps; `here` are seconds of the processor."""
    network = work.network
    units = units_of(network)
    steps: list[GpuStep | None] = []
    seconds: list[Seconds] = []
    for unit in units:
        (number, *more), step = unit.steps, None
        if not more:
            step = made.step(number)
        steps.append(step)
        seconds.append({CPU: sum(here.get(n, 0.0) for n in unit.steps)})
        if step is not None:
            seconds[-1][GPU] = made.seconds(number, step)
    library = next((s.library for s in steps if s and s.library), None)
    if library is None:  # then no step is there, reshapes neither
        steps, seconds = [None] * len(units), [{CPU: s[CPU]} for s in seconds]
    moving = transfer_times(library._running) if library else (lambda nbytes, device: 0.0)
    problem = Problem(units, tuple(seconds), network.inputs, network.outputs, moving)
    others = {
        "all on the processor": problem.along([CPU] * len(units)),
        "all that can on the GPU": problem.along([GPU if s else CPU for s in steps]),
    }
    return Placement(problem, problem.shortest(), others, work), tuple(steps)
