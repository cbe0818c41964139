"""Figures as tables: how good the best of so many trials is, and how many it takes."""

from __future__ import annotations

import math
import statistics

import numpy as np
from figures import Figure, Panel
from search import Setting

Curves = dict[tuple[str, str, int], list[float]]
"""By table, key of the setting, and seed: the optimum's cost over the lowest found, by trial."""

MARKS = (16, 32, 64, 96, 128)
CLOSE = (0.95, 0.99)


def stacked(curves: Curves, panel: Panel, setting: Setting) -> np.ndarray | None:
    """The curves of all seeds, shape (seeds, trials); None if there are none."""
    key = (panel.table, setting.key)
    found = [c for (*other, _), c in sorted(curves.items()) if tuple(other) == key]
    return np.array(found) if found else None


def summary(figure: Figure, curves: Curves) -> str:
    """A table in Markdown: for each panel and setting, the median of the speed found, as a share
    of the best in the table, after so many trials; and the median of the trials to 95 and 99 %."""
    head = [
        "panel",
        "search",
        "seeds",
        *(f"{m}" for m in MARKS),
        *(f"to {share:.0%}" for share in CLOSE),
    ]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for panel in figure.panels:
        for setting in panel.settings:
            found = stacked(curves, panel, setting)
            if found is not None:
                cells = [f"{np.median(found[:, m - 1]):.3f}" for m in MARKS]
                row = [
                    panel.title,
                    setting.label,
                    f"{len(found)}",
                    *cells,
                    *(_needed(found, share) for share in CLOSE),
                ]
                lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def trials_to(found: np.ndarray, share: float) -> list[float]:
    """For each seed, the trials until the share of the best is reached; inf where it is not."""
    return [next((n for n, v in enumerate(c, 1) if v >= share), math.inf) for c in found]


def _needed(found: np.ndarray, share: float) -> str:
    middle = statistics.median(trials_to(found, share))
    return f"{middle:g}" if math.isfinite(middle) else f"> {found.shape[1]}"
