"""Drawings of a search: the tuning curve and the roofline."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

from loopwright.explore.budget import TuningError
from loopwright.explore.result import SearchResult

_INK, _BEST, _DOT = "#333333", "#c2410c", "#7c9cbf"
_OUTLIER = 20  # times the best cost: what is above is drawn at the edge


def plot(tuned: SearchResult, path: Path) -> Path:
    """Write the tuning curve in the format of the suffix: .png, .svg, .pdf, …

    Raises `TuningError` for a format that matplotlib does not know.
    """
    check_format(path)
    _curve(tuned).savefig(path, dpi=150)
    return path


def check_format(path: Path) -> None:
    """Raise `TuningError` for a suffix that names no format of matplotlib's."""
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        listed = ", ".join(f".{suffix}" for suffix in sorted(known))
        raise TuningError(f"{path}: the name of a plot ends in one of {listed}")


def curve(tuned: SearchResult) -> str:
    """The tuning curve as SVG: a dot per candidate and the best so far; cost over trial."""
    return _svg(_curve(tuned))


def roofline(speed: float, intensity: float, flops: float, bandwidth: float) -> str:
    """The roofline as SVG: what a program reaches (FLOP/s, at operations a byte) under what the
    machine could (FLOP/s, bytes/s); GFLOP/s over operations a byte."""
    figure, axes = _figure()
    ridge = flops / bandwidth
    reach = [min(ridge, intensity) / 8, ridge, max(ridge, intensity) * 8]
    axes.plot(reach, [min(flops, x * bandwidth) / 1e9 for x in reach], color=_INK, gid="roof")
    axes.plot([intensity], [speed / 1e9], "o", color=_BEST, gid="program")
    axes.set(xlabel="operations per byte", ylabel="GFLOP/s", xscale="log", yscale="log")
    return _svg(figure)


def _curve(tuned: SearchResult) -> Any:
    figure, axes = _figure()
    best = [c * 1e3 for c in tuned.curve()]
    high = _OUTLIER * best[-1]
    ran = [(i, m.cost * 1e3) for i, m in enumerate(tuned.history, 1) if m.cost < math.inf]
    dots = axes.scatter([i for i, _ in ran], [min(c, high) for _, c in ran], s=8, color=_DOT)
    dots.set_gid("candidates")
    axes.step(range(1, len(best) + 1), best, where="post", color=_BEST)
    axes.set(xlabel="trial", ylabel="ms", yscale="log")
    ticks = [t for t in axes.yaxis.get_minorticklocs() if f"{t:.0e}"[0] in "25"]
    axes.set_yticks([*axes.get_yticks(), *ticks], minor=False)
    axes.set_ylim(best[-1] * 0.9, 1.1 * max(min(c, high) for _, c in ran))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    return figure


def _figure() -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure: Any) -> str:
    """An <svg> element, without the XML header, for a page; the same for the same data."""
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context({"svg.hashsalt": "loopwright"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]
