"""Callbacks that tell of a running search: live on a terminal, in plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from loopwright.explore.budget import Budget
from loopwright.explore.result import SearchResult, speed

_PACE = 8
"""Trials that say how long one takes."""


@dataclass(frozen=True)
class Progress:
    """Progress of a search.

    `doing` is a word or two. `resumed` of the measured candidates are of earlier sessions.
    Seconds are of this session. Costs are in seconds, or infinite. Failures go by kind.
    """

    doing: str
    trials: int
    resumed: int
    budget: Budget
    elapsed: float
    default: float
    best: float
    flops: int
    failures: Mapping[str, int] = field(default_factory=dict)

    @property
    def left(self) -> float:
        """Seconds to the end of the budget at the present pace."""
        time_left = 60 * self.budget.minutes - self.elapsed
        done = self.trials - self.resumed
        if done < _PACE or math.isinf(self.budget.trials):
            return time_left
        return min(time_left, self.elapsed / done * (self.budget.trials - self.trials))


class Callback:
    """Is told how a search goes; methods that are not overridden do nothing."""

    def start(self, progress: Progress) -> None:
        """The search begins."""

    def update(self, progress: Progress) -> None:
        """A candidate was measured, or something else begins."""

    def note(self, text: str) -> None:
        """Something that the user should know, as a sentence."""

    def stop(self) -> None:
        """The search is over, whether it worked or not; called once."""

    def finish(self, tuned: SearchResult) -> None:
        """The result, after `stop`."""


def failed(failures: Mapping[str, int]) -> str:
    """Failures in words: `3 build, 1 timeout`."""
    return ", ".join(f"{n} {kind}" for kind, n in failures.items()) or "none"


def clock(seconds: float) -> str:
    """Seconds as minutes and seconds; `-` if unknown."""
    if math.isinf(seconds):
        return "-"
    return f"{int(max(seconds, 0)) // 60}:{int(max(seconds, 0)) % 60:02d}"


class PlainLines(Callback):
    """Prints a line for every new best, and one every few seconds."""

    def __init__(
        self, peak: float | None = None, every: float = 10.0, file: TextIO | None = None
    ) -> None:
        """`peak` is in FLOP/s, `every` in seconds; `file` is standard error if not given."""
        self.peak, self.every, self.file = peak, every, file or sys.stderr
        self._best, self._last = math.inf, 0.0

    def update(self, progress: Progress) -> None:
        now = time.monotonic()
        better = progress.best < self._best
        if better or now - self._last >= self.every:
            self._best, self._last = progress.best, now
            self._say(progress)

    def _say(self, p: Progress) -> None:
        goal = "" if math.isinf(p.budget.trials) else f"/{p.budget.trials:g}"
        self.note(
            f"[{clock(p.elapsed)}] {p.doing}, trial {p.trials}{goal}: best "
            f"{speed(p.flops, p.best, self.peak)}; failures: {failed(p.failures)}; "
            f"left {clock(p.left)}"
        )

    def note(self, text: str) -> None:
        self.file.write(f"{text}\n")
        self.file.flush()


class LiveDisplay(Callback):
    """A block of lines that keeps up to date, for a terminal."""

    def __init__(self, peak: float | None = None, console: Any = None) -> None:
        """`peak` is in FLOP/s; `console` a `rich.console.Console`."""
        from rich.console import Console
        from rich.live import Live

        self.peak = peak
        self._live = Live(console=console or Console(stderr=True), refresh_per_second=4)

    def start(self, progress: Progress) -> None:
        self._live.start()
        self.update(progress)

    def update(self, progress: Progress) -> None:
        self._live.update(self._table(progress))

    def note(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)

    def stop(self) -> None:
        self._live.stop()

    def _table(self, p: Progress) -> Any:
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        goal = "" if math.isinf(p.budget.trials) else f" of {p.budget.trials:g}"
        earlier = f", {p.resumed} of them earlier" if p.resumed else ""
        table.add_row("best", f"[bold green]{speed(p.flops, p.best, self.peak)}[/]")
        table.add_row("default", speed(p.flops, p.default, self.peak))
        table.add_row("trials", f"{p.trials}{goal}{earlier}; {p.doing}")
        table.add_row("failures", failed(p.failures))
        table.add_row("time", f"{clock(p.elapsed)}, left {clock(p.left)}")
        return table


def is_watched() -> bool:
    """Return whether somebody sees standard error: on a terminal, or in a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return sys.stderr.isatty() or getattr(shell, "kernel", None) is not None


def display(peak: float | None = None) -> Callback:
    """Callback for standard error: live on a terminal, plain lines elsewhere."""
    return LiveDisplay(peak) if sys.stderr.isatty() else PlainLines(peak)
