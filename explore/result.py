"""`SearchResult`: what a search found, and how it went, as reports read it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from loopwright.dsl.words import counted, html_table
from loopwright.dsl.workload import Workload
from loopwright.explore.significance import Finalist, Ratio
from loopwright.measure.device import Measurement
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target
from loopwright.transfer.records.store import Record


def speed(flops: float, seconds: float, peak: float | None) -> str:
    """A cost in words: `0.123 ms, 456.7 GFLOP/s (89% of peak)`. Operations are those of the
    definition, so that a program that does fewer may be above the peak; then it says so."""
    if math.isinf(seconds):
        return "-"
    text = f"{seconds * 1e3:.4g} ms"
    if flops:
        text += f", {flops / seconds / 1e9:.1f} GFLOP/s"
        if peak:
            share = flops / seconds / peak
            counted_as = ", as the direct sum's operations" if share > 1 else ""
            text += f" ({share:.0%} of peak{counted_as})"
    return text


@dataclass(frozen=True)
class Peer:
    """The time of another library for the same work, both called from Python in rounds.

    Attributes
    ----------
    seconds, ours: of a call of the other library, and of the program that was found.
    ratio: of the two, by samples taken side by side; None where none is claimed.
    claim: how they stand to each other, in words.
    """

    name: str
    seconds: float
    ours: float
    flops: int
    ratio: Ratio | None
    claim: str

    def __str__(self) -> str:
        return (
            f"{self.name:<10} {speed(self.flops, self.seconds, None)}; called from Python like "
            f"it, the best takes {self.ours * 1e3:.4g} ms: {self.claim}"
        )


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Result of a search.

    Attributes
    ----------
    config: the best one.
    record: of it; its seconds are those of the final comparison, or of the search if there was
        none. None if it was not measured.
    default: the default config's cost in seconds, measured beside the best one's where there was
        a comparison; infinite if the default failed.
    speedup: how many times faster than the default, by samples taken side by side; None where no
        speed-up is claimed.
    claim: how it stands to the default, in words: by how much it is faster, that it is tied with
        it, or why nothing is claimed.
    history: every candidate measured, in order; the first `resumed` in earlier sessions.
    finalists: the best few, measured again side by side, the winner first; empty if the search
        was interrupted, or in a hurry.
    spent: seconds of this session by part: choosing, learning, building, running, …
    end: why the search ended.
    notes: what was told in words, such as which global model it began with.
    peer: another library beside it, where one was compared.
    """

    workload: Workload
    target: Target
    config: Config
    record: Record | None
    default: float
    speedup: Ratio | None
    claim: str
    history: tuple[Measurement, ...]
    resumed: int
    finalists: tuple[Finalist, ...]
    spent: Mapping[str, float]
    end: str
    notes: tuple[str, ...] = ()
    peer: Peer | None = None

    @property
    def seconds(self) -> float:
        """Its cost, by `record.seconds`; nan if it was not measured."""
        return math.nan if self.record is None else self.record.cost

    @property
    def tied(self) -> tuple[Finalist, ...]:
        """Finalists that are tied with the fastest and were not chosen."""
        return tuple(f for f in self.finalists if f.standing == "tied")

    @property
    def failures(self) -> dict[str, int]:
        """Number of failed candidates, by kind."""
        return dict(Counter(m.failure.kind for m in self.history if m.failure))

    def curve(self) -> list[float]:
        """The lowest cost in seconds after each trial."""
        best, result = math.inf, []
        for measurement in self.history:
            best = min(best, measurement.cost)
            result.append(best)
        return result

    def __str__(self) -> str:
        if self.record is None:
            return f"{self.end}: {self.config}"
        return (
            f"{self.seconds * 1e3:.4g} ms, {self.claim}, after "
            f"{counted(len(self.history), 'trial')} ({self.end}): {self.config}"
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows: dict[str, object] = {"config": self.config, "end": self.end}
        if self.record is not None:
            rows = {
                "best": f"{self.seconds * 1e3:.4g} ms",
                "default": f"{self.default * 1e3:.4g} ms",
                "claim": self.claim,
                "trials": len(self.history),
                "target": self.target,
                **rows,
            }
        return html_table("Tuned", rows)
