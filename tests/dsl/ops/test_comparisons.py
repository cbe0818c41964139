"""Orders by comparisons, beside those of the oracle."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.dsl.expr import Reduce
from loopwright.dsl.ops import comparisons
from loopwright.dsl.oracle import evaluate
from tests.dsl.compute import draw


@pytest.mark.parametrize("k", [1, 2, 9])
@pytest.mark.parametrize("n", [9, 17, 64, 65])
@pytest.mark.parametrize("largest", [True, False])
def test_a_tournament_of_blocks_finds_the_same(monkeypatch, n, k, largest):
    monkeypatch.setattr(comparisons, "_BLOCK", 4)
    x = lw.tensor("X", (3, n))
    a = np.round(draw(x) * 4).astype(np.float32)
    a.flat[::7] = np.nan
    order = lw.workload(*ops.topk(x, k, 1, largest))
    made = comparisons.by_comparisons(order, lambda d: True)
    assert not any("greatest(" in str(w) or "least(" in str(w) for w in made.stages)
    for one, other in zip(evaluate(order, [a]), evaluate(made, [a]), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("names", ["i r c", "b e j", "j i b", "c b e"])
def test_rows_may_be_named_as_comparisons_name_what_is_theirs(names):
    row, rank, along = lw.indices(names)
    x, places = lw.tensor("X", (5, 7)), lw.tensor("P", (5, 7))
    places[row, rank] = Reduce("greatest", x[row, along])
    made = comparisons.by_comparisons(lw.workload(places), lambda d: True)
    a = draw(x)
    np.testing.assert_array_equal(evaluate(made, [a])[0], np.argsort(-a, 1, kind="stable"))


def test_a_workload_without_a_chosen_order_is_as_it_was():
    order = lw.workload(ops.argsort(lw.tensor("X", (3, 5))))
    assert comparisons.by_comparisons(order, lambda d: False) is order
