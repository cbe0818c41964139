"""The metrics, against definitions and by hand."""

import numpy as np
import pytest

from loopwright.costmodel.models.losses import pairwise_accuracy, top_k_recall

COSTS = np.array([1.0, 2.0, 3.0, np.inf])


def test_pairwise_accuracy_is_the_share_of_pairs_in_order():
    assert pairwise_accuracy(np.array([4.0, 3.0, 2.0, 1.0]), COSTS) == 1
    assert pairwise_accuracy(np.array([1.0, 2.0, 3.0, 4.0]), COSTS) == 0
    assert pairwise_accuracy(np.array([3.0, 4.0, 2.0, 1.0]), COSTS) == 5 / 6
    assert pairwise_accuracy(np.zeros(4), COSTS) == 0.5


def test_pairs_of_equal_cost_do_not_count():
    costs = np.array([1.0, 1.0, np.inf, np.inf])
    assert pairwise_accuracy(np.array([2.0, 3.0, 1.0, 0.0]), costs) == 1
    assert np.isnan(pairwise_accuracy(np.arange(3.0), np.ones(3)))


def test_top_k_recall_is_the_share_of_the_best_that_are_found():
    scores = np.array([4.0, 1.0, 3.0, 2.0])
    assert top_k_recall(scores, COSTS, 1) == 1
    assert top_k_recall(scores, COSTS, 2) == 0.5
    assert top_k_recall(scores, COSTS, 10) == pytest.approx(2 / 3)  # of those that work
    assert np.isnan(top_k_recall(scores, COSTS, 0))


def test_failures_are_none_of_the_best():
    costs = np.array([np.inf, np.inf, 2.0, 1.0])
    assert top_k_recall(np.array([0.0, 1.0, 2.0, 3.0]), costs, 3) == 1
    assert np.isnan(top_k_recall(np.ones(2), np.array([np.inf, np.inf]), 1))
