"""A search for the tasks of a whole network, which share one budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field

import numpy as np

from loopwright.costmodel.models.file import StoredModel
from loopwright.explore.budget import Budget, TuningError
from loopwright.explore.recorder import Recorder
from loopwright.explore.search import check_feedback
from loopwright.explore.session import Session
from loopwright.explore.stopwatch import Stopwatch
from loopwright.explore.tuner import Tuner, check_seed
from loopwright.graph.compile.stored_records import best_records
from loopwright.graph.compile.vm_fallback import VmWork
from loopwright.graph.tasks import Task, Work
from loopwright.graph.tuning.candidates import Compared, candidates
from loopwright.graph.tuning.in_situ import compare_in_situ
from loopwright.graph.tuning.live_table import Tell
from loopwright.graph.tuning.network_ab import NetworkComparison
from loopwright.graph.tuning.task_state import BATCH, TaskState, TuningRound
from loopwright.measure.device import Device, DeviceError, TimeUpError
from loopwright.measure.opening import open_device
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import Space, space
from loopwright.schedule.target import Target
from loopwright.transfer.pretrained.base import AUTO, Transfer, check_transfer, find_base
from loopwright.transfer.records.location import GivenLocation
from loopwright.transfer.records.store import Record, RecordError, RecordStore

COMPARING, MOST_COMPARING = 120.0, 0.3
"""Seconds that the comparison inside of the network takes, about; a budget in minutes keeps them
back, but no more than that share of it."""
BUILDING, MOST_BUILDING = 30.0, 0.1
"""The same for building the network at the end and checking its results."""
LEAST_BUILT = 2
"""Variants of the network that a comparison builds at least."""


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search, as the parameters of `tune_model` say. `own` is this machine's device,
    which measures where no `device` is given; if None, the search opens it. `watch` is given
    every turn of a task, else `tell` a line. `clock` books the time from its beginning. A budget
    in minutes keeps `building` seconds back, or a share of it where that is None."""

    seed: int = 0
    only: Sequence[int] | None = None
    transfer: Transfer = AUTO
    device: Device | None = None
    own: Device | None = None
    feedback: str | None = None
    tell: Tell | None = None
    watch: Callable[[TuningRound], None] | None = None
    clock: Stopwatch = field(default_factory=Stopwatch)
    building: float | None = None

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_transfer(self.transfer)
        check_feedback(self.feedback)
        numbers = [] if self.only is None else self.only
        if not (isinstance(numbers, Sequence) and all(isinstance(n, int) for n in numbers)):
            raise TuningError(f"only = {numbers!r}: give a list of numbers of tasks, or None")


@dataclass(frozen=True)
class Searched:
    """The outcome of a search: the state of every task, and whether the user ended it."""

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
    tasks = list(work.tasks) if options.only is None else [_task(work, n) for n in options.only]
    if not tasks:
        return Searched(())
    say = options.tell or (lambda _: None)
    compares = options.device is None and isinstance(work, Work)  # its steps can be timed
    times = _Times.of(budget, options, compares)
    if time.monotonic() >= times.searching:
        say("the budget ended before the search began: give more minutes")
        return Searched(())
    with ExitStack() as stack:
        device = options.device or options.own or stack.enter_context(open_device(None, target))
        check_feedback(options.feedback, device)
        store = stack.enter_context(RecordStore(records))
        for task in tasks:
            device.admit(task.workload)
        device.check()
        device.until(times.deadline)
        stack.callback(device.until, math.inf)
        base = find_base(options.transfer, tasks[0].workload, device.target)
        show = options.watch or (lambda turn: say(str(now)))
        for note in base.notes:
            say(note)
        if compares and not times.comparing:
            say("there is no time to compare the best inside of the network")
        recorder, seed, feedback = Recorder(store, say), options.seed, options.feedback
        shared = _Shared(device, store, recorder, seed, base.model, feedback)
        states = [
            _state(space(t.workload, device.target, work.numerics), t, shared, times.searching)
            for t in tasks
        ]
        interrupted = False
        try:
            for now in _rounds(states, budget, times.searching):
                show(now)
            for line in _failed(states):
                say(line)
            if times.comparing:
                assert isinstance(work, Work)
                with options.clock.part("comparing"):
                    for line in _compared(work, target, states, records, times):
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


@dataclass(frozen=True)
class _Times:
    """When a search ends, and the seconds before that for comparing inside of the network; without
    a limit a few rounds compare, one after the other."""

    deadline: float
    comparing: float

    @classmethod
    def of(cls, budget: Budget, options: SearchOptions, compares: bool) -> _Times:
        """The times of a budget; none is left to compare where two builds take it."""
        given, building = 60 * budget.minutes, options.building
        if building is None:
            building = min(BUILDING, MOST_BUILDING * given)
        comparing = min(COMPARING, MOST_COMPARING * given) if compares else 0.0
        if math.isfinite(given) and comparing < LEAST_BUILT * building:
            comparing = 0.0
        return cls(options.clock.began + given - building, comparing)

    @property
    def searching(self) -> float:
        """The time until which tasks are searched."""
        return self.deadline - self.comparing


def _compared(
    work: Work, target: Target, states: Sequence[TaskState], records: GivenLocation, times: _Times
) -> Iterator[str]:
    """Compare the best of all tasks inside of the network, in what is left of the time; lines
    that say what came out."""
    sparse = work.sparse
    best = [
        Compared(s.task, s.session, candidates(s.session, sparse))
        for s in states
        if s.compared(sparse)
    ]
    others = _known(work, target, records) if best else {}
    left = min(times.comparing, max(times.deadline - time.monotonic(), 0.0))
    compared = NetworkComparison(work, target, best, others, math.isfinite(times.deadline))
    yield from compare_in_situ(compared, left)


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
            others[0].choose_ahead(beside)
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
    """A task's state at the beginning; nothing is measured after the deadline (monotonic)."""
    budget = Budget(minutes=(deadline - time.monotonic()) / 60)
    session = Session(task.workload, points, shared.device, shared.store, budget, (), shared.seed)
    session.recorder = shared.recorder
    feedback = session.inspect if shared.feedback else None
    tuner = Tuner(points, seed=shared.seed, base=shared.base, feedback=feedback)
    configs, costs, facts = session.told(session.resume())
    tuner.tell(configs, costs, facts)
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
