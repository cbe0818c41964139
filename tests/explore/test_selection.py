"""The diversity-aware choice of Eq. 3."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from loopwright.explore.strategies.selection import select


def objective(scores, components, chosen, alpha):
    """Eq. 3, literally."""
    diversity = sum(len(set(column)) for column in components[chosen].T)
    return scores[chosen].sum() / scores.std() + alpha * diversity


def test_without_diversity_the_best_scores_are_chosen():
    scores = np.array([0.1, 0.9, 0.5, 0.7])
    components = np.zeros((4, 2), np.int64)
    assert select(scores, components, 3, 0.0).tolist() == [1, 3, 2]


def test_with_diversity_another_value_beats_a_slightly_better_twin():
    scores = np.array([1.0, 0.99, 0.98])
    components = np.array([[0, 0], [0, 0], [5, -1]])
    assert select(scores, components, 2, 0.0).tolist() == [0, 1]
    assert select(scores, components, 2, 3.0).tolist() == [0, 2]


def test_equal_numbers_in_different_columns_are_different_components():
    scores = np.array([3.0, 1.0, 1.0])
    components = np.array([[1, 2], [2, 1], [1, 2]])
    assert select(scores, components, 2, 1.0).tolist() == [0, 1]


@pytest.mark.parametrize("seed", range(5))
def test_greedy_is_as_good_as_the_theorem_says(seed):
    rng = np.random.default_rng(seed)
    scores, components = rng.random(9), rng.integers(3, size=(9, 4))
    chosen = select(scores, components, 3, 0.5)
    best = max(
        objective(scores, components, list(c), 0.5) for c in itertools.combinations(range(9), 3)
    )
    assert objective(scores, components, chosen, 0.5) >= (1 - 1 / np.e) * best


def test_few_candidates_and_equal_scores_are_fine():
    components = np.arange(6).reshape(3, 2)
    assert sorted(select(np.ones(3), components, 10, 0.1)) == [0, 1, 2]
    assert select(np.empty(0), components[:0], 4, 0.1).tolist() == []
