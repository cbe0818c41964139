"""Drawings of a search: the tuning curve and the roofline, as SVG of our own or by matplotlib."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from loopwright.explore.budget import TuningError

if TYPE_CHECKING:
    from loopwright.explore.tuned import Tuned

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _MARGIN = 720, 360, 70, 45, 15
_OPEN = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
    'font-family="sans-serif" font-size="12">'
)
_INK, _BEST, _DOT = "#333", "#c2410c", "#7c9cbf"


def plot(tuned: Tuned, path: Path) -> Path:
    """Write the tuning curve: SVG needs nothing, other formats need matplotlib.

    Raises `TuningError` where that is missing or does not know the format.
    """
    if path.suffix == ".svg":
        path.write_text(curve(tuned), encoding="utf-8")
        return path
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise TuningError(
            f"{path}: matplotlib is not installed; `pip install matplotlib`, or ask for a .svg"
        ) from error
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    costs = [m.cost * 1e3 for m in tuned.history]
    numbers = range(1, len(costs) + 1)
    axes.scatter(numbers, costs, s=8, color=_DOT, label="candidates")
    axes.step(numbers, [c * 1e3 for c in tuned.curve()], where="post", color=_BEST, label="best")
    axes.set(xlabel="trial", ylabel="ms", yscale="log")
    axes.legend()
    try:
        figure.savefig(path, dpi=150)
    except ValueError as error:
        raise TuningError(f"{path}: {error}") from error
    return path


def curve(tuned: Tuned) -> str:
    """The tuning curve as SVG: a dot per candidate and the best so far; cost over trial."""
    ran = [(i + 1.0, m.cost * 1e3) for i, m in enumerate(tuned.history) if m.cost < math.inf]
    best = [(i + 1.0, c * 1e3) for i, c in enumerate(tuned.curve()) if c < math.inf]
    high = min(max(c for _, c in ran), 20 * best[-1][1])
    chart = _Chart((0.0, len(tuned.history) + 1.0), (best[-1][1] * 0.9, high * 1.1), (False, True))
    drawn = [chart.dot(x, min(y, high), _DOT, 2) for x, y in ran]
    drawn.append(chart.line([(x, min(y, high)) for x, y in _stairs(best)], _BEST))
    return chart.svg("trial", "ms", drawn)


def _stairs(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The points, joined by horizontal and vertical lines alone."""
    yield points[0]
    for (_, before), (x, y) in itertools.pairwise(points):
        yield x, before
        yield x, y


def roofline(speed: float, intensity: float, flops: float, bandwidth: float) -> str:
    """The roofline as SVG: what a program reaches (FLOP/s, at operations a byte) under what the
    machine could (FLOP/s, bytes/s); GFLOP/s over operations a byte."""
    ridge = flops / bandwidth
    low, high = min(ridge, intensity) / 8, max(ridge, intensity) * 8
    roof = [(x, min(flops, x * bandwidth) / 1e9) for x in (low, ridge, high)]
    floor = min(roof[0][1], speed / 1e9) / 2
    chart = _Chart((low, high), (floor, 2 * flops / 1e9), (True, True))
    drawn = [chart.line(roof, _INK), chart.dot(intensity, speed / 1e9, _BEST, 5)]
    return chart.svg("operations per byte", "GFLOP/s", drawn)


class _Chart:
    """Axes with ticks, linear or logarithmic, and the marks within."""

    def __init__(
        self, x: tuple[float, float], y: tuple[float, float], logs: tuple[bool, bool]
    ) -> None:
        self.x, self.y, self.logs = x, y, logs

    def svg(self, x_name: str, y_name: str, drawn: Sequence[str]) -> str:
        bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _MARGIN
        frame = f"M{_LEFT} {_MARGIN}V{bottom}H{right}"
        parts = [
            _OPEN,
            f'<path d="{frame}" fill="none" stroke="{_INK}"/>',
            f'<text x="{right}" y="{_HEIGHT - 5}" text-anchor="end">{escape(x_name)}</text>',
            f'<text x="5" y="{_MARGIN}">{escape(y_name)}</text>',
            *self._ticks(bottom),
            *drawn,
            "</svg>",
        ]
        return "\n".join(parts)

    def line(self, points: Sequence[tuple[float, float]], color: str) -> str:
        at = " ".join(f"{a:.1f},{b:.1f}" for a, b in (self._place(x, y) for x, y in points))
        return f'<polyline points="{at}" fill="none" stroke="{color}" stroke-width="2"/>'

    def dot(self, x: float, y: float, color: str, radius: float) -> str:
        a, b = self._place(x, y)
        return f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{radius}" fill="{color}"/>'

    def _ticks(self, bottom: float) -> Iterator[str]:
        for value in ticks(*self.x, self.logs[0]):
            at = self._place(value, self.y[0])[0]
            yield f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle">{value:.4g}</text>'
        for value in ticks(*self.y, self.logs[1]):
            at = self._place(self.x[0], value)[1]
            yield f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{value:.4g}</text>'

    def _place(self, x: float, y: float) -> tuple[float, float]:
        a, b = _share(x, self.x, self.logs[0]), _share(y, self.y, self.logs[1])
        wide, tall = _WIDTH - _LEFT - _MARGIN, _HEIGHT - _BOTTOM - _MARGIN
        return _LEFT + a * wide, _MARGIN + (1 - b) * tall


def _share(value: float, span: tuple[float, float], log: bool) -> float:
    low, high = span
    if log:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return (value - low) / (high - low)


def ticks(low: float, high: float, log: bool) -> list[float]:
    """Round numbers within a span, some four to seven of them."""
    if not log or high / low < 4:
        step = 10 ** math.floor(math.log10(high - low))
        step *= next(f for f in (0.1, 0.2, 0.5, 1, 2) if (high - low) / (f * step) <= 7)
        return [step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high / low < 200 else (1,)
    return [f * 10.0**p for p in powers for f in factors if low <= f * 10.0**p <= high]
