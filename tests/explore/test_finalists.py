"""Naming a winner."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import wilcoxon

from loopwright.explore.significance import chance, judge
from loopwright.schedule.sketch.sketch import Config
from tests.sketches import direct

A, B, C = (Config(direct(name), ()) for name in "ABC")


def noisy(level, seed, noise=0.05):
    return tuple(level * np.exp(np.random.default_rng(seed).normal(0, noise, 20)))


def test_the_lowest_median_wins_and_the_rest_follows_in_order():
    ranked = judge([A, B, C], [noisy(3, 0), noisy(1, 1), noisy(2, 2)], A)
    assert [f.config for f in ranked] == [B, C, A]
    assert ranked[0].p == 1.0
    assert not ranked[1].tied
    assert not ranked[2].tied


def test_noise_is_a_tie():
    ranked = judge([A, B], [noisy(1, 0), noisy(1, 1)], A)
    assert ranked[1].tied


def test_pairs_reveal_what_common_noise_hides():
    common = np.array(noisy(1, 0, noise=0.5))
    ranked = judge([A, B], [tuple(1.02 * common), tuple(common)], A)
    assert ranked[0].config == B
    assert not ranked[1].tied


def test_of_equals_the_default_wins():
    same = noisy(1, 0)
    assert judge([A, B, C], [same, same, same], B)[0].config == B
    assert chance(same, same) == 1.0


@pytest.mark.parametrize("n", [5, 12, 20])
def test_chance_is_that_of_the_signed_rank_test(n):
    a, b = noisy(1.02, 1)[:n], noisy(1, 2)[:n]
    expected = wilcoxon(np.log(a) - np.log(b), method="exact").pvalue
    assert chance(a, b) == pytest.approx(expected)


def test_chance_takes_ties_and_zeros():
    """Differences 0, +d, -d, +d, +d: of 16 ways to sign four equal ranks, 5 leave at most one
    on the lesser side, and as many on the other."""
    assert chance([1, 2, 1, 2, 2], [1, 1, 2, 1, 1]) == pytest.approx(10 / 16)


def test_those_that_did_not_run_are_left_out():
    ranked = judge([A, B, C], [(math.inf,) * 5, (), noisy(1, 0)], A)
    assert [f.config for f in ranked] == [C]
    assert judge([A], [(math.inf,)], A) == []
