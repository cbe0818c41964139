"""What benchmarks/faults.py breaks, and how: machines by ssh, a fleet, record stores.

A lane has a tuner of its own, and one fault at a time; lanes go side by side.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fault_tuner import DELAY_OF_FLEET, TRIALS

PROGRAM = Path(__file__).with_name("fault_tuner.py")
KEYS = """\
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PidFile none
SetEnv XDG_CACHE_HOME={there} LOOPWRIGHT_LEASE={folder}/lease
"""


def parents() -> dict[int, tuple[int, str]]:
    """Of every process that runs: its parent, and its name with the time of its start."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            head, _, tail = path.read_text().rpartition(")")
            fields = tail.split()
            if fields[0] != "Z":
                found[int(path.parent.name)] = int(fields[1]), f"{head.split('(')[1]} {fields[19]}"
    return found


def descendants(root: int) -> dict[int, str]:
    """Processes below one, with their names and times."""
    found = parents()
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in found.items():
        children.setdefault(parent, []).append(pid)
    below, left = {}, [root]
    while left:
        for pid in children.get(left.pop(), ()):
            below[pid] = found[pid][1]
            left.append(pid)
    return below


def orphans(seen: dict[int, str], seconds: float = 20.0) -> list[str]:
    """Names of processes that were below this one, run, and are not below it any more."""
    end = time.monotonic() + seconds
    while True:
        below, every = descendants(os.getpid()), parents()
        left = [n for p, n in seen.items() if every.get(p, (0, ""))[1] == n and p not in below]
        if not left or time.monotonic() >= end:
            return left
        time.sleep(0.1)


class Disk:
    """A small disk that can be full."""

    def __init__(self, path: Path, size: str) -> None:
        self.path, self._filler = path, path / "filler"
        path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", path], check=True)

    def fill(self) -> None:
        with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    def remove(self) -> None:
        subprocess.run(["umount", "-l", self.path], check=False)


