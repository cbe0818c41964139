"""What every cost model must do, whatever it is made of."""

import json
import math
from functools import partial

import numpy as np
import pytest

from loopwright.costmodel.model import CostModel, ModelError, RandomModel
from loopwright.costmodel.models import registry as choice
from loopwright.costmodel.models.ensemble import Ensemble
from loopwright.costmodel.models.file import load_model, read_model, write_model
from loopwright.costmodel.models.gbt import GBTModel
from loopwright.costmodel.models.mlp import MLP
from loopwright.costmodel.models.registry import MODELS, make_model
from loopwright.costmodel.models.treegru import TreeGRU
from loopwright.dsl.errors import LoopwrightError
from tests.costmodel.records import data

pytestmark = pytest.mark.sampled(0.34)

LEARNING = [name for name in MODELS if name != "random"]


def marked(names):
    return [
        pytest.param(name, marks=pytest.mark.torch) if "treegru" in name else name
        for name in names
    ]


@pytest.fixture(params=marked(MODELS))
def name(request):
    return request.param


@pytest.fixture
def make(name, monkeypatch):
    """Makes the model of a name, a small one."""
    monkeypatch.setattr(choice, "GBTModel", partial(GBTModel, rounds=12))
    monkeypatch.setattr(choice, "MLP", partial(MLP, nets=2, width=12, epochs=20))
    if "treegru" in name:
        from loopwright.costmodel.models.network_training import Training

        few = Training(epochs=3)

        monkeypatch.setattr(choice, "TreeGRU", partial(TreeGRU, hidden=12, training=few))
    return lambda seed=0, base=None: make_model(name, seed, base)


@pytest.fixture
def records(make):
    return lambda n, **options: data(n, reads=make().reads, **options)


def test_scores_are_finite_before_and_after_learning(make, records):
    model = make()
    x, costs, groups = records(60)
    assert np.isfinite(model.predict(x)).all()
    assert not model.ready
    model.fit(x, costs, groups)
    assert model.predict(x).shape == (60,)
    assert np.isfinite(model.predict(x)).all()


def test_too_little_data_is_no_error_and_scores_are_random(make, records):
    for costs in ([], [1.0], [1.0] * 30, [np.inf] * 30, [1.0, 2.0, np.inf]):
        model = make()
        x = records(30)[0][: len(costs)]
        model.fit(x, np.array(costs, float), np.zeros(len(costs), int))
        assert not model.ready
        assert len(set(model.predict(records(20)[0]))) == 20


def test_a_seed_decides_everything(make, records):
    x, costs, groups = records(150)
    scores = []
    for seed in (1, 1, 2):
        model = make(seed)
        first = model.predict(x)
        model.fit(x, costs, groups)
        scores.append(np.concatenate([first, model.predict(x)]))
    assert np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])


def test_large_seeds_are_fine(make, records):
    x, costs, groups = records(60)
    make(1 << 80).fit(x, costs, groups)


def test_nothing_in_nothing_out(make, records):
    model = make()
    x, costs, groups = records(60)
    assert model.predict(x[:0]).shape == (0,)
    model.fit(x, costs, groups)
    assert model.predict(x[:0]).shape == (0,)


def test_a_score_does_not_depend_on_the_others_of_its_batch(make, records):
    model = make()
    x, costs, groups = records(60)
    model.fit(x, costs, groups)
    if model.ready:
        alone = np.concatenate([model.predict(row[None]) for row in x[:5]])
        assert np.allclose(model.predict(x)[:5], alone, atol=1e-5)


def test_costs_that_are_not_positive_are_refused(make, records):
    x, costs, groups = records(30)
    for wrong in (0.0, -1.0, np.nan):
        with pytest.raises(ModelError, match="never 0"):
            make().fit(x, np.where(np.arange(30) == 7, wrong, costs), groups)


def test_shapes_that_disagree_are_refused(make, records):
    x, costs, groups = records(30)
    with pytest.raises(ModelError, match="shapes"):
        make().fit(x, costs[:-1], groups)
    with pytest.raises(ModelError, match="shapes"):
        make().fit(x[:, 0], costs, groups)


def test_a_model_that_knows_nothing_cannot_be_saved(make, tmp_path):
    with pytest.raises(ModelError, match="learned"):
        make().save(tmp_path / "model.json")
    assert not list(tmp_path.iterdir())


def test_uncertainty_is_a_positive_deviation_around_the_score(make, records):
    model = make()
    x, costs, groups = records(60)
    if not model.uncertain:
        with pytest.raises(ModelError, match="uncertain"):
            model.uncertainty(x)
        return
    with pytest.raises(ModelError, match="fit it first"):
        model.uncertainty(x)
    model.fit(x, costs, groups)
    mean, deviation = model.uncertainty(x)
    assert np.array_equal(mean, model.predict(x))
    assert deviation.shape == (60,)
    assert (deviation >= 0).all()
    assert deviation.max() > 0


def test_an_object_is_the_model_that_it_is(make):
    model = make()
    assert make_model(model) is model


def test_an_unknown_name_is_refused_with_those_that_are_known():
    with pytest.raises(ModelError, match="gbt, gbt-regression"):
        make_model("crystal ball")


# ---- those that learn ----


