"""Naming a winner."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import wilcoxon

from loopwright.explore.significance import FEWEST, chance, fixed_order, judge, ratio
from loopwright.schedule.sketch.sketch import Config
from tests.explore.synthetic import matmul_space
from tests.sketches import direct

A, B, C = (Config(direct(name), ()) for name in "ABC")


def noisy(level, seed, noise=0.05, rounds=20):
    rng = np.random.default_rng(seed)
    return tuple(level * np.exp(rng.normal(0, noise, rounds)))


def by_name(*first):
    """An order: those given, then the others by name."""
    return lambda config: (config not in first, str(config.sketch))


def test_the_fastest_wins_where_a_test_tells_it_from_the_others_and_the_rest_follows_by_cost():
    ranked = judge({A: noisy(3, 0), B: noisy(1, 1), C: noisy(2, 2)}, by_name(A))
    assert [f.config for f in ranked] == [B, C, A]
    assert [f.standing for f in ranked] == ["winner", "slower", "slower"]
    assert ranked[0].p == 1.0


def test_of_those_that_a_test_cannot_tell_from_the_fastest_the_first_in_order_wins():
    same = noisy(1, 0)
    samples = {A: noisy(1.001, 1), B: same, C: noisy(1.5, 2)}
    for order, config in ((by_name(A), A), (by_name(B), B), (by_name(C), A)):
        ranked = judge(samples, order)
        assert ranked[0].config == config
        assert [f.standing for f in ranked] == ["winner", "tied", "slower"]


def test_ties_are_with_the_fastest_and_not_with_what_is_tied_with_it():
    """A, told from C but not from B, does not win though it is the first in order."""
    common = np.array(noisy(1, 0, noise=0.5))
    samples = {
        A: tuple(1.03 * common * noisy(1, 1, 0.005)),
        B: tuple(1.015 * common * noisy(1, 2, 0.02)),
        C: tuple(common * noisy(1, 3, 0.005)),
    }
    ranked = {f.config: f.standing for f in judge(samples, by_name(A, B))}
    assert ranked == {B: "winner", C: "tied", A: "slower"}
    assert judge({A: samples[A], B: samples[B]}, by_name(A))[0].config == A


def test_less_than_a_program_differs_from_process_to_process_is_a_tie():
    common = np.array(noisy(1, 0, noise=0.5))
    assert judge({A: tuple(1.005 * common), B: tuple(common)}, by_name(A))[0].config == A
    ranked = judge({A: tuple(1.02 * common), B: tuple(common)}, by_name(A))
    assert ranked[0].config == B  # pairs reveal what common noise hides
    assert ranked[1].standing == "slower"


def test_the_order_is_the_default_then_stricter_numerics_then_fewer_bytes_then_the_text():
    space = matmul_space()
    one, two, loose = space.sketches[:3]
    space = dataclasses.replace(
        space,
        sketches=(one, two, dataclasses.replace(loose, error_growth=4.0), *space.sketches[3:]),
    )
    default, loose = space.default, loose.config()
    near, far = sorted(
        (two.at([0] * len(two.knobs)), two.at([len(k.choices) - 1 for k in two.knobs])), key=str
    )
    sizes = {default: 9000, near: 50, far: 40, loose: 10}
    given = dict.fromkeys((loose, near, far, default), (0.001,) * 20)
    expected = [default, far, near, loose]
    while given:
        winner = judge(given, fixed_order(space, sizes))[0].config
        assert winner == expected.pop(0)
        del given[winner]
    equal = dict.fromkeys((far, near), (0.001,) * 20)
    assert judge(equal, fixed_order(space, {}))[0].config == near


@pytest.mark.parametrize("n", [5, 12, 20])
def test_chance_is_that_of_the_signed_rank_test(n):
    a, b = noisy(1.02, 1)[:n], noisy(1, 2)[:n]
    expected = wilcoxon(np.log(a) - np.log(b), alternative="greater", method="exact").pvalue
    assert chance(a, b) == pytest.approx(expected)


def test_chance_of_many_rounds_is_about_the_exact_one():
    a, b = noisy(1.005, 1, rounds=200), noisy(1, 2, rounds=200)
    expected = wilcoxon(np.log(a) - np.log(b), alternative="greater", method="exact").pvalue
    assert chance(a, b) == pytest.approx(expected, rel=0.03)


def test_chance_takes_ties_and_zeros():
    """Differences 0, +d, -d, +d, +d: of 16 ways to sign four equal ranks, 5 leave at most one
    on the lesser side."""
    assert chance([1, 2, 1, 2, 2], [1, 1, 2, 1, 1]) == pytest.approx(5 / 16)
    assert chance([1, 2], [1, 2]) == 1.0


def test_a_ratio_has_an_interval_that_holds_it_as_often_as_it_says():
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        common = rng.exponential(1, 20) + 1
        a, b = (common * np.exp(rng.normal(0, 0.05, 20)) for _ in "ab")
        found = ratio(1.3 * a, b)
        assert found.low <= found.value <= found.high
        held += found.low <= 1.3 <= found.high
    assert 0.92 < held / 400 < 0.98


@pytest.mark.parametrize("rounds", [8, 20, 80])
def test_an_interval_is_above_one_where_the_test_tells_the_samples_apart(rounds):
    apart = [
        (ratio(a, b).low > 1, chance(a, b) < 0.025)
        for seed in range(200)
        for a, b in [(noisy(1.03, seed, rounds=rounds), noisy(1, 999 + seed, rounds=rounds))]
    ]
    assert sum(one == other for one, other in apart) >= 198


def test_too_few_rounds_bound_nothing():
    assert ratio([2.0] * FEWEST, [1.0] * FEWEST).low == pytest.approx(2.0)
    few = ratio([2.0] * (FEWEST - 1), [1.0] * (FEWEST - 1))
    assert (few.value, few.low, few.high) == (pytest.approx(2.0), 0.0, math.inf)
    assert str(ratio([2.0] * 20, [1.0] * 20)) == "2.00 (2.00 to 2.00)"


def test_those_that_did_not_run_are_left_out():
    ranked = judge({A: (math.inf,) * 5, B: (), C: noisy(1, 0)}, by_name(A))
    assert [f.config for f in ranked] == [C]
    assert judge({A: (math.inf,)}, by_name(A)) == []
