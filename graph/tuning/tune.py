"""`tune_model`: one budget, shared by the tasks of a whole network."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.codegen.target import processor
from loopwright.costmodel.models.file import StoredModel
from loopwright.dsl.numerics import Numerics
from loopwright.explore.budget import Budget, Interrupted, TuningError
from loopwright.explore.recorder import Recorder
from loopwright.explore.report.callbacks import is_watched
from loopwright.explore.search import check_feedback
from loopwright.explore.session import Session
from loopwright.explore.tuner import Tuner, check_seed
from loopwright.graph.build import build_open
from loopwright.graph.compile.build import (
    build_work,
    check_results,
    import_model,
    runs_here,
    without_source,
)
from loopwright.graph.compile.model import TunedModel
from loopwright.graph.compile.stored_records import best_records
from loopwright.graph.compile.vm_fallback import VmModel, VmWork
from loopwright.graph.importers.inputs import Inputs
from loopwright.graph.open.model import OpenModel
from loopwright.graph.open.source import Dims, OpenSource, has_dims, open_source
from loopwright.graph.tasks import Task, Work
from loopwright.graph.tuning.candidates import Compared, candidates
from loopwright.graph.tuning.in_situ import compare_in_situ
from loopwright.graph.tuning.live_table import Tell, shown
from loopwright.graph.tuning.summary import summary
from loopwright.graph.tuning.task_state import BATCH, TaskState, TuningRound
from loopwright.measure.device import Device, DeviceError, TimeUpError
from loopwright.measure.machine import fingerprint
from loopwright.measure.opening import open_device
from loopwright.schedule.open.cover import spread
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import Space, space
from loopwright.schedule.target import Target
from loopwright.temporary import TemporaryFolder
from loopwright.transfer.pretrained.base import AUTO, Transfer, check_transfer, find_base
from loopwright.transfer.records.location import GivenLocation
from loopwright.transfer.records.store import Record, RecordError, RecordStore, check_store

COMPARING, MOST_COMPARING = 120.0, 0.3
"""Seconds that the comparison inside of the network takes, about; a budget in minutes keeps them
back, but no more than that share of it."""
BUILDING, MOST_BUILDING = 30.0, 0.1
"""The same for building the network at the end and checking its results."""


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search, as the parameters of `tune_model` say.

    Attributes
    ----------
    watch: is given every turn of a task; if it is not given, `tell` is given a line.
    began: when minutes began to count, by the monotonic clock: now, by default.
    """

    seed: int = 0
    only: Sequence[int] | None = None
    transfer: Transfer = AUTO
    device: Device | None = None
    feedback: str | None = None
    tell: Tell | None = None
    watch: Callable[[TuningRound], None] | None = None
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_transfer(self.transfer)
        check_feedback(self.feedback)


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
    transfer: Transfer = AUTO,
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
) -> TunedModel | OpenModel | VmModel:
    """Tune all work of a network together, and compile it by what was found.

    Every measurement goes to the record store as soon as it is there: the same call again goes on
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
        inputs with fewer zeros than those that are given here.
    numerics: as for `lw.build_model`.
    check: as for `lw.build_model`, before anything is measured, and again of what is returned.
    device: what measures, by default this machine. One that is given is not closed, and the best
        candidates are then not compared inside of the network. A URL names another machine, as for
        `lw.tune`; `target` and `threads` are then of that machine.
    fleet: in place of a device, the machines of a fleet, as for `lw.tune`.
    tell: is given lines of text: one for every batch, and at the end the estimate beside a
        measured call.
    progress: whether to show on standard error how it goes; by default in a terminal and in a
        notebook, unless `tell` is given.
    dims: bounds of axes that stay open, as for `lw.build_model`. The network is tuned at a few
        sizes, which share the budget.

    Raises `ModelError`, `TuningError`, `BuildError`; `KeyboardInterrupt` at Ctrl-C before anything
    was measured, and once more at Ctrl-C while the model is compiled.
    """
    if isinstance(device, str) or fleet is not None:
        given = dict(locals())
        if isinstance(device, Device):
            raise TuningError("a device and a fleet both say what measures: give one of them")
        with open_device(device, target, threads, fleet=fleet) as opened:
            return tune_model(**given | {"device": opened, "fleet": None})
    if records is None:
        given = dict(locals())
        with TemporaryFolder() as folder:
            return tune_model(**given | {"records": Path(folder) / "tuning.db"})
    began = time.monotonic()  # reading counts, and so do building and checking
    budget = Budget.of_model(trials, minutes, effort)
    if progress is None:
        progress = tell is None and is_watched()
    check_seed(seed)
    check_transfer(transfer)
    check_feedback(feedback)
    check_store(records)
    machine = processor(target, threads) if device is None else processor(device.target)
    measured_on = None if device is None else device.fingerprint()
    if has_dims(inputs, dims):
        source = open_source(model, inputs, dims)
        with shown(tell) if progress else nullcontext((tell, None)) as (say, watch):
            options = SearchOptions(seed, only, transfer, device, feedback, say, watch)
            ended = _search_open(source, machine, budget, records, options, layout, numerics)
        word = Numerics.of(numerics)
        made = build_open(
            source, machine, records, "exact", "model", layout, check, word, measured_on
        )
        if ended:
            raise Interrupted(made)
        return made
    work = import_model(model, inputs, machine, layout, check, numerics, sparse)
    with shown(tell) if progress else nullcontext((tell, None)) as (say, watch):
        options = SearchOptions(seed, only, transfer, device, feedback, say, watch, began)
        found = search(work, machine, budget, records, options)
    built = build_work(work, machine, records, machine=measured_on, besides=unstored(found.states))
    if check:
        built = check_results(built, machine, tuned=True)
    local = measured_on in (None, fingerprint()) and runs_here(machine)
    if say is not None and isinstance(built, TunedModel) and local:
        for line in summary(built):
            say(line)
    built = without_source(built)
    if found.interrupted:
        raise Interrupted(built)
    return built


