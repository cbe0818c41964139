"""`model="source"` and "source-lstm": searches whose candidates are ranked by their text."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.costmodel.model import ModelError
from loopwright.costmodel.source.ranker import SourceLSTM
from loopwright.costmodel.source.tokens import Vocabulary
from loopwright.dsl.errors import BuildError
from loopwright.explore.budget import TuningError
from loopwright.explore.strategies.reranking import RANKED, Reranking
from loopwright.explore.strategies.source_text import EXACT, SourceSymbols, SourceText
from loopwright.explore.tuner import SOURCES, Tuner
from loopwright.measure.tabular import load_brute_forced


def product(target="c"):
    A, B = lw.tensor("A", (31, 17)), lw.tensor("B", (17, 29), constant=True)
    return lw.space(lw.workload(lw.einsum("ij,jk->ik", A, B)), target, threads=1)


def numbers(points, count):
    rng = np.random.default_rng(0)
    knobs = points.sketches[0].knobs
    return np.stack([rng.integers(len(k.choices), size=count) for k in knobs], axis=1)


@pytest.mark.parametrize("target", ["c", pytest.param("opencl", marks=pytest.mark.opencl)])
def test_rows_are_equal_alone_and_in_a_batch(target):
    points = product(target)
    chosen = numbers(points, 3)
    together = SourceText().features(points, 0, chosen)
    alone = [SourceText().features(points, 0, one[None])[0] for one in chosen]
    assert together.shape == (3, len(SourceText().names(points)))
    np.testing.assert_array_equal(together, alone)
    assert np.isfinite(together).all()


def test_a_row_counts_what_stands_in_the_text():
    points = product()
    (row,) = SourceText().features(points, 0, numbers(points, 1))
    named = dict(zip(SourceText().names(points), row))
    assert 2 ** named["symbol 'for'"] - 1 >= 3
    assert named["symbol '*' run"] > 5 + named["symbol '*'"]
    assert named["unknown"] == 0
    assert 2 ** named["output 0"] - 1 == pytest.approx(31 * 29 * 4)
    assert set(EXACT) <= set(named)


def test_the_default_differs_in_nothing_from_itself():
    points = product()
    (row,) = SourceText().features(points, 0, np.array([points.sketches[0].default]))
    assert not row[len(row) // 2 :].any()


def test_a_sequence_is_the_end_of_the_text_behind_what_is_exact(monkeypatch):
    points = product()
    known = ("?", *Vocabulary.whole("c").symbols)

    def text():
        (row,) = SourceSymbols().features(points, 0, numbers(points, 1))
        names = SourceSymbols().names(points)
        assert len(names) == len(row)
        assert 2 ** row[names.index("output 0")] - 1 == pytest.approx(31 * 29 * 4)
        return "".join(known[int(number)] for number in row[2 * len(EXACT) :] if number >= 0)

    whole = text()
    assert whole.startswith("static int A(const float *restrict a, ")
    monkeypatch.setattr("loopwright.explore.strategies.source_text.LONGEST", 20)
    assert text() == whole[-len(text()) :]
    assert text().endswith("return s;\n}\n")


def test_a_program_that_cannot_be_written_has_no_numbers(monkeypatch):
    def fails(_):
        raise BuildError("no text")

    monkeypatch.setattr("loopwright.codegen.compile.program_text", fails)
    for rows in (SourceText(), SourceSymbols()):
        assert np.isnan(rows.features(product(), 0, numbers(product(), 2))).all()


def test_candidates_are_those_that_the_text_ranks_first(monkeypatch):
    tuner = Tuner(product(), model="source")
    assert isinstance(tuner.strategy, Reranking)
    asked = []
    predict = tuner.strategy.ranker.predict
    monkeypatch.setattr(
        tuner.strategy.ranker, "predict", lambda rows: asked.append(len(rows)) or predict(rows)
    )
    for _ in range(2):
        configs = tuner.ask(16)
        # The slower, the more is unrolled: the text alone tells it in as many digits.
        costs = [1.0 + len(str(config)) for config in configs]
        tuner.tell(configs, costs)
    tuner.ask(4)
    assert max(asked) > 16
    assert max(asked) <= RANKED


@pytest.mark.parametrize("model", ["source", pytest.param("source-lstm", marks=pytest.mark.torch)])
def test_equal_seeds_ask_for_equal_configs(model, monkeypatch):
    monkeypatch.setattr("loopwright.costmodel.source.ranker._EPOCHS", (1, 1))
    monkeypatch.setattr("loopwright.explore.strategies.reranking.RANKED", 12)

    def asked():
        tuner = Tuner(product(), model=model, seed=3)
        tuner.tell(first := tuner.ask(16), np.arange(1.0, 1 + len(first)))
        return tuner.ask(8)

    assert asked() == asked()


@pytest.mark.torch
def test_a_model_that_has_learned_ranks_the_first_batch(tmp_path):
    from loopwright.costmodel.models.network_training import Training

    learned = SourceLSTM(0, Training(epochs=1))
    points = product()
    rows = SourceSymbols().features(points, 0, numbers(points, 12))
    learned.fit(rows, np.arange(1.0, 13), np.zeros(12, int))
    learned.save(tmp_path / "model.json")
    tuner = Tuner(points, model=SourceLSTM.load(tmp_path / "model.json"))
    assert isinstance(tuner.strategy, Reranking)
    assert tuner.strategy.ranker.ready
    assert len(tuner.ask(4)) == 4


@pytest.mark.slow
@pytest.mark.opencl
@pytest.mark.parametrize("model", ["source", pytest.param("source-lstm", marks=pytest.mark.torch)])
def test_a_search_by_text_gives_a_library_that_is_right(model):
    A, B = lw.tensor("A", (24, 16)), lw.tensor("B", (16, 24))
    work = lw.workload(lw.einsum("ij,jk->ik", A, B))
    tuned = lw.tune(work, "opencl", model=model, trials=24, batch=16, records=None)
    a, b = np.random.default_rng(0).random((2, 24, 24), np.float32)[:, :, :16]
    b = np.ascontiguousarray(b.T)
    np.testing.assert_allclose(tuned.library(a, b), a @ b, rtol=1e-5)


def test_what_has_no_text_is_refused(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("a,b,time_ms\n1,1,3.0\n1,2,4.0\n2,1,5.0\n")
    for model in SOURCES:
        with pytest.raises(
            ModelError, match=f'{model}" reads.* give target="c", "opencl" or "cuda"'
        ):
            Tuner(product("cpu"), model=model)
    with pytest.raises(ModelError, match="no programs to read"):
        Tuner(load_brute_forced(table).space, model="source")
    with pytest.raises(TuningError, match="leave out strategy='transfer'"):
        Tuner(product(), "transfer", "source")
    with pytest.raises(TuningError, match="not for model='source-lstm'"):
        Tuner(product(), model="source-lstm", feedback=lambda configs: [])


def test_an_unknown_model_is_told_those_that_read_text_too():
    with pytest.raises(
        ModelError, match=r"model = 'trees': use one of gbt, .* source, source-lstm"
    ):
        Tuner(product(), model="trees")
