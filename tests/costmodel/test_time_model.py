"""NN+C: what it learns, its size, files and C."""

import ctypes
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import threadpoolctl

from loopwright.costmodel import TimeModel
from loopwright.costmodel.model import ModelError

NAMES = ("m", "n", "k", "c")


def products(count: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Sizes with their operation count, and seconds of a machine with a launch, a peak and a
    bandwidth."""
    rng = np.random.default_rng(seed)
    sizes = np.rint(np.exp(rng.uniform(0, np.log(1024), (count, 3))))
    m, n, k = sizes.T
    count_of = m * n * k
    moved = 4 * (m * n + m * k + n * k)
    seconds = 1e-6 + np.maximum(count_of / 5e10, moved / 1e10)
    return np.column_stack([sizes, count_of]), seconds


@pytest.fixture(scope="module")
def fitted() -> TimeModel:
    model = TimeModel(NAMES)
    model.fit(*products(250, 0))
    return model


def test_times_of_unseen_sizes_are_predicted_better_than_by_a_line(fitted: TimeModel) -> None:
    x, seconds = products(250, 1)
    learned_x, learned = products(250, 0)
    logs, new = (np.column_stack([np.ones(len(v)), np.log(v)]) for v in (learned_x, x))
    line = np.exp(new @ np.linalg.lstsq(logs, np.log(learned), rcond=None)[0])
    error = np.mean(np.abs(fitted.predict(x) / seconds - 1))
    assert error < 0.1
    assert error < np.mean(np.abs(line / seconds - 1)) / 3


@pytest.mark.parametrize("count", [1, 2, 4, 5, 36])
def test_a_model_has_at_most_75_parameters(count: int) -> None:
    model = TimeModel([f"x{i}" for i in range(count)])
    assert model.units >= 1
    assert model.parameters <= 75 < model.parameters + count + 2


def test_the_same_seed_learns_the_same() -> None:
    x, seconds = products(40, 0)
    models = [TimeModel(NAMES, seed) for seed in (0, 0, 1)]
    for model in models:
        model.fit(x, seconds)
    one, same, other = (model.predict(x) for model in models)
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_an_input_that_never_varies_does_no_harm() -> None:
    x, seconds = products(60, 0)
    model = TimeModel((*NAMES, "threads"))
    model.fit(np.column_stack([x, np.full(60, 2.0)]), seconds)
    assert np.isfinite(model.predict([[3, 5, 7, 105, 4]])).all()


def test_a_file_brings_back_equal_predictions(fitted: TimeModel, tmp_path: Path) -> None:
    fitted.save(tmp_path / "time.json")
    again = TimeModel.load(tmp_path / "time.json")
    x, _ = products(20, 2)
    assert again.names == NAMES
    np.testing.assert_array_equal(again.predict(x), fitted.predict(x))


def test_a_damaged_file_is_an_error(fitted: TimeModel, tmp_path: Path) -> None:
    path = tmp_path / "time.json"
    fitted.save(path)
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "content": data["content"].replace("0.", "1.", 1)}))
    with pytest.raises(ModelError, match="damaged"):
        TimeModel.load(path)
    path.write_text(json.dumps({**data, "kind": "gbt"}))
    with pytest.raises(ModelError, match="a model of kind 'gbt', not time"):
        TimeModel.load(path)


def test_a_model_without_units_is_a_line_in_logarithms(tmp_path: Path) -> None:
    x, _ = products(40, 0)
    model = TimeModel(NAMES, units=0)
    model.fit(x, 3e-9 * x[:, 0] ** 0.5 * x[:, 3])
    new, _ = products(20, 1)
    np.testing.assert_allclose(model.predict(new), 3e-9 * new[:, 0] ** 0.5 * new[:, 3], rtol=1e-2)
    assert model.parameters == 5
    model.save(tmp_path / "line.json")
    np.testing.assert_array_equal(
        TimeModel.load(tmp_path / "line.json").predict(new), model.predict(new)
    )


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("units", [None, 0])
def test_c_predicts_the_same(units: int | None, tmp_path: Path) -> None:
    fitted = TimeModel(NAMES, units=units).fit(*products(40, 0))
    source, library = tmp_path / "time.c", tmp_path / "time.so"
    source.write_text(fitted.to_c("seconds_of"))
    command = ["cc", "-Wall", "-Werror", "-O2", "-shared", "-fPIC", str(source), "-o"]
    subprocess.run([*command, str(library), "-lm"], check=True)
    function = ctypes.CDLL(str(library)).seconds_of
    function.restype = ctypes.c_double
    x, _ = products(20, 3)
    found = [function((ctypes.c_double * 4)(*row)) for row in x]
    np.testing.assert_allclose(found, fitted.predict(x), rtol=1e-9)


@pytest.mark.parametrize(
    ("inputs", "seconds", "message"),
    [
        ([[1, 2, 3]], [1.0], r"inputs of shape \(1, 3\): give \(calls, 4\), with columns m, n, k"),
        ([[1, 2, 3, 6], [0, 2, 3, 6]], [1.0, 1.0], "inputs of 0.0 to 6.0: all must be positive"),
        ([[1, 2, 3, 6], [1, 1, 1, 1]], [1.0, np.inf], "seconds of 1.0 to inf: all must be"),
        ([[1, 2, 3, 6], [1, 1, 1, 1]], [1.0], r"2 calls and times of shape \(1,\)"),
        ([[1, 2, 3, 6]], [1.0], "two or more calls"),
        ([["a", 2, 3, 6], [1, 1, 1, 1]], [1.0, 1.0], "inputs are .*: give real numbers"),
        ([[1, 2, 3, 6], [1]], [1.0, 1.0], "inputs are .*: give real numbers, rows of one length"),
        ([[1, 2, 3, 6], [1, 1, 1, 1]], ["a", "b"], "seconds are .*: give real numbers"),
        ([[1, 2, 3, 6], [1, 1, 1, 1]], [1j, 2j], "seconds are .*: give real numbers"),
    ],
)
def test_bad_measurements_are_refused(inputs: Any, seconds: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        TimeModel(NAMES).fit(inputs, seconds)


def test_bad_names_are_refused(fitted: TimeModel) -> None:
    for names in ((), [f"x{i}" for i in range(37)]):
        with pytest.raises(ModelError, match="name between 1 and 36"):
            TimeModel(names)
    for texts in ("mnk", ("m", "m"), ("m", 3)):
        with pytest.raises(ModelError, match="give a list of different texts"):
            TimeModel(texts)  # type: ignore[arg-type]
    for seed in (-1, 0.5, "a", True):
        with pytest.raises(ModelError, match="give an integer of at least 0"):
            TimeModel(NAMES, seed=seed)  # type: ignore[arg-type]
    for units in (-1, 12, "a", 1.0, True):
        with pytest.raises(ModelError, match=f"{units!r} units with 4 inputs: use 0 to 11"):
            TimeModel(NAMES, units=units)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="names = None: give a list of different texts"):
        TimeModel(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a b", "'a b' cannot be one; try 'a_b'"),
        ("größe", "'größe' cannot be one"),
        ("int", "'int' cannot be one; try 'my_int'"),
        ("exp", "the C library has exp; try 'my_exp'"),
        ("float_t", "headers of C have float_t; try 'my_float_t'"),
        ("INFINITY", "headers of C have INFINITY; try 'my_INFINITY'"),
        (None, "None cannot be one"),
    ],
)
def test_a_name_that_c_refuses_is_refused(fitted: TimeModel, name: Any, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        fitted.to_c(name)


def test_a_name_of_an_input_does_not_end_the_comment_in_c() -> None:
    fitted = TimeModel(["rows*/", "co\nlumns"]).fit([[1, 2], [2, 3]], [1.0, 2.0])
    assert "/* Seconds of a call; inputs: rows* /, co lumns. */" in fitted.to_c()


def test_a_model_that_has_not_learned_says_so(tmp_path: Path) -> None:
    model = TimeModel(NAMES)
    for use in (lambda: model.predict([[1, 1, 1, 1]]), model.to_c, lambda: model.save(tmp_path)):
        with pytest.raises(ModelError, match="has not learned anything yet"):
            use()


def test_a_fit_multiplies_on_one_thread(monkeypatch):
    threads = set()

    def descend(self, z, target, rng):
        threads.update(pool["num_threads"] for pool in threadpoolctl.threadpool_info())
        return 0.0, np.zeros(self.parameters)

    monkeypatch.setattr(TimeModel, "_descend", descend)
    TimeModel(["n"]).fit([[1], [2], [4]], [1.0, 2.0, 4.0])
    assert threads == {1}
