"""Loop trees of unequal shape as one batch: what a TreeGRU walks through.

Rows of `FlattenedTree` and `TreeText` hold loops in the order of the text, with their depth, so a
loop's parent is the last loop before it that is one level further out. Loops that run once, or
not at all, are left out: programs have none of the former (codegen drops them), and zeros stand
for the latter. What is inside of one then belongs to the loop around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.costmodel.model import Floats, ModelError

Index = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

_ONCE = 1.0  # log₂(1 + extent) of a loop that runs once


@dataclass(frozen=True, eq=False)
class TreeBatch:
    """The loops of n trees, the outermost ones first, as rows of shape (loops, columns). `trees`
    has the tree of each, `levels` where each depth begins and the last one ends. `parents` are
    places within the level outside, 0 at depth 0."""

    loops: Floats
    trees: Index
    levels: tuple[int, ...]
    parents: Index
    n: int

    @staticmethod
    def of(rows: Floats, names: Sequence[str]) -> TreeBatch:
        """The trees in rows of shape (n, loops · columns); `names` are those of a loop's columns.

        Raises `ModelError` where rows are not so many columns long.
        """
        width = len(names)
        if rows.ndim != 2 or rows.shape[1] % width:
            raise ModelError(
                f"features of shape {rows.shape}; a TreeGRU reads loops of {width} columns each: "
                'use the representation "tree", or "text" for the plain one'
            )
        columns = rows.reshape(len(rows), rows.shape[1] // width, width)
        extents, nesting = (columns[:, :, names.index(name)] for name in ("extent", "depth"))
        runs = extents > _ONCE
        depths, parents = _structure(extents > 0, runs, nesting.astype(np.int64))
        trees, places = np.nonzero(runs)
        order = np.argsort(depths[trees, places], kind="stable")
        trees, places = trees[order], places[order]
        depth = depths[trees, places]
        levels = np.searchsorted(depth, np.arange(depth.max(initial=-1) + 2))
        position = np.zeros((len(rows), runs.shape[1] + 1), np.int64)
        position[trees, places] = np.arange(len(trees)) - levels[depth]
        above = position[trees, parents[trees, places]]
        return TreeBatch(columns[trees, places], trees, tuple(levels.tolist()), above, len(rows))


def _structure(present: Mask, runs: Mask, nesting: Index) -> tuple[Index, Index]:
    """Depth and parent of every loop, counting only those that run; shape (n, loops).

    `nesting` counts all loops around. A loop at depth 0 has the last place, -1, as its parent.
    """
    rows = np.arange(len(runs))
    depths, parents = np.full(runs.shape, -1), np.full(runs.shape, -1)
    # For each nesting, the innermost loop around that runs, and how many do; in front, none.
    around = np.full((len(runs), int(nesting.max(initial=0)) + 2), -1)
    deep = np.zeros_like(around)
    for k in range(runs.shape[1]):
        at, here = nesting[:, k], runs[:, k]
        parents[:, k], depths[:, k] = around[rows, at], deep[rows, at]
        inner = (rows, at + 1)
        around[inner] = np.where(present[:, k], np.where(here, k, parents[:, k]), around[inner])
        deep[inner] = np.where(present[:, k], depths[:, k] + here, deep[inner])
    return depths, parents
