"""From records to features, costs and groups."""

from __future__ import annotations

import math

import numpy as np
import pytest

import loopwright as lw
from loopwright.costmodel.features.representation import ContextRelation
from loopwright.costmodel.model import ModelError
from loopwright.transfer.pretrained import dataset
from loopwright.transfer.pretrained.dataset import features_of, of_family, read_groups, stacked
from loopwright.transfer.records.kinds import kind, target_of
from loopwright.transfer.records.store import RecordStore
from tests.transfer.examples import AVX512, MACHINE, OTHER, failed, matmul, record
from tests.transfer.learned import AVX2, filled, measured, points


def conv(size: int, **options) -> str:
    x, w = lw.tensor("x", (1, 8, size, size)), lw.tensor("w", (4, 8, 3, 3))
    return kind(lw.workload(lw.ops.conv2d(x, w, **options)))


def test_a_kind_does_not_depend_on_sizes_names_strides_or_padding():
    assert conv(9) == conv(17, stride=2) == conv(9, padding=1) == "4 sum 3 mul(window, read)"
    assert kind(matmul(4, 5, 6)) == kind(matmul(9, 9, 9, "X Y Z")) != conv(9)
    assert kind(lw.workload(lw.ops.relu(lw.tensor("x", (4, 5))))) == "2 max(read, const)"


@pytest.mark.parametrize("target", [AVX2, AVX512])
def test_a_target_is_read_back_from_its_text(target):
    machine = {**MACHINE, "caches": "L1 48 KiB, L2 2048 KiB, L3 32768 KiB"}
    found = target_of(str(target), machine, 3)
    assert (found.mcpu, found.features, found.threads) == (target.mcpu, target.features, 3)
    assert (found.l1_bytes, found.l2_bytes) == (48 << 10, 2 << 20)
    assert found.lanes(4) == (16 if target is AVX512 else 8)
    assert str(found) == str(target)


def test_targets_whose_features_only_a_compiler_knows_are_left_out():
    assert target_of("llvm x86_64-unknown-linux-gnu znver3", MACHINE, 1) is None
    assert target_of("replayed a table", MACHINE, 1) is None


def test_features_of_a_few_configs_are_those_of_the_search():
    of = points(24, 36, 48)
    configs = [of.sample(np.random.default_rng(n)) for n in range(20)]
    names = [s.name for s in of.sketches]
    recorded = [
        ContextRelation().features(
            of, names.index(c.sketch), np.array([of.sketch(c.sketch).numbers(c)])
        )[0]
        for c in configs
    ]
    assert np.allclose(features_of(of, configs, ContextRelation()), recorded, rtol=1e-4)


def test_groups_hold_what_compares_and_the_median_cost_of_each_config(tmp_path):
    of = points(24, 36, 48)
    records = measured(of, 12)
    one = points(24, 36, 48, AVX2.__class__(mcpu="znver3", features=AVX2.features, threads=1))
    with RecordStore(tmp_path / "r.db") as store:
        store.add(records)
        again = {"config": records[0].config, "workload": of.workload, "target": AVX2}
        store.add([record(milliseconds=5.0, **again), record(7.0, machine=OTHER, **again)])
        store.add([failed(**{**again, "config": records[1].config})])
        store.add([record(3, **{**again, "config": record(3).config})])  # of no space
        store.add(measured(one, 8))
        groups = list(read_groups([store]))
    assert [(len(g.costs), g.threads, g.skipped) for g in groups] in (
        [(12, 2, 1), (1, 2, 0), (8, 1, 0)],
        [(8, 1, 0), (12, 2, 1), (1, 2, 0)],
        [(8, 1, 0), (1, 2, 0), (12, 2, 1)],
    )
    whole = next(g for g in groups if len(g.costs) == 12)
    assert whole.costs[0] == pytest.approx((records[0].cost + 5e-3) / 2)
    assert whole.costs[1] == math.inf
    features, costs, numbers = stacked(groups)
    assert len(features) == len(costs) == len(numbers) == 21
    assert len(set(numbers.tolist())) == 3


def test_a_timeout_does_not_hide_a_time_and_wrong_results_do(tmp_path):
    of = points(24, 36, 48)
    records = measured(of, 4)
    with RecordStore(tmp_path / "r.db") as store:
        store.add(records)
        for of_one, kind in zip(records, ("timeout", "wrong")):
            about = {"config": of_one.config, "workload": of.workload, "target": AVX2}
            store.add([failed(kind=kind, **about)])
        compared = {"config": records[2].config, "workload": of.workload, "target": AVX2}
        store.add([record(milliseconds=9.0, session="s/finals", **compared)])  # of another hour
        (group,) = read_groups([store])
    assert group.costs.tolist() == [records[0].cost, math.inf, records[2].cost, records[3].cost]


def test_large_groups_are_thinned_and_keep_their_best(tmp_path):
    with RecordStore(filled(tmp_path / "r.db", [(24, 36, 48)])) as store:
        (whole,) = read_groups([store])
        (some,) = read_groups([store], most=10)
        assert list(read_groups([store], wanted=of_family(str(AVX512)))) == []
    assert len(some.costs) == 10
    assert some.costs.min() == whole.costs.min()
    assert some.costs.max() == whole.costs.max()


def test_config_vectors_say_nothing_about_other_workloads(tmp_path):
    with pytest.raises(ModelError, match="say nothing about other workloads"):
        list(read_groups([RecordStore(tmp_path / "r.db")], "config"))
    with pytest.raises(ModelError, match="no records to learn from"):
        stacked([])


def test_processes_read_what_one_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset, "_MANY", 2)
    sizes = [(24, 36, 48), (8, 16, 24), (9, 9, 9)]
    with RecordStore(filled(tmp_path / "r.db", sizes)) as store:
        alone, together = (list(read_groups([store], processes=n)) for n in (1, 2))
    assert len(alone) == 3
    for one, other in zip(alone, together, strict=True):
        assert str(one.workload) == str(other.workload)
        np.testing.assert_array_equal(one.features, other.features)
        np.testing.assert_array_equal(one.costs, other.costs)
