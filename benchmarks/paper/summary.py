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
OF_SCRATCH = (0.95, 0.99, 1.0)
"""Shares of the median speed that a search from scratch ends with."""


def stacked(curves: Curves, panel: Panel, setting: Setting) -> np.ndarray | None:
    """The curves of all seeds, shape (seeds, trials); None if there are none."""
    key = (panel.table, setting.key)
    found = [c for (*other, _), c in sorted(curves.items()) if tuple(other) == key]
    return np.array(found) if found else None


def summary(figure: Figure, curves: Curves) -> str:
    """Tables in Markdown. For each panel and setting, the median of the speed found, as a share
    of the best in the table, after so many trials, and of the trials to 95 and 99 %. Where there
    is transfer, also the trials until it is as fast as the search from scratch is at its end.
    """
    pairs = [(p, s) for p in figure.panels for s in p.settings]
    results = [(p, s, found) for p, s in pairs if (found := stacked(curves, p, s)) is not None]
    marks, close = [f"{m}" for m in MARKS], [f"to {share:.0%}" for share in CLOSE]
    lines = _head("panel", "search", "seeds", *marks, *close)
    for panel, setting, found in results:
        cells = [f"{np.median(found[:, m - 1]):.3f}" for m in MARKS]
        needed = [_needed(found, share) for share in CLOSE]
        lines.append(_row(panel.title, setting.label, f"{len(found)}", *cells, *needed))
    learned = [(p, s, found) for p, s, found in results if s.sources]
    if learned:
        lines += [
            "",
            *_head("panel", "search", *(f"{share:.0%} of scratch" for share in OF_SCRATCH)),
        ]
    for panel, setting, found in learned:
        scratch = stacked(curves, panel, setting.scratch)
        if scratch is not None:
            end = float(np.median(scratch[:, -1]))
            cells = [
                f"{_needed(found, share * end)} against {_needed(scratch, share * end)}"
                for share in OF_SCRATCH
            ]
            lines.append(_row(panel.title, setting.label, *cells))
    return "\n".join(lines)


def _head(*cells: str) -> list[str]:
    return [_row(*cells), "|---" * len(cells) + "|"]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def trials_to(found: np.ndarray, share: float) -> list[float]:
    """For each seed, the trials until the share of the best is reached; inf where it is not."""
    return [next((n for n, v in enumerate(c, 1) if v >= share), math.inf) for c in found]


def _needed(found: np.ndarray, share: float) -> str:
    middle = statistics.median(trials_to(found, share))
    return f"{middle:g}" if math.isfinite(middle) else f"> {found.shape[1]}"
