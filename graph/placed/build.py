"""From a compiled network to one that runs on two devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loopwright.codegen.target import resolve
from loopwright.graph.compile.model import TunedModel
from loopwright.graph.compile.stored_records import best_records
from loopwright.graph.compile.vm_fallback import VmModel, VmWork
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.read import Source
from loopwright.graph.importers.reference import Reference
from loopwright.graph.placed.model import PlacedModel, Placement
from loopwright.graph.placed.path import CPU, GPU, Problem, Seconds, units_of
from loopwright.graph.placed.steps import GpuStep, GpuSteps, transfer_times
from loopwright.measure.accelerator import facts
from loopwright.measure.machine import fingerprint
from loopwright.schedule.target import Target
from loopwright.transfer.records.location import GivenLocation
from loopwright.transfer.records.store import Record


def given_targets(targets: Sequence[str] | None, elsewhere: bool, has_dims: bool) -> Target | None:
    """The GPU of two targets, of which the other one is the processor; None where none are given.
    Raises `ModelError` where a target or a device is given too, or open axes, and `TargetError`
    where this machine has no such GPU."""
    if targets is None:
        return None
    if elsewhere or has_dims:
        raise ModelError(
            "targets are for fixed shapes, in place of a target and a device: leave those out"
        )
    if isinstance(targets, str) or set(targets) not in ({"cpu", "cuda"}, {"cpu", "opencl"}):
        raise ModelError(f'targets={targets!r}: give ["cpu", "cuda"] or ["cpu", "opencl"]')
    return resolve(next(name for name in targets if name != "cpu"))


def check_placeable(work: object) -> None:
    """Raise `ModelError` for a network whose steps cannot be placed one by one."""
    if isinstance(work, VmWork | VmModel):
        raise ModelError(
            "the network needs TVM's run-time, which the processor alone has: leave out targets"
        )


def placed_model(
    built: TunedModel | VmModel,
    gpu: Target,
    records: GivenLocation | None = None,
    policy: str = "exact",
    besides: Mapping[str, Record] | None = None,
) -> PlacedModel:
    """A network that was built for the processor, with each step where the whole is predicted to
    end first. Each kind of step is timed on both devices, and so are transfers. Records `besides`,
    which could not be stored, go before others. Raises `ModelError`, `BuildError`."""
    check_placeable(built)
    assert isinstance(built, TunedModel)
    found: Mapping[str, Record] = {}
    if records is not None:
        here = fingerprint() | facts(gpu)
        found = best_records(built.work, gpu, records, policy, here)
    known = {**found, **(besides or {})}
    return _placed(built, GpuSteps(built.work, gpu, {k: r.config for k, r in known.items()}))


def check_placed(model: PlacedModel, source: Source | None) -> None:
    """Compare a network on two devices with the one that it was made of, where that runs. Raises
    `ModelError`."""
    reference = None if source is None else source.reference
    if isinstance(reference, Reference):
        reference.check(model, tuned=bool(model.cpu.records))


def _placed(built: TunedModel, made: GpuSteps) -> PlacedModel:
    network = built.work.network
    units = units_of(network)
    here = built.step_seconds()
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
    placement = Placement(problem, problem.shortest(), others, built.work)
    return PlacedModel(built, placement, tuple(steps), (*built.notes, *made.notes))
