"""`tune`: Algorithm 1 of the AutoTVM paper, from a workload to the fastest program found."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from loopwright.costmodel.model import CostModel
from loopwright.dsl.workload import Workload
from loopwright.explore.annealing import Schedule
from loopwright.explore.budget import Budget, TuningError
from loopwright.explore.callbacks import Callback
from loopwright.explore.finalists import Finalist, judge
from loopwright.explore.points import Mask, Points
from loopwright.explore.session import Session
from loopwright.explore.tuned import Tuned
from loopwright.explore.tuner import StrategyLike, Tuner
from loopwright.measure.device import Device, Failure, Measurement
from loopwright.measure.replay import ReplayedDevice
from loopwright.schedule.sketch import Config
from loopwright.schedule.space import Space, space
from loopwright.schedule.target import Target
from loopwright.transfer.records import RecordStore

SHARE, LEAST, MOST = 0.25, 16, 64
"""b, the candidates that are chosen together with one model: a share of those measured so far,
within bounds. Early on a model learns much from few, later it is not asked anew for every few."""
HEAT, HEAT_ROUNDS = 24, 5
FINALISTS, ROUNDS = 8, 20
"""The comparison at the end, which a noisy neighbour at the wrong moment must not decide: at most
so many of the best, a quarter of all, are measured side by side, so many samples each; the better
ones of them are measured again as finalists."""


def tune(
    workload: Workload,
    target: str | Mapping[str, Any] | Target = "cpu",
    trials: int | None = None,
    minutes: float | None = None,
    effort: str = "normal",
    records: str | os.PathLike[str] | None = "tuning.db",
    seed: int = 0,
    threads: int | None = None,
    device: Device | None = None,
    strategy: StrategyLike = "annealing",
    model: str | CostModel = "gbt",
    callbacks: Sequence[Callback] = (),
    *,
    growth: float | None = None,
    batch: int | None = None,
    schedule: Schedule | None = None,
) -> Tuned:
    """Search the space of a workload for its fastest program on a machine.

    The default schedule is the first candidate, so the result is never slower than that. Every
    measurement goes to the record store; the same call again goes on from there, and counts what
    was done. Ctrl-C ends the search and returns what was found.

    Parameters
    ----------
    target, threads: as for `codegen.build.build`; ignored if a device is given.
    trials, minutes: the budget; either, both (whichever ends first), or the preset `effort`:
        "quick", "normal" or "thorough".
    records: path of the record store, None to keep nothing.
    seed: decides everything random; on a replayed device, the whole search.
    device: what measures, by default this machine. One that is given is not closed.
    strategy, model: see `Tuner`.
    callbacks: who is told how it goes; see `callbacks.display`.
    growth: how much larger rounding errors may be than those of the definition's own sums; any
        if None. With 1, Winograd's algorithms are left out.
    batch: b of Algorithm 1; by default a quarter of what was measured, 16 to 64.
    schedule: its ε, λ and α, and the annealing's numbers.

    Raises `TuningError` if no candidate worked, with the first failure of each kind, or if the
    budget or a name is not allowed; `DeviceError` if the device cannot measure at all.
    """
    budget = Budget.of(trials, minutes, effort)
    if batch is not None and batch < 1:
        raise TuningError(f"batch = {batch}: give an integer of at least 1")
    with ExitStack() as stack:
        device = device or stack.enter_context(_local(target, threads))
        store = None if records is None else stack.enter_context(RecordStore(records))
        points = _space(workload, device, growth)
        legal = _legal(device, points)
        tuner = Tuner(points, strategy, model, seed, schedule=schedule, legal=legal)
        session = Session(workload, points, device, store, budget, callbacks, seed)
        with _shown(session):
            end = _run(session, tuner, batch)
            result = finish(session, end)
    for callback in callbacks:
        callback.finish(result)
    return result


def algorithm_1(session: Session, tuner: Tuner, batch: int | None = None) -> str:
    """Algorithm 1 of Chen et al. 2018, *Learning to optimize tensor programs*; why it ended.

    D ← ∅                                            (here: the records of earlier sessions)
    while n_trials < max_n_trials do
      Q ← run parallel simulated annealing to collect candidates in S_e, by energy f̂
      S ← run greedy submodular optimization to pick a (1-ε)b-subset from Q, by Eq. 3
      S ← S ∪ {εb candidates sampled at random}
      for s in S do  c ← f(g(e, s));  D ← D ∪ {(e, s, c)}
      update f̂ using D
      n_trials ← n_trials + b
    s* ← argmin of c over D
    """
    earlier = session.resume()
    tuner.tell([m.config for m in earlier], [session.cost(m.config) for m in earlier])
    while left := session.trials_left:
        b = batch or min(max(int(SHARE * len(session.history)), LEAST), MOST)
        with session.timed("choosing"):
            session.update("choosing")
            configs = tuner.ask(min(b, left))  # Q, then S: Annealing._propose
        measured = session.measure(configs)
        with session.timed("learning"):
            session.update("learning")
            tuner.tell([m.config for m in measured], [m.cost for m in measured])
        if tuner.exhausted:
            return "the space is exhausted"
    return f"budget of {session.budget} used"


def _run(session: Session, tuner: Tuner, batch: int | None) -> str:
    """Search; why it ended, an interrupt by the user included."""
    try:
        with session.timed("starting"):
            session.device.check()
        return algorithm_1(session, tuner, batch)
    except KeyboardInterrupt:
        return "interrupted"


def finish(session: Session, end: str) -> Tuned:
    """Name the winner, by a comparison unless the user is in a hurry."""
    finalists: list[Finalist] = []
    try:
        while session.ranked() and not finalists and end != "interrupted":
            finalists = _compared(session)
    except KeyboardInterrupt:
        end = "interrupted"
    if not session.ranked():
        raise session.nothing_worked()
    best = finalists[0].config if finalists else session.ranked()[0]
    of_search = next(m for m in reversed(session.history) if m.config == best)
    again = {f.config: session.record(_again(of_search, f)) for f in finalists}
    costs = {f.config: f.cost for f in finalists}
    default = session.space.default
    return Tuned(
        workload=session.workload,
        target=session.device.target,
        record=again[best] if again else session.record(of_search),
        default=costs.get(default, session.cost(default)),
        history=tuple(session.history),
        resumed=session.resumed,
        finalists=tuple(finalists),
        spent=dict(session.spent),
        end=end,
    )


def _compared(session: Session) -> list[Finalist]:
    """The best few, measured side by side, the winner first and verified; those that fail now
    are taken out of the ranking, and the list is empty if nothing is left of them."""
    default = session.space.default
    session.update("comparing the best")
    heat = session.ranked()[: min(HEAT, max(FINALISTS, len(session.history) // 4))]
    if len(heat) > FINALISTS:
        heat = [f.config for f in _side_by_side(session, heat, HEAT_ROUNDS)]
    configs = heat[:FINALISTS]
    if default in session.ranked() and default not in configs:
        configs.append(default)
    finalists = _side_by_side(session, configs, ROUNDS)
    while finalists and (failure := session.verify(finalists[0].config)):
        session.reject(finalists[0].config, failure)
        left = {f.config: f.seconds for f in finalists[1:]}
        finalists = judge(list(left), list(left.values()), default)
    session.flush()
    return finalists


def _side_by_side(session: Session, configs: list[Config], rounds: int) -> list[Finalist]:
    """Measure configs in turns and rank them; those that fail now are rejected."""
    with session.timed("comparing"):
        samples = session.device.compare(session.workload, configs, rounds)
    for config, seconds in zip(configs, samples, strict=True):
        if not all(map(math.isfinite, seconds)):
            session.reject(config, Failure("run", "it failed when it was measured again"))
    return judge(configs, samples, session.space.default)


def _again(measured: Measurement, finalist: Finalist) -> Measurement:
    return Measurement(
        config=finalist.config,
        seconds=finalist.seconds,
        failure=None,
        build_seconds=0.0,
        run_seconds=sum(finalist.seconds),
        cache=measured.cache,
        threads=measured.threads,
        started=time.time(),
    )


@contextmanager
def _shown(session: Session) -> Iterator[None]:
    """Callbacks begin before anything is measured, and stop whatever happens."""
    for callback in session.callbacks:
        callback.start(session.progress("starting"))
    try:
        yield
    finally:
        for callback in session.callbacks:
            callback.stop()


def _local(target: str | Mapping[str, Any] | Target, threads: int | None) -> Device:
    from loopwright.measure.local import LocalDevice

    return LocalDevice(target, threads)


def _space(workload: Workload, device: Device, growth: float | None) -> Space:
    if not isinstance(device, ReplayedDevice):
        whole = space(workload, device.target)
        return whole if growth is None else whole.limited(growth)
    if workload != device.space.workload:
        raise TuningError(f"{device.name} is a table of another workload: tune that of its space")
    return device.space


def _legal(device: Device, points: Space) -> Callable[[Points], Mask] | None:
    """The points of a table; a space of Loopwright's has no gaps."""
    if not isinstance(device, ReplayedDevice):
        return None

    def legal(rows: Points) -> Mask:
        found = np.zeros(len(rows), np.bool_)
        for number in np.unique(rows[:, 0]).tolist():
            at = np.flatnonzero(rows[:, 0] == number)
            numbers = rows[at, 1 : 1 + len(points.sketches[number].knobs)]
            found[at] = device.legal(number, numbers)
        return found

    return legal
