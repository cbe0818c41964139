"""`tune_model`: from a network to the fastest library found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopwright.dsl.numerics import Numerics
from loopwright.dsl.words import brief
from loopwright.explore.budget import Budget, Interrupted
from loopwright.explore.stopwatch import Stopwatch

# What needs TVM is imported in the call: that takes seconds, which are of its budget.
if TYPE_CHECKING:
    from loopwright.graph.compile.model import TunedModel
    from loopwright.graph.compile.vm_fallback import VmModel
    from loopwright.graph.importers.inputs import Inputs
    from loopwright.graph.open.model import OpenModel
    from loopwright.graph.open.source import Dims
    from loopwright.graph.placed.model import PlacedModel
    from loopwright.graph.tuning.live_table import Tell
    from loopwright.measure.device import Device
    from loopwright.schedule.target import Target
    from loopwright.transfer.pretrained.base import Transfer
    from loopwright.transfer.records.location import GivenLocation


def tune_model(  # noqa: PLR0913 - what users choose
    model: Any,
    inputs: Inputs = None,
    target: str | Mapping[str, Any] | Target = "cpu",
    *,
    minutes: float | None = None,
    trials: int | None = None,
    records: GivenLocation | None = "tuning.db",
    effort: str = "normal",
    threads: int | None = None,
    seed: int = 0,
    only: Sequence[int] | None = None,
    transfer: Transfer = "auto",
    feedback: str | None = None,
    layout: str = "auto",
    sparse: bool = False,
    numerics: str | Numerics = "standard",
    check: bool = True,
    device: Device | str | None = None,
    fleet: str | None = None,
    tell: Tell | None = None,
    progress: bool | None = None,
    dims: Dims = None,
    targets: Sequence[str] | None = None,
) -> TunedModel | OpenModel | VmModel | PlacedModel:
    """Tune all work of a network together, and compile it by what was found.

    Minutes are wall time: reading the network, building it, and all checks count. Every
    measurement goes to the record store as soon as it is there: the same call again goes on
    from there, and equal work in other models is known already. Ctrl-C ends the search with
    `Interrupted`, whose `tuned` is the model as compiled by what was found. If the device or the
    store fails meanwhile, the model is that, too, and a line says so.

    Parameters
    ----------
    model, inputs: see `graph.importers.read.read_model`.
    target, threads: as for `lw.build`.
    minutes, trials, effort: the budget of the whole network; trials of earlier sessions do not
        count.
    records: path of the record store, or postgresql://user@host/database; None keeps nothing.
    only: the numbers of the tasks to tune, from 0, in the order of `work.tasks`.
    transfer: the global model that every search begins with: "auto" for the one that is shipped
        for the target, the path of another, None for none.
    feedback: "compiled" to choose candidates by what their code tells, too, as for `lw.tune`.
    layout: "auto" lays images between steps out as suits the steps, "given" as the model says,
        which is what `graph.apply` meets in a pipeline of TVM's.
    sparse: whether programs may be chosen that skip products with zeros of the data, as ReLUs
        make them (activation sparsity). Their time depends on the data: a call takes longer for
        inputs with fewer zeros than those that are given here. For networks of fixed sizes.
    numerics: as for `lw.build_model`.
    check: as for `lw.build_model`, before anything is measured, and again of what is returned.
    device: what measures, by default this machine. One that is given is not closed, and the best
        candidates are then not compared inside of the network. A URL names another machine, as for
        `lw.tune`; `target` and `threads` are then of that machine.
    fleet: in place of a device, the machines of a fleet, as for `lw.tune`.
    tell: is given lines of text: one for every batch, and at the end the estimate beside a
        measured call, and where the time went.
    progress: whether to show on standard error how it goes; by default in a terminal and in a
        notebook, unless `tell` is given.
    dims: bounds of axes that stay open, as for `lw.build_model`. The network is tuned at a few
        sizes, which share the budget.
    targets: "cpu" and one of "cuda" and "opencl", instead of a target, as for `lw.build_model`.
        Half of the budget goes to the processor, and the other half to the GPU.

    Raises `ModelError`, `TuningError`, `BuildError`; `KeyboardInterrupt` at Ctrl-C before anything
    was measured, and once more at Ctrl-C while the model is compiled.
    """
    clock = Stopwatch()
    from loopwright.codegen.target import processor
    from loopwright.graph.errors import ModelError, check_sparse, check_switches
    from loopwright.graph.placed.targets import given_targets
    from loopwright.measure.device import Device
    from loopwright.measure.opening import check_device, open_device
    from loopwright.temporary import TemporaryFolder
    from loopwright.transfer.pretrained.base import check_readable
    from loopwright.transfer.records.store import check_store

    check_readable(transfer, proposes=False)
    check_switches(check=check, sparse=sparse, progress=progress or False)
    if not (tell is None or callable(tell)):
        raise ModelError(
            f"tell is {brief(tell)}: give a function of a line of text, such as print"
        )
    check_device(device, fleet)
    elsewhere = target != "cpu" or device is not None or fleet is not None
    gpu, allowed = given_targets(targets, elsewhere), Numerics.of(numerics)
    budget = Budget.of_model(trials, minutes, effort)
    with ExitStack() as stack:
        if records is None:
            records = Path(stack.enter_context(TemporaryFolder())) / "tuning.db"
        else:
            check_store(records)
        with clock.part("starting"):
            if isinstance(device, str) or fleet is not None:
                assert not isinstance(device, Device), "that was checked"
                device = stack.enter_context(open_device(device, target, threads, fleet=fleet))
            machine = processor(target, threads) if device is None else processor(device.target)
            own = device or stack.enter_context(open_device(None, machine))
            own.prepare()  # beside the imports
            from loopwright.explore.report.callbacks import is_watched
            from loopwright.graph.compile.build import import_model
            from loopwright.graph.open.source import has_dims, open_source
            from loopwright.graph.tuning.fixed_sizes import summarized, tune_fixed
            from loopwright.graph.tuning.live_table import shown
            from loopwright.graph.tuning.open_sizes import tune_open
            from loopwright.graph.tuning.search import SearchOptions
            from loopwright.graph.tuning.two_devices import tune_placed

        check_sparse(sparse, has_dims(inputs, dims))
        if gpu is not None and has_dims(inputs, dims):
            raise ModelError("a network of open axes is tuned on one device: leave targets out")
        options = SearchOptions(seed, only, transfer, device, own, feedback, clock=clock)
        if progress is None:
            progress = tell is None and is_watched()
        with shown(tell) if progress else nullcontext((tell, None)) as (say, watch):
            options = replace(options, tell=say, watch=watch)
            made: TunedModel | OpenModel | VmModel | PlacedModel
            if has_dims(inputs, dims):
                with clock.part("reading"):
                    source = open_source(model, inputs, dims)
                made, ended = tune_open(
                    source, machine, budget, records, options, layout, check, allowed
                )
            else:
                with clock.part("reading"):
                    work = import_model(
                        model, inputs, machine, layout, numerics=allowed, sparse=sparse
                    )
                if gpu is None:
                    made, ended = tune_fixed(work, machine, budget, records, options, check)
                else:
                    made, ended = tune_placed(work, machine, gpu, budget, records, options, check)
        if say is not None:
            for line in summarized(made, machine, budget, options):
                say(line)
        if ended:
            raise Interrupted(made)
        return made
