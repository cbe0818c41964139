"""Every cost model in a search."""

import math

import numpy as np
import pytest

from loopwright.costmodel.model import CostModel, ModelError
from loopwright.explore.strategies.annealing import Schedule
from loopwright.explore.strategies.features import Features
from loopwright.explore.tune import tune
from loopwright.explore.tuner import Tuner
from loopwright.measure.tabular import load_brute_forced
from tests.explore.synthetic import MadeUp, cost, matmul, matmul_space

FEW = {"chains": 64, "steps": 2}


@pytest.mark.parametrize(
    ("model", "acquisition"),
    [
        pytest.param("gbt-ensemble", "mean", marks=pytest.mark.slow),
        ("gbt-ensemble", "ei"),
        pytest.param("gbt-ensemble", "ucb", marks=pytest.mark.slow),
        ("random", "mean"),
        pytest.param("treegru", "mean", marks=pytest.mark.torch),
        pytest.param("treegru-plain", "mean", marks=[pytest.mark.torch, pytest.mark.slow]),
    ],
)
def test_a_named_model_drives_a_search_that_its_seed_decides(model, acquisition):
    schedule = Schedule(**FEW, acquisition=acquisition)
    options = {"trials": 20, "records": None, "model": model, "schedule": schedule}
    one, again = (tune(matmul(), device=MadeUp(), seed=3, **options) for _ in range(2))
    assert [m.config for m in one.history] == [m.config for m in again.history]
    assert one.seconds <= cost(matmul_space().default)
    assert math.isfinite(one.seconds)


class Sum(CostModel):
    """A model of a user's: least squares."""

    reads = "relation"

    def __init__(self):
        self.weights = None

    @property
    def ready(self):
        return self.weights is not None

    def fit(self, features, costs, groups):
        finite = np.isfinite(costs)
        if finite.sum() > 4:
            self.weights = np.linalg.lstsq(features[finite], -np.log(costs[finite]), 1e-3)[0]

    def predict(self, features):
        return np.zeros(len(features)) if self.weights is None else features @ self.weights

    def save(self, path):
        np.save(path, self.weights)

    @classmethod
    def load(cls, path):
        raise NotImplementedError


def test_a_model_of_the_users_own_drives_a_search():
    model = Sum()
    schedule = Schedule(**FEW)
    tuned = tune(
        matmul(), device=MadeUp(), trials=40, records=None, model=model, schedule=schedule
    )
    assert model.ready
    assert tuned.seconds <= cost(matmul_space().default)


@pytest.mark.torch
def test_a_model_of_trees_is_given_trees():
    strategy = Tuner(matmul_space(), model="treegru").strategy
    assert strategy.features.representation.names(matmul_space())[0] == "loop 0 extent"


def test_a_table_without_loops_has_none_for_a_model_of_trees(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b,time_ms\n1,1,3.0\n1,2,4.0\n2,1,5.0\n")
    points = load_brute_forced(path).space
    assert Features(points, "relation").representation.names(points) == ("sketch", "a[0]", "b[0]")
    with pytest.raises(ModelError, match='use model="gbt"'):
        Features(points, "tree")
