"""Measuring peers side by side: each in a process of its own, rounds interleaved.

A peer is a Python function that gets its arguments, prepares everything and returns a callable;
that callable runs the work `n` times and returns seconds. Between its rounds a peer's process
is stopped (SIGSTOP): merely to wait is not enough, since idle thread pools spin for a while. Each
peer's environment says how many threads it may have.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Timer = Callable[[int], float]
_SECONDS = 0.05  # a round lasts about as long


@dataclass(frozen=True)
class Peer:
    """Who is measured: `make` is "module:function", found beside this file."""

    name: str
    make: str
    arguments: dict[str, Any]
    threads: int


class _Process:
    def __init__(self, peer: Peer) -> None:
        threads = str(peer.threads)
        names = ("OPENBLAS", "OMP", "MKL", "TVM")
        settings = {f"{n}_NUM_THREADS": threads for n in names} | {"TVM_BIND_THREADS": "0"}
        self.peer = peer
        self.process = subprocess.Popen(
            [sys.executable, __file__, peer.make, json.dumps(peer.arguments)],
            env={**os.environ, **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()  # it is ready

    def round(self) -> float:
        """Seconds of one run."""
        assert self.process.stdin
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> str:
        """The next line that it says; then it is stopped."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.peer.name} ended with status {self.process.wait()}")
        self.process.send_signal(signal.SIGSTOP)
        return line

    def close(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.communicate()


def compare(peers: Sequence[Peer], rounds: int = 15) -> dict[str, float]:
    """Median seconds of each peer, by name."""
    processes = [_Process(peer) for peer in peers]
    times: dict[str, list[float]] = {peer.name: [] for peer in peers}
    try:
        for number in range(rounds + 1):
            for process in processes:
                seconds = process.round()
                if number:  # the first round warms up
                    times[process.peer.name].append(seconds)
    finally:
        for process in processes:
            process.close()
    return {name: float(np.median(values)) for name, values in times.items()}


def repeated(run: Callable[[], object]) -> Timer:
    """A timer for a function that can only be called."""
    from time import perf_counter

    def timer(n: int) -> float:
        start = perf_counter()
        for _ in range(n):
            run()
        return perf_counter() - start

    return timer


def _serve(make: str, arguments: dict[str, Any]) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints goes to the standard error
    module, _, function = make.partition(":")
    timer: Timer = getattr(importlib.import_module(module), function)(**arguments)
    number = 1
    while timer(number) < _SECONDS / 2 and number < 1 << 20:
        number *= 2
    print("ready", file=answers, flush=True)
    for _ in sys.stdin:
        print(timer(number) / number, file=answers, flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    _serve(sys.argv[1], json.loads(sys.argv[2]))
