"""What torch logs beside its errors, hidden."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet(least: int, *names: str) -> Iterator[None]:
    """Hide what loggers of these names say below the level `least`."""
    logs = [logging.getLogger(name) for name in names]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(least)
    try:
        yield
    finally:
        for log, level in zip(logs, levels):
            log.setLevel(level)