def _search_open(
    source: OpenSource,
    target: Target,
    budget: Budget,
    records: GivenLocation,
    options: SearchOptions,
    layout: str,
    numerics: str | Numerics,
) -> bool:
    """Spend a budget on a network at some of its sizes, each with an equal part; return whether
    the user ended it."""
    chosen = list(spread(source.dims))
    began = time.monotonic()
    for done, sizes in enumerate(chosen):
        if options.tell is not None:
            options.tell(f"at {', '.join(f'{name}={size}' for name, size in sizes.items())}:")
        left = len(chosen) - done
        spent = (time.monotonic() - began) / 60
        trials = budget.trials if math.isinf(budget.trials) else budget.trials // len(chosen)
        part = Budget(max(trials, 1), max(budget.minutes - spent, 0.0) / left)
        inputs = source.inputs(sizes)
        work = import_model(source.model, inputs, target, layout, numerics=numerics)
        try:
            ended = search(work, target, part, records, options).interrupted
        except KeyboardInterrupt:
            if not done:
                raise
            ended = True
        if ended:
            return True
    return False


@dataclass(frozen=True)
class Searched:
    """What became of a search: the state of every task, and whether the user ended it."""

    states: Sequence[TaskState]
    interrupted: bool = False


def search(
    work: Work | VmWork,
    target: Target,
    budget: Budget,
    records: GivenLocation,
    options: SearchOptions | None = None,
) -> Searched:
    """Spend a budget (`Budget.of_model`) on the tasks of a network. Raises `KeyboardInterrupt` at
    Ctrl-C before anything was measured."""
    options = options or SearchOptions()
    only, device = options.only, options.device
    tasks = list(work.tasks) if only is None else [_task(work, number) for number in only]
    if not tasks:
        return Searched(())
    with ExitStack() as stack:
        inside = device is None and isinstance(work, Work)  # of a network whose steps are timed
        if device is None:
            device = stack.enter_context(open_device(None, target))
        check_feedback(options.feedback, device)
        store = stack.enter_context(RecordStore(records))
        for task in tasks:
            device.admit(task.workload)
        device.check()
        given = 60 * budget.minutes
        deadline = options.began + given - min(BUILDING, MOST_BUILDING * given)
        device.until(deadline)
        stack.callback(device.until, math.inf)
        base = find_base(options.transfer, tasks[0].workload, device.target)
        say = options.tell or (lambda _: None)
        show = options.watch or (lambda turn: say(str(now)))
        for note in base.notes:
            say(note)
        comparing = min(COMPARING, MOST_COMPARING * given) if inside else 0.0
        searching = deadline - comparing
        recorder, seed, feedback = Recorder(store, say), options.seed, options.feedback
        shared = _Shared(device, store, recorder, seed, base.model, feedback)
        states = [
            _state(space(t.workload, device.target, work.numerics), t, shared, searching)
            for t in tasks
        ]
        interrupted = False
        try:
            for now in _rounds(states, budget, searching):
                show(now)
            for line in _failed(states):
                say(line)
            if inside:
                assert isinstance(work, Work)
                sparse = work.sparse
                best = [
                    Compared(s.task, s.session, candidates(s.session, sparse))
                    for s in states
                    if s.compared(sparse)
                ]
                others = _known(work, target, records) if best else {}
                timed = budget.minutes < math.inf  # else a few rounds do, one after the other
                left = min(comparing, max(deadline - time.monotonic(), 0.0))
                for line in compare_in_situ(work, target, best, left, others, timed):
                    say(line)
        except KeyboardInterrupt:
            if not any(s.session.ranked() for s in states):
                raise
            interrupted = True
            say("interrupted: what was measured is kept")
        except (DeviceError, RecordError) as error:
            if not any(s.measured for s in states):
                raise
            say(f"the search ends early, with what it has: {error}")
        finally:
            for state in states:
                state.session.flush()
            shared.recorder.again()
    return Searched(states, interrupted)


