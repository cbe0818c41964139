"""Figures as drawings: for each panel, medians and quartiles over the seeds."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
from figures import Figure, Panel
from search import Setting
from summary import Curves, stacked

_COLUMNS = 3
_COLORS = ("#c2410c", "#1d4ed8", "#15803d", "#7e22ce", "#475569", "#b45309")


def draw(figure: Figure, curves: Curves, path: Path) -> None:
    """In the format of the suffix; panels without curves are left out."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [
        p for p in figure.panels if any(stacked(curves, p, s) is not None for s in p.settings)
    ]
    rows, columns = math.ceil(len(panels) / _COLUMNS), min(_COLUMNS, len(panels))
    drawing, every = pyplot.subplots(
        rows, columns, figsize=(4.2 * columns, 3.1 * rows), squeeze=False, layout="constrained"
    )
    labels = list(dict.fromkeys(_kin(s) for p in panels for s in p.settings))
    colors = dict(zip(labels, itertools.cycle(_COLORS)))
    for axes, panel in zip(every.flat, panels):
        _panel(axes, panel, curves, colors)
    for axes in every.flat[len(panels) :]:
        axes.set_visible(False)
    for axes in every[:, 0]:
        axes.set_ylabel("speed / best of the table")
    drawing.suptitle(figure.title)
    drawing.savefig(path, dpi=80)
    pyplot.close(drawing)


def _kin(setting: Setting) -> str:
    """What lines of one color have in common."""
    return setting.label.partition(" × ")[0].partition(", no transfer")[0]


def _panel(axes, panel: Panel, curves: Curves, colors: dict[str, str]) -> None:
    lowest = 1.0
    for setting in panel.settings:
        found = stacked(curves, panel, setting)
        if found is None:
            continue
        low, middle, high = np.quantile(found, (0.25, 0.5, 0.75), axis=0)
        trials = np.arange(1, len(middle) + 1)
        style = "--" if setting.times > 1 or "no transfer" in setting.label else "-"
        color = colors[_kin(setting)]
        axes.plot(trials, middle, style, color=color, linewidth=1.4, label=setting.label)
        axes.fill_between(trials, low, high, color=color, alpha=0.12, linewidth=0)
        lowest = min(lowest, middle[min(15, len(middle) - 1)])
    axes.set_ylim(max(lowest - 0.1, 0), 1.01)
    axes.set_title(panel.title, fontsize=9)
    axes.set_xlabel("trials", fontsize=8)
    axes.legend(fontsize=7, loc="lower right")
    axes.grid(alpha=0.25)
