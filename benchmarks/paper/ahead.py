"""Candidates that were built ahead: building needs no quiet machine, measuring does."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from loopwright.dsl.workload import Workload
from loopwright.measure.builder import Builder, Built, Task
from loopwright.measure.machine import builders
from loopwright.measure.workers.fork_server import Kind
from loopwright.measure.workers.pool import Pool
from loopwright.measure.workers.process import Reply
from loopwright.schedule.sketch.sketch import Config

_TIMEOUT = 20.0


class Shelf(Builder):
    """A builder that keeps what it built ahead in a folder, two files for each candidate.

    Failures are not kept: they are found again when they are measured.
    """

    def __init__(self, folder: Path) -> None:
        count, memory = builders()
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(Pool(Kind("build", memory, folder), count), _TIMEOUT)
        self._folder = folder

    def has(self, workload: Workload, config: Config) -> bool:
        return self._file(workload, config, ".json").exists()

    def ahead(self, task: Task, configs: Sequence[Config]) -> None:
        """Build and keep."""
        for config, built in zip(configs, super().build(task, configs), strict=True):
            if built.failure is None:
                self._file(task.workload, config, ".so").write_bytes(built.code)
                file = self._file(task.workload, config, ".json")
                new = file.with_suffix(".new")
                new.write_text(json.dumps({"signature": built.signature, "took": built.seconds}))
                os.replace(new, file)  # there only when both are whole

    def build(self, task: Task, configs: Sequence[Config]) -> list[Built]:
        """Take what is there off the shelf, and build the rest."""
        kept = {c: self._take(task.workload, c) for c in configs if self.has(task.workload, c)}
        rest = [c for c in configs if c not in kept]
        found = kept | dict(zip(rest, super().build(task, rest), strict=True))
        return [found[c] for c in configs]

    def build_with_oracle(
        self, task: Task, configs: Sequence[Config], seed: int, timeout: float
    ) -> tuple[list[Built], Reply]:
        """One after the other."""
        return self.build(task, configs), self.oracle(task, seed, timeout)

    def _take(self, workload: Workload, config: Config) -> Built:
        code, about = (self._file(workload, config, end) for end in (".so", ".json"))
        data = json.loads(about.read_text())
        built = Built(code.read_bytes(), data["signature"], None, data["took"])
        about.unlink()
        code.unlink()
        return built

    def _file(self, workload: Workload, config: Config, end: str) -> Path:
        text = f"{workload.key} {json.dumps(config.to_json())}"
        return self._folder / (hashlib.sha256(text.encode()).hexdigest()[:32] + end)
