"""`Session`: one search on one device: what it measured, what it told, where its time went."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from loopwright.codegen.facts.facts import Facts
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.words import counted
from loopwright.dsl.workload import Workload
from loopwright.explore.budget import Budget, TuningError
from loopwright.explore.recorder import Recorder
from loopwright.explore.report.callbacks import Callback, Progress
from loopwright.explore.stopwatch import Stopwatch
from loopwright.measure.device import Device, Failure, Measurement, TimeUpError
from loopwright.measure.machine import hardware
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import Space, space
from loopwright.schedule.target import Target
from loopwright.transfer.records.record import CHOSEN, FINALS, NETWORK
from loopwright.transfer.records.store import Record, RecordStore

_STORE_EVERY = 1.0
"""Seconds of measurements that a crash may lose."""


class Session:
    """Measures for a search; keeps every measurement, in memory and in the store. `history` has
    all candidates, the first `resumed` of earlier sessions. `incumbent` is what the store would
    have chosen before, `verified` are configs whose results are right. `watch` books the time,
    from whose beginning the budget counts; `notes` are what callbacks were told. Searches of one
    network share the `recorder`. `chosen` won the last comparison. A device that nobody `checked`
    is checked before its first work: its processes start while the search chooses. `reserved`
    tells the seconds of the budget that are kept for the end."""

    def __init__(
        self,
        workload: Workload,
        space: Space,
        device: Device,
        store: RecordStore | None,
        budget: Budget,
        callbacks: Sequence[Callback],
        seed: int,
        watch: Stopwatch | None = None,
    ) -> None:
        self.workload, self.space, self.device = workload, space, device
        self.store, self.budget, self.callbacks, self.seed = store, budget, callbacks, seed
        self.history: list[Measurement] = []
        self.notes: list[str] = []
        self.recorder = Recorder(store, self.note)
        self.chosen: Record | None = None
        self.resumed = 0
        self.incumbent: Config | None = None
        self.verified: set[Config] = set()
        self.checked = True
        self.reserved: Callable[[], float] = float  # none
        self._whole = True
        self.watch = watch or Stopwatch()
        self._machine = device.fingerprint()
        self._name = f"{workload.key[:8]}-{time.time_ns():x}"
        self._costs: dict[Config, float] = {}
        self._earlier: dict[Measurement, Record] = {}
        self._pending: list[Measurement] = []
        self._stored = time.monotonic()

    # ---- the state of the search ----

    @property
    def elapsed(self) -> float:
        """Seconds since the session began."""
        return self.watch.elapsed

    @property
    def left(self) -> float:
        """Seconds of the budget that are left; infinite where it has no minutes."""
        return 60 * self.budget.minutes - self.budget.after - self.elapsed

    @property
    def trials_left(self) -> int:
        """Candidates that the budget still allows; 0 when time is up."""
        if self._is_late():
            return 0
        return int(min(max(self.budget.trials - len(self.history), 0), 1 << 30))

    def cost(self, config: Config) -> float:
        """Cost of a config, in seconds; infinite if it failed or was not measured."""
        return self._costs.get(config, math.inf)

    def ranked(self) -> list[Config]:
        """The configs that worked, the cheapest first."""
        worked = [m for m in self.history if math.isfinite(self.cost(m.config))]
        return [m.config for m in sorted(worked, key=lambda m: self.cost(m.config))]

    # ---- the work ----

    def told(
        self, measured: Sequence[Measurement]
    ) -> tuple[list[Config], list[float], list[Facts]]:
        """Configs, costs and facts of measurements, as `Tuner.tell` takes them."""
        costs = [self.cost(m.config) for m in measured]
        return [m.config for m in measured], costs, [m.facts for m in measured]

    def resume(self) -> list[Measurement]:
        """Measurements of this workload by earlier sessions on this machine and threads."""
        if self.store is None:
            return []
        found = [
            record
            for target in self._targets()
            for record in self.store.query(self.workload.key, str(target), threads=target.threads)
        ]
        here = hardware(self._machine)
        fit = [r for r in found if r.config in self.space]
        like = [r for r in fit if r.cache == self.device.cache and hardware(r.machine) == here]
        last: dict[Config, Record] = {}
        for r in like:
            # Times of a comparison at the end are of another hour than those of the search.
            if r.config not in last or r.failure or not r.session.endswith(FINALS):
                last[r.config] = r
        self.history += (r.measurement for r in last.values())
        self._costs |= {config: r.cost for config, r in last.items()}
        self._earlier = {r.measurement: r for r in like}
        self.resumed = len(last)
        self.incumbent = self.best_known()
        self._whole = len(fit) == len(found) or self._saw_best()
        if self.resumed:
            trials = counted(self.resumed, "trial")
            self.note(f"counts {trials} of earlier sessions; {self.store.location}")
        return list(self.history)

    def measure(self, configs: Sequence[Config]) -> list[Measurement]:
        """f(g(e, s)) of every config; fewer where time is up. The best of them, if it is the best
        of all, was checked against the oracle: it fails if its results are wrong."""
        if self._comes_late():
            return []
        before = min(self._costs.values(), default=math.inf)
        measured: list[Measurement] = []
        try:
            with self._building():
                while configs:
                    for measurement in self.device.measure(self.workload, configs, self._is_late):
                        measured.append(measurement)
                        self._keep(measurement)
                        self.update("measuring")
                    configs = () if self._is_late() else self.device.doubtful(self.workload)
                    if configs:
                        self.note(
                            f"{counted(len(configs), 'candidate')} of a machine that has changed: "
                            "measured again"
                        )
            measured = list({m.config: m for m in measured}.values())
            self._check(measured, before)
        finally:
            self.flush()
        return measured

    def inspect(self, configs: Sequence[Config]) -> list[Facts | None]:
        """The facts of configs' code, built and not run; None for one that cannot be built, which
        is kept as a failure. Fewer where time is up."""
        if self._comes_late():
            return []
        device = self.device
        with self.watch.part("building"):
            self.update("building")
            found = device.inspect(self.workload, configs, self._is_late)
        now, place = time.time(), (device.cache, device.target.threads)
        for one in found:
            if one.failure is not None:
                failed = (one.config, (), one.failure, one.build_seconds, 0.0)
                self._keep(Measurement(*failed, *place, now))
        return [one.facts if one.failure is None else None for one in found]

    def _comes_late(self) -> bool:
        """Check the device, if nobody did; return whether that took all the time there was."""
        if self.checked:
            return False
        with self.watch.part("starting"):
            self.device.check()
        self.checked = True
        return self._is_late()

    def _is_late(self) -> bool:
        return self.left <= self.reserved()

    def verify(self, config: Config) -> Failure | None:
        """Check a config's results against the oracle's."""
        with self.watch.part("checking"):
            failure = self.device.verify(self.workload, config)
        if failure is None:
            self.verified.add(config)
        return failure

    def reject(self, config: Config, failure: Failure) -> None:
        """A config that turned out to be wrong, measured by this search or in a network alone."""
        places = [i for i, m in enumerate(self.history) if m.config == config]
        if places:
            wrong = replace(self.history[places[-1]], seconds=(), failure=failure)
            self.history[places[-1]] = wrong
        else:
            device, now = self.device, time.time()
            wrong = Measurement(
                config, (), failure, 0.0, 0.0, device.cache, device.target.threads, now
            )
        self._costs[config] = math.inf
        self._pending.append(wrong)
        self.note(f"rejected after a check: {failure}: {config}")

    def best_known(self, cache: str | None = None) -> Config | None:
        """Config that the store would choose for this machine; None for nothing. Times of the
        device's kind of cache count before others."""
        return self._best_among(self.space, cache or self.device.cache)

    def in_networks(self) -> Mapping[Config, float]:
        """The configs that were measured inside of a network on this machine, with their costs."""
        if self.store is None:
            return {}
        target = self.device.target
        return self.store.measured(self.workload, target, self._machine, cache=NETWORK)

    def record(self, measurement: Measurement) -> Record:
        """The record of a measurement, stored; one of an earlier session is there already."""
        if (earlier := self._earlier.get(measurement)) is not None:
            return earlier
        return self._stored_as(self._name, [measurement])[0]

    def record_finals(self, measurements: Sequence[Measurement]) -> list[Record]:
        """The records of what was compared side by side, the winner first, stored, all or none: a
        part of them would be taken for all. They are no comparison with the best others where
        numerics left out what the store would choose."""
        stored = self._stored_as(self._name + CHOSEN * self._whole, measurements)
        self.chosen = stored[0] if stored else None
        return stored

    def best_record(self) -> Record | None:
        """The last comparison's winner, or else the cheapest config, where the store has none."""
        if self.chosen is not None or not (ranked := self.ranked()):
            return self.chosen
        return self.record(next(m for m in self.history if m.config == ranked[0]))

    def _targets(self) -> list[Target]:
        """Targets that records may have: what the built-in generator cannot make is LLVM's."""
        target = self.device.target
        kinds = ("builtin", "llvm") if target.kind == "builtin" else (target.kind,)
        return [replace(target, kind=kind) for kind in kinds]

    def _stored_as(self, name: str, measurements: Sequence[Measurement]) -> list[Record]:
        target, machine = self.device.target, self._machine
        of = {kind: replace(target, kind=kind) for m in measurements if (kind := m.codegen)}
        records = [
            Record.of(
                self.workload,
                of.get(m.codegen or "", target),
                machine,
                m,
                numerics=self.space.whole.sketch(m.config.sketch).numerics,
                seed=self.seed,
                session=name,
            )
            for m in measurements
        ]
        return self.recorder.add(records)

    def flush(self) -> None:
        """Store what was measured since the last time."""
        with self.watch.part("storing"):
            pending = list(self._pending)
            self._stored = time.monotonic()
            self._stored_as(self._name, pending)
            del self._pending[: len(pending)]  # not before: what fails is tried again

    # ---- telling ----

    def update(self, doing: str) -> None:
        """Tell the callbacks how far the search is."""
        for callback in self.callbacks:
            callback.update(self.progress(doing))

    def note(self, text: str) -> None:
        """Tell the callbacks, and who looks at the result, something in words."""
        self.notes.append(text)
        for callback in self.callbacks:
            callback.note(text)

    def progress(self, doing: str) -> Progress:
        """Progress of the search."""
        return Progress(
            doing=doing,
            trials=len(self.history),
            resumed=self.resumed,
            budget=self.budget,
            elapsed=self.elapsed,
            default=self.cost(self.space.default),
            best=min(self._costs.values(), default=math.inf),
            flops=self.workload.flops,
            failures=self.failures(),
        )

    def failures(self) -> Mapping[str, int]:
        """Number of failed candidates, by kind."""
        return Counter(m.failure.kind for m in self.history if m.failure)

    def nothing_worked(self, end: str) -> TuningError:
        """The error of a search without a valid candidate: the first failure of each kind, or
        why it ended, where it did so before there was a candidate."""
        if not self.history:
            return TuningError(f"{end} before anything was measured")
        first: dict[str, Measurement] = {}
        for m in self.history:
            if m.failure:
                first.setdefault(m.failure.kind, m)
        lines = [f"none of {counted(len(self.history), 'candidate')} worked"]
        for kind, m in first.items():
            assert m.failure is not None
            count = self.failures()[kind]
            text = f"{count} × {m.failure}\n  with {m.config}\n{m.failure.traceback}"
            lines.append(text.rstrip())
        return TuningError("\n".join(lines))

    # ---- inside ----

    @contextmanager
    def _building(self) -> Iterator[None]:
        """Book running time as the device reports it, the rest as building."""
        runs = len(self.history)
        try:
            with self.watch.part("building"):
                yield
        finally:
            run = sum(m.run_seconds for m in self.history[runs:])
            self.watch.move(run, "building", "running")

    def _keep(self, measurement: Measurement) -> None:
        place = len(self.history)
        if measurement.config in self._costs:  # it was of a machine that has changed
            found = (i for i, m in enumerate(self.history) if m.config == measurement.config)
            place = next(found, place)
        self.history[place : place + 1] = [measurement]
        self._pending.append(measurement)
        self._costs[measurement.config] = measurement.cost
        if time.monotonic() - self._stored > _STORE_EVERY:
            self.flush()

    def _check(self, measured: list[Measurement], before: float) -> None:
        """Verify the best of a batch if it is a new best; where it is wrong, the next one."""
        order = sorted(range(len(measured)), key=lambda i: measured[i].cost)
        for i in order:
            if measured[i].cost >= before:
                return
            try:
                failure = self.verify(measured[i].config)
            except TimeUpError:
                self.note("the best was not checked on fresh data: time was up")
                return
            if failure is None:
                return
            self.reject(measured[i].config, failure)
            measured[i] = replace(measured[i], seconds=(), failure=failure)

    def _best_among(self, among: Space, cache: str) -> Config | None:
        """Config of a space that the store would choose for this machine."""
        if self.store is None:
            return None
        found = [
            self.store.best(self.workload, target, machine=self._machine, cache=cache, among=among)
            for target in self._targets()
        ]
        known = [record for record in found if record is not None]
        return min(known, key=lambda record: record.cost).config if known else None

    def _saw_best(self) -> bool:
        """Return whether the space has what the store would choose, whatever its numerics."""
        if self.space.numerics == Numerics.FAST or not self.space.sketches[0].has_loops:
            return True
        loosest = space(self.workload, self.device.target, Numerics.FAST)
        best = self._best_among(loosest, self.device.cache)
        return best is None or best in self.space
