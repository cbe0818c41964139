"""`Station`: the actor that measures on one machine of a fleet, for whoever asks.

Its calls come one at a time, so a machine never measures for two; others wait in Ray's queue.
Calls of the group "control" come beside them, as plain data. The lease of the machine holds as
well.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from loopwright.dsl.errors import TargetError
from loopwright.dsl.workload import Workload
from loopwright.measure import machine
from loopwright.measure.builder import Builder
from loopwright.measure.device import Device, DeviceError, Failure, Measurement, TimeUpError
from loopwright.measure.fleet.building import TaskPool
from loopwright.measure.fleet.calibration import Anchor, apart
from loopwright.measure.programs import ProgramDevice
from loopwright.measure.reference import Limits
from loopwright.measure.timing import Timing
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target

_KEPT = 4  # devices: of other targets, threads or precisions of timing


class Station:
    """Measures on a machine of the fleet.

    An answer of a call has `fault`, why this machine cannot do it; or `late`, where time was up;
    or `draining`, where it takes no new work; or what was asked for.
    """

    def __init__(self, name: str, where: Mapping[str, Any]) -> None:
        """`where` has nothing for the machine that this runs on; the `url` of another one; or
        `device`, by cloudpickle a function that makes the device of the user's, for a builder."""
        self._name, self._where = name, dict(where)
        self._pool = TaskPool()
        self._devices: OrderedDict[str, Device] = OrderedDict()
        self._workloads: dict[str, Workload] = {}
        self._draining = False
        self._whom, self._since, self._busy = "", time.time(), 0.0
        self._measured, self._failed = 0, Counter[str]()
        self._target = ""

    def ask(self, do: str, asked: Mapping[str, Any], jobs: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out what is asked for: one of the methods below, by its name. `jobs` are tasks
        that build what it needs, by the names of their jobs."""
        if self._draining:
            return {"draining": True}
        operation: Callable[[Device, Mapping[str, Any]], dict[str, Any]] = getattr(self, f"_{do}")
        with self._serving(str(asked["whom"]), jobs):
            try:
                device = self._device(asked["device"])
                device.until(time.monotonic() + asked["left"])
                return operation(device, asked)
            except TimeUpError:
                return {"late": True}
            except (DeviceError, TargetError) as error:
                return {"fault": str(error)}

    @contextmanager
    def _serving(self, whom: str, jobs: Mapping[str, Any]) -> Iterator[None]:
        self._whom, self._since = whom, time.time()
        self._pool.known |= jobs
        try:
            yield
        finally:
            self._pool.known.clear()
            self._busy += time.time() - self._since
            self._whom, self._since = "", time.time()

    def _facts(self, device: Device, _: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "device": device.name,
            "target": device.target.to_json(),
            "fingerprint": device.fingerprint(),
            "versions": machine.versions(),
            "cache": device.cache,
            "builds": isinstance(device, ProgramDevice),
        }

    def _check(self, device: Device, _: Mapping[str, Any]) -> dict[str, Any]:
        device.check()
        return {}

    def _admit(self, device: Device, asked: Mapping[str, Any]) -> dict[str, Any]:
        try:
            device.admit(self._workload(asked["workload"]))
        except DeviceError as error:  # of the workload, not of the machine
            return {"refused": str(error)}
        return {}

    def _measure(self, device: Device, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The `measured` of "configs"; first the cost of the "anchor", if there is one."""
        answer: dict[str, Any] = {}
        if asked.get("anchor") is not None:
            answer["anchor"] = self._anchor_cost(device, Anchor.from_json(asked["anchor"]))
        configs = _configs(asked)
        found = [to_plain(m) for m in device.measure(self._workload(asked["workload"]), configs)]
        self._measured += len(found)
        self._failed.update(m["failure"]["kind"] for m in found if m["failure"])
        return answer | {"measured": found}

    def _anchor_cost(self, device: Device, anchor: Anchor) -> float:
        """The cost of the anchor, taken twice where the first one is off."""
        workload = self._workload(anchor.workload)
        costs: list[float] = []
        for _ in range(2):
            costs += (m.cost for m in device.measure(workload, [anchor.config]))
            if not apart(costs[-1], anchor.cost):
                break
        return min(costs, key=lambda cost: abs(math.log(cost / anchor.cost)))

    def _verify(self, device: Device, asked: Mapping[str, Any]) -> dict[str, Any]:
        (config,) = _configs(asked)
        failure = device.verify(self._workload(asked["workload"]), config)
        return {"failure": None if failure is None else failure.to_json()}

    def _compare(self, device: Device, asked: Mapping[str, Any]) -> dict[str, Any]:
        workload = self._workload(asked["workload"])
        found = device.compare(workload, _configs(asked), asked["rounds"])
        return {"samples": found.samples, "sizes": found.sizes, "others": found.others}

    # ---- beside the work ----

    def status(self) -> dict[str, Any]:
        """The present work of this machine, and what it has done."""
        now = time.time()
        busy = self._busy + (now - self._since if self._whom else 0.0)
        return {
            "name": self._name,
            "host": platform.node(),
            "pid": os.getpid(),
            "url": self._where.get("url", ""),
            "target": self._target,
            "for": self._whom,
            "seconds": now - self._since,
            "busy": busy,
            "measured": self._measured,
            "failures": dict(self._failed),
            "draining": self._draining,
        }

    def drain(self, yes: bool = True) -> None:
        """Take no new work from now on; or again."""
        self._draining = yes

    # ---- inside ----

    def _device(self, key: str) -> Device:
        """The device of a target, threads and timing, as `device_key` says them."""
        if key not in self._devices:
            while len(self._devices) >= _KEPT:
                self._devices.popitem(last=False)[1].close()
            self._devices[key] = self._opened(json.loads(key))
        self._devices.move_to_end(key)
        device = self._devices[key]
        self._target = str(device.target)
        return device

    def _opened(self, key: Mapping[str, Any]) -> Device:
        builder = Builder(self._pool, Limits().build)
        if "device" in self._where:
            from loopwright.measure.fleet.values import from_bytes

            made: Device = from_bytes(self._where["device"])(builder)
            return made
        target = key["target"]
        if isinstance(target, dict):
            target = Target.from_json(target["exactly"]) if "exactly" in target else target
        timing = None if key["timing"] is None else Timing(**key["timing"])
        if url := self._where.get("url"):
            from loopwright.measure.remote.device import RemoteDevice

            return RemoteDevice(url, target, key["threads"], timing=timing, builder=builder)
        # TVM imports torch wherever that is installed: seconds, for no measurement.
        sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
        from loopwright.measure.local import LocalDevice

        return LocalDevice(target, key["threads"], timing=timing, builder=builder)

    def _workload(self, text: str) -> Workload:
        """One object per text: it keeps its key, by which its space is found again."""
        if text not in self._workloads:
            if len(self._workloads) >= 1 << 8:
                self._workloads.clear()
            self._workloads[text] = Workload.from_json(json.loads(text))
        return self._workloads[text]


def device_key(
    target: str | Mapping[str, Any] | Target, threads: int | None, timing: Timing | None
) -> str:
    """Requirements of a tuner for a machine, as text."""
    plain = {"exactly": target.to_json()} if isinstance(target, Target) else target
    if not isinstance(plain, str):
        plain = dict(plain)
    told = None if timing is None else timing.to_json()
    try:
        return json.dumps({"target": plain, "threads": threads, "timing": told}, sort_keys=True)
    except TypeError as error:
        raise TargetError(f"target {target!r}: give a name or a mapping of plain data") from error


def to_plain(measurement: Measurement) -> dict[str, Any]:
    """A measurement without its config, as plain data."""
    failure = measurement.failure
    return {
        "seconds": list(measurement.seconds),
        "failure": None if failure is None else failure.to_json(),
        "build_seconds": measurement.build_seconds,
        "run_seconds": measurement.run_seconds,
        "cache": measurement.cache,
        "threads": measurement.threads,
        "started": measurement.started,
        "codegen": measurement.codegen,
    }


def from_plain(config: Config, data: Mapping[str, Any]) -> Measurement:
    """The result of `to_plain` for a config, read."""
    failure = None if data["failure"] is None else Failure.from_json(data["failure"])
    return Measurement(config, **{**data, "seconds": tuple(data["seconds"]), "failure": failure})


def _configs(asked: Mapping[str, Any]) -> list[Config]:
    return [Config.from_json(data) for data in asked["configs"]]
