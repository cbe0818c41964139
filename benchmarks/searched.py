"""Searches whose results are compared: whole ones alone."""

from __future__ import annotations

from typing import Any

import loopwright as lw
from loopwright.explore.tuned import Tuned


def searched(*arguments: Any, **options: Any) -> Tuned:
    """`lw.tune`, but Ctrl-C ends the benchmark: what there is then is no winner of all trials."""
    tuned = lw.tune(*arguments, **options)
    if tuned.end == "interrupted":
        raise KeyboardInterrupt
    return tuned
