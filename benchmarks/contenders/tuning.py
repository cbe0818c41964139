"""Tuning before timing, ours and MetaSchedule's, remembered in files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from peers import Peer
from suites.row import Row

import contenders
import loopwright as lw
from loopwright.codegen.target import resolve
from loopwright.measure.machine import fingerprint, hardware
from loopwright.schedule.sketch.sketch import Config

FIRST, LAST = "first", "last"
"""Where the channels are."""

_TRIALS = 256
"""MetaSchedule's where ours is the default schedule; it has no default."""


@dataclass(frozen=True)
class Tuning:
    """How much to search.

    Attributes
    ----------
    trials: 0 for the default schedule.
    records: the store. MetaSchedule's databases are in a folder beside it.
    also: other numbers of trials, whose winners are compared too.
    layouts: of these which: FIRST, LAST, or both. A row that has no other layout keeps its own.
    numerics: what our programs may do to rounding errors.
    """

    trials: int
    records: Path
    also: tuple[int, ...] = ()
    layouts: Sequence[str] = (FIRST, LAST)
    numerics: str = "standard"

    def ours(self, row: Row, threads: int, expected: str) -> list[Peer]:
        """Loopwright's contenders for a row, in each layout: what `tune` returns after each number
        of trials, asked now, unless it was before with the same store."""
        forms = {}
        if row.last is None or FIRST in self.layouts:
            forms[contenders.OURS] = row
        if row.last is not None and LAST in self.layouts:
            forms[contenders.OURS_LAST] = row.last
        if not self.trials:
            return [
                contenders.peer(name, row, threads, expected, numerics=self.numerics)
                for name in forms
            ]
        winners = {}
        for ours, form in forms.items():
            for count in sorted({self.trials, *self.also}):
                name = ours if count == self.trials else f"{ours}@{count}"
                winners[name] = self._winner(form, threads, count)
        return [
            contenders.peer(name, row, threads, expected, config=config.to_json())
            for name, config in sorted(winners.items())
        ]

    def _winner(self, row: Row, threads: int, count: int) -> Config:
        """The config that a search of so many trials returns; kept beside the store, since longer
        ones go on from it."""
        workload, target = row.request.workload, resolve("cpu", threads)
        kept = self.records.with_suffix(".winners.json")
        known = json.loads(kept.read_text()) if kept.exists() else {}
        machine = hashlib.sha256(f"{target} {hardware(fingerprint())}".encode()).hexdigest()[:16]
        key = f"{workload.key} {threads} {count} {self.numerics} {machine}"
        space = lw.space(workload, target, numerics=self.numerics)
        if key not in known or Config.from_json(known[key]) not in space:
            tuned = lw.tune(
                workload,
                trials=count,
                threads=threads,
                records=self.records,
                numerics=self.numerics,
            )
            if len(tuned.history) > count:
                raise click.UsageError(
                    f"{self.records} has {len(tuned.history)} trials of {row.key}: what {count} "
                    "would have found is not known; give another file to --records"
                )
            known[key] = tuned.config.to_json()
            partial = kept.with_suffix(".part")
            partial.write_text(json.dumps(known, indent=1))
            partial.rename(kept)
        return Config.from_json(known[key])

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
