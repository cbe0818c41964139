"""Replayed machines of a fleet: costs by a formula, behind a fingerprint of one's choice."""

from __future__ import annotations

import os
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from loopwright.measure.device import Comparison, Device, Failure, Measurement, never
from loopwright.measure.fleet import cluster
from loopwright.measure.fleet.values import to_bytes
from loopwright.schedule.target import Target


@dataclass(frozen=True)
class Replayed:
    """Makes a device, in the process of its machine."""

    target: Target
    processor: str = "replayed"
    delay: float = 0.0
    slower: str = ""  # a file with a factor
    deadly: str = ""  # a part of configs that end the process
    log: str = ""  # a file to which configs are added

    def __call__(self, builder):
        return ReplayedDevice(self)


class ReplayedDevice(Device):
    """Looks costs up; nothing is built or run."""

    def __init__(self, made):
        self.target, self.name, self._made = made.target, "replayed", made

    def fingerprint(self):
        return {"processor": self._made.processor}

    def check(self):
        pass

    def measure(self, workload, configs, stop=never):
        for config in configs:
            time.sleep(self._made.delay)
            if self._made.deadly and self._made.deadly in str(config):
                os._exit(1)
            if self._made.log:
                with open(self._made.log, "a") as file:
                    file.write(f"{os.getpid()} {config}\n")
            slower = float(Path(self._made.slower).read_text()) if self._made.slower else 1.0
            now = time.time()
            seconds = (cost(config) * slower,)
            yield Measurement(config, seconds, None, 0.0, 0.0, "warm", self.target.threads, now)

    def verify(self, workload, config):
        return None if cost(config) else Failure("wrong", "")

    def compare(self, workload, configs, rounds):
        samples = tuple((cost(config),) * rounds for config in configs)
        return Comparison(samples, (0,) * len(configs))


def cost(config) -> float:
    """From 1 to 2 ms."""
    return 1e-3 * (1 + zlib.crc32(str(config).encode()) % 997 / 997)


def staff(made: dict) -> dict:
    """Machines on the nodes that measure, by name, in the place of those that are there; `made`
    has a `Replayed` for each node that is to have one, or None for this machine itself."""
    for name in cluster.actors():
        cluster.remove(name)
    while cluster.actors():
        time.sleep(0.02)
    nodes = cluster.nodes()
    for name, device in made.items():
        where = None if device is None else {"device": to_bytes(device)}
        cluster.on_node(name, nodes[name], where)
    return statuses()


def statuses() -> dict:
    calls = {name: cluster.control(a, "status") for name, a in cluster.actors().items()}
    return cluster.ask_all(calls, 60.0)
