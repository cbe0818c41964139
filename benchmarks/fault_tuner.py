"""A tuner for benchmarks/faults.py: each request is a search, in a fork of this process.

    python benchmarks/fault_tuner.py remote | fleet | server | disk

A request is a line of JSON on standard input, and so is what is told on standard output: "pid" of
the fork, "begun" when its device is there, "done" or "error" with all lines that were logged or
noted, and "ended" with the fork's status.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleet import TARGET, ReplayedDevice

import loopwright as lw
import loopwright.explore.finalize
import loopwright.explore.session
from loopwright.dsl.errors import LoopwrightError
from loopwright.explore.report.callbacks import Callback, Progress
from loopwright.measure.builder import Builder
from loopwright.measure.device import Device
from loopwright.measure.fleet.building import job_name
from loopwright.measure.fleet.device import FleetDevice
from loopwright.measure.fleet.joining import ray_package
from loopwright.measure.remote import session, stream
from loopwright.measure.remote.device import RemoteDevice
from loopwright.measure.timing import Timing
from loopwright.measure.workers.fork_server import Kind
from loopwright.measure.workers.pool import Pool
from loopwright.measure.workers.process import Job, Reply

TRIALS, BATCH = 24, 8
DELAY = 0.02  # seconds of a replayed candidate
DELAY_OF_FLEET = 0.1  # which is measured by several at once


class KnownBuilds:
    """A pool that carries out no job twice, so that a search after the first one builds
    nothing."""

    def __init__(self, pool: Pool) -> None:
        self._pool, self._known, self.deadline = pool, dict[str, Reply](), 0.0

    def start(self, jobs: int = 1) -> None:
        pass

    def map(self, jobs: Sequence[Job]) -> list[Reply]:
        missing = {name: j for j in jobs if (name := job_name(j)) not in self._known}
        if missing:
            self._known |= zip(missing, self._pool.map([*missing.values()]), strict=True)
        return [self._known[job_name(j)] for j in jobs]

    def close(self) -> None:
        self._pool.close()


class Own:
    """A device whose records are told apart from those of other searches."""

    whose = ""

    def fingerprint(self) -> dict[str, str]:
        return {"processor": self.whose}


class Remote(Own, RemoteDevice):
    pass


class Fleet(Own, FleetDevice):
    pass


class Replayed(Own, ReplayedDevice):
    pass


class Tell(Callback):
    """Tells when the first candidate was measured."""

    begun = False

    def update(self, progress: Progress) -> None:
        if progress.doing == "measuring" and not self.begun:
            self.begun = True
            tell(begun=True)


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def tell(**event: Any) -> None:
    # A line before it, for the one that told last may have been killed meanwhile.
    os.write(1, f"\n{json.dumps(event)}\n".encode())


class Tuner:
    """Makes devices of one kind, and searches on them."""

    def __init__(self, lane: str, folder: Path) -> None:
        self._lane, self._folder = lane, folder
        A, B = lw.tensor("A", (64, 36)), lw.tensor("B", (36, 48), constant=True)
        self._work = lw.workload(lw.ops.matmul(A, B))
        self._builder = Builder(KnownBuilds(Pool(Kind("build", 0, folder), 2)), 30.0)
        loopwright.explore.session._STORE_EVERY = 0.0  # each measurement is a commit
        loopwright.explore.finalize.ROUNDS = 6
        stream.STALL = session.STALL = 3.0  # beats come every two seconds

    def prepare(self) -> None:
        """Do once, before the first fork, what every search needs."""
        if self._lane == "fleet":
            ray_package()
        lane, self._lane = self._lane, self._lane.replace("fleet", "server")
        self.search({"whose": "", "trials": TRIALS, "records": str(self._folder / "first.db")})
        self._lane = lane

    def _device(self) -> Device:
        if self._lane == "remote":
            timing = Timing(cap=0.01)
            return Remote("ssh://root@here", threads=1, timing=timing, builder=self._builder)
        return Fleet("auto", TARGET) if self._lane == "fleet" else Replayed(DELAY)

    def search(self, asked: dict[str, Any]) -> None:
        lines = Lines()
        logging.getLogger("loopwright").addHandler(lines)
        try:
            with self._device() as device:
                device.whose = asked["whose"]
                tuned = lw.tune(
                    self._work, device=device, trials=asked["trials"], records=asked["records"],
                    strategy="grid", transfer=None, batch=BATCH, callbacks=[Tell()],
                )  # fmt: skip
        except LoopwrightError as error:
            tell(error=str(error), lines=lines.lines)
        else:
            told = [*lines.lines, *tuned.notes, *getattr(device, "notes", ())]
            tell(done=tuned.end, lines=told)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tuner = Tuner(sys.argv[1], Path(folder))
        tuner.prepare()
        tell(ready=True)
        for line in sys.stdin:
            pid = os.fork()
            if pid == 0:
                tell(pid=os.getpid())
                tuner.search(json.loads(line))
                os._exit(0)
            tell(ended=os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    main()
