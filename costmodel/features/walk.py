"""The contexts of a loop tree, of a processor's program or of a GPU's."""

from __future__ import annotations

from loopwright.costmodel.features.context import Context, Walk
from loopwright.costmodel.features.gpu_context import GpuWalk
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Tree


def contexts(tree: Tree, target: Target) -> tuple[Context, ...]:
    """The loops and stores of a tree's body; what is prepared ahead of time costs nothing."""
    if target.gpu is not None:
        return GpuWalk(target).block(tree.body, 1.0)[0]
    return Walk(target).block(tree.body, 1.0)[0]
