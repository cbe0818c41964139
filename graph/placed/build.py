"""From a compiled network to one that runs on two devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from loopwright.codegen.target import resolve
from loopwright.graph.compile.build import build_work
from loopwright.graph.compile.model import TunedModel
from loopwright.graph.compile.stored_records import best_records
from loopwright.graph.compile.vm_fallback import VmModel, VmWork
from loopwright.graph.errors import ModelError
from loopwright.graph.placed.model import PlacedModel, Placement
from loopwright.graph.placed.path import CPU, GPU, Problem, Seconds, units_of
from loopwright.graph.placed.steps import GpuStep, GpuSteps, transfer_times
from loopwright.graph.tasks import Work
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target
from loopwright.transfer.records.location import GivenLocation


def other_target(targets: Sequence[str]) -> Target:
    """The GPU of two targets, of which the other one is the processor. Raises `ModelError`."""
    if isinstance(targets, str) or set(targets) not in ({"cpu", "cuda"}, {"cpu", "opencl"}):
        raise ModelError(f'targets={targets!r}: give ["cpu", "cuda"] or ["cpu", "opencl"]')
    return resolve(next(name for name in targets if name != "cpu"))


def placed_model(
    work: Work | VmWork,
    target: Target,
    gpu: Target,
    records: GivenLocation | None = None,
    policy: str = "exact",
) -> PlacedModel:
    """A network with each step where the whole is predicted to end first. Each kind of step is
    timed on both devices, and so are transfers. Raises `ModelError`, `BuildError`."""
    built = build_work(work, target, records, policy)
    if isinstance(built, VmModel) or isinstance(work, VmWork):
        raise ModelError(
            "the network needs TVM's run-time, which the processor alone has: leave out targets"
        )
    found = {} if records is None else best_records(work, gpu, records, policy)
    configs: Mapping[str, Config] = {key: record.config for key, record in found.items()}
    return _placed(built, GpuSteps(work, gpu, configs))


def _placed(built: TunedModel, made: GpuSteps) -> PlacedModel:
    network = built.work.network
    units = units_of(network)
    here = built.step_seconds()
    steps: list[GpuStep | None] = []
    seconds: list[Seconds] = []
    for unit in units:
        (number, *more), step = unit.steps, None
        if not more and network.steps[number].loop is None:
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


def with_processor(model: PlacedModel, left: TunedModel) -> PlacedModel:
    """The model with `left` for its part on the processor, which may keep less."""
    placement = replace(model.placement, work=left.work)
    return replace(model, cpu=left, placement=placement)
