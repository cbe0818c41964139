"""`Board`: the actor that keeps what tuners tell of themselves, for the live view."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

_TUNERS = 64  # whose last words are kept
_GONE = 60.0  # seconds of silence after which a tuner is taken to be gone


class Board:
    """Keeps the last word of every tuner, and what was set aside; nothing depends on it."""

    def __init__(self) -> None:
        self._tuners: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._notes: list[dict[str, Any]] = []

    def tell(self, tuner: str, data: Mapping[str, Any]) -> None:
        """Take notice of what a tuner is at; `data` are of `device.FleetDevice`."""
        self._tuners[tuner] = {**data, "told": time.time()}
        self._tuners.move_to_end(tuner)
        while len(self._tuners) > _TUNERS:
            self._tuners.popitem(last=False)

    def note(self, text: str) -> None:
        """Keep a line for those who look."""
        self._notes = [*self._notes, {"time": time.time(), "text": text}][-100:]

    def snapshot(self) -> dict[str, Any]:
        """All of it, as plain data."""
        now = time.time()
        tuners = [
            {**data, "name": name, "gone": data["ended"] or now - data["told"] > _GONE}
            for name, data in self._tuners.items()
        ]
        return {"time": now, "tuners": tuners, "notes": list(self._notes)}
