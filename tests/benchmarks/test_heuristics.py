"""The tables of heuristics, on small data made here."""

import csv
import gzip

import numpy as np
import pytest

from benchmarks.heuristics.choice import columns
from benchmarks.heuristics.coarsening import chosen, speedups, times_of
from benchmarks.heuristics.data import COUNTS, folds, mapping
from benchmarks.heuristics.judging import Results, judged, over_seeds
from benchmarks.heuristics.mapping import cross_validated

TIMES = np.array([[1.0, 2.0], [1.0, 4.0], [8.0, 2.0]])


@pytest.fixture
def folder(tmp_path):
    """A folder with 24 rows of device mapping: loops are for the GPU."""
    path = tmp_path / "deeptune" / "case-study-a__cgo17-amd.csv.gz"
    path.parent.mkdir()
    with gzip.open(path, "wt", newline="") as file:
        names = ["benchmark", *COUNTS, "runtime_cpu", "runtime_gpu", "src"]
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for row in range(24):
            loop = row % 2
            writer.writerow(
                {
                    **dict.fromkeys(COUNTS, 1 + row % 3),
                    "benchmark": f"suite{row // 12}-1.0-program{row // 2}-kernel{row}",
                    "runtime_cpu": 2.0,
                    "runtime_gpu": 1.0 if loop else 4.0,
                    "src": "for (;;) a[0] = 1;" if loop else "a[0] = 1;",
                }
            )
    return tmp_path


def test_metrics_of_a_choice_are_those_by_hand():
    found = judged(np.array([0, 1, 1]), TIMES)
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["time"] == pytest.approx((1 + 4 + 2) / 4)
    assert found["better"] == pytest.approx(8 / 4)  # always the GPU
    assert found["mean"] == pytest.approx((1 + 1 / 4 + 4) / 3)  # static is the CPU
    assert found["geometric"] == pytest.approx(1.0)
    assert found["precision gpu"] == pytest.approx(1 / 2)
    assert found["recall gpu"] == 1
    assert found["F1 gpu"] == pytest.approx(2 / 3)
    assert found["recall cpu"] == pytest.approx(1 / 2)


def test_a_device_that_is_never_chosen_has_precision_zero():
    assert judged(np.zeros(3), TIMES)["precision gpu"] == 0


def test_results_are_made_once_and_read_again(tmp_path):
    path = tmp_path / "results.jsonl"
    made = []

    def make():
        made.append(1)
        return {"accuracy": 0.5}

    for _ in range(2):
        assert Results(path).of(("a", 1), make) == {"accuracy": 0.5}
    assert len(made) == 1
    assert over_seeds([{"a": 1.0}, {"a": 2.0}]) == {"a": 1.5}


def test_rows_are_read_in_seconds_with_their_programs(folder):
    data = mapping(folder, "amd")
    assert data.seconds[1].tolist() == [2e-3, 1e-3]
    assert data.groups["program"][3] == "suite0-1.0-program1"
    assert data.groups["suite"][23] == "suite1"
    assert data.labels.tolist() == [0, 1] * 12
    assert data.part(np.array([1])).labels.tolist() == [1]


@pytest.mark.parametrize("protocol", ["kernel", "program", "suite"])
def test_folds_hold_whole_groups_out(folder, protocol):
    data = mapping(folder, "amd")
    fold = folds(data, protocol, seed=3)
    of_group = {}
    for name, number in zip(data.groups[protocol], fold):
        assert of_group.setdefault(name, number) == number
    assert len(set(fold)) == min(10, len(of_group))


def test_random_folds_have_both_labels_in_equal_shares(folder):
    data = mapping(folder, "amd")
    fold = folds(data, "random", seed=0, count=4)
    assert [int(data.labels[fold == k].sum()) for k in range(4)] == [3] * 4


def test_text_tells_loops_in_programs_that_were_held_out(folder):
    found = cross_validated(mapping(folder, "amd"), None, "ours", "program", seed=0)
    assert found["accuracy"] == 1
    assert found["time"] == 1


def test_features_are_added_step_by_step():
    assert [COUNTS[i] for i in columns("+ count")] == ["wgsize", "comp", "mem"]
    assert sorted(columns("+ transfers")) == list(range(len(COUNTS)))


def test_a_factor_that_a_kernel_lacks_is_no_coarsening():
    rows = [
        {"kernel": "a", "cf": "1", "runtime_X": "8"},
        {"kernel": "a", "cf": "4", "runtime_X": "2"},
        {"kernel": "b", "cf": "1", "runtime_X": "3"},
        {"kernel": "b", "cf": "4", "runtime_X": ""},
    ]
    times = times_of(rows, "X")
    assert times == {"a": {1.0: 8.0, 4.0: 2.0}, "b": {1.0: 3.0}}
    found = speedups(times, {"a": 4.0, "b": 4.0})
    assert found["mean"] == pytest.approx(2.5)
    assert found["geometric"] == pytest.approx(2.0)


def test_each_kernel_is_judged_by_the_others():
    times = {f"k{i}": {1.0: 4.0, 2.0: 1.0, 4.0: 3.0} for i in range(6)}
    sources = {kernel: f"int {kernel};" for kernel in times}
    assert chosen(sources, times, seed=0) == dict.fromkeys(times, 2.0)
