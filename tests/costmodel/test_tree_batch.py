"""Rows of flattened trees as trees again."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.costmodel.features.context import loops, text_names
from loopwright.costmodel.features.representation import FlattenedTree, TreeText, resized
from loopwright.costmodel.features.trace import contexts
from loopwright.costmodel.model import ModelError
from loopwright.costmodel.models.tree_batch import TreeBatch
from loopwright.dsl import ops
from loopwright.schedule.lowering import lower
from loopwright.schedule.space import space
from loopwright.schedule.target import Target

NAMES = text_names()
EXTENT, DEPTH, LAST = NAMES.index("extent"), NAMES.index("depth"), len(NAMES) - 1


def rows(*trees):
    """Rows of trees, each a list of (depth, extent), numbered in their last column."""
    result = np.zeros((len(trees), max(map(len, trees)), len(NAMES)), np.float32)
    for row, tree in zip(result, trees, strict=True):
        for number, (depth, extent) in enumerate(tree):
            row[number, [DEPTH, EXTENT, LAST]] = depth, np.log2(1 + extent), number
            if extent == 0:
                row[number] = 0
    return result.reshape(len(trees), -1)


def read(tree_batch):
    """For every tree, {loop: parent} by their numbers."""
    numbers = tree_batch.loops[:, LAST].astype(int)
    result = [{} for _ in range(tree_batch.n)]
    for depth, (start, end) in enumerate(zip(tree_batch.levels, tree_batch.levels[1:])):
        for loop in range(start, end):
            above = tree_batch.levels[depth - 1] + tree_batch.parents[loop] if depth else None
            assert above is None or tree_batch.trees[above] == tree_batch.trees[loop]
            parent = None if above is None else numbers[above]
            result[tree_batch.trees[loop]][numbers[loop]] = parent
    return result


def test_depths_say_which_loop_stands_in_which():
    tree_batch = TreeBatch.of(rows([(0, 3), (1, 4), (2, 5), (1, 6), (0, 7), (1, 8)]), NAMES)
    assert read(tree_batch) == [{0: None, 1: 0, 2: 1, 3: 0, 4: None, 5: 4}]
    assert tree_batch.levels == (0, 2, 5, 6)


def test_trees_of_unequal_shape_are_one_batch():
    tree_batch = TreeBatch.of(
        rows([(0, 3), (1, 4), (2, 5)], [(0, 9)], [(0, 3), (0, 2), (1, 5)]), NAMES
    )
    assert read(tree_batch) == [{0: None, 1: 0, 2: 1}, {0: None}, {0: None, 1: None, 2: 1}]


def test_what_is_inside_of_a_loop_that_runs_once_belongs_to_the_loop_around_it():
    tree_batch = TreeBatch.of(
        rows([(0, 3), (1, 1), (2, 5), (3, 6), (1, 2)], [(0, 1), (1, 7)]), NAMES
    )
    assert read(tree_batch) == [{0: None, 2: 0, 3: 2, 4: 0}, {1: None}]


def test_loops_that_never_run_are_as_if_they_were_absent():
    tree_batch = TreeBatch.of(
        rows([(0, 3), (1, 0), (1, 4), (2, 0), (2, 5)], [(0, 0), (0, 4)]), NAMES
    )
    assert read(tree_batch) == [{0: None, 2: 0, 4: 2}, {1: None}]


def test_a_tree_may_have_no_loops_and_a_batch_no_trees():
    tree_batch = TreeBatch.of(rows([(0, 1)], [(0, 2)]), NAMES)
    assert read(tree_batch) == [{}, {0: None}]
    assert TreeBatch.of(rows([(0, 1)]), NAMES).levels == (0,)
    assert TreeBatch.of(rows([(0, 2)])[:0], NAMES).n == 0


def test_rows_of_another_width_are_refused():
    with pytest.raises(ModelError, match="a TreeGRU reads loops of"):
        TreeBatch.of(np.zeros((3, len(NAMES) + 1), np.float32), NAMES)


@pytest.mark.parametrize("representation", [FlattenedTree(), TreeText()])
def test_a_forest_of_real_programs_has_the_loops_that_run_more_than_once(representation):
    weights = lw.tensor("W", (16, 6, 3, 3), constant=True)
    workload = lw.workload(ops.conv2d(lw.tensor("X", (1, 6, 15, 13)), weights, padding=1))
    points, rng = space(workload, Target(threads=2)), np.random.default_rng(0)
    for number in (0, len(points.sketches) - 1):
        knobs = points.sketches[number].knobs
        numbers = np.stack([rng.integers(len(k.choices), size=7) for k in knobs], axis=1)
        features = representation.features(points, number, numbers)
        tree_batch = TreeBatch.of(
            resized(features, features.shape[1] * 2), representation.loop_names()
        )
        batch = lower(points.sketches[number], points.target, numbers)
        for i in range(7):
            found = [n for n in loops(contexts(batch.row(i), points.target)) if n.extent > 1]
            extents = np.exp2(tree_batch.loops[tree_batch.trees == i, EXTENT]) - 1
            assert np.allclose(sorted(extents), sorted(float(n.extent) for n in found), rtol=1e-4)
