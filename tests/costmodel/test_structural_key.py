"""Statements that do the same are alike, and others are not."""

from dataclasses import replace

import numpy as np
import pytest

import loopwright as lw
from loopwright.costmodel.features.batch_arithmetic import rows
from loopwright.costmodel.features.inner_loop import InnerLoop, inner_loop
from loopwright.costmodel.features.relation import relations
from loopwright.costmodel.features.representation import ContextRelation
from loopwright.costmodel.features.structural_key import structural_key
from loopwright.costmodel.features.summary import summary, totals
from loopwright.costmodel.features.trace import contexts
from loopwright.dsl import ops
from loopwright.schedule.lowering import lower
from loopwright.schedule.tree.grammar import Loop, Var
from tests.costmodel.trees import TARGET, buffer, copy, nest
from tests.targets import HERE


def copied(extent=8, kind="serial", name="i", scope="argument", dtype="float32", step=1):
    i = Var(name)
    source = replace(buffer("A", 64, scope=scope), dtype=dtype)
    return nest((i, extent, kind), body=copy(buffer("B", 64), ([(i, step)],), source, ([(i, 1)],)))


def test_names_do_not_matter():
    assert structural_key(copied(name="i")) == structural_key(copied(name="j"))


@pytest.mark.parametrize(
    "other",
    [
        {"extent": 9},
        {"kind": "parallel"},
        {"scope": "heap"},
        {"dtype": "float64"},
        {"step": 2},
    ],
)
def test_what_features_see_matters(other):
    assert structural_key(copied()) != structural_key(copied(**other))


def test_bounds_matter():
    loop = copied()
    assert isinstance(loop, Loop)
    outer = Var("o")

    def within(bound):
        return Loop(outer, 4, "serial", (replace(loop, bound=bound),))

    from loopwright.schedule.tree.grammar import Linear

    bounded = within(Linear(((outer, -8),), 30))
    assert structural_key(within(None)) != structural_key(bounded)


def test_features_by_statements_are_those_of_the_whole_tree():
    x = lw.tensor("x", (1, 16, 7, 6))
    w = lw.tensor("w", (16, 24, 4, 4), constant=True)
    space = lw.space(lw.workload(ops.conv2d_transpose(x, w, stride=2, padding=1)), HERE)
    for sketch in (*space.sketches[:3], *space.sketches[-3:]):
        tree = lower(sketch, TARGET, np.array([sketch.default]))
        nodes = contexts(tree, TARGET)
        nests = [totals(node, TARGET) for node in nodes]
        inside = list(map(InnerLoop.of, nodes, nests))
        whole = [*relations(nodes), *summary(nests, tree, TARGET, 1000), *inner_loop(inside)]
        got = ContextRelation().of_tree(tree, TARGET, 1000)
        np.testing.assert_array_equal(got, np.ascontiguousarray(rows(whole, 1).T))
