"""Bounds of a workload's time on this machine: which one a program stands at, and how near."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from loopwright.dsl.workload import Workload
from loopwright.measure.machine import cache_of
from loopwright.measure.roofline import best_seconds, copy_seconds, peak_flops, reader, roofline
from loopwright.schedule.target import Target

_NEAR = 0.5
"""Share of the time from which on a bound is what a program stands at."""
_FLOATS = {"float32", "float64"}
"""Types whose operations are no faster than those of the measured peak."""


@dataclass(frozen=True)
class Bound:
    """Seconds that a call takes at least, with the `reason` in words. The `name` is "compute", the
    level of the cache that holds all arrays ("L2"), "memory", or "launch"."""

    name: str
    seconds: float
    reason: str


def bounds(work: Workload, target: Target) -> tuple[Bound, ...]:
    """The bounds of a workload's time on this machine, called again and again: the largest first.
    Takes some seconds.

    Raises `BuildError` without a toolchain, `TargetError` for another machine's target.
    """
    moved, level = work.min_bytes, cache_of(work.min_bytes, target.threads)
    if level == "memory":
        reading = moved / roofline(target).bandwidth
    else:
        reading = best_seconds(reader(moved, target))
    found = [
        Bound(level, reading, f"{moved:,} bytes of inputs and outputs from {level}"),
        Bound("launch", _launch(target), "a call that does next to nothing"),
    ]
    if work.flops and {t.dtype for t in (*work.inputs, *work.outputs)} <= _FLOATS:
        least = work.flops / peak_flops(target)
        found.append(
            Bound(
                "compute",
                least,
                f"{work.flops:,} operations of the direct sum at the peak of float32",
            )
        )
    return tuple(sorted(found, key=lambda bound: -bound.seconds))


def standing(found: tuple[Bound, ...], seconds: float) -> str:
    """Sentences about the bound that a program of so many seconds a call is nearest to."""
    first = ""
    if any(b.name == "compute" and b.seconds > seconds for b in found):
        (direct,) = (b for b in found if b.name == "compute")
        found = tuple(b for b in found if b is not direct)
        first = (
            f"The direct sum takes {direct.seconds * 1e3:.4g} ms at the peak, "
            f"{direct.seconds / seconds:.0%} of its time: the program does fewer operations, or "
            "the machine is busier now than at the comparison. "
        )
    return first + _nearest(found[0], seconds)


def _nearest(nearest: Bound, seconds: float) -> str:
    share = f"{nearest.seconds * 1e3:.4g} ms, {nearest.seconds / seconds:.0%} of its time"
    if nearest.seconds > seconds:
        return (
            f"The program stands at the {nearest.name} bound: as measured now, on a machine that "
            f"is busier than at the comparison, that is {share}."
        )
    if nearest.seconds < _NEAR * seconds:
        return f"The program is far from all bounds; the nearest is {nearest.name}: {share}."
    return f"The program stands at the {nearest.name} bound: {share}."


@functools.cache
def _launch(target: Target) -> float:
    """Seconds of a call that copies one element."""
    return copy_seconds(1, target)
