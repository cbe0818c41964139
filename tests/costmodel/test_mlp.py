"""Perceptrons: their gradients, and that they and what they are blended with learn."""

import numpy as np
import pytest

from loopwright.costmodel.models import mlp
from loopwright.costmodel.models.losses import LOSSES, pairwise_accuracy
from loopwright.costmodel.models.mlp import MLP
from loopwright.costmodel.models.registry import make_model
from tests.costmodel.records import data
from tests.thin import thinned


@pytest.mark.parametrize("objective", ["rank", "regression"])
def test_gradients_are_the_differences_of_the_loss(objective, monkeypatch):
    monkeypatch.setattr(mlp, "_DROPPED", 0.0)
    rng = np.random.default_rng(0)
    x, start = rng.normal(size=(30, 4)), rng.normal(size=30)
    costs, groups = rng.uniform(1, 4, 30), np.repeat([0, 1, 2], 10)
    net = mlp._Net.drawn((4, 6, 5, 1), rng)
    net.layers = [tuple(rng.normal(size=a.shape) for a in layer) for layer in net.layers]
    loss = LOSSES[objective].of(costs, groups, rng)
    found = net.gradients(x, start, loss, rng)
    # The rank loss is that of a pair, its derivatives are those of half as much for a record.
    scale = 0.5 if objective == "rank" else 1.0
    for layer, gradients in zip(net.layers, found):
        for array, gradient in zip(layer, gradients):
            place = tuple(int(rng.integers(n)) for n in array.shape)
            value, step = array[place], 1e-5
            array[place] = value + step
            above = loss.value(start + net(x))
            array[place] = value - step
            below = loss.value(start + net(x))
            array[place] = value
            expected = scale * (above - below) / (2 * step)
            assert gradient[place] == pytest.approx(expected, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("name", thinned(["mlp-regression", "mlp", "blend"], keep=3))
def test_what_was_not_seen_is_ranked(name):
    x, costs, groups = data(200, failures=0.1)
    new, true, group = data(200, seed=1)
    model = make_model(name)
    model.fit(x, costs, groups)
    for g in (0, 1):
        members = group == g
        assert pairwise_accuracy(model.predict(new[members]), true[members]) > 0.8


def test_what_has_no_value_counts_as_zero():
    x, costs, groups = data(100)
    x[::3, 2] = np.nan
    model = MLP(nets=1, width=8)
    model.fit(x, costs, groups)
    assert np.isfinite(model.predict(x)).all()
    assert np.array_equal(model.predict(x), model.predict(np.nan_to_num(x)))


def test_features_that_never_change_have_no_importance():
    x, costs, groups = data(100)
    x[:, 4] = 7.0
    model = MLP(nets=2, width=8)
    model.fit(x, costs, groups)
    shares = model.importance()
    assert len(shares) == x.shape[1] - 1
    assert sum(shares.values()) == pytest.approx(1.0, rel=1e-5)


def test_a_model_that_knew_its_base_alone_learns_when_it_is_loaded(tmp_path):
    x, costs, groups = data(100)
    base = MLP(nets=1, width=8)
    base.fit(x, costs, groups)
    own = MLP(nets=2, width=8, base=base)
    own.fit(x[:3], costs[:3], groups[:3])
    own.save(tmp_path / "own.json")
    loaded = MLP.load(tmp_path / "own.json")
    assert np.array_equal(loaded.predict(x), base.predict(x))
    loaded.fit(x, costs, groups)
    assert not np.array_equal(loaded.predict(x), base.predict(x))


def test_learning_and_predicting_multiply_on_one_thread(monkeypatch):
    threads, blas, silu = [], mlp._controller(), mlp._silu

    def counted(x):
        threads.extend(library.num_threads for library in blas.lib_controllers)
        return silu(x)

    monkeypatch.setattr(mlp, "_silu", counted)
    x, costs, groups = data(40)
    model = MLP(nets=1, width=8, epochs=1)
    for use in (lambda: model.fit(x, costs, groups), lambda: model.predict(x)):
        threads.clear()
        use()
        assert set(threads) == {1}
