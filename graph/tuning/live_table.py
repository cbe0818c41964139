"""The progress of a network's tuning: a table on a terminal, lines elsewhere."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from loopwright.dsl.words import counted
from loopwright.explore.report.callbacks import clock
from loopwright.graph.tuning.task_state import TuningRound

if TYPE_CHECKING:
    from rich.console import Console

Tell = Callable[[str], None]
Watch = Callable[[TuningRound], None]

_AROUND = 6
"""Lines of a terminal that are not for tasks."""


@contextmanager
def shown(tell: Tell | None = None) -> Iterator[tuple[Tell, Watch | None]]:
    """Functions that show lines, and every round of a task, on standard error: a table on a
    terminal, else lines. `tell` is given all lines, too."""
    others = () if tell is None else (tell,)

    if not sys.stderr.isatty():
        yield _all_of(_print, *others), None
        return
    with LiveTable() as live:

        def watch(now: TuningRound) -> None:
            live.update(now)
            for each in others:
                each(str(now))

        yield _all_of(live.note, *others), watch


def _all_of(*those: Tell) -> Tell:
    def tell(line: str) -> None:
        for each in those:
            each(line)

    return tell


def _print(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class LiveTable:
    """The tasks that take the most time, as many as there is room for, while it is entered."""

    def __init__(self, console: Console | None = None) -> None:
        """`console` is standard error if not given."""
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=console or Console(stderr=True), refresh_per_second=4)

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        """Print a line above the table."""
        self._live.console.print(text, markup=False, highlight=False)

    def update(self, now: TuningRound) -> None:
        """Show how things are after a task's turn."""
        self._live.update(self._table(now), refresh=True)

    def _table(self, now: TuningRound) -> Any:
        from rich.table import Table

        left = f", left {clock(now.left)}" if math.isfinite(now.left) else ""
        title = f"{counted(now.trials, 'trial')}, {clock(now.seconds)}{left}: {now.total}"
        table = Table(title=title, title_justify="left", title_style="", box=None, pad_edge=False)
        table.add_column("task", overflow="ellipsis", no_wrap=True)
        for name in ("count", "trials", "first ms", "best ms", "share"):
            table.add_column(name, justify="right")
        known = sum(s.total for s in now.states if math.isfinite(s.best))
        states = sorted(now.states, key=lambda s: -s.total)
        room = max(self._live.console.height - _AROUND, 1)
        for s in states[:room]:
            share = f"{s.total / known:.1%}" if math.isfinite(s.best) else "–"
            table.add_row(
                s.task.name,
                str(s.task.count),
                str(len(s.session.history)),
                _ms(s.curve[0] if s.curve else math.inf),
                _ms(s.best),
                share,
                style="bold" if s is now.state else "",
            )
        if len(states) > room:
            table.add_row(f"and {len(states) - room} more")
        return table


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4f}" if math.isfinite(seconds) else "–"
