"""Choices of steps that the readings of a network at several sizes share."""

from __future__ import annotations

from typing import Any

from loopwright.graph.network import Network

Choices = dict[Any, Any]
"""What was chosen for a network at the sizes at which it was read first, by its structure.

At other sizes it gets the same steps. By itself, a reading would choose others where an axis has
one element: a transpose is a view there, and a product that repeats nothing an element-wise one.
"""


def structure_of(network: Network) -> Any:
    """A key that networks share which differ in numbers alone."""
    loops = {loop: n for n, loop in enumerate(network.loops)}
    return tuple(
        (
            tuple((v.number, len(v.shape)) for v in (*step.args, *step.outs)),
            len(step.outs),
            None if step.loop is None else loops[step.loop],
        )
        for step in network.steps
    )
