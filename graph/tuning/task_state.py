"""State of the search of a network's tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from loopwright.dsl.words import counted
from loopwright.explore.session import Session
from loopwright.explore.tuner import Tuner
from loopwright.graph.tasks import Task
from loopwright.graph.tuning.candidates import skipping_zeros
from loopwright.schedule.sketch.sketch import Config

BATCH = 16
"""Candidates that are measured of a task before another may have its turn."""
COMPARED = BATCH
"""New candidates of a task from which on its best are measured again, inside of the network."""
RECENT = 2
"""Batches over which the rate of improvement is taken."""


@dataclass
class TaskState:
    """State of the search of one task. `curve` has the lowest cost in seconds after each batch,
    infinite while nothing worked. `measured` counts this search's candidates. What is to be
    measured next may be chosen `ahead`, where `learning` goes on meanwhile."""

    task: Task
    session: Session
    tuner: Tuner
    curve: list[float] = field(default_factory=list)
    exhausted: bool = False
    measured: int = 0
    ahead: Future[list[Config]] | None = None
    learning: Future[None] | None = None

    @property
    def best(self) -> float:
        """The lowest cost so far, in seconds."""
        return self.curve[-1] if self.curve else math.inf

    @property
    def total(self) -> float:
        """Seconds that one call of the network spends on this task."""
        return self.task.count * self.best

    def compared(self, sparse: bool) -> bool:
        """Return whether there is something to compare in the network. That is: many new
        candidates; or a best one, or a `sparse` one, that no network has compared yet. The best
        may be of this search or of an interrupted one."""
        if self.measured >= COMPARED:
            return True
        wanted = self.session.ranked()[:1]
        if wanted and sparse:
            wanted += skipping_zeros(self.session)
        seen = self.session.in_networks()
        return any(config not in seen for config in wanted)

    @property
    def expected_gain(self) -> float:
        """Seconds of the network that the next batch may save: count × time × recent rate.

        The rate is the share of its time that a task lost per batch lately; where there is too
        little to tell, it is taken to be large, in the order of arithmetic.
        """
        if self.exhausted:
            return -math.inf
        if not self.curve or math.isinf(self.best):
            return math.inf if len(self.curve) < RECENT else 0.0
        batches = min(RECENT, len(self.curve) - 1)
        if batches < RECENT:
            rate = 0.5 / (1 + batches)
        else:
            rate = (1 - self.best / self.curve[-1 - batches]) / batches
        return self.total * max(rate, 0.02 / len(self.curve))

    def choose_ahead(self, beside: Executor) -> None:
        """Choose the next batch meanwhile, as `advance` would: it depends on this task alone."""
        if self.ahead is None and not self.exhausted:
            self.ahead = beside.submit(self.tuner.ask, BATCH)

    def advance(self, trials: int, beside: Executor | None = None) -> int:
        """Measure one more batch, or the first `trials` of it; how many candidates that were. With
        the executor of `choose_ahead`, the tuner learns from it `beside`, before it chooses
        again."""
        learning, self.learning = self.learning, None
        if learning is not None:
            learning.result()
        ahead, self.ahead = self.ahead, None
        configs = (self.tuner.ask(BATCH) if ahead is None else ahead.result())[:trials]
        measured = self.session.measure(configs)
        told = self.session.told(measured)
        if beside is None:
            self.tuner.tell(*told)
        else:
            self.learning = beside.submit(self.tuner.tell, *told)
        self.curve.append(min([*told[1], self.best]))
        self.exhausted = self.tuner.exhausted
        self.measured += len(measured)
        return len(measured)


@dataclass(frozen=True)
class TuningRound:
    """Progress after a round of a task, its `state` among those of all; as text, a line. `before`
    is its lowest cost in seconds before; trials and seconds are of this search, and `left` until
    the budget is used up, at this pace."""

    states: Sequence[TaskState]
    state: TaskState
    before: float
    trials: int
    seconds: float
    left: float

    @property
    def total(self) -> str:
        """Time that a call spends on the tasks that are known, in words."""
        known = [s.total for s in self.states if math.isfinite(s.best)]
        return f"{len(known)} of {counted(len(self.states), 'task')}, {_ms(sum(known))} in all"

    def __str__(self) -> str:
        task = self.state.task
        return (
            f"{counted(self.trials, 'trial')}, {self.seconds:.0f} s: {task.name} × {task.count}: "
            f"{_ms(self.before)} to {_ms(self.state.best)}; {self.total}"
        )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms" if math.isfinite(seconds) else "–"
