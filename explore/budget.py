"""Budgets: how long a search may go on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from loopwright.dsl.errors import LoopwrightError
from loopwright.dsl.words import counted


class TuningError(LoopwrightError):
    """A search that cannot begin, or one in which nothing worked."""


class Interrupted(KeyboardInterrupt):
    """A search that the user ended, with what was found as `tuned`: the `Tuned` of `tune`, the
    model of `tune_model`. It is no `Exception`, so that a loop of searches ends too."""

    def __init__(self, tuned: Any) -> None:
        super().__init__(f"{tuned}; the `tuned` of this exception is the result")
        self.tuned = tuned


@dataclass(frozen=True)
class Budget:
    """The search ends when either is used up; trials of earlier sessions count, minutes do not.

    Attributes
    ----------
    trials: candidates measured; with 0, a model chooses alone.
    minutes: of wall time.
    zero_shot: whether a global model chooses without walking far, and the best are not measured
        again at the end.
    after: seconds that are kept for what the caller does then.
    """

    trials: float = math.inf
    minutes: float = math.inf
    zero_shot: bool = False
    after: float = 0.0

    @staticmethod
    def of(trials: int | None, minutes: float | None, effort: str = "normal") -> Budget:
        """Budget that a user asked for: the preset `effort`, unless trials or minutes are given.

        Raises `TuningError` for trials or minutes that cannot be, and for an unknown preset.
        """
        if not (isinstance(effort, str) and effort in EFFORTS):
            raise TuningError(f"effort = {effort!r}: use one of {', '.join(EFFORTS)}")
        whole = trials is None or (isinstance(trials, int) and not isinstance(trials, bool))
        if not whole or (trials is not None and trials < 0):
            raise TuningError(f"trials = {trials!r}: give an integer of at least 0")
        if minutes is not None:
            check_minutes(minutes)
        if trials is None and minutes is None:
            return EFFORTS[effort]
        return Budget(
            math.inf if trials is None else trials,
            math.inf if minutes is None else minutes,
            zero_shot=trials == 0,
        )

    @staticmethod
    def of_model(trials: int | None, minutes: float | None, effort: str = "normal") -> Budget:
        """Budget of a whole network. Raises `TuningError` also where nothing would be searched."""
        budget = Budget.of(trials, minutes, effort)
        if budget.zero_shot:
            raise TuningError(
                'trials=0 and effort="instant" are for single operators: give a model trials or '
                "minutes, or compile it by records and default schedules, which takes seconds "
                "(lw.build_model, loopwright build)"
            )
        return budget

    def __str__(self) -> str:
        parts = [counted(self.trials, "trial")] if self.trials < math.inf else []
        parts += [counted(self.minutes, "minute")] if self.minutes < math.inf else []
        return " or ".join(parts)


def check_minutes(minutes: float) -> None:
    """Raise `TuningError` for what is no positive number."""
    number = isinstance(minutes, (int, float)) and not isinstance(minutes, bool)
    if not (number and minutes > 0):
        raise TuningError(f"minutes = {minutes!r}: give a positive number")


EFFORTS = {
    "instant": Budget(8, 1, zero_shot=True),
    "quick": Budget(256, 2),
    "normal": Budget(1000, 15),
    "thorough": Budget(4000, 120),
}
"""The presets."""
