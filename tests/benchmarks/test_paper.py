"""The data and searches of the paper's figures, on a space small enough to invent costs for."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import loopwright as lw
from loopwright.costmodel.features.representation import (
    ConfigVector,
    ContextRelation,
    make_representation,
)
from loopwright.measure.tabular import TabularDevice
from loopwright.schedule.registry import REWRITES
from loopwright.schedule.space import Space, space
from loopwright.schedule.target import Target

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "paper"))

import figure
from figures import FIGURES
from points import Legal, Remembered, every_number, places
from recorded import READS, Recorded, RecordedError, configs
from search import Setting, curve
from subspace import nested_order, subspace
from summary import summary, trials_to

DATA = Path(figure.__file__).parent / "data"
GONE = ("kn2row", "predicated_padding")
"""Rewrites that files have, and this version has not."""
TARGET = Target(kind="llvm", triple="x86_64-linux-gnu", mcpu="znver3", threads=1)


@pytest.fixture(scope="module")
def whole() -> Space:
    weights = lw.tensor("W", (16, 16, 3, 3), constant=True)
    convolved = lw.ops.conv2d(lw.tensor("X", (1, 16, 14, 14)), weights, padding=1)
    return space(lw.workload(convolved), TARGET, "fast")


@pytest.fixture(scope="module")
def small(whole: Space) -> Space:
    return subspace(whole, 300)


def invented(points: Space) -> dict:
    """Costs that the features explain, and every fiftieth a failure."""
    costs = {}
    for number, sketch in enumerate(points.sketches):
        rows = ContextRelation().features(points, number, every_number(sketch))
        for place, (config, row) in enumerate(zip(configs(sketch), rows)):
            cost = 1e-4 * (2 + math.sin(row.sum()) + number)
            costs[config] = math.inf if place % 50 == 7 else cost
    return costs


@pytest.fixture(scope="module")
def table(small: Space, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "C7.npz"
    Recorded("C7", small, {"processor": "invented"}, invented(small)).save(path)
    return path


def test_a_sub_space_has_every_algorithm_and_not_too_many_configs(whole, small):
    families = {sketch.algorithm for sketch in whole.sketches}
    winograd = {f for f in families if f.names == ("winograd",)}
    assert winograd
    assert {s.algorithm for s in small.sketches} >= winograd
    assert 150 < small.size <= 300


def test_a_sub_space_has_the_defaults_of_its_sketches(whole, small):
    for sketch in small.sketches:
        assert sketch.at(sketch.default) == whole.config(sketch.name)


def test_a_larger_sub_space_holds_the_smaller_one(whole, small):
    larger = {c for sketch in subspace(whole, 900).sketches for c in configs(sketch)}
    assert {c for sketch in small.sketches for c in configs(sketch)} < larger


def test_numbers_in_nested_order_begin_far_apart():
    assert nested_order(9, 0) == [0, 8, 4, 2, 6, 1, 3, 5, 7]


def test_what_is_saved_comes_back(table, small):
    loaded = Recorded.load(table)
    assert [s.name for s in loaded.space.sketches] == [s.name for s in small.sketches]
    assert [s.default for s in loaded.space.sketches] == [s.default for s in small.sketches]
    assert loaded.costs == pytest.approx(invented(small), rel=1e-3)


@pytest.mark.parametrize("reads", READS)
def test_a_file_has_what_models_see_and_needs_no_rules(table, small, reads):
    loaded = Recorded.load(table)
    assert not any(sketch.has_loops for sketch in loaded.space.sketches)
    for number, sketch in enumerate(small.sketches):
        numbers = every_number(sketch)[::5]
        found = loaded.representation(reads).features(loaded.space, number, numbers)
        np.testing.assert_array_equal(
            found, make_representation(reads).features(small, number, numbers)
        )


def test_a_file_that_was_loaded_is_saved_as_it_was(table, tmp_path):
    again = tmp_path / "again.npz"
    Recorded.load(table).save(again)
    assert again.read_bytes() == table.read_bytes()


@pytest.mark.parametrize("path", sorted(DATA.glob("*.npz")), ids=lambda path: path.stem)
def test_files_of_the_earlier_format_name_the_rewrites_of_today(path):
    sketches = Recorded.load(path).space.sketches
    assert all(s.name.structure.startswith("vector=") for s in sketches)
    made = {name for s in sketches for name in s.derivation.names}
    assert made <= {*(rewrite.name for rewrite in REWRITES), *GONE}


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut off"])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path, content):
    path = tmp_path / "damaged.npz"
    path.write_bytes(content)
    with pytest.raises(RecordedError, match=r"damaged.* holds no recorded sub-space"):
        Recorded.load(path)


def test_damage_in_the_middle_is_found(table, tmp_path):
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path = tmp_path / "damaged.npz"
    path.write_bytes(content)
    with pytest.raises(RecordedError, match="holds no recorded sub-space"):
        Recorded.load(path)


def test_remembered_features_are_those_of_the_representation(small):
    numbers = every_number(small.sketches[1])[::7]
    plain = ContextRelation().features(small, 1, numbers)
    wider = Remembered(ContextRelation(), small, plain.shape[1] + 3)
    found = wider.features(small, 1, numbers)
    np.testing.assert_array_equal(found[:, :-3], plain)
    assert not found[:, -3:].any()


def test_places_are_the_inverse_of_numbers(small):
    sketch = small.sketches[0]
    np.testing.assert_array_equal(places(sketch, every_number(sketch)), np.arange(sketch.size))


def test_only_what_is_in_the_table_is_legal(small):
    costs = invented(small)
    known = dict(list(costs.items())[::3])
    device = TabularDevice(small, known)
    legal = Legal(device)
    for number, sketch in enumerate(small.sketches):
        numbers = every_number(sketch)
        points = np.insert(numbers, 0, number, axis=1)
        assert legal(points).tolist() == device.legal(number, numbers).tolist()


SETTINGS = (
    Setting("random", "random"),
    Setting("genetic × 2", "genetic", times=2),
    Setting("GBT"),
    Setting("config vector", reads="config"),
    Setting("transfer", sources=("C7",)),
)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.label)
def test_a_search_repeats_exactly_and_never_gets_worse(table, setting):
    found = curve(setting, table, seed=1, trials=40)
    assert found == curve(setting, table, seed=1, trials=40)
    assert found == sorted(found)
    assert len(found) == 40
    assert 0 < found[0] <= found[-1] <= 1


def test_a_search_of_the_whole_table_finds_its_best(table, small):
    assert curve(Setting("random", "random"), table, seed=0, trials=small.size)[-1] == 1


def test_two_measurements_a_trial_find_more_than_one(table):
    once = Setting("random", "random")
    found = [
        sum(curve(setting, table, seed, 20)[-1] for seed in range(12))
        for setting in (once, replace(once, times=2))
    ]
    assert found[1] > found[0]


def test_a_model_of_the_same_table_knows_it_from_the_start(table):
    learned = Setting("transfer", sources=("C7",))
    assert curve(learned, table, 0, 16)[-1] > curve(Setting("random", "random"), table, 0, 16)[-1]


def test_config_vectors_of_two_spaces_can_have_one_width(small):
    width = len(ConfigVector().names(small)) + 4
    assert Remembered(ConfigVector(), small, width).features(
        small, 0, every_number(small.sketches[0])
    ).shape == (small.sketches[0].size, width)


def test_curves_are_kept_as_their_steps():
    values = [0.5, 0.5, 0.75, 0.75, 1.0]
    assert figure.compact(values) == [[0, 0.5], [2, 0.75], [4, 1.0], [5, 1.0]]
    assert figure.expanded(figure.compact(values)) == values


def test_curves_of_other_tables_of_the_same_name_are_left_out(tmp_path):
    path = tmp_path / "searches.jsonl"
    path.write_text('[1, "C7", "k", 0, [[0, 1], [2, 1]]]\n[2, "C7", "k", 1, [[0, 1], [2, 1]]]\n')
    assert figure.read(path, {("C7", "k"): 2}) == {("C7", "k", 1): [1, 1]}
    assert len(figure.read(path, {})) == 2


def test_searches_are_of_the_tables_that_they_learned_from_too(tmp_path):
    table, source = tmp_path / "C7.npz", tmp_path / "C1.npz"
    table.write_bytes(b"table")
    source.write_bytes(b"source")
    learned = Setting("transfer", sources=("C1",))
    before, alone = figure.mark(table, learned), figure.mark(table, Setting("scratch"))
    source.write_bytes(b"more")
    assert figure.mark(table, learned) != before
    assert figure.mark(table, Setting("scratch")) == alone


def test_what_two_figures_share_is_one_search():
    keys = {number: {s.key for p in f.panels for s in p.settings} for number, f in FIGURES.items()}
    assert Setting("GBT").key in keys["4"] & keys["5"] & keys["6"] & keys["8"] & keys["9"]


def test_a_summary_counts_the_trials_that_it_takes():
    found = np.array([[0.5, 0.96, 1.0], [0.5, 0.6, 0.7]])
    assert trials_to(found, 0.95) == [2, math.inf]
    panel = FIGURES["6"].panels[0]
    curves = {(panel.table, panel.settings[0].key, 0): [0.9] * 200}
    assert "| C7 | λ = 1 | 1 | 0.900 |" in summary(FIGURES["6"], curves)
