"""What boosted trees do beyond the contract of cost models."""

import base64

import numpy as np
import pytest
from scipy.stats import spearmanr

from loopwright.costmodel.features.representation import EARLIER, ContextRelation
from loopwright.costmodel.model import ModelError
from loopwright.costmodel.models.file import read_model, write_model
from loopwright.costmodel.models.gbt import GBTModel
from loopwright.costmodel.models.losses import pairwise_accuracy
from tests.costmodel.records import data


@pytest.fixture(params=["rank", "regression"])
def objective(request):
    return request.param


def test_trees_learn_the_order_of_unseen_records(objective):
    x, costs, groups = data(600)
    model = GBTModel(objective)
    model.fit(x[:400], costs[:400], groups[:400])
    assert model.ready
    for group in (0, 1):
        unseen = np.arange(600) >= 400
        unseen &= groups == group
        assert pairwise_accuracy(model.predict(x[unseen]), costs[unseen]) > 0.85
        assert spearmanr(model.predict(x[unseen]), -costs[unseen]).statistic > 0.85


def test_a_few_records_teach_something(objective):
    x, costs, groups = data(1030, seed=1)
    model = GBTModel(objective)
    model.fit(x[:30], costs[:30], groups[:30])
    here = np.flatnonzero(groups == 0)
    here = here[here >= 30]
    assert pairwise_accuracy(model.predict(x[here]), costs[here]) > 0.6


def test_boosting_stops_when_it_only_learns_noise(objective):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5)).astype(np.float32)
    model = GBTModel(objective)
    model.fit(x, rng.random(300) + 0.1, np.zeros(300, int))
    assert model.trees < 30


def test_what_fails_is_ranked_last():
    x, costs, groups = data(400)
    costs[x[:, 9] > 0.8] = np.inf
    model = GBTModel("rank")
    model.fit(x[:300], costs[:300], groups[:300])
    scores, failed = model.predict(x[300:]), np.isinf(costs[300:])
    assert scores[failed].max() < np.quantile(scores[~failed], 0.2)


def test_failures_do_not_disturb_regression():
    x, costs, groups = data(400, failures=0.3)
    fine = np.isfinite(costs)
    model = GBTModel("regression")
    model.fit(x[:300], costs[:300], groups[:300])
    unseen = fine & (np.arange(400) >= 300) & (groups == 0)
    assert pairwise_accuracy(model.predict(x[unseen]), costs[unseen]) > 0.8


def test_groups_of_unlike_scale_do_not_mix(objective):
    x, costs, groups = data(400)
    a, b = GBTModel(objective), GBTModel(objective)
    a.fit(x, costs, groups)
    b.fit(x, costs * np.array([1.0, 100.0])[groups], groups)
    assert np.allclose(a.predict(x), b.predict(x), atol=1e-3)


def test_features_that_are_missing_are_fine(objective):
    x, costs, groups = data(200)
    x[::3, 5] = np.nan
    model = GBTModel(objective)
    model.fit(x, costs, groups)
    assert np.isfinite(model.predict(x)).all()


def test_an_unknown_objective_is_refused():
    with pytest.raises(ModelError, match="use rank or regression"):
        GBTModel("rank:pairwise")


# ---- files ----


@pytest.fixture(name="saved")
def _saved(tmp_path):
    x, costs, groups = data(100)
    model = GBTModel("rank", seed=3)
    model.fit(x, costs, groups)
    path = tmp_path / "model.json"
    model.save(path)
    return model, path, x


def test_a_loaded_model_predicts_the_same(saved):
    model, path, x = saved
    loaded = GBTModel.load(path)
    assert np.array_equal(loaded.predict(x), model.predict(x))
    assert (loaded.objective, loaded.seed, loaded.trees) == ("rank", 3, model.trees)
    assert [p.name for p in path.parent.iterdir()] == ["model.json"]


def test_a_loaded_model_can_be_saved_and_fitted_again(saved):
    model, path, x = saved
    loaded = GBTModel.load(path)
    loaded.save(path)
    assert np.array_equal(GBTModel.load(path).predict(x), model.predict(x))
    _, costs, groups = data(100)
    loaded.fit(x, costs, groups)
    assert np.array_equal(loaded.predict(x), model.predict(x))


def test_content_of_another_shape_is_an_error_that_names_the_file(saved):
    _, path, _ = saved
    _, content = read_model(path, "gbt")
    trees = content["content"]
    wrong_trees = ({"objective": "rank"}, *({**trees, "trees": t} for t in (None, "?", "AAAA")))
    for wrong in (*({**content, "content": trees} for trees in wrong_trees), trees, [1]):
        write_model(path, "gbt", wrong)
        with pytest.raises(ModelError, match=r"model\.json"):
            GBTModel.load(path)


def test_trees_of_an_earlier_format_are_read(saved):
    model, path, x = saved
    _, content = read_model(path, "gbt")
    earlier = {k: v for k, v in content["content"].items() if k != "trees"}
    earlier["booster"] = base64.b64encode(bytes(model._own.save_raw("ubj"))).decode()
    write_model(path, "gbt", {**content, "content": earlier})
    assert np.array_equal(GBTModel.load(path).predict(x), model.predict(x))


def test_a_file_that_cannot_be_written_is_an_error_that_names_it(tmp_path):
    with pytest.raises(ModelError, match=r"the model .*nowhere/m\.json: there is no folder"):
        write_model(tmp_path / "nowhere" / "m.json", "gbt", {})
    assert not list(tmp_path.iterdir())


def test_columns_that_were_added_since_are_not_read():
    now = len(ContextRelation.column_names(gpu=False))
    for width in EARLIER:
        x, costs, groups = data(200)
        x = np.concatenate([x, np.zeros((200, width - x.shape[1]), np.float32)], axis=1)
        wider = np.concatenate([x, np.ones((200, now - width), np.float32)], axis=1)
        model = GBTModel(seed=1)
        model.fit(x, costs, groups)
        assert np.array_equal(model.predict(wider), model.predict(x))
        local = GBTModel(seed=1, base=model)
        local.fit(wider, costs, groups)
        assert local.predict(wider).shape == (200,)
        for other in (wider[:, :-1], x[:, :-1]):  # as those of GPUs
            with pytest.raises(ModelError, match="features of shape"):
                model.predict(other)
