"""`tune_placed`: the search for a network on two devices."""

from __future__ import annotations

import math
from dataclasses import replace

from loopwright.dsl.errors import LoopwrightError
from loopwright.dsl.words import counted
from loopwright.explore.budget import Budget
from loopwright.graph.compile.model import TunedModel
from loopwright.graph.compile.vm_fallback import VmWork
from loopwright.graph.placed.build import check_placeable, check_placed, placed_model
from loopwright.graph.placed.model import PlacedModel
from loopwright.graph.placed.steps import placeable
from loopwright.graph.tasks import Task, Work
from loopwright.graph.transforms.reshape import only_reshapes
from loopwright.graph.tuning.fixed_sizes import tune_fixed
from loopwright.graph.tuning.search import SearchOptions, search, unstored
from loopwright.measure.opening import open_device
from loopwright.schedule.space import space
from loopwright.schedule.target import Target
from loopwright.transfer.records.location import GivenLocation, may_exist


def tune_placed(
    work: Work | VmWork,
    target: Target,
    gpu: Target,
    budget: Budget,
    records: GivenLocation,
    options: SearchOptions,
    check: bool,
    name: str = "model",
) -> tuple[PlacedModel, bool]:
    """The network on two devices, and whether the user ended the search. Half of the budget goes
    to the processor, what is left to the GPU; then each step is placed."""
    check_placeable(work)
    assert isinstance(work, Work)
    trials, minutes = budget.trials, budget.minutes
    half = replace(budget, trials=math.ceil(trials / 2) if trials < math.inf else trials)
    cpu = replace(half, minutes=minutes / 2)
    built, ended = tune_fixed(work, target, cpu, records, options, check, name)
    check_placeable(built)
    assert isinstance(built, TunedModel)
    besides = None
    if not ended and (wanted := _on_gpu(work, gpu, options)):
        if options.tell is not None:
            options.tell(f"{counted(len(wanted), 'task')} on {gpu}")
        with open_device(None, gpu) as device:
            # Drivers of OpenCL tell nothing of code before it runs.
            feedback = None if gpu.kind == "opencl" else options.feedback
            own = replace(options, device=device, feedback=feedback, only=wanted)
            with options.clock.part("searching"):
                found = search(work, gpu, half, records, own)
        besides, ended = unstored(found.states), found.interrupted
    with options.clock.part("placing"):
        store = records if may_exist(records) else None
        made = placed_model(built, gpu, store, besides=besides)
        if check:
            check_placed(made, work.source, tuned=bool(built.records))
    return made, ended


def _on_gpu(work: Work, gpu: Target, options: SearchOptions) -> list[int]:
    """The numbers of the tasks to search that may run on the GPU."""
    numbers = range(len(work.tasks)) if options.only is None else options.only
    return [n for n in numbers if _able(work, gpu, work.tasks[n])]


def _able(work: Work, gpu: Target, task: Task) -> bool:
    if only_reshapes(task.workload) or not any(placeable(work, n) for n in task.steps):
        return False
    try:
        space(task.workload, gpu, work.numerics)
    except LoopwrightError:  # which `placed_model` says, too
        return False
    return True
