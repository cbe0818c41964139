"""`FleetDevice`: many equal machines as one device, by Ray."""

from __future__ import annotations

import functools
import json
import logging
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loopwright.dsl.workload import Workload
from loopwright.measure import device
from loopwright.measure.builder import Builder, Task
from loopwright.measure.fleet import cluster, joining
from loopwright.measure.fleet.batch import Batch
from loopwright.measure.fleet.building import TaskPool, job_name
from loopwright.measure.fleet.crew import Crew, Machine
from loopwright.measure.fleet.station import device_key
from loopwright.measure.programs import BATCH
from loopwright.measure.reference import Limits, strict_default
from loopwright.measure.timing import Timing
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target

_KEPT = 16  # workloads whose references are kept
_REMEMBERED = 4096  # candidates of which it is known where they were measured
_TELLING = 0.5  # seconds between two words to the board
_CURVE = 200  # points
_log = logging.getLogger(__name__)


class FleetDevice(device.Device):
    """Measures on the machines of a fleet that are of one kind; builds on all that have cores.

    A batch is built first, everywhere at once, and then runs, so that one tuner's builds disturb
    none of its measurements. Candidates of a comparison run side by side on one machine.

    Attributes
    ----------
    notes: what a user should know: machines that are not used, and why; how far the others differ.
    """

    here = False

    def __init__(
        self,
        address: str = "auto",
        target: str | Mapping[str, Any] | Target = "cpu",
        threads: int | None = None,
        *,
        timing: Timing | None = None,
    ) -> None:
        """Connects.

        Parameters
        ----------
        address: "auto" for the fleet of this machine, "ray://host:port", or "host:port" on one of
            its machines.
        target, threads: as for `LocalDevice`, on every machine; of the kinds of machines that can
            be it, that with the most machines is used.
        timing: as for `LocalDevice`.

        Raises `DeviceError` where there is no fleet, or no machine of it can be used.
        """
        key = device_key(target, threads, timing)
        self.notes: list[str] = []
        self._told, self._failed, self._trials = -math.inf, Counter[str](), 0
        self._curves: OrderedDict[str, list[tuple[int, float]]] = OrderedDict()
        self._shared: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._where: OrderedDict[tuple[str, Config], Machine] = OrderedDict()
        self._batch: Batch | None = None
        self._leave = joining.join(address)
        try:
            self._board = cluster.board()
            self._pool = TaskPool()
            self._builder = Builder(self._pool, Limits().build)
            self._crew = Crew(key, self._note)
        except BaseException:
            self._leave()
            raise
        facts = self._crew.facts
        self.target, self.cache = self._crew.target, facts["cache"]
        self._builds = bool(facts["builds"])
        count = len(self._crew.machines)
        self.name = f"a fleet of {count} × {facts['device']}"
        self._who = f"{self._crew.whom}, {time.strftime('%H:%M:%S')}"

    @property
    def machines(self) -> tuple[str, ...]:
        """Names of the machines that are used at present."""
        return tuple(machine.name for machine in self._crew.machines)

    def fingerprint(self) -> dict[str, str]:
        return dict(self._crew.facts["fingerprint"])

    def check(self) -> None:
        self._crew.each("check", {})

    def admit(self, workload: Workload) -> None:
        answer = self._one("admit", {"workload": _text(workload)})
        if answer.get("refused"):
            raise device.DeviceError(answer["refused"])

    def doubtful(self, workload: Workload) -> Sequence[Config]:
        return self._crew.doubtful.pop(_text(workload), ())

    def until(self, deadline: float) -> None:
        self._crew.deadline = self._pool.deadline = deadline

    def measure(
        self, workload: Workload, configs: Sequence[Config], stop: device.Stop = device.never
    ) -> Iterator[device.Measurement]:
        text = _text(workload)
        for start in range(0, len(configs), BATCH):
            if start and stop():
                return
            part = configs[start : start + BATCH]
            self._crew.refresh()
            jobs = self._built(workload, part)
            if not self._crew.calibrated:
                asked = {"workload": text, "configs": [c.to_json() for c in part]}
                self._crew.common(asked, self._needed(workload, jobs, part))
            needed = functools.partial(self._needed, workload, jobs)
            batch = Batch(self._crew, text, part, needed)
            self._batch = batch
            for measurement in batch.measured(stop, self._tell):
                self._keep(workload, measurement)
                yield measurement
            for number, machine in batch.where.items():
                self._where[workload.key, part[number]] = machine
            while len(self._where) > _REMEMBERED:
                self._where.popitem(last=False)
            self._batch = None
            self._tell(at_once=True)
            if len(batch.done) < len(part):
                return

    def verify(self, workload: Workload, config: Config) -> device.Failure | None:
        asked = {"workload": _text(workload), "configs": [config.to_json()]}
        first = self._where.get((workload.key, config))
        try:
            answer = self._one("verify", asked, first)
        except _LostTwiceError as error:
            return device.Failure("crash", str(error))
        told = answer["failure"]
        return None if told is None else device.Failure.from_json(told)

    def compare(
        self, workload: Workload, configs: Sequence[Config], rounds: int
    ) -> device.Comparison:
        asked = {
            "workload": _text(workload),
            "configs": [c.to_json() for c in configs],
            "rounds": rounds,
        }
        answer = self._one("compare", asked)
        samples = tuple(tuple(one) for one in answer["samples"])
        return device.Comparison(samples, tuple(answer["sizes"]), answer["others"])

    def close(self) -> None:
        """Leave the fleet, which stays."""
        if self._leave is not _left:
            self._tell(at_once=True, ended=True)
            self._leave()
            self._leave = _left

    # ---- inside ----

    def _one(
        self, do: str, asked: Mapping[str, Any], first: Machine | None = None
    ) -> dict[str, Any]:
        """The answer of one machine, the `first` or the most typical; of another where that was
        lost. Raises `_LostTwiceError`."""
        lost: list[str] = []
        while len(lost) < 2:
            free = [m for m in self._crew.free(()) if m.name not in lost] or self._crew.free(())
            if not free:
                self._crew.rest()
                continue
            typical = min(free, key=lambda m: abs(math.log(m.factor or 1.0)))
            machine = first if first in free else typical
            jobs = self._shared.get(asked["workload"], {})
            call = machine.actor.ask.remote(do, self._crew.asked(**asked), jobs)
            try:
                answer = self._crew.answer(machine, call)
            except cluster.LostError as error:
                self._crew.lost(machine, error)
                lost.append(machine.name)
                continue
            if machine in self._crew.machines:
                return answer
        raise _LostTwiceError(f"machines were lost at it: {', '.join(lost)}")

    def _built(self, workload: Workload, configs: Sequence[Config]) -> dict[Config, Any]:
        """Tasks that have built candidates, and all that machines need beside them."""
        if not self._builds:
            return {}
        task, text = Task(workload, self.target), _text(workload)
        self._pool.start()
        if text not in self._shared:
            default = self._builder.job(task, strict_default(workload, self.target))
            oracle = self._builder.question(task, 0, Limits().oracle)
            made = {job_name(j): self._pool.submit(j) for j in (default, oracle)}
            self._shared[text] = made
            while len(self._shared) > _KEPT:
                self._shared.popitem(last=False)
        found = {c: self._pool.submit(self._builder.job(task, c)) for c in configs}
        self._pool.finish([*self._shared[text].values(), *found.values()])
        return found

    def _needed(
        self, workload: Workload, jobs: Mapping[Config, Any], configs: Sequence[Config]
    ) -> dict[str, Any]:
        """The tasks that some candidates need, by the names of their jobs."""
        if not jobs:
            return {}
        task = Task(workload, self.target)
        own = {job_name(self._builder.job(task, c)): jobs[c] for c in configs}
        return self._shared[_text(workload)] | own

    def _keep(self, workload: Workload, measurement: device.Measurement) -> None:
        """Take notice of a measurement, for those who look."""
        self._trials += 1
        if measurement.failure is not None:
            self._failed[measurement.failure.kind] += 1
        name = f"{workload} ({workload.key[:8]})"
        curve = self._curves.setdefault(name, [])
        if math.isfinite(measurement.cost) and (not curve or measurement.cost < curve[-1][1]):
            curve.append((self._trials, measurement.cost))
            del curve[:-_CURVE]

    def _note(self, text: str) -> None:
        self.notes.append(text)
        _log.info("fleet: %s", text)
        if text.startswith("not used"):
            _log.warning("fleet: %s", text)
        self._board.note.remote(text)

    def _tell(self, at_once: bool = False, ended: bool = False) -> None:
        """Tell the board what this tuner is at, now and then."""
        now = time.monotonic()
        if now - self._told < _TELLING and not at_once:
            return
        self._told = now
        batch = self._batch
        data = {
            "trials": self._trials,
            "failures": dict(self._failed),
            "curves": dict(self._curves),
            "queue": 0 if batch is None else batch.queue,
            "at": {} if batch is None else batch.flying,
            "machines": {m.name: m.factor for m in self._crew.machines},
            "ended": ended,
        }
        self._board.tell.remote(self._who, data)


class _LostTwiceError(device.DeviceError):
    """The failure of a candidate that two machines did not survive."""


def _left() -> None:
    """Nothing, where the fleet was left."""


def _text(workload: Workload) -> str:
    return json.dumps(workload.to_json())
