"""The LSTMs over text as a cost model."""

import sys

import numpy as np
import pytest

from loopwright.costmodel.model import ModelError
from loopwright.costmodel.models.file import load_model
from loopwright.costmodel.models.losses import pairwise_accuracy
from loopwright.costmodel.source.ranker import SourceLSTM
from loopwright.costmodel.source.tokens import LONGEST

pytestmark = pytest.mark.torch

SLOW = 9  # the symbol that makes a text slow


def records(count, seed=0):
    """Texts of up to 12 symbols of two workloads, as rows; each `SLOW` one doubles the cost, which
    the second auxiliary number scales."""
    rng = np.random.default_rng(seed)
    rows = np.full((count, 2 + LONGEST), -1, np.float32)
    rows[:, :2] = rng.normal(size=(count, 2))
    for row, length in zip(rows, rng.integers(1, 13, count)):
        row[2 : 2 + length] = rng.choice([3, 5, SLOW], length)
    costs = 2.0 ** (rows[:, 2:] == SLOW).sum(axis=1) * 2.0 ** rows[:, 1]
    return rows, costs, np.arange(count) % 2


def fitted(seed=1, count=120, epochs=12):
    from loopwright.costmodel.models.network_training import Training

    model = SourceLSTM(seed, Training(epochs=epochs))
    model.fit(*records(count))
    return model


@pytest.fixture(scope="module")
def learned():
    return fitted()


def test_the_order_of_unseen_texts_is_learned_from_symbols_and_numbers(learned):
    rows, costs, _ = records(100, seed=9)
    assert pairwise_accuracy(learned.predict(rows), costs) > 0.85
    rows[:, 1] = 0.0  # the text alone
    counts = 2.0 ** (rows[:, 2:] == SLOW).sum(axis=1)
    assert pairwise_accuracy(learned.predict(rows), counts) > 0.85


def test_a_file_predicts_the_same_and_a_seed_decides_everything(learned, tmp_path):
    rows, *_ = records(20, seed=5)
    learned.save(tmp_path / "model.json")
    for loaded in (load_model(tmp_path / "model.json"), SourceLSTM.load(tmp_path / "model.json")):
        np.testing.assert_array_equal(loaded.predict(rows), learned.predict(rows))
        assert loaded.about == {"records": 120, "failures": 0, "groups": 2}
    few = [fitted(seed, 20, epochs=2).predict(rows) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(few[0], few[1])
    assert not np.array_equal(few[0], few[2])


def test_a_symbol_that_was_not_learned_from_is_the_unknown_one(learned):
    rows, *_ = records(20, seed=5)
    new, unknown = rows.copy(), rows.copy()
    new[rows == SLOW], unknown[rows == SLOW] = 77, 0
    np.testing.assert_array_equal(learned.predict(new), learned.predict(unknown))
    assert not np.array_equal(learned.predict(new), learned.predict(rows))


def test_programs_that_failed_or_have_no_text_are_no_error():
    rows, costs, groups = records(30)
    rows[:5], costs[:9] = np.nan, np.inf
    model = SourceLSTM()
    model.fit(rows[:6], costs[:6], groups[:6])
    assert not model.ready
    model.fit(rows, costs, groups)
    assert np.isfinite(model.predict(rows)).all()
    alone = np.concatenate([model.predict(row[None]) for row in rows[3:8]])
    np.testing.assert_allclose(model.predict(rows)[3:8], alone, atol=1e-5)
    assert model.predict(rows[:0]).shape == (0,)


def test_a_record_that_no_other_compares_with_is_no_error():
    from loopwright.costmodel.models.network_training import Training

    rows, costs, _ = records(240)
    groups = (np.arange(240) // 2).clip(max=8)  # the parts that are held out split pairs
    model = SourceLSTM(0, Training(epochs=1))
    model.fit(rows, costs, groups)
    assert np.isfinite(model.predict(rows)).all()


def test_other_rows_are_refused(learned, tmp_path):
    with pytest.raises(ModelError, match="trained on 1026 a config"):
        learned.predict(np.zeros((3, 2000), np.float32))
    with pytest.raises(ModelError, match="1024 symbols behind"):
        SourceLSTM().fit(np.zeros((30, 12)), np.arange(1.0, 31), np.zeros(30, int))
    with pytest.raises(ModelError, match="fit it before saving"):
        SourceLSTM().save(tmp_path / "model.json")


def test_without_torch_it_says_how_to_get_it_before_anything_is_measured(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModelError, match='model="source-lstm" needs the package torch: pip'):
        SourceLSTM()
