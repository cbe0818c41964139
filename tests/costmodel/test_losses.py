"""The losses and their derivatives."""

import itertools

import numpy as np
import pytest

from loopwright.costmodel.models.losses import RankLoss, SquaredLoss, relative

COSTS = np.array([3.0, 1.0, np.inf, 2.0, 5.0, np.inf, 4.0])
GROUPS = np.array([0, 0, 0, 0, 1, 1, 1])


def made(kind, costs=COSTS, groups=GROUPS):
    return kind.of(costs, groups, np.random.default_rng(0))


def eq2(f, costs, groups):
    """Eq. 2 as printed, pair by pair; a mean instead of a sum."""
    terms = [
        np.log1p(np.exp(-np.sign(costs[i] - costs[j]) * (f[i] - f[j])))
        for i, j in itertools.combinations(range(len(f)), 2)
        if groups[i] == groups[j] and costs[i] != costs[j]
    ]
    return np.mean(terms), len(terms)


def test_the_rank_loss_is_eq_2_within_groups():
    f = np.random.default_rng(1).normal(size=7)
    loss = made(RankLoss)
    expected, count = eq2(f, COSTS, GROUPS)
    assert len(loss.slow) == count == 6 + 3
    assert loss.value(f) == pytest.approx(expected)


@pytest.mark.parametrize("kind", [RankLoss, SquaredLoss])
def test_first_derivatives_agree_with_finite_differences(kind):
    rng = np.random.default_rng(2)
    f, step = rng.normal(size=7), 1e-5
    loss = made(kind)
    first, _ = loss.derivatives(f)
    numeric = np.array(
        [(loss.value(f + d) - loss.value(f - d)) / (2 * step) for d in step * np.eye(7)]
    )
    used = first != 0
    scale = first[used] / numeric[used]
    assert np.allclose(numeric[~used], 0)
    assert np.allclose(scale, scale[0], rtol=1e-5)
    assert scale[0] > 0


@pytest.mark.parametrize("kind", [RankLoss, SquaredLoss])
def test_second_derivatives_agree_with_finite_differences(kind):
    rng = np.random.default_rng(3)
    f, step = rng.normal(size=7), 1e-5
    loss = made(kind)
    _, second = loss.derivatives(f)
    numeric = np.array(
        [
            (loss.derivatives(f + d)[0][i] - loss.derivatives(f - d)[0][i]) / (2 * step)
            for i, d in enumerate(step * np.eye(7))
        ]
    )
    assert np.allclose(second, numeric, atol=2e-6)


def test_large_predictions_do_not_overflow():
    f = np.array([1e4, -1e4, 0.0, 1e4, 1e30, -1e30, 0.0])
    with np.errstate(all="raise"):
        first, second = made(RankLoss).derivatives(f)
    assert np.isfinite(first).all()
    assert (second > 0).all()


def test_failures_are_slower_than_everything_but_not_than_each_other():
    costs, groups = np.array([1.0, np.inf, np.inf]), np.zeros(3, int)
    loss = made(RankLoss, costs, groups)
    assert sorted(zip(loss.slow, loss.fast)) == [(1, 0), (2, 0)]


def test_large_groups_compare_each_record_with_some_others():
    rng = np.random.default_rng(4)
    costs, groups = rng.random(1000) + 0.1, np.repeat([0, 1], 500)
    loss = made(RankLoss, costs, groups)
    assert len(loss.slow) < 1000 * 500 / 4
    assert (costs[loss.slow] > costs[loss.fast]).all()
    assert (groups[loss.slow] == groups[loss.fast]).all()
    assert len(np.unique(np.concatenate([loss.slow, loss.fast]))) == 1000


def test_regression_is_of_the_logarithm_of_throughput_in_its_group():
    loss = made(SquaredLoss, relative(COSTS, GROUPS))
    wanted = np.log2([3.0, 1.0, np.nan, 2.0, 5 / 4, np.nan, 1.0])
    fine = np.isfinite(COSTS)
    assert np.allclose(loss.targets[fine], wanted[fine])
    first, _ = loss.derivatives(np.zeros(7))
    assert (first[~fine] == 0).all()


def test_records_that_say_nothing_are_known_as_such():
    for kind in (RankLoss, SquaredLoss):
        assert made(kind).informative
        assert not made(kind, np.ones(3), np.zeros(3, int)).informative
        assert not made(kind, np.full(3, np.inf), np.zeros(3, int)).informative
        apart = np.array([1.0, 2.0]), np.array([0, 1])
        assert not made(kind, relative(*apart), apart[1]).informative
