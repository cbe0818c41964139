"""`tune`: from a workload to the fastest programs found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loopwright.dsl.numerics import Numerics
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.words import assigned, brief
from loopwright.dsl.workload import Workload, any_workload
from loopwright.explore.budget import Budget, TuningError
from loopwright.explore.stopwatch import Stopwatch

# What a search needs is imported in the call, beside the start of the processes that measure.
if TYPE_CHECKING:
    from loopwright.costmodel.model import CostModel
    from loopwright.explore.either_tuned import EitherTuned
    from loopwright.explore.open.tuned import OpenTuned
    from loopwright.explore.report.callbacks import Callback
    from loopwright.explore.strategies.annealing import Schedule
    from loopwright.explore.tuned import Tuned
    from loopwright.explore.tuner import StrategyLike
    from loopwright.measure.device import Device
    from loopwright.schedule.target import Target
    from loopwright.transfer.pretrained.base import Transfer
    from loopwright.transfer.records.location import GivenLocation


def tune(  # noqa: PLR0913 - what users choose
    workload: Workload | Tensor,
    target: str | Mapping[str, Any] | Target = "cpu",
    *,
    trials: int | None = None,
    minutes: float | None = None,
    effort: str = "normal",
    records: GivenLocation | None = "tuning.db",
    seed: int = 0,
    threads: int | None = None,
    device: Device | str | None = None,
    fleet: str | None = None,
    strategy: StrategyLike = "annealing",
    model: str | CostModel = "gbt",
    callbacks: Sequence[Callback] = (),
    transfer: Transfer = "auto",
    numerics: str | Numerics = "standard",
    batch: int | None = None,
    schedule: Schedule | None = None,
    progress: bool | None = None,
    sizes: Sequence[Mapping[str, int]] | None = None,
    targets: Sequence[str] | None = None,
    codegen: str = "llvm",
    feedback: str | None = None,
) -> Tuned | OpenTuned | EitherTuned:
    """Search the space of a workload for its fastest program on a machine.

    It takes 1000 trials or 15 minutes; `effort="quick"` two minutes, `"instant"` seconds. Minutes
    are wall time: the start, checks and the comparison at the end count, and only the end of
    worker processes comes after, a second at most.
    The default schedule is the first candidate, so the result is never slower than that. Every
    measurement goes to the record store; the same call again goes on from there, counting the
    trials that were done, so that after all of them it compares the best once more. Ctrl-C ends
    the search with `Interrupted`, whose `tuned` is what was found. If the device or the store
    fails meanwhile, the result is what was found, and its `notes` say so.

    A workload with dims is searched at a few of its sizes; the best of all are measured at others,
    and at most eight programs are kept that together lose least. The result is an `OpenTuned`.

    Parameters
    ----------
    workload: or one defined tensor.
    target, threads: as for `codegen.build.build`; ignored if a `Device` is given.
    trials, minutes: the budget; either, both (whichever ends first), or the preset `effort`:
        "quick" (256 trials or 2 minutes), "normal" (1000 or 15) or "thorough" (4000 or 120).
        "instant" measures what a global model thinks the best few, in seconds; with trials=0
        nothing is measured, and the result is the best of earlier sessions, or the global
        model's choice.
    records: path of the record store, or postgresql://user@host/database, None to keep nothing.
    seed: decides everything random; on a tabular device, the whole search.
    device: what measures, by default this machine. One that is given is not closed. A URL names
        another machine, which is a device for this call: "ssh://user@host[:port]",
        "docker://container" or "adb://serial"; `target` and `threads` are then of that machine.
    fleet: in place of a device, the machines of a fleet, by Ray (extra `ray`): "auto" for the one
        of this machine, or "ray://host:port". Those of one kind share the candidates.
    strategy, model: see `Tuner`; "transfer" begins with the best config of the workload on another
        machine, or with the order of configs that several have, if the store has records of
        them. "sampled" measures what a sequence model proposes, in the order of the shipped cost
        model, and so does model="policy"; with trials=0, it takes the model's first choice.
        model="source" reads the text of what "gbt" proposes, for targets "c", "opencl", "cuda":
        boosted trees over counts. model="source-lstm" is the LSTMs of Cummins et al. 2017 (extra
        `torch`), which take 20 seconds to learn after each batch.
    callbacks: who is told how it goes, such as `loopwright.explore.report.callbacks.display()`.
    transfer: the global model f̂(global) that the search begins with, and that its own model
        corrects (Eq. 4): the path of a model file, None for none, or "auto": the model that is
        shipped for the target, trained further on the store's records of other workloads (but in
        a hurry), for the models in `GO_ON` on real devices. "sampled" takes the file of a sequence
        model, or "auto" for the shipped one; "annealing" takes a file too, whose samples are a
        part of its first batch then. Callbacks are told what is used.
    numerics: what programs may do to rounding errors: "strict", "standard" or "fast", see
        `dsl.numerics`.
    batch: b of Algorithm 1; by default an eighth of what was measured, but from the strategy's
        `least` (8 of "annealing", 4 of "transfer") to 64.
    schedule: its ε, λ and α, and the annealing's numbers.
    progress: whether to show on standard error how it goes; by default in a terminal and in a
        notebook, unless there are callbacks.
    sizes: of a workload with dims, the values of its dims that calls will have, such as
        `[{"n": 128}, {"n": 512}]`, each as often as it matters; by default all that are allowed,
        evenly in the logarithm.
    targets: "cpu" and one of "cuda" and "opencl", instead of a target. Each is searched with half
        of the minutes, and the library of the result, an `EitherTuned`, chooses at every call.
        The GPU has a library for each of a workload's `sizes`, or for four by default.
    codegen: "llvm", or "builtin" to measure candidates as machine code made without LLVM, in
        milliseconds, where that covers them. The best are built by LLVM as well, and the result
        is the faster code of the two; `target` of the result says which.
    feedback: "compiled" to build several times as many candidates as are measured, and to choose
        among them by what their code tells, too; see `explore.strategies.compiled`.

    Raises `TuningError` if no candidate worked, with the first failure of each kind, or if the
    budget, the seed or a name is not allowed; `NotationError` for what is no workload;
    `DeviceError` for work that does not fit memory, or if the device fails before anything was
    measured, and later ends the search with what it has; `KeyboardInterrupt` at Ctrl-C before
    anything was measured.
    """
    if targets is not None:
        same = {name: value for name, value in locals().items() if name not in _OF_ONE}
        return _tune_both(any_workload(workload), target, device, targets, minutes, same)
    watch = Stopwatch()
    from loopwright.measure.opening import check_device, open_device
    from loopwright.measure.timing import ZERO_SHOT_TIMING
    from loopwright.transfer.records.store import check_store

    workload = any_workload(workload)
    if not isinstance(progress, bool | None):
        raise TuningError(f"progress={brief(progress)}: give True or False, or leave it out")
    check_device(device, fleet)
    budget = Budget.of(trials, minutes, effort)
    if records is not None and budget.trials:
        check_store(records)
    with ExitStack() as stack:
        timing = ZERO_SHOT_TIMING if budget.zero_shot else None
        if device is None or isinstance(device, str):
            opened = open_device(device, target, threads, timing, codegen, fleet)
            device = stack.enter_context(opened)
        if budget.trials:
            device.prepare()
        from loopwright.explore.report.callbacks import display, is_watched
        from loopwright.explore.search import TuneOptions, search

        options = TuneOptions(
            records,
            seed,
            strategy,
            model,
            callbacks,
            transfer,
            Numerics.of(numerics),
            batch,
            schedule,
            feedback,
        )
        if progress or (progress is None and not callbacks and is_watched()):
            options = replace(options, callbacks=(*callbacks, display()))
        if workload.dims:
            if device.target.kind == "builtin":
                raise TuningError('codegen="builtin" is for fixed sizes: tune workload.at(…)')
            from loopwright.explore.open.tune import tune_open

            return tune_open(workload, device, budget, options, sizes, watch)
        if sizes is not None:
            raise TuningError("sizes are for a workload with dims (lw.dim); this one has none")
        return search(workload, device, budget, options, watch)


_OF_ONE = ("workload", "target", "device", "targets", "minutes")
"""Options of `tune` that are not the same for each of several targets."""


def _tune_both(
    workload: Workload,
    target: str | Mapping[str, Any] | Target,
    device: Device | str | None,
    targets: Sequence[str],
    minutes: float | None,
    same: Mapping[str, Any],
) -> EitherTuned:
    """`tune` on the processor, then on the GPU."""
    from loopwright.codegen.target import resolve
    from loopwright.explore.either_tuned import EitherTuned
    from loopwright.transfer.pretrained.base import find_proposer

    pair = isinstance(targets, Sequence) and sorted(map(str, targets))
    if pair not in (["cpu", "cuda"], ["cpu", "opencl"]):
        raise TuningError(f'targets={targets!r}: give ["cpu", "cuda"] or ["cpu", "opencl"]')
    if target != "cpu" or device is not None or same["fleet"] is not None:
        raise TuningError("targets stand in place of a target and a device: leave those out")
    # What the search on the GPU would refuse is said before that on the processor.
    Budget.of(same["trials"], minutes, same["effort"])
    (gpu,) = (name for name in targets if name != "cpu")
    machine = resolve(gpu)
    if same["strategy"] == "sampled" or same["model"] == "policy":
        find_proposer(same["transfer"], machine)
    half = None if minutes is None else minutes / 2
    cpu = tune(workload, minutes=half, **same)
    # A driver of OpenCL tells nothing of code before it runs.
    feedback = None if gpu == "opencl" else same["feedback"]
    own = {**same, "codegen": "llvm", "feedback": feedback, "sizes": None}
    given = _of_gpu(workload, same["sizes"])
    if same["trials"] and len(given) > 1:
        own["trials"] = max(1, same["trials"] // len(given))
    parts: dict[str, Any] = {"cpu": cpu}
    for sizes in given:
        part = None if half is None else half / len(given)
        name = f"{gpu} {assigned(sizes)}".strip()
        parts[name] = tune(workload.at(**sizes), gpu, minutes=part, **own)
    return EitherTuned(parts)


def _of_gpu(
    workload: Workload, sizes: Sequence[Mapping[str, int]] | None
) -> Sequence[Mapping[str, int]]:
    """Sizes of the libraries of a GPU: those given, or the greatest and some smaller ones."""
    from loopwright.schedule.open.cover import gpu_sizes

    if not workload.dims:
        return [{}]
    if sizes is not None:
        return list({tuple(each[d.name] for d in workload.dims): each for each in sizes}.values())
    return gpu_sizes(workload.dims)
