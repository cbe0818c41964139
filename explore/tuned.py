"""`Tuned`: what a search found, and how it went."""

from __future__ import annotations

import functools
import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loopwright.dsl.workload import Workload
from loopwright.explore.finalists import Finalist
from loopwright.measure.device import Measurement
from loopwright.schedule.sketch import Config
from loopwright.schedule.target import Target
from loopwright.transfer.records import Record

if TYPE_CHECKING:
    from loopwright.codegen.library import Library


@dataclass(frozen=True, eq=False)
class Tuned:
    """The result of `tune`.

    Attributes
    ----------
    record: of the best config; its seconds are those of the final comparison, or of the search
        if there was none.
    default: the default config's cost in seconds, measured beside the best one's where there was
        a comparison; infinite if the default failed.
    history: every candidate measured, in order; the first `resumed` in earlier sessions.
    finalists: the best few, measured again side by side, the winner first; empty if the search
        was interrupted.
    spent: seconds of this session by part: choosing, learning, building, running, …
    end: why the search ended.
    """

    workload: Workload
    target: Target
    record: Record
    default: float
    history: tuple[Measurement, ...]
    resumed: int
    finalists: tuple[Finalist, ...]
    spent: Mapping[str, float]
    end: str

    @property
    def config(self) -> Config:
        """The best config."""
        return self.record.config

    @property
    def seconds(self) -> float:
        """Its cost, the median of `record.seconds`."""
        return self.record.cost

    @property
    def speedup(self) -> float:
        """How many times faster than the default; at least 1 up to noise."""
        return self.default / self.seconds

    @property
    def tied(self) -> tuple[Finalist, ...]:
        """Finalists that cannot be told from the winner."""
        return tuple(f for f in self.finalists[1:] if f.tied)

    @property
    def failures(self) -> dict[str, int]:
        """How many candidates failed, by kind."""
        return dict(Counter(m.failure.kind for m in self.history if m.failure))

    @functools.cached_property
    def library(self) -> Library:
        """The best program, compiled when first asked for. Raises `BuildError`."""
        from loopwright.codegen.build import build

        return build(self.workload, self.config, self.target)

    def curve(self) -> list[float]:
        """The lowest cost in seconds after each trial."""
        best, result = math.inf, []
        for measurement in self.history:
            best = min(best, measurement.cost)
            result.append(best)
        return result

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write all of it as one HTML file that needs no other; its path."""
        from loopwright.explore.report import html

        path = Path(path)
        path.write_text(html(self), encoding="utf-8")
        return path

    def plot(self, path: str | os.PathLike[str]) -> Path:
        """Draw the tuning curve, in the format of the suffix: .png, .svg, .pdf, …

        Raises `TuningError` for a format that matplotlib does not know.
        """
        from loopwright.explore.plot import plot

        return plot(self, Path(path))

    def __str__(self) -> str:
        return (
            f"{self.seconds * 1e3:.4g} ms, {self.speedup:.2f} times as fast as the default, after "
            f"{len(self.history)} trials ({self.end}): {self.config}"
        )

    __repr__ = __str__