class Lane(ABC):
    """Searches of one kind, and the faults that come over them.

    `KINDS` has the faults: when they come, as a share of a search's time at most, the words by
    which a log or a note names them, and the trials of the search.
    """

    name: str
    KINDS: dict[str, tuple[float, str, int]]

    def __init__(self, folder: Path) -> None:
        self.folder, self.typical = folder / self.name, 1.0
        self.folder.mkdir()
        self.records = str(self.folder / "records.db")
        self.environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}

    def start(self) -> None:
        """Make ready for the first search."""
        with (self.folder / "log").open("wb") as log:
            self._tuner = subprocess.Popen(
                [sys.executable, str(PROGRAM), self.name],
                env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True,
            )  # fmt: skip
        for event in self._events():
            if event.get("ready"):
                return
        raise SystemExit((self.folder / "log").read_text()[-3000:])

    def _events(self) -> Iterator[dict[str, Any]]:
        assert self._tuner.stdout is not None
        for line in self._tuner.stdout:
            with contextlib.suppress(ValueError):
                yield json.loads(line)

    def search(
        self,
        whose: str,
        trials: int,
        fault: Callable[[int], None] | None = None,
        delay: float = 0.0,
        before: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """All that a search told, and the seconds that it took from its first candidate on.

        `fault` comes so many seconds after that, and is told the number of its process; `before`
        is called when the delay begins.
        """
        assert self._tuner.stdin is not None
        asked = {"whose": whose, "trials": trials, "records": self.records}
        self._tuner.stdin.write(json.dumps(asked) + "\n")
        self._tuner.stdin.flush()
        told: dict[str, Any] = {}
        timer, begun = None, 0.0
        for event in self._events():
            told |= event
            if "begun" in event:
                begun = time.monotonic()
                if fault is not None:
                    before()
                    left = begun + delay - time.monotonic()
                    timer = threading.Timer(max(0.0, left), fault, [told["pid"]])
                    timer.start()
            if "done" in event:
                told["took"] = time.monotonic() - begun
                if timer is not None:
                    timer.cancel()
            if "ended" in event:
                break
        if timer is not None:
            timer.cancel()
            timer.join()
        return told

    @abstractmethod
    def inject(self, kind: str, rng: random.Random, pid: int) -> None:
        """Let a fault come over the search of a process."""

    def mend(self) -> None:  # noqa: B027 - not every lane breaks anything
        """Make good what a fault broke, when the search is over."""

    def close(self) -> None:
        self._tuner.stdin.close()
        self._tuner.wait(30)
        self._tuner.stdout.close()


def kill(pid: int, how: signal.Signals = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, how)


BROKE = "the link to .* broke"
LOST = "lost; what it measured is measured elsewhere|is gone"
EARLIER = "counts .* of earlier sessions"


class RemoteLane(Lane):
    """A machine that is reached by ssh and sshd, on this one."""

    name = "remote"
    KINDS = {
        "worker killed": (0.8, BROKE, TRIALS),
        "worker stopped": (0.8, BROKE, TRIALS),
        "sshd killed": (0.8, BROKE, TRIALS),
        "link dropped": (0.8, BROKE, TRIALS),
        "link stalled": (0.8, BROKE, TRIALS),
        "link slow": (0.6, "the link to .* is slow", TRIALS),
        "disk full there": (0.3, "cannot go on: .*No space left", TRIALS),
        "tuner of a remote machine killed": (0.8, EARLIER, TRIALS),
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._disk = Disk(self.folder / "there", "32m")
        for name in ("host", "user"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name]
            subprocess.run(words, check=True)
        config = KEYS.format(folder=self.folder, there=self._disk.path)
        (self.folder / "sshd").write_text(config)
        Path("/run/sshd").mkdir(exist_ok=True)
        client = self.folder / "client"
        client.write_text(
            f"ProxyCommand /usr/sbin/sshd -i -f {self.folder}/sshd\n"
            f"IdentityFile {self.folder}/user\n"
            "UserKnownHostsFile /dev/null\nStrictHostKeyChecking no\nLogLevel ERROR\n"
        )
        self.environment["LOOPWRIGHT_SSH"] = f"ssh -F {client}"

    def _workers(self) -> list[int]:
        names = (p.name for p in (self._disk.path / "loopwright").glob("loopwright-run-*"))
        return [int(name.split("-")[2]) for name in names]

    def inject(self, kind: str, rng: random.Random, pid: int) -> None:
        below = descendants(pid)
        clients = [p for p, name in below.items() if name.startswith("ssh ")]
        daemons = [p for p, name in below.items() if name.startswith("sshd")]
        if kind == "tuner of a remote machine killed":
            kill(pid)
        elif kind == "disk full there":
            self._disk.fill()
        elif kind == "sshd killed" and daemons:
            kill(rng.choice(daemons))
        elif kind == "link slow":
            for _ in range(10):
                for how, seconds in ((signal.SIGSTOP, 0.3), (signal.SIGCONT, 0.02)):
                    for client in clients:
                        kill(client, how)
                    time.sleep(seconds)
        else:
            victims = self._workers() if kind.startswith("worker") else clients
            stops = kind in ("worker stopped", "link stalled")
            for victim in victims:
                kill(victim, signal.SIGSTOP if stops else signal.SIGKILL)

    def mend(self) -> None:
        self._disk.free()

    def close(self) -> None:
        super().close()
        self._disk.remove()


class FleetLane(Lane):
    """Four replayed machines of a local Ray cluster, each a node."""

    name = "fleet"
    KINDS = {
        "Ray actor killed": (0.6, LOST, TRIALS),
        "tuner of a fleet killed": (0.8, EARLIER, TRIALS),
        # The process of a machine outlives its raylet by a second or two.
        "raylet killed": (1.0, LOST, 6 * TRIALS),
    }
    MACHINES = 4

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        import ray
        from ray.cluster_utils import Cluster

        self._offer = {"num_cpus": 0, "object_store_memory": 100 << 20}
        head = {"num_cpus": 1, "object_store_memory": 100 << 20}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        ray.init(address=self._cluster.address, log_to_driver=False, logging_level="ERROR")
        self.environment["RAY_ADDRESS"] = self._cluster.address
        self._broken: Any = None
        self._staff()

    def _staff(self) -> None:
        """Have four nodes, each with a replayed machine that answers."""
        from fleet import Replayed

        from loopwright.measure.fleet import cluster
        from loopwright.measure.fleet.values import to_bytes

        missing = self.MACHINES - len(self._cluster.worker_nodes)
        for _ in range(missing):
            self._cluster.add_node(resources={cluster.RESOURCE: 1}, wait=False, **self._offer)
        if missing:
            self._cluster.wait_for_nodes()
        made = {"device": to_bytes(Replayed(DELAY_OF_FLEET))}
        actors = {name: cluster.on_node(name, n, made) for name, n in cluster.nodes().items()}
        calls = {name: cluster.control(a, "status") for name, a in actors.items()}
        self._machines = cluster.ask_all(calls, 60.0)

    def inject(self, kind: str, rng: random.Random, pid: int) -> None:
        if kind == "tuner of a fleet killed":
            kill(pid)
        elif kind == "Ray actor killed":
            told = [m for m in self._machines.values() if isinstance(m, dict)]
            kill(rng.choice(told)["pid"])
        else:
            self._broken = rng.choice(sorted(self._cluster.worker_nodes, key=id))
            self._broken.kill_raylet()

    def mend(self) -> None:
        if self._broken is not None:
            self._cluster.remove_node(self._broken, allow_graceful=False)
            self._broken = None
        self._staff()

    def close(self) -> None:
        super().close()
        import ray

        ray.shutdown()
        self._cluster.shutdown()


class ServerLane(Lane):
    """A record store in PostgreSQL, and a replayed machine."""

    name = "server"
    KINDS = {"database killed": (0.8, "waiting for .*, which went away", TRIALS)}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from tests.transfer.cluster import Cluster

        self._server = Cluster()
        self.records = self._server.url()

    def inject(self, kind: str, rng: random.Random, pid: int) -> None:
        self._server.kill()
        time.sleep(rng.uniform(0.0, 0.5))
        self._server.start()

    def close(self) -> None:
        super().close()
        self._server.remove()


class DiskLane(Lane):
    """A record store in a file on a small disk, and a replayed machine."""

    name = "disk"
    KINDS = {
        "disk full": (0.8, "not stored for now: .*full", TRIALS),
        "tuner killed": (0.8, EARLIER, TRIALS),
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._disk = Disk(self.folder / "disk", "64m")
        self.records = str(self._disk.path / "records.db")

    def inject(self, kind: str, rng: random.Random, pid: int) -> None:
        if kind == "tuner killed":
            kill(pid)
            return
        self._disk.fill()
        if rng.random() < 0.5:  # else it is full to the end
            time.sleep(rng.uniform(0.3, 0.5))
            self._disk.free()

    def mend(self) -> None:
        self._disk.free()

    def close(self) -> None:
        super().close()
        self._disk.remove()


LANES = {RemoteLane: 0.2, FleetLane: 0.2, ServerLane: 0.3, DiskLane: 0.3}
"""The lanes, and the share of the faults that each has."""
