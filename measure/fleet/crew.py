"""The machines of a fleet that one tuner uses: those of one kind, calibrated, without those that
were lost, that leave, or that differ from the others."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loopwright.dsl.words import counted
from loopwright.measure.device import DeviceError, TimeUpError
from loopwright.measure.fleet import cluster
from loopwright.measure.fleet.building import BOUND as PATIENCE
from loopwright.measure.fleet.building import TELL
from loopwright.measure.fleet.calibration import BOUND, COMMON, Anchor, apart, factors, in_words
from loopwright.measure.fleet.joining import ray_package
from loopwright.measure.lease import holder
from loopwright.measure.machine import hardware, versions
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target

LOOK = 0.5
"""Seconds between two looks at the time, the machines, and whether to stop."""
_OPENING = 120.0  # seconds in which a machine must say what it is, once it is asked
_REST = 1.5  # seconds that Ray has to start the process of a machine again
_MOST_LOSSES = 3  # of one machine
_NEWS = 10.0  # seconds between two looks for machines that came
_CHECK = 60.0  # seconds after which a machine measures its anchor again
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Machine:
    """One machine of a crew, with its `Station` as Ray hands it out and what that told of itself.
    `factor` is how much longer it takes than the typical machine, None at first. The `anchor`,
    last measured at `anchored`, tells of drift; what came since is `unsure`. It was lost `losses`
    times, and `rests`."""

    name: str
    actor: Any
    facts: Mapping[str, Any]
    factor: float | None = None
    anchor: Anchor | None = None
    anchored: float = -math.inf
    unsure: list[tuple[str, Config]] = field(default_factory=list)
    losses: int = 0
    rests: float = -math.inf

    @property
    def group(self) -> str:
        """The machines whose costs compare with its own, as text: equal of equal ones."""
        told = self.facts["target"], hardware(self.facts["fingerprint"]), self.facts["versions"]
        return json.dumps(told, sort_keys=True)

    @property
    def processor(self) -> str:
        return str(self.facts["fingerprint"].get("processor", "a machine"))


@dataclass
class Crew:
    """The machines that a tuner uses. `key` is that of their devices (`station.device_key`),
    `tell` is given lines. Raises `DeviceError` where no machine can be used, with the reasons."""

    key: str
    tell: Callable[[str], None]
    machines: list[Machine] = field(default_factory=list)
    deadline: float = math.inf

    def __post_init__(self) -> None:
        self.whom = holder()
        self.doubtful: dict[str, list[Config]] = {}  # by workload, of machines that drifted
        self._known: set[str] = set()
        self._looked = -math.inf
        self._common: tuple[dict[str, Any], Mapping[str, Any]] | None = None
        self._costs: dict[str, list[float]] = {}
        self._why: list[str] = []
        self._join(())
        self.facts = self.machines[0].facts
        self.target = Target.from_json(self.facts["target"])

    # ---- who is there ----

    def _join(self, groups: Sequence[str]) -> None:
        """Take machines that came since the last time, of the groups or else of the largest one.
        Raises `DeviceError` where there are none at all."""
        self._looked = time.monotonic()
        new = {n: a for n, a in cluster.stations().items() if n not in self._known}
        if not new and not self.machines:
            raise DeviceError(
                "no machine of the fleet measures: add one, as by `loopwright fleet add`"
            )
        calls = {n: a.ask.remote("facts", self.asked(), {}) for n, a in new.items()}
        answers = cluster.ask_all(calls, TELL)
        if late := {n: calls[n] for n, a in answers.items() if isinstance(a, TimeoutError)}:
            _log.warning("waiting for %s", ", ".join(late))
            answers |= cluster.ask_all(late, _OPENING - TELL)
        found: list[Machine] = []
        for name, facts in answers.items():
            self._known.add(name)
            if isinstance(facts, Exception):
                self._leave_out(name, "does not answer")
            elif facts.get("fault"):
                self._leave_out(name, str(facts["fault"]))
            elif facts.get("late"):
                raise TimeUpError("time was up before the machines of the fleet were there")
            elif not facts.get("draining"):
                found.append(Machine(name, new[name], facts))
        found = [m for m in found if self._same_versions(m)]
        members = [m.group for m in found]
        wanted = groups or sorted(set(members), key=lambda g: (-members.count(g), g))[:1]
        self.machines += [m for m in found if m.group in wanted]
        for other in (m for m in found if m.group not in wanted):
            self._leave_out(other.name, f"is of another kind ({other.processor})")
        if not self.machines:
            raise DeviceError("no machine of the fleet can be used: " + "; ".join(self._why))

    def _same_versions(self, machine: Machine) -> bool:
        """Return whether a machine has the packages that this process has."""
        theirs, ours = machine.facts["versions"], versions()
        differ = [p for p in ("loopwright", "apache-tvm") if theirs.get(p) != ours.get(p)]
        if differ:
            words = ", ".join(f"{p} {theirs.get(p)}, here {ours.get(p)}" for p in differ)
            self._leave_out(machine.name, f"has other packages: {words}")
        return not differ

    def _leave_out(self, name: str, why: str) -> None:
        self._why.append(f"{name} {why}")
        self.tell(f"not used: {name} {why}")

    def refresh(self) -> None:
        """Look for machines that came, now and then."""
        if time.monotonic() - self._looked < _NEWS:
            return
        before = len(self.machines)
        self._join([m.group for m in self.machines[:1]])
        if len(self.machines) > before:
            if self._common is not None:
                self.calibrate()
            self.tell(f"{counted(len(self.machines) - before, 'machine')} came")

    def free(self, busy: Sequence[Machine]) -> list[Machine]:
        """The machines that can be asked now."""
        now = time.monotonic()
        return [m for m in self.machines if m not in busy and now >= m.rests]

    def rest(self) -> None:
        """Wait a moment for machines, none of which can be asked. Raises `DeviceError` where there
        is none any more, and `TimeUpError`."""
        if not self.machines:
            raise DeviceError("no machine of the fleet is left: " + "; ".join(self._why))
        if time.monotonic() >= self.deadline:
            raise TimeUpError("time was up before a machine of the fleet was there")
        time.sleep(0.1)

    def drop(self, machine: Machine, why: str) -> None:
        """Use a machine no more."""
        if machine in self.machines:
            self.machines.remove(machine)
            self._leave_out(machine.name, why)

    def lost(self, machine: Machine, error: cluster.LostError) -> None:
        """Take notice that a call was lost with the process that was at it."""
        machine.losses += 1
        machine.rests = time.monotonic() + _REST
        if error.gone:
            self.drop(machine, "is gone")
        elif machine.losses > _MOST_LOSSES:
            self.drop(machine, f"was lost {machine.losses} times")
        else:
            self.tell(f"{machine.name} was lost; what it measured is measured elsewhere")

    # ---- asking ----

    def asked(self, **more: Any) -> dict[str, Any]:
        """The header of every call, and more."""
        left = self.deadline - time.monotonic()
        return {"whom": self.whom, "device": self.key, "left": left, **more}

    def answer(self, machine: Machine, call: Any) -> dict[str, Any]:
        """The answer to a call, waited for. Raises `LostError` where the machine was lost,
        `TimeUpError`, and `DeviceError` where it cannot do it or takes too long."""
        ray, began, told = ray_package(), time.monotonic(), False
        while True:
            now = time.monotonic()
            left = min(self.deadline - now, LOOK)
            if left <= 0:
                ray.cancel(call)
                raise TimeUpError(f"time was up before {machine.name} answered")
            if ray.wait([call], timeout=left)[0]:
                break
            if now - began >= PATIENCE:
                raise DeviceError(f"{machine.name} did not answer within {PATIENCE:g} s")
            if now - began >= TELL and not told:
                told = self.tell_whom(machine)
        found: dict[str, Any] = cluster.answer_of(call)
        if found.get("late"):
            raise TimeUpError(f"time was up before {machine.name} was done")
        if found.get("draining"):
            self.drop(machine, "takes no new work")
        elif found.get("fault"):
            self.drop(machine, str(found["fault"]))
        return found

    def tell_whom(self, machine: Machine) -> bool:
        """Tell for whom a machine works that lets this tuner wait."""
        status = cluster.ask_all({"": cluster.control(machine.actor, "status")}, 2.0)[""]
        whom = status.get("for") if isinstance(status, dict) else ""
        if whom and whom != self.whom:
            _log.warning("waiting for %s, which measures for %s", machine.name, whom)
        return True

    def each(self, do: str, jobs: Mapping[str, Any], **more: Any) -> dict[Machine, dict[str, Any]]:
        """The answers of all machines to one call, all at once; machines that cannot answer it
        are used no more. Raises `DeviceError` where none can, and `TimeUpError`."""
        calls = {m: m.actor.ask.remote(do, self.asked(**more), jobs) for m in self.machines}
        answers: dict[Machine, dict[str, Any]] = {}
        for machine, call in calls.items():
            try:
                answer = self.answer(machine, call)
            except cluster.LostError as error:
                self.lost(machine, error)
                continue
            if machine in self.machines:
                answers[machine] = answer
        if not answers:
            raise DeviceError("no machine of the fleet is left: " + "; ".join(self._why))
        return answers

    # ---- comparing machines ----

    def common(self, asked: Mapping[str, Any], jobs: Mapping[str, Any]) -> None:
        """Compare all machines by the first candidates of a request."""
        first = asked["configs"][:COMMON]
        self._common = {"workload": asked["workload"], "configs": first}, jobs
        self.calibrate()

    @property
    def calibrated(self) -> bool:
        """Return whether `common` was called."""
        return self._common is not None

    def calibrate(self) -> None:
        """Let new machines measure what all measure; set those aside that differ too much."""
        assert self._common is not None
        asked, jobs = self._common
        new = [m for m in self.machines if m.factor is None]
        others = [m for m in self.machines if m not in new]
        self.machines = new
        try:
            found = self.each("measure", jobs, **asked)
        finally:
            self.machines = others + self.machines
        for machine, answer in found.items():
            costs = [_cost(m) for m in answer["measured"]]
            if len(costs) < len(asked["configs"]):
                raise TimeUpError("time was up before the machines were compared")
            self._costs[machine.name] = costs
            machine.anchored = time.monotonic()
            for config, cost in zip(asked["configs"], costs, strict=True):
                if math.isfinite(cost):
                    machine.anchor = Anchor.of(asked["workload"], config, cost)
                    break
        self.machines = [m for m in self.machines if m.name in self._costs]
        by_name = factors({m.name: self._costs[m.name] for m in self.machines})
        for machine in list(self.machines):
            factor = by_name[machine.name]
            machine.factor = factor
            if apart(factor, 1.0) and len(self.machines) > 1:
                self.drop(machine, f"is {in_words(factor)} than its like, of at most {BOUND:.0%}")
        kept = [by_name[m.name] for m in self.machines]
        if len(kept) > 1:
            self.tell(
                f"{len(kept)} machines measured the same {len(asked['configs'])} candidates: from "
                f"{in_words(min(kept))} to {in_words(max(kept))} than the typical one"
            )

    def due(self, machine: Machine) -> Anchor | None:
        """The anchor of a machine, where it is time to measure that again."""
        due = time.monotonic() - machine.anchored >= _CHECK
        return machine.anchor if due else None

    def anchor_jobs(self) -> Mapping[str, Any]:
        """The tasks that build anchors."""
        return {} if self._common is None else self._common[1]

    def drifted(self, machine: Machine, cost: float) -> bool:
        """Take notice of what an anchor cost; return whether the machine is set aside for it."""
        assert machine.anchor is not None
        machine.anchored = time.monotonic()
        unsure, machine.unsure = machine.unsure, []
        if not apart(cost, machine.anchor.cost):
            return False
        words = in_words(cost / machine.anchor.cost)
        if len(self.machines) == 1:
            self.tell(f"{machine.name} is {words} than at the start; there is no other machine")
            machine.anchor = None
            return False
        self.drop(machine, f"is {words} than at the start, of at most {BOUND:.0%}")
        for workload, config in unsure:
            self.doubtful.setdefault(workload, []).append(config)
        return True


def _cost(measured: Mapping[str, Any]) -> float:
    from loopwright.measure.timing import typical

    return typical(measured["seconds"]) if measured["seconds"] else math.inf
