"""The two devices that a network is placed on, as the user names them."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.codegen.target import resolve
from loopwright.graph.errors import ModelError
from loopwright.schedule.target import Target


def given_targets(targets: Sequence[str] | None, elsewhere: bool) -> Target | None:
    """The GPU of two targets, of which the other one is the processor; None where none are given.
    Raises `ModelError` where a target or a device is given too, and `TargetError` where this
    machine has no such GPU."""
    if targets is None:
        return None
    if elsewhere:
        raise ModelError("targets stand in place of a target and a device: leave those out")
    pair = isinstance(targets, Sequence) and sorted(map(str, targets))
    if pair not in (["cpu", "cuda"], ["cpu", "opencl"]):
        raise ModelError(f'targets={targets!r}: give ["cpu", "cuda"] or ["cpu", "opencl"]')
    return resolve(next(name for name in targets if name != "cpu"))
