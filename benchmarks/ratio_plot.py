"""Outcomes as a drawing: each contender's speed as a share of the best peer's, row by row."""

from __future__ import annotations

from pathlib import Path

from outcomes import Outcome
from suites import goal
from tables import groups

_OURS, _PEER, _LINE = "#c2410c", "#7c9cbf", "#333333"
_NAMED = 40  # rows, up to which each has its name


def draw(outcomes: list[Outcome], path: Path) -> None:
    """One panel for each suite and number of threads; in the format of the suffix."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = list(groups(outcomes))
    figure, every = pyplot.subplots(
        len(panels), figsize=(10, 2.6 * len(panels)), squeeze=False, layout="constrained"
    )
    for axes, group in zip(every[:, 0], panels, strict=True):
        _panel(axes, group)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _panel(axes, group: list[Outcome]) -> None:
    if len(group) > _NAMED:
        group = sorted(group, key=lambda o: o.ratio)
    for place, o in enumerate(group):
        best = o.seconds.get(o.best)
        own = {n: s for n, s in o.seconds.items() if n in ("ours", "ours-last")}
        for name, seconds in o.seconds.items() if best else ():
            ours = name in own
            color, size = (_OURS, 36) if ours else (_PEER, 9)
            speed = o.ratio if ours and seconds == min(own.values()) else best / seconds
            axes.scatter([place], [speed], color=color, s=size, zorder=3 + ours)
    axes.axhline(1, color=_LINE, linewidth=0.8)
    axes.axhline(goal(group[0].suite).mean, color=_OURS, linewidth=0.8, linestyle=":")
    axes.set_yscale("log")
    ticks = [0.25, 0.5, 1, 2, 4]
    axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    axes.set_ylabel("speed / best peer's")
    axes.set_title(f"{group[0].suite}, threads: {group[0].threads}; ours in red", fontsize=9)
    if len(group) <= _NAMED:
        turn = {} if len(group) <= 12 else {"rotation": 90}
        axes.set_xticks(range(len(group)), [o.row for o in group], fontsize=7, **turn)
