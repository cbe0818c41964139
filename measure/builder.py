"""Candidates become shared objects or code for GPUs: many at once, in worker processes."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from loopwright.codegen.facts.facts import Facts
from loopwright.codegen.library.signature import Signature
from loopwright.dsl.workload import Workload
from loopwright.measure.device import Failure
from loopwright.measure.workers.messages import Bytes, Message
from loopwright.measure.workers.process import Job, Reply
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target


@dataclass(frozen=True)
class Task:
    """A workload on a target, whether its code must bring all that it calls (see `link`), and the
    passes in place of LLVM's own, if any."""

    workload: Workload
    target: Target
    complete: bool = False
    passes: str = ""

    @functools.cached_property
    def text(self) -> str:
        """The workload as JSON."""
        return json.dumps(self.workload.to_json())

    @functools.cached_property
    def target_text(self) -> str:
        """The target as JSON."""
        return json.dumps(self.target.to_json())


@dataclass(frozen=True)
class Built:
    """A candidate as a shared object, an object file of built-in code or a GPU's code, with its
    signature as JSON, or why there is none. `resources` are what a GPU's kernels use of it, where
    the compiler tells; `workspace` counts the bytes that a call allocates, `error_growth` is its
    sketch's, `codegen` what made it: "builtin" or the target's kind; `facts` are those of its code
    (`codegen.facts`), which nobody has read yet where it is built-in code."""

    code: Bytes
    signature: dict[str, Any]
    failure: Failure | None
    seconds: float
    resources: tuple[dict[str, Any], ...] = ()
    workspace: int = 0
    error_growth: float = 1.0
    codegen: str = ""
    facts: Facts = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of code, of constants prepared ahead, and of workspace; 0 of a failure."""
        if self.failure is not None:
            return 0
        prepared = Signature.from_json(self.signature).prepared
        return len(self.code) + sum(p.nbytes for p in prepared) + self.workspace

    @staticmethod
    def of(reply: Reply) -> Built:
        """Result of a build, from a worker's answer."""
        if reply.failure is not None:
            return Built(b"", {}, reply.failure, reply.seconds)
        message = reply.message
        header = message.header
        return Built(
            message.blobs[0],
            header["signature"],
            None,
            reply.seconds,
            tuple(header.get("resources", ())),
            header["workspace"],
            header["error_growth"],
            header.get("codegen", ""),
            header.get("facts", {}),
        )


class Jobs(Protocol):
    """The executor of jobs: a `Pool` of processes here, or Ray's tasks on many machines."""

    deadline: float

    def start(self, jobs: int = 1) -> None: ...

    def map(self, jobs: Sequence[Job]) -> list[Reply]: ...

    def close(self) -> None: ...


class Builder:
    """Builds in the workers of a pool, each build with a limit in seconds."""

    def __init__(self, pool: Jobs, timeout: float) -> None:
        self._pool, self._timeout = pool, timeout

    def start(self, configs: int) -> None:
        """Begin to make ready for building so many configs at once. Raises `DeviceError`."""
        self._pool.start(configs)

    def until(self, deadline: float) -> None:
        """Set when builds must be done: see `Device.until`."""
        self._pool.deadline = deadline

    def build(self, task: Task, configs: Sequence[Config]) -> list[Built]:
        """Build every config; nothing goes on any more when this returns."""
        return [Built.of(reply) for reply in self._pool.map([self.job(task, c) for c in configs])]

    def build_each(self, tasks: Sequence[Task], config: Config) -> list[Built]:
        """Build one config for every task."""
        return [Built.of(reply) for reply in self._pool.map([self.job(t, config) for t in tasks])]

    def oracle(self, task: Task, seed: int, timeout: float, scaled: bool = False) -> Reply:
        """The oracle's outputs for a seed's inputs, as blobs; `scaled` as for `runner.Data`."""
        return self._pool.map([self.question(task, seed, timeout, scaled)])[0]

    def build_with_oracle(
        self, task: Task, configs: Sequence[Config], seed: int, timeout: float
    ) -> tuple[list[Built], Reply]:
        """`build` and `oracle`, at once."""
        jobs = [self.question(task, seed, timeout), *(self.job(task, c) for c in configs)]
        oracle, *built = self._pool.map(jobs)
        return [Built.of(reply) for reply in built], oracle

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def question(self, task: Task, seed: int, timeout: float, scaled: bool = False) -> Job:
        """The job of `oracle`."""
        asked = {"do": "evaluate", "workload": task.text, "seed": seed, "scaled": scaled}
        return Job(Message(asked), timeout)

    def job(self, task: Task, config: Config) -> Job:
        """The job of building a config."""
        asked = {
            "do": "build",
            "workload": task.text,
            "target": task.target_text,
            "config": config.to_json(),
            "complete": task.complete,
            "passes": task.passes,
        }
        return Job(Message(asked), self._timeout)
