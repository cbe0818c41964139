"""Drawing of the programs of open sizes: their times over the sizes of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.explore.report.plot import new_figure


def open_figure(
    title: str,
    sizes: Sequence[Mapping[str, int]],
    seconds: np.ndarray[Any, np.dtype[np.float64]],
    chosen: Sequence[int],
) -> Any:
    """A dot for each program (rows of `seconds`) at each of the sizes, over the first dim, and a
    ring around the one that is chosen there."""
    figure, axes = new_figure(height=4)
    name = next(iter(sizes[0]))
    place = np.array([each[name] for each in sizes])
    for number, row in enumerate(seconds):
        able = np.isfinite(row)
        axes.plot(place[able], row[able] * 1e6, ".", label=f"program {number}")
    best = seconds[list(chosen), np.arange(len(place))] * 1e6
    ring = {"markerfacecolor": "none", "markeredgecolor": "#333333"}
    axes.plot(place, best, "o", label="chosen", **ring)
    axes.set_title(title, fontsize=10, loc="left", wrap=True)
    axes.set(xlabel=name, ylabel="µs", xscale="log", yscale="log")
    axes.legend(fontsize="small", ncols=2)
    return figure
