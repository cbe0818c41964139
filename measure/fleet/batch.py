"""One batch of candidates on its way through the machines of a fleet.

Ray has the queues, starts lost processes again and tells of losses. What is here is what it does
not know: which answers belong to which candidates, and that a candidate which two machines did not
survive is not given to a third. (`ray.util.ActorPool` hands a dead actor back as a free one.)
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopwright.measure.device import DeviceError, Failure, Measurement, Stop, TimeUpError
from loopwright.measure.fleet import cluster
from loopwright.measure.fleet.building import BOUND, TELL
from loopwright.measure.fleet.crew import LOOK, Crew, Machine
from loopwright.measure.fleet.joining import ray_package
from loopwright.measure.fleet.station import from_plain
from loopwright.schedule.sketch.sketch import Config

TOGETHER = 16
"""Candidates that a machine is given at a time, at most; they are sampled in rounds."""
_LOSSES = 2  # machines that a candidate may take with it


@dataclass(frozen=True)
class _Flight:
    """Candidates that a machine is at, by their numbers, since a time."""

    machine: Machine
    numbers: tuple[int, ...]
    since: float


class Batch:
    """Candidates of one workload, shared out to the machines of a crew: `done` has measurements by
    their numbers, and `where` the machines that made them."""

    def __init__(
        self,
        crew: Crew,
        workload: str,
        configs: Sequence[Config],
        jobs: Callable[[Sequence[Config]], Mapping[str, Any]],
    ) -> None:
        """`jobs` are the tasks that build what some candidates need, by their names."""
        self._crew, self._workload, self._configs, self._jobs = crew, workload, configs, jobs
        self.done: dict[int, Measurement] = {}
        self.where: dict[int, Machine] = {}
        self._waiting = deque(range(len(configs)))
        self._alone: deque[int] = deque()  # lost once: a machine gets no other beside it
        self._losses: dict[int, list[str]] = {}
        self._flying: dict[Any, _Flight] = {}
        self._told: Counter[str] = Counter()

    @property
    def queue(self) -> int:
        """The number of candidates that wait."""
        return len(self._waiting) + len(self._alone)

    @property
    def flying(self) -> dict[str, int]:
        """The number of candidates that each machine is at."""
        return {f.machine.name: len(f.numbers) for f in self._flying.values()}

    def measured(self, stop: Stop, watch: Callable[[], None]) -> Iterator[Measurement]:
        """Measurements in the order of the candidates. Those that have not begun when `stop` says
        so are left out. `watch` is called whenever something came."""
        following, sent, stopped = 0, False, False
        try:
            while len(self.done) < len(self._configs):
                if sent and not stopped and stop():
                    stopped = True
                    self._waiting.clear()
                    self._alone.clear()
                if time.monotonic() >= self._crew.deadline:
                    break
                self._send()
                sent = sent or bool(self._flying)
                while following in self.done:  # the machines are at work meanwhile
                    yield self.done[following]
                    following += 1
                if not self._flying:
                    if stopped:
                        break
                    self._crew.rest()
                    continue
                in_time = self._receive()
                watch()
                if not in_time:
                    break
        finally:
            self._cancel()
        for number in sorted(n for n in self.done if n >= following):
            yield self.done[number]
        if not self.done:
            raise TimeUpError("time was up before a candidate was measured")

    def _send(self) -> None:
        busy = [flight.machine for flight in self._flying.values()]
        for machine in self._crew.free(busy):
            numbers = self._take(machine)
            if not numbers:
                continue
            configs = [self._configs[n] for n in numbers]
            jobs = dict(self._jobs(configs))
            asked = self._crew.asked(
                workload=self._workload, configs=[c.to_json() for c in configs]
            )
            if (anchor := self._crew.due(machine)) is not None:
                asked["anchor"] = anchor.to_json()
                jobs |= self._crew.anchor_jobs()
            call = machine.actor.ask.remote("measure", asked, jobs)
            self._flying[call] = _Flight(machine, tuple(numbers), time.monotonic())

    def _take(self, machine: Machine) -> list[int]:
        """Candidates for a machine: one that was lost elsewhere, or several of the others, fewer
        towards the end, so that all machines end together."""
        others = len(self._crew.machines) > 1
        for number in list(self._alone):
            if not others or machine.name not in self._losses[number]:
                self._alone.remove(number)
                return [number]
        share = math.ceil(len(self._waiting) / (2 * len(self._crew.machines)))
        return [self._waiting.popleft() for _ in range(min(share, TOGETHER))]

    def _receive(self) -> bool:
        """Take the answers that come in a moment; return whether there is time left."""
        ray = ray_package()
        left = self._crew.deadline - time.monotonic()
        if left <= 0:
            return False
        ready, _ = ray.wait(list(self._flying), num_returns=1, timeout=min(LOOK, left))
        in_time = True
        for call in ready:
            flight = self._flying.pop(call)
            try:
                answer = cluster.answer_of(call)
            except cluster.LostError as error:
                self._crew.lost(flight.machine, error)
                self._lost(flight)
                continue
            in_time = self._land(flight, answer) and in_time
        if not ready:
            self._look()
        return in_time

    def _land(self, flight: _Flight, answer: Mapping[str, Any]) -> bool:
        """Take an answer; return whether there was time for all of it."""
        crew, machine = self._crew, flight.machine
        if answer.get("late"):
            return False
        if answer.get("draining"):
            crew.drop(machine, "takes no new work")
            self._waiting.extendleft(reversed(flight.numbers))
            return True
        if answer.get("fault"):
            crew.drop(machine, str(answer["fault"]))
            self._lost(flight)
            return True
        if "anchor" in answer and crew.drifted(machine, answer["anchor"]):
            self._waiting.extendleft(reversed(flight.numbers))
            return True
        for number, data in zip(flight.numbers, answer["measured"], strict=False):
            self.done[number] = from_plain(self._configs[number], data)
            self.where[number] = machine
            if machine.anchor is not None:
                machine.unsure.append((self._workload, self._configs[number]))
        return len(answer["measured"]) == len(flight.numbers)

    def _lost(self, flight: _Flight) -> None:
        """Give the work of a lost machine back, once."""
        for number in flight.numbers:
            losses = self._losses.setdefault(number, [])
            losses.append(flight.machine.name)
            if len(losses) < _LOSSES:
                self._alone.append(number)
                continue
            facts = flight.machine.facts
            reason = f"machines were lost while they measured it: {', '.join(losses)}"
            self.done[number] = Measurement(
                config=self._configs[number],
                seconds=(),
                failure=Failure("crash", reason),
                build_seconds=0.0,
                run_seconds=0.0,
                cache=facts["cache"],
                threads=facts["target"]["threads"],
                started=time.time(),
            )

    def _look(self) -> None:
        """Tell for whom machines work that let this wait; give one up that waits for ever."""
        now = time.monotonic()
        for flight in self._flying.values():
            name = flight.machine.name
            if now - flight.since >= BOUND:
                raise DeviceError(f"{name} did not answer within {BOUND:g} s")
            if now - flight.since >= TELL and not self._told[name]:
                self._told[name] += self._crew.tell_whom(flight.machine)

    def _cancel(self) -> None:
        """Ask for nothing any more that has not begun."""
        ray = ray_package()
        if ray.is_initialized():  # else the fleet was left, or the process ends
            for call in self._flying:
                ray.cancel(call)
        self._flying.clear()
