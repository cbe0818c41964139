"""Rules that choose a program by the sizes of a call."""

from types import SimpleNamespace

import numpy as np
import pytest

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.size import Dim
from loopwright.schedule.open.selection import rules

P, Q = Dim("p", 1, 512, 1), Dim("q", 8, 256, 8)


def program(*dims, **made_for):
    return SimpleNamespace(dims=dims, made_for=(made_for,))


def by_area(k, sizes):
    """The first of two programs costs less where the area is small."""
    area = sizes["p"] * sizes["q"]
    return np.where((area < 3000) == (k == 0), 1.0, 1.5)


def drawn(dims, count=500):
    rng = np.random.default_rng(0)
    return np.stack([rng.choice(np.array(d.values), count) for d in dims], axis=1).tolist()


def test_cells_of_two_dims_are_halved_where_another_program_costs_less():
    wide = [program(P, Q, p=512, q=256), program(P, Q, p=1, q=8)]
    made = rules((P, Q), wide, by_area)
    costs = []
    for p, q in drawn((P, Q)):
        (rule,) = (r for r in made if r.holds((p, q)))
        sizes = {"p": np.array([p]), "q": np.array([q])}
        costs.append(by_area(rule.program, sizes)[0])
    assert np.mean(costs) < 1.02
    assert len(made) < 120


@pytest.mark.parametrize("dims", [(P,), (P, Q), (P, Q, Dim("r", 3, 9, 1))])
def test_each_size_has_one_rule_and_a_program_that_is_right_there(dims):
    small = [Dim(d.name, d.low, d.values[len(d.values) // 3], d.multiple) for d in dims]
    programs = [
        program(*dims, **{d.name: d.high for d in dims}),
        program(*small, **{d.name: d.high for d in small}),
    ]
    made = rules(dims, programs, lambda k, sizes: 2.0 - k + 0 * sizes["p"])
    for sizes in drawn(dims):
        (rule,) = (r for r in made if r.holds(sizes))
        fits = all(s <= d.high for s, d in zip(sizes, small))
        assert rule.program == int(fits)


def test_sizes_without_a_program_are_an_error():
    with pytest.raises(ConfigError, match="no program is right for all sizes"):
        rules((P, Q), [program(P, Dim("q", 8, 128, 8), p=1, q=8)], by_area)
