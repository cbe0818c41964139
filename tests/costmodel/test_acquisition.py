"""Acquisition functions, against their definitions."""

import numpy as np
import pytest
from scipy import integrate, stats

from loopwright.costmodel.model import ModelError
from loopwright.costmodel.models.acquisition import (
    ACQUISITIONS,
    KAPPA,
    acquired,
    check_acquisition,
    expected_improvement,
)
from loopwright.costmodel.models.registry import make_model
from tests.costmodel.records import data


@pytest.mark.parametrize("score", [-3.0, -0.5, 0.0, 0.7, 2.0])
@pytest.mark.parametrize("deviation", [0.3, 1.0, 2.5])
def test_expected_improvement_is_the_integral_that_it_stands_for(score, deviation):
    density = stats.norm(score, deviation).pdf
    wanted, _ = integrate.quad(lambda s: s * density(s), 0, np.inf, epsabs=1e-14)
    got = expected_improvement(np.array([score]), np.array([deviation]))
    assert np.exp(got)[0] == pytest.approx(wanted, rel=1e-6)


def test_expected_improvement_orders_what_is_hopeless_too():
    scores = -np.array([0.0, 1e-3, 1.0, 9.9, 99.0, 1e2, 101.0, 1e3, 1e6])
    got = expected_improvement(scores, np.ones(9))
    assert np.isfinite(got).all()
    assert (np.diff(got) < 0).all()
    assert np.isfinite(expected_improvement(np.array([-1.0, 0.0, 1.0]), np.zeros(3))).all()


def test_a_bound_is_more_optimistic_where_less_is_known():
    got = ACQUISITIONS["ucb"](np.array([1.0, 1.0]), np.array([0.0, 2.0]))
    assert got.tolist() == [1.0, 1.0 + 2 * KAPPA]


def test_what_is_acquired_is_the_score_until_uncertainty_is_asked_for():
    x, costs, groups = data(100)
    model = make_model("gbt-ensemble")
    for name in ACQUISITIONS:
        assert acquired(model, x, name).shape == (100,)
    model.fit(x, costs, groups)
    mean, deviation = model.uncertainty(x)
    assert np.array_equal(acquired(model, x, "mean"), model.predict(x))
    assert np.array_equal(acquired(model, x, "ucb"), mean + KAPPA * deviation)
    assert np.array_equal(acquired(model, x, "ei"), expected_improvement(mean, deviation))


def test_a_model_without_uncertainty_has_only_its_mean():
    check_acquisition("mean", make_model("gbt"))
    check_acquisition("ei", make_model("gbt-ensemble"))
    with pytest.raises(ModelError, match='take model="gbt-ensemble"'):
        check_acquisition("ei", make_model("gbt"))
    with pytest.raises(ModelError, match="mean, ei, ucb"):
        check_acquisition("luck", make_model("gbt-ensemble"))
