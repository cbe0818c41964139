"""Measuring peers side by side: each in a process of its own, rounds interleaved.

A peer is a Python function that gets its arguments, prepares everything and returns a callable;
that callable runs the work `n` times and returns seconds. A round begins with a few calls that do
not count, for after the others' rounds no peer finds its weights where it left them. Between its
rounds a peer's process is stopped (SIGSTOP): merely to wait is not enough, since idle thread pools
spin for a while. Each peer's environment says how many threads it may have, and it may use as many
cores.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopwright.measure.machine import one_per_core, processors

Timer = Callable[[int], float]
_SECONDS = 0.05  # a round lasts about as long
_PATIENCE = 300.0  # seconds that a peer may take to prepare, or for a round


class UnableError(Exception):
    """Raised by the function of a peer that has no way to do the work, or is not installed."""


@dataclass(frozen=True)
class Peer:
    """Who is measured: `make` is "module:function", found beside this file. The function returns
    a timer, or a timer and a dictionary of facts, which is JSON."""

    name: str
    make: str
    arguments: dict[str, Any]
    threads: int


@dataclass(frozen=True)
class Result:
    """What became of a peer: seconds of one run, one sample a round; none where it could not do
    the work, or failed, and `note` says why."""

    samples: tuple[float, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    failed: bool = False

    @property
    def median(self) -> float:
        return float(np.median(self.samples)) if self.samples else float("nan")


class Processes:
    """Processes that are kept from one comparison to the next, one for each peer's name and
    number of threads, since some libraries take seconds to import."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        """`patience` is how many seconds a peer may take to prepare, or for a round."""
        self._running: dict[tuple[str, int], _Process] = {}
        self._patience = patience

    def compare(self, peers: Sequence[Peer], rounds: int = 15) -> dict[str, Result]:
        """The result of each peer, by name."""
        results = {peer.name: self._prepare(peer) for peer in peers}
        able = [p for p in peers if not results[p.name].note]
        times: dict[str, list[float]] = {peer.name: [] for peer in able}
        for number in range(rounds + 1):
            for peer in [p for p in able if not results[p.name].note]:
                answer = self._ask(peer, {"do": "round"})
                if "seconds" not in answer:
                    results[peer.name] = Result((), {}, answer["failed"], failed=True)
                elif number:  # the first round warms up
                    times[peer.name].append(answer["seconds"])
        for name, values in times.items():
            if not results[name].note:
                results[name] = Result(tuple(values), results[name].facts)
        return results

    def _prepare(self, peer: Peer) -> Result:
        question = {"do": "prepare", "make": peer.make, "arguments": peer.arguments}
        answer = self._ask(peer, question)
        note = answer.get("unable") or answer.get("failed") or ""
        return Result((), answer.get("facts", {}), note, failed="failed" in answer)

    def _ask(self, peer: Peer, question: dict[str, Any]) -> dict[str, Any]:
        """A process that ends, fails, or does not answer in time is replaced at the next question:
        a failure may have broken more, such as a GPU's context."""
        key = (peer.name, peer.threads)
        if key not in self._running:
            self._running[key] = _Process(peer.threads, self._patience)
        try:
            answer = self._running[key].ask(question)
        except (EOFError, BrokenPipeError, TimeoutError) as error:
            status = self._running.pop(key).kill()
            return {"failed": str(error) or f"its process ended with status {status}"}
        if "failed" in answer:
            self._running.pop(key).kill()
        return answer

    def close(self) -> None:
        while self._running:
            self._running.popitem()[1].kill()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Process:
    def __init__(self, threads: int, patience: float) -> None:
        self.patience = patience
        places = cores(threads)
        settings = {f"{n}_NUM_THREADS": str(threads) for n in ("OPENBLAS", "OMP", "MKL", "TVM")}
        settings["TVM_BIND_THREADS"] = "0"
        here = os.sched_getaffinity(0)
        os.sched_setaffinity(0, places)  # for the other's libraries, which start threads at once
        try:
            self.process = subprocess.Popen(
                [sys.executable, __file__],
                env={**os.environ, **settings},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        finally:
            os.sched_setaffinity(0, here)

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Wake it, ask, wait for the answer; then it is stopped."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], self.patience)[0]:
            raise TimeoutError(f"no answer within {self.patience:g} s")
        line = self.process.stdout.readline()
        if not line:
            raise EOFError
        self.process.send_signal(signal.SIGSTOP)
        return json.loads(line)

    def kill(self) -> int:
        """Not asked to end: some libraries take long to clean up, and some crash."""
        self.process.kill()
        status = self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        return status


def compare(peers: Sequence[Peer], rounds: int = 15) -> dict[str, float]:
    """Median seconds of each peer, by name; all must be able."""
    with Processes() as processes:
        results = processes.compare(peers, rounds)
    for name, result in results.items():
        if result.note:
            raise SystemExit(f"{name}: {result.note}")
    return {name: result.median for name, result in results.items()}


def repeated(run: Callable[[], object]) -> Timer:
    """A timer for a function that can only be called."""
    from time import perf_counter

    def timer(n: int) -> float:
        start = perf_counter()
        for _ in range(n):
            run()
        return perf_counter() - start

    return timer


def cores(count: int) -> list[int]:
    """Processors for so many threads: those of different cores first."""
    distinct = sorted(one_per_core())
    return (distinct + sorted(processors() - set(distinct)))[:count]


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints goes to the standard error
    timer: Timer | None = None
    number = 1
    for line in sys.stdin:
        question = json.loads(line)
        try:
            if question["do"] == "prepare":
                timer = None  # frees what came before
                timer, facts = _made(question["make"], question["arguments"])
                number, answer = _calibrated(timer), {"facts": facts}
            else:
                assert timer
                timer(-(-number // 4))  # the others' rounds have emptied the caches
                answer = {"seconds": timer(number) / number}
        except UnableError as error:
            answer = {"unable": str(error)}
        except Exception as error:  # noqa: BLE001 - whatever a peer raises is its answer
            traceback.print_exc()
            answer = {"failed": f"{type(error).__name__}: {error}"[:2000]}
        print(json.dumps(answer), file=answers, flush=True)


def _made(make: str, arguments: dict[str, Any]) -> tuple[Timer, dict[str, Any]]:
    module, _, function = make.partition(":")
    made = getattr(importlib.import_module(module), function)(**arguments)
    return made if isinstance(made, tuple) else (made, {})


def _calibrated(timer: Timer) -> int:
    """How many runs fill a round."""
    number = 1
    while timer(number) < _SECONDS / 2 and number < 1 << 20:
        number *= 2
    return number


if __name__ == "__main__":
    # As a module, so that `UnableError` is the one that peers import.
    importlib.import_module("peers")._serve()