@pytest.mark.parametrize("name", marked(LEARNING), indirect=True)
class TestLearning:
    def fitted(self, make, records, n=100, base=None):
        model = make(3, base)
        x, costs, groups = records(n)
        model.fit(x, costs, groups)
        return model, x, costs, groups

    def test_another_number_of_features_is_refused(self, make, records):
        model, x, *_ = self.fitted(make, records)
        with pytest.raises(ModelError, match="features of shape"):
            model.predict(x[:, :4])

    def test_fitting_again_forgets_what_was_learned(self, make, records):
        model, x, costs, groups = self.fitted(make, records)
        again = make(3)
        again.fit(x, 1 / costs, groups)
        again.fit(x, costs, groups)
        assert np.array_equal(model.predict(x), again.predict(x))

    def test_a_base_is_what_is_known_at_first_and_what_is_learned_from_then_on(
        self, make, records
    ):
        base, x, costs, groups = self.fitted(make, records)
        if isinstance(base, Ensemble):
            base = base.members[0]  # the base of each member of another one
        model = make(4, base)
        assert model.ready
        assert np.allclose(model.predict(x), base.predict(x))
        model.fit(x[:2], costs[:2], groups[:2])
        assert np.allclose(model.predict(x), base.predict(x))
        before = base.predict(x)
        model.fit(x, 1 / costs, groups)
        assert np.array_equal(base.predict(x), before)
        assert not np.allclose(model.predict(x), before)

    def test_a_base_that_reads_other_features_is_refused(self, make, records):
        base, *_ = self.fitted(make, records)
        other = TreeGRU if base.reads == "relation" else GBTModel
        with pytest.raises(ModelError, match=repr(base.reads)):
            other(base=base)

    def test_a_loaded_model_is_the_same(self, make, records, tmp_path):
        model, x, *_ = self.fitted(make, records)
        model.about["machine"] = "a typewriter"
        model.save(str(tmp_path / "model.json"))
        for loaded in (
            load_model(tmp_path / "model.json"),
            type(model).load(str(tmp_path / "model.json")),
        ):
            assert np.array_equal(loaded.predict(x), model.predict(x))
            assert (loaded.reads, loaded.describe()) == (model.reads, model.describe())
            assert loaded.importance() == pytest.approx(model.importance(), rel=0.01)
            assert loaded.about == {
                "records": 100,
                "failures": 0,
                "groups": 2,
                "machine": "a typewriter",
            }
        assert [p.name for p in tmp_path.iterdir()] == ["model.json"]

    def test_a_loaded_model_can_be_saved_and_fitted_again(self, make, records, tmp_path):
        model, x, costs, groups = self.fitted(make, records)
        model.save(tmp_path / "model.json")
        loaded = load_model(tmp_path / "model.json")
        loaded.save(tmp_path / "again.json")
        assert np.array_equal(load_model(tmp_path / "again.json").predict(x), model.predict(x))
        loaded.fit(x, costs, groups)
        assert np.isfinite(loaded.predict(x)).all()

    def test_a_model_with_a_base_is_saved_with_it(self, make, records, tmp_path):
        base, x, *_ = self.fitted(make, records)
        base = base.members[0] if isinstance(base, Ensemble) else base
        model, *_ = self.fitted(make, records, 60, base)
        model.save(tmp_path / "model.json")
        assert np.array_equal(load_model(tmp_path / "model.json").predict(x), model.predict(x))

    def test_importance_is_shares_of_named_features(self, make, records):
        model, *_ = self.fitted(make, records)
        shares = model.importance()
        assert sum(shares.values()) == pytest.approx(1)
        assert min(shares.values()) >= 0

    def test_every_kind_of_damage_is_an_error_that_names_the_file(self, make, records, tmp_path):
        path = tmp_path / "model.json"
        model, *_ = self.fitted(make, records)
        model.save(path)
        text = path.read_text()
        whole = json.loads(text)
        damaged = [
            "",
            "[]",
            "null",
            "not json",
            "[" * 100_000,
            text[: len(text) // 2],
            text.replace("seed", "sead", 1),
            json.dumps({**whole, "format": "other"}),
            json.dumps({**whole, "schema": 99}),
            json.dumps({**whole, "kind": "oracle"}),
            json.dumps({k: v for k, v in whole.items() if k != "sha256"}),
        ]
        for content in damaged:
            path.write_text(content)
            with pytest.raises(LoopwrightError, match=r"model\.json"):
                load_model(path)
        path.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(ModelError, match=r"model\.json"):
            load_model(path)

    def test_content_of_another_shape_is_an_error_that_names_the_file(
        self, make, records, tmp_path
    ):
        path = tmp_path / "model.json"
        model, *_ = self.fitted(make, records)
        model.save(path)
        kind, packed = read_model(path)
        for key, value in packed["content"].items():
            if isinstance(value, dict | list):
                wrong = [[], {}, "?"]
            else:
                wrong = [[1], {"a": 1}]
            wrong += {"hidden": [-1], "slots": [-1], "rounds": [math.inf]}.get(key, [])
            for other in (w for w in wrong if key not in ("base", "importance", "reads")):
                write_model(path, kind, {**packed, "content": {**packed["content"], key: other}})
                with pytest.raises(ModelError, match=r"model\.json"):
                    load_model(path)
        for other in ({}, [1], {**packed, "kind": "gbt" if kind != "gbt" else "ensemble"}):
            write_model(path, kind, other)
            with pytest.raises(ModelError, match=r"model\.json"):
                load_model(path)

    def test_a_file_of_another_kind_is_refused(self, make, records, tmp_path):
        path = tmp_path / "model.json"
        model, *_ = self.fitted(make, records)
        model.save(path)
        other = GBTModel if not isinstance(model, GBTModel) else Ensemble
        with pytest.raises(ModelError, match="holds a model of kind"):
            other.load(path)


def test_a_missing_file_is_an_error_that_names_it(tmp_path):
    for load in (load_model, GBTModel.load):
        with pytest.raises(ModelError, match=r"nowhere\.json: .*`loopwright model train`"):
            load(tmp_path / "nowhere.json")


def test_a_model_of_the_users_own_needs_no_more_than_the_contract():
    class Mine(RandomModel):
        pass

    assert isinstance(make_model(Mine()), CostModel)
