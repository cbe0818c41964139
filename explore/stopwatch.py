"""`Stopwatch`: wall time since a beginning, booked to the parts of the work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stopwatch:
    """Books all seconds that pass, each to one part; the parts sum to what passed.

    A part within another one takes its seconds from the outer one. What is in no part is "other".
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """Begin now. `clock` is in seconds; by default the monotonic one."""
        self._clock = clock or (lambda: time.monotonic())
        self.began = self._booked = self._clock()
        self._spent: dict[str, float] = {}
        self._parts = ["other"]

    def __str__(self) -> str:
        """All seconds, and those of each part."""
        spent = self.spent()
        total = sum(spent.values())
        parts = sorted(spent.items(), key=lambda part: -part[1])
        shown = (f"{name} {s:.1f} s ({s / total:.0%})" for name, s in parts if s >= 0.05)
        return f"{total:.1f} s: {', '.join(shown)}"

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self.began

    def spent(self) -> dict[str, float]:
        """Seconds by part, up to now."""
        self._book()
        return dict(self._spent)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Book the time within under a part of the work."""
        self._book()
        self._parts.append(name)
        try:
            yield
        finally:
            self._book()
            self._parts.pop()

    def move(self, seconds: float, source: str, part: str) -> None:
        """Book seconds of `source`, as many as it has, under another part."""
        seconds = min(seconds, self._spent.get(source, 0.0))
        self._add(source, -seconds)
        self._add(part, seconds)

    def _book(self) -> None:
        now = self._clock()
        self._add(self._parts[-1], now - self._booked)
        self._booked = now

    def _add(self, part: str, seconds: float) -> None:
        self._spent[part] = self._spent.get(part, 0.0) + seconds
