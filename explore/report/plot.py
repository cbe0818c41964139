"""Drawings of a search: the tuning curve, the roofline, and programs over open sizes."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.dsl.words import counted
from loopwright.dsl.workload import tensor_shape
from loopwright.explore.budget import TuningError
from loopwright.explore.result import SearchResult
from loopwright.packages import optional

_INK, _BEST, _DOT = "#333333", "#c2410c", "#7c9cbf"
_PEER = "#15803d"
_LONGEST = 110  # characters of a line of the title
_OUTLIER = 20  # times the best cost: what is above is drawn at the edge


def plot(tuned: SearchResult, path: Path) -> None:
    """Write the tuning curve in the format of the suffix: .png, .svg, …"""
    _curve(tuned).savefig(path, dpi=150)


def check_format(path: Path) -> None:
    """Raise `TuningError` for a suffix that names no format of matplotlib's."""
    backends = optional("matplotlib.backend_bases", "a plot", TuningError)
    known = backends.FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        listed = ", ".join(f".{suffix}" for suffix in sorted(known))
        raise TuningError(f"{path}: the name of a plot ends in one of {listed}")


def curve(tuned: SearchResult) -> str:
    """The tuning curve as SVG: a dot per candidate and the best so far; cost over trial."""
    return svg(_curve(tuned))


def roofline(
    speed: float, intensity: float, flops: float, bandwidth: float, level: str = "memory"
) -> str:
    """The roofline as SVG: what a program reaches (FLOP/s, at operations a byte) under what the
    machine could (FLOP/s, and bytes/s from a level of its memory); GFLOP/s over operations a
    byte."""
    figure, axes = new_figure()
    ridge = flops / bandwidth
    reach = [min(ridge, intensity) / 8, ridge, max(ridge, intensity) * 8]
    axes.plot(reach, [min(flops, x * bandwidth) / 1e9 for x in reach], color=_INK, gid="roof")
    axes.lines[-1].set_label(f"{bandwidth / 1e9:.3g} GB/s from {level}, {flops / 1e9:.4g} GFLOP/s")
    label = f"best: {speed / 1e9:.4g} GFLOP/s"
    axes.plot([intensity], [speed / 1e9], "D", color=_BEST, gid="program", label=label)
    axes.set(xlabel="operations per byte", ylabel="GFLOP/s", xscale="log", yscale="log")
    axes.legend(frameon=False)
    return svg(figure)


def _curve(tuned: SearchResult) -> Any:
    figure, axes = new_figure()
    best = [c * 1e3 for c in tuned.curve()]
    high = _OUTLIER * best[-1]
    ran = [(i, m.cost * 1e3) for i, m in enumerate(tuned.history, 1) if m.cost < math.inf]
    dots = axes.scatter(
        [i for i, _ in ran],
        [min(c, high) for _, c in ran],
        s=8,
        color=_DOT,
        label=f"candidates, {len(best) - len(ran)} of {len(best)} failed",
    )
    dots.set_gid("candidates")
    axes.step(
        range(1, len(best) + 1), best, where="post", color=_BEST, label="best of the search so far"
    )
    told = _told(tuned)
    for name, ms, color, style in told:
        axes.axhline(min(ms, high), color=color, linestyle=style, label=f"{name}: {ms:.4g} ms")
    shown = tuned.seconds * 1e3
    when = "compared at the end" if tuned.finalists else "not compared"
    label = f"best, {when}: {shown:.4g} ms"
    axes.plot([len(best)], [shown], "D", color=_BEST, label=label, gid="best", clip_on=False)
    axes.set(xlabel="trial (number of candidates)", ylabel="time of a call (ms)", yscale="log")
    ticks = [t for t in axes.yaxis.get_minorticklocs() if f"{t:.0e}"[0] in "25"]
    axes.set_yticks([*axes.get_yticks(), *ticks], minor=False)
    drawn = [shown, *(min(c, high) for _, c in ran), *(min(ms, high) for _, ms, *_ in told)]
    axes.set_ylim(min(drawn) * 0.9, 1.1 * max(drawn))
    axes.set_title(_title(tuned), fontsize=10, loc="left")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    return figure


def _told(tuned: SearchResult) -> list[tuple[str, float, str, str]]:
    """Names, milliseconds, colours and styles of what the best is compared with."""
    told = []
    if math.isfinite(tuned.default):
        told.append(("default", tuned.default * 1e3, _INK, "--"))
    if tuned.peer is not None:
        name = f"{tuned.peer.name}, called from Python"
        told.append((name, tuned.peer.seconds * 1e3, _PEER, ":"))
    return told


def _title(tuned: SearchResult) -> str:
    """The workload, the target, and the best relative to the default."""
    work, target, record = tuned.workload, tuned.target, tuned.record
    inputs, outputs = (
        ", ".join(f"{t.name}{list(tensor_shape(t))}" for t in tensors)
        for tensors in (work.inputs, work.outputs)
    )
    machine = "" if record is None else record.machine.get("processor", "")
    place = f"{machine or target.mcpu}, {target.kind}, {counted(target.threads, 'thread')}"
    lines = (f"{inputs} → {outputs}", place, tuned.claim)
    return "\n".join(textwrap.shorten(line, _LONGEST, placeholder="…") for line in lines)


def new_figure(height: float = 5) -> tuple[Any, Any]:
    """Figure of 8 inches by `height` and its axes. Raises `TuningError` without matplotlib."""
    figures = optional("matplotlib.figure", "a plot or a report", TuningError)
    figure = figures.Figure(figsize=(8, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def svg(figure: Any) -> str:
    """A figure as an <svg> element, without XML header, for a page; the same for the same data."""
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context({"svg.hashsalt": "loopwright", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


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
