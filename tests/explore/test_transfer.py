"""Searches that begin with a global model, and those that measure little or nothing."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import loopwright as lw
from loopwright.costmodel.model import ModelError
from loopwright.costmodel.models.gbt import GBTModel
from loopwright.explore.budget import TuningError
from loopwright.explore.report.callbacks import Callback
from loopwright.explore.strategies.annealing import Schedule
from loopwright.explore.strategies.encoded_space import EncodedSpace
from loopwright.explore.tune import tune
from loopwright.explore.zero_shot import ZeroShot
from loopwright.measure.device import Comparison, Device, Failure, Measurement, never
from loopwright.schedule.space import space
from loopwright.transfer.pretrained.dataset import read_groups
from loopwright.transfer.pretrained.training import train
from loopwright.transfer.records.store import Record, RecordStore
from tests.transfer.examples import MACHINE, matmul
from tests.transfer.layouts import execute
from tests.transfer.learned import AVX2, costs, filled, points

NEW = (40, 24, 56)
QUICK = Schedule(chains=64, steps=2)


class Featured(Device):
    """Costs follow from the features of programs."""

    def __init__(self):
        self.target, self.name, self.measured, self.compared = AVX2, "made up", [], False

    def fingerprint(self):
        return dict(MACHINE)

    def check(self):
        pass

    def measure(self, workload, configs, stop=never):
        self.measured += configs
        for config, cost in zip(configs, costs(points(*NEW), list(configs)), strict=True):
            yield Measurement(config, (float(cost),) * 3, None, 0.0, 0.0, "warm", 2, 1e9)

    def verify(self, workload, config):
        return None

    def compare(self, workload, configs, rounds):
        self.compared = True
        samples = tuple((float(c),) * rounds for c in costs(points(*NEW), list(configs)))
        return Comparison(samples, (0,) * len(configs))


class Notes(Callback):
    def __init__(self):
        self.heard = []

    def note(self, text):
        self.heard.append(text)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("global")
    with RecordStore(filled(folder / "r.db", count=60)) as store:
        train(list(read_groups([store]))).save(folder / "global.json")
    return folder / "global.json"


def run(device, **options):
    settings = {"records": None, "schedule": QUICK, "transfer": None, **options}
    return tune(matmul(*NEW), device=device, **settings)


def test_half_of_the_first_batch_is_chosen_by_the_global_model(file):
    with_it, without = Featured(), Featured()
    notes = Notes()
    tuned = run(with_it, trials=16, transfer=file, callbacks=[notes])
    run(without, trials=16)
    assert with_it.measured[0] == points(*NEW).default  # still candidate 0
    of = points(*NEW)
    assert sorted(costs(of, with_it.measured))[6] < sorted(costs(of, without.measured))[6]
    assert str(file) in notes.heard[0]
    assert tuned.notes == tuple(notes.heard)
    assert tuned.seconds <= tuned.default


def test_the_local_model_goes_on_from_the_global_one(file):
    device = Featured()
    tuned = run(device, trials=48, transfer=file)
    assert len(tuned.history) == 48
    best = min(costs(points(*NEW), device.measured))
    assert tuned.seconds == pytest.approx(best)


def test_a_model_that_is_given_and_a_path_to_transfer_from_exclude_each_other(file):
    with pytest.raises(TuningError, match="a model that is named"):
        run(Featured(), trials=8, transfer=file, model=GBTModel())
    with pytest.raises(TuningError, match="annealing"):
        run(Featured(), trials=8, transfer=file, strategy="random")
    with pytest.raises(ModelError, match="no such file"):
        run(Featured(), trials=8, transfer="missing.json")


def test_without_trials_the_global_model_chooses_and_nothing_is_measured(file):
    device = Featured()
    tuned = run(device, trials=0, transfer=file)
    assert device.measured == []
    assert tuned.record is None
    assert math.isnan(tuned.seconds)
    assert "nothing was measured" in str(tuned)
    of = points(*NEW)
    chosen, default = costs(of, [tuned.config, of.default])
    assert chosen < default
    with pytest.raises(TuningError, match="give it trials"):
        tuned.report("nowhere.html")
    with pytest.raises(TuningError, match="give it trials"):
        tuned.plot("nowhere.png")


def test_without_trials_and_a_model_the_default_is_chosen_and_said_to_be():
    notes = Notes()
    tuned = run(Featured(), trials=0, callbacks=[notes])
    assert tuned.config == points(*NEW).default
    assert "rules of thumb" in notes.heard[0]


def test_without_trials_the_best_of_earlier_sessions_is_chosen(file, tmp_path):
    store = tmp_path / "r.db"
    earlier = run(Featured(), trials=16, records=store)
    tuned = run(Featured(), trials=0, records=store, transfer=file)
    chosen, best = costs(points(*NEW), [tuned.config, earlier.config])
    assert chosen == best  # of several that are as fast, any
    assert tuned.record is not None
    with RecordStore(store) as opened:
        count = len(opened)
    run(Featured(), trials=0, records=store, transfer=file)
    with RecordStore(store) as opened:
        assert len(opened) == count


def test_without_trials_what_failed_before_is_not_handed_out(tmp_path):
    device, default = Featured(), points(*NEW).default
    wrong = Measurement(default, (), Failure("wrong", "C[0, 0] is 1"), 0.0, 0.0, "warm", 2, 1e9)
    facts = (matmul(*NEW), device.target, device.fingerprint())
    with RecordStore(tmp_path / "r.db") as store:
        store.add([Record.of(*facts, wrong, seed=0, session="before")])
    with pytest.raises(TuningError, match=r"C\[0, 0\] is 1"):
        run(device, trials=0, records=tmp_path / "r.db")


def test_without_trials_and_with_nothing_new_what_failed_is_told(file, tmp_path):
    x, y = lw.tensor("X", (3,)), lw.tensor("Y")
    (i,) = lw.indices("i")
    y[i] = x[i] + 1
    device, of = Featured(), lw.workload(y)
    with RecordStore(tmp_path / "r.db") as store:
        for sketch in space(of, device.target).sketches:
            for numbers in itertools.product(*(range(len(k.choices)) for k in sketch.knobs)):
                wrong = Failure("wrong", "Y[0] is 1")
                m = Measurement(sketch.at(numbers), (), wrong, 0.0, 0.0, "warm", 2, 1e9)
                facts = (of, device.target, device.fingerprint())
                store.add([Record.of(*facts, m, seed=0, session="before")])
    with pytest.raises(TuningError, match=r"Y\[0\] is 1"):
        lw.tune(of, trials=0, device=device, records=tmp_path / "r.db", transfer=file)


def test_a_damaged_record_of_another_workload_does_not_stop_a_search(tmp_path):
    path = filled(tmp_path / "r.db", count=60)
    execute(path, "UPDATE texts SET text = '{' || text WHERE text LIKE '%tensors%'")
    notes = Notes()
    tuned = run(
        Featured(), trials=8, records=path, transfer="auto", model="gbt", callbacks=[notes]
    )
    assert tuned.seconds > 0
    assert any("leaves other workloads' records out" in note for note in notes.heard)


def test_a_model_that_learns_nothing_takes_no_global_model(file):
    with pytest.raises(TuningError, match="named and learns"):
        run(Featured(), trials=8, transfer=file, model="random")


def test_perceptrons_go_on_from_what_auto_finds_and_other_models_say_that_nothing_is_shipped(
    tmp_path,
):
    path = filled(tmp_path / "r.db", count=60)
    said = {}
    for model in ("mlp", "gbt-regression"):
        notes = Notes()
        options = {"records": path, "transfer": "auto", "callbacks": [notes]}
        run(Featured(), trials=8, model=model, **options)
        said[model] = " ".join(notes.heard)
    assert "learns from" in said["mlp"]
    assert "no model is shipped for model='gbt-regression'" in said["gbt-regression"]


def test_a_base_of_other_features_is_an_error_that_says_what_to_do(file, tmp_path):
    model = GBTModel(reads="config")
    rng = np.random.default_rng(0)
    x = rng.random((100, 4)).astype(np.float32)
    model.fit(x, 1 + x[:, 0], np.zeros(100, int))
    model.save(tmp_path / "config.json")
    with pytest.raises(ModelError, match=r"config\.json.*loopwright model train"):
        run(Featured(), trials=8, transfer=tmp_path / "config.json")


def test_an_instant_search_measures_eight_and_compares_nothing(file):
    device = Featured()
    tuned = run(device, effort="instant", transfer=file)
    assert len(device.measured) == len(set(device.measured)) == 8
    assert device.measured[0] == points(*NEW).default
    assert not device.compared
    assert not tuned.finalists
    assert tuned.seconds == min(costs(points(*NEW), device.measured))
    assert tuned.seconds < tuned.default
    assert tuned.speedup is None
    assert "not compared with the default" in str(tuned)


class Unsure(GBTModel):
    """Hardly tells one program from another, and likes the first ones least."""

    def predict(self, features):
        return np.linspace(0.0, 0.09, len(features))


def test_a_choice_from_which_a_model_expects_nothing_is_the_default():
    of = EncodedSpace(points(*NEW))
    chosen = ZeroShot(of, np.random.default_rng(0), Unsure()).choose(2)
    assert of.configs(chosen)[0] == of.space.default
    assert of.configs(chosen)[1] != of.space.default


@pytest.mark.parametrize(("nests", "looked_at"), [(1, 6), (0.7, 4), (0, 3)])
def test_fewer_sketches_are_looked_at_where_they_are_longer_but_at_least_half(
    nests, looked_at, monkeypatch
):
    """Of six, each of one nest: as many as have `nests` times six."""
    batches = []

    class Counting(Unsure):
        def predict(self, features):
            batches.append(len(features))
            return super().predict(features)

    of = EncodedSpace(points(*NEW))
    assert all(len(sketch.nests) == 1 for sketch in of.space.sketches)
    monkeypatch.setattr("loopwright.explore.zero_shot.NESTS", nests)
    ZeroShot(of, np.random.default_rng(0), Counting(), sketches=6).choose()
    assert batches[0] == looked_at


def test_the_same_seed_gives_the_same_choice(file):
    chosen = [run(Featured(), trials=0, transfer=file, seed=3).config for _ in range(2)]
    assert chosen[0] == chosen[1]
