"""Bootstrap ensembles."""

import numpy as np
import pytest

from loopwright.costmodel.model import ModelError, RandomModel
from loopwright.costmodel.models.ensemble import MEMBERS, Ensemble
from loopwright.costmodel.models.gbt import GBTModel
from loopwright.costmodel.models.registry import make_model
from loopwright.costmodel.models.treegru import TreeGRU
from tests.costmodel.records import data


class Listening(GBTModel):
    """Remembers what it was told."""

    def fit(self, features, costs, groups):
        self.told = features, costs
        super().fit(features, costs, groups)


def test_each_member_learns_from_a_sample_of_its_own_and_all_from_the_best():
    x, costs, groups = data(200)
    ensemble = Ensemble.of(lambda seed: Listening("regression", seed))
    ensemble.fit(x, costs, groups)
    samples = [m.told[1] for m in ensemble.members]
    assert len(samples) == MEMBERS == len({s.tobytes() for s in samples})
    assert len({m.seed for m in ensemble.members}) == MEMBERS
    for sample in samples:
        assert 0.5 < len(np.unique(sample)) / 200 < 0.75
        assert {costs[groups == g].min() for g in (0, 1)} <= set(sample)


def test_scores_are_the_mean_of_the_members():
    x, costs, groups = data(100)
    ensemble = make_model("gbt-ensemble")
    ensemble.fit(x, costs, groups)
    scores = [m.predict(x) for m in ensemble.members]
    assert np.allclose(ensemble.predict(x), np.mean(scores, axis=0))
    assert np.allclose(ensemble.uncertainty(x)[1], np.std(scores, axis=0, ddof=1))


def test_what_more_records_tell_is_more_certain():
    x, costs, groups = data(400)
    deviations = []
    for n in (25, 250):
        ensemble = make_model("gbt-ensemble")
        ensemble.fit(x[:n], costs[:n], groups[:n])
        deviations.append(ensemble.uncertainty(x[250:])[1].mean())
    assert deviations[1] < 0.9 * deviations[0]


def test_a_score_of_zero_is_the_speed_of_the_best():
    x, costs, groups = data(120)
    ensemble = make_model("gbt-ensemble")
    ensemble.fit(x, costs, groups)
    for group in (0, 1):
        best = np.argmin(np.where(groups == group, costs, np.inf))
        assert abs(ensemble.predict(x[best : best + 1])[0]) < 1


def test_members_that_do_not_fit_together_are_refused():
    with pytest.raises(ModelError, match="two or more members"):
        Ensemble([GBTModel()])
    with pytest.raises(ModelError, match="same features"):
        Ensemble([GBTModel(), TreeGRU()])
    for weights in ([1.0], [1.0, 0.0], [1.0, -1.0], []):
        with pytest.raises(ModelError, match="give each member one above 0"):
            Ensemble([GBTModel(), GBTModel(seed=1)], weights=weights)
    assert not RandomModel().uncertain