def unstored(states: Sequence[TaskState]) -> dict[str, Record]:
    """The best record of every task, by the workload's key, where they could not be stored."""
    lost = [s for s in states if s.session.recorder.unstored]
    found = ((s.task.workload.key, s.session.best_record()) for s in lost)
    return {key: record for key, record in found if record is not None}


def _known(work: Work, target: Target, records: GivenLocation) -> dict[str, Config]:
    """The best known config of every task, by the workload's key."""
    found = best_records(work, target, records)
    workloads = {task.workload.key: task.workload for task in work.tasks}
    spaces = {k: space(workloads[k], target, work.numerics).whole for k in found}
    return {k: r.config for k, r in found.items() if r.config in spaces[k]}


def _rounds(states: list[TaskState], budget: Budget, deadline: float) -> Iterator[TuningRound]:
    """Rounds until the trials are used up, or it is time to compare. While other machines measure
    one task, tuners of others learn and choose here; on this machine that would disturb."""
    away = bool(states) and not states[0].session.device.here
    with ThreadPoolExecutor(1) if away else nullcontext() as beside:
        yield from _rounds_beside(states, budget, deadline, beside)


def _rounds_beside(
    states: list[TaskState], budget: Budget, deadline: float, beside: Executor | None
) -> Iterator[TuningRound]:
    """`_rounds`, with an executor that learns, and chooses ahead."""
    began, done = time.monotonic(), 0
    while (left := budget.trials - done) > 0 and time.monotonic() < deadline:
        state, *others = sorted(
            states, key=lambda s: (s.expected_gain, s.task.flops), reverse=True
        )
        if state.expected_gain == -math.inf:
            return
        before = state.best
        if beside is not None and others:
            others[0].choose_ahead(beside, BATCH)
        try:
            done += state.advance(int(min(BATCH, left)), beside)
        except TimeUpError:
            return
        now = time.monotonic()
        pace = (now - began) / max(done, 1)
        to_go = max(min(deadline - now, pace * (budget.trials - done)), 0.0)
        yield TuningRound(states, state, before, done, now - began, to_go)


def _task(work: Work | VmWork, number: int) -> Task:
    if not 0 <= number < len(work.tasks):
        raise TuningError(f"there is no task {number}: the model has {len(work.tasks)}, from 0")
    return work.tasks[number]


@dataclass(frozen=True)
class _Shared:
    """Resources that the searches of a network share."""

    device: Device
    store: RecordStore
    recorder: Recorder
    seed: int
    base: StoredModel | None
    feedback: str | None


def _state(points: Space, task: Task, shared: _Shared, deadline: float) -> TaskState:
    """State of a task at the beginning; nothing is measured of it after the deadline, by the
    monotonic clock."""
    budget = Budget(minutes=(deadline - time.monotonic()) / 60)
    session = Session(task.workload, points, shared.device, shared.store, budget, (), shared.seed)
    session.recorder = shared.recorder
    feedback = session.inspect if shared.feedback else None
    tuner = Tuner(points, seed=shared.seed, base=shared.base, feedback=feedback)
    earlier = session.resume()
    costs = [session.cost(m.config) for m in earlier]
    tuner.tell([m.config for m in earlier], costs, [m.facts for m in earlier])
    best = np.minimum.accumulate(costs).tolist()  # in the order in which they were measured
    curve = best[-1::-BATCH][::-1]
    return TaskState(task, session, tuner, curve, tuner.exhausted)


def _failed(states: Sequence[TaskState]) -> Iterator[str]:
    """The tasks that have no program but their defaults. Raises `TuningError` where candidates
    were measured and none of any task worked."""
    tried = [s for s in states if s.session.history]
    if tried and all(math.isinf(s.best) for s in tried):
        raise tried[0].session.nothing_worked("the search ended")
    missed = [s.task.name for s in states if not s.session.history]
    if missed:
        yield f"the budget ended before {', '.join(missed)}: by default schedules"
    for s in tried:
        if math.isinf(s.best):
            yield f"{s.task.name}: {s.session.nothing_worked('the search ended')}"
