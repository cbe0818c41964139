"""Tuning before timing, ours and MetaSchedule's, remembered in files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers import Peer
from suites.row import Row

import contenders
import loopwright as lw
from loopwright.codegen.target import resolve
from loopwright.dsl.errors import ConfigError
from loopwright.measure.machine import fingerprint
from loopwright.schedule.sketch import Config
from loopwright.transfer.records import RecordStore

_TRIALS = 256
"""MetaSchedule's where ours is the default schedule; it has no default."""


@dataclass(frozen=True)
class Tuning:
    """How much to search.

    Attributes
    ----------
    trials: 0 for the default schedule.
    records: the store. MetaSchedule's databases are in a folder beside it.
    also: fewer trials, whose best is compared too.
    """

    trials: int
    records: Path
    also: int | None = None

    def ours(self, row: Row, threads: int, expected: str) -> list[Peer]:
        """Loopwright's contenders for a row, tuned now unless the store has enough trials."""
        if not self.trials:
            return [contenders.peer(contenders.OURS, row, threads, expected)]
        configs = self._measured(row, threads)
        if len(configs) < self.trials:
            lw.tune(
                row.request.workload, trials=self.trials, threads=threads, records=self.records
            )
            configs = self._measured(row, threads)
        marks = {contenders.OURS: self.trials}
        if self.also:
            marks[f"{contenders.OURS}@{self.also}"] = self.also
        return [
            contenders.peer(name, row, threads, expected, config=_best(configs, count).to_json())
            for name, count in marks.items()
        ]

    def theirs(self, name: str, row: Row, threads: int) -> dict[str, Any]:
        """What a peer's function needs beside the row: MetaSchedule's winner, tuned now with as
        many trials as ours, unless the folder has it."""
        if name != contenders.METASCHEDULE:
            return {}
        trials = self.trials or _TRIALS
        place = f"{row.key}-{threads}-{trials}"
        folder = self.records.with_suffix(".metaschedule").absolute() / place
        from contenders.metaschedule_peer import tuned

        tuned(row, threads, trials, folder)
        return {"folder": str(folder)}

    def _measured(self, row: Row, threads: int) -> list[tuple[Config, float]]:
        """The configs that are still of the space and their costs, the first measured first."""
        workload, target = row.request.workload, resolve("cpu", threads)
        space = lw.space(workload, target)
        with RecordStore(self.records) as store:
            found = store.measured(workload, target, fingerprint()).items()
        return [(config, cost) for config, cost in found if _fits(space, config)]


def _best(configs: list[tuple[Config, float]], count: int) -> Config:
    config, cost = min(configs[:count], key=lambda c: c[1])
    assert math.isfinite(cost)
    return config


def _fits(space: Any, config: Config) -> bool:
    try:
        space.sketch(config.sketch).numbers(config)
    except ConfigError:
        return False
    return True
