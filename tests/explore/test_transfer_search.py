"""Searches that begin with what was best elsewhere, and vary its knobs."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from loopwright.costmodel.features.representation import ConfigVector
from loopwright.dsl.errors import ConfigError
from loopwright.explore.budget import TuningError
from loopwright.explore.report.callbacks import Callback
from loopwright.explore.strategies.annealing import Guide, Schedule
from loopwright.explore.strategies.encoded_space import EncodedSpace
from loopwright.explore.strategies.features import Features
from loopwright.explore.strategies.transfer_search import TransferSearch
from loopwright.explore.tune import tune
from loopwright.explore.tuner import Tuner
from loopwright.measure.tabular import load_brute_forced
from loopwright.transfer.records.record import Record
from loopwright.transfer.records.store import RecordStore
from tests.explore.synthetic import MadeUp, cost, matmul, matmul_space
from tests.sketches import direct

SMALL = Schedule(chains=16, steps=2)
KNOBS = "abcdefg"
BEST = (1, 2, 0, 3, 1, 2, 0)


def machine(path, best, together=()):
    """A table of seven knobs of four choices, one worse by 10 % to 70 % for each that is not the
    best, and 40 % more where the knobs `together` are not both the best."""
    lines = [",".join((*KNOBS, "ms"))]
    for point in itertools.product(range(4), repeat=len(KNOBS)):
        off = [p != b for p, b in zip(point, best)]
        ms = np.prod([1 + 0.1 * (k + 1) * o for k, o in enumerate(off)])
        ms *= 1.4 if together and sum(off[k] for k in together) == 1 else 1
        lines.append(",".join(map(str, (*point, ms))))
    path.write_text("\n".join(lines))
    return load_brute_forced(path)


def trials(device, begin, seed=0, batch=4, most=64):
    """Until the optimum is measured."""
    tuner = Tuner(device.space, "transfer", seed=seed, begin=begin)
    while len(tuner.costs) < most:
        asked = tuner.ask(batch)
        tuner.tell(asked, [m.cost for m in device.measure(device.space.workload, asked)])
        if min(tuner.costs) == device.optimum:
            return tuner.costs.index(device.optimum) + 1
    return np.inf


def test_the_first_trials_vary_one_knob_each_of_where_it_begins(tmp_path):
    device = machine(tmp_path / "here.csv", BEST)
    tuner = Tuner(device.space, "transfer", begin=device.best)
    default, begin, *others = EncodedSpace(device.space).points(tuner.ask(9))
    assert (default == 0).all()
    assert (begin[1:] == BEST).all()
    assert sorted(np.flatnonzero(point != begin)[0] for point in others) == [1, 2, 3, 4, 5, 6, 7]
    assert all((point != begin).sum() == 1 for point in others)


@pytest.mark.parametrize("changed", [(6,), (2, 5), (0, 3)])
def test_knobs_that_another_machine_has_otherwise_are_found_in_twenty_trials(tmp_path, changed):
    best = tuple((b + 1) % 4 if k in changed else b for k, b in enumerate(BEST))
    there, here = machine(tmp_path / "t.csv", BEST), machine(tmp_path / "t.csv", best)
    for seed in range(3):
        assert trials(here, there.best, seed) <= 20


def test_knobs_that_only_gain_together_are_put_together(tmp_path):
    best = (*BEST[:-2], 3, 2)
    there = machine(tmp_path / "t.csv", BEST)
    here = machine(tmp_path / "t.csv", best, together=(5, 6))
    assert trials(here, there.best) <= 20


def test_without_a_beginning_it_begins_with_the_default_or_the_best_that_is_known():
    encoded = EncodedSpace(matmul_space())
    tuner = Tuner(matmul_space(), "transfer")
    default, *others = encoded.points(tuner.ask(4))
    assert all((point != default).sum() == 1 for point in others)
    told = encoded.configs(encoded.sample(20, np.random.default_rng(0)))
    tuner = Tuner(matmul_space(), "transfer")
    tuner.tell(told, map(cost, told))
    best = encoded.points([min(told, key=cost)])[0]
    _, *others = encoded.points(tuner.ask(4))
    assert all((point != best).sum() == 1 for point in others)


def test_other_strategies_are_not_told_where_to_begin():
    with pytest.raises(TuningError, match="is for strategy='transfer', not 'annealing'"):
        Tuner(matmul_space(), begin=matmul_space().default)
    unknown = replace(matmul_space().default, sketch=direct("another"))
    with pytest.raises(ConfigError, match="another"):
        Tuner(matmul_space(), "transfer", begin=unknown)


class Known:
    """A model that has learned elsewhere, and likes low numbers."""

    ready, uncertain, reads = True, False, "config"

    def fit(self, features, costs, groups):
        pass

    def predict(self, features):
        return -features.sum(axis=1)


def strategy(device, legal=None, begin=None):
    features = Features(device.space, ConfigVector())
    rng = np.random.default_rng(0)
    guide = Guide(EncodedSpace(device.space, legal), rng, Known(), features, SMALL)
    return TransferSearch(guide, begin)


def test_nothing_is_left_to_ask_for_where_all_is_known(tmp_path):
    device = table(tmp_path, 2)
    searching = strategy(device)
    every = searching.encoded.listed
    searching.tell(every, np.arange(1.0, 1 + len(every)))
    assert len(searching.ask(4)) == 0
    assert searching.exhausted
    one = strategy(table(tmp_path, 1))
    assert len(one.ask(4)) == 1
    assert one.exhausted


def test_where_it_begins_is_not_asked_for_if_it_is_not_legal(tmp_path):
    device = table(tmp_path, 3)
    for begin in (None, np.array([[0, 0, 1]])):
        searching = strategy(device, lambda points: points[:, 1] > 0, begin)
        points = searching.ask(6)
        assert len(points) == 6
        assert (points[:, 1] > 0).all()


def table(folder, choices):
    lines = ["a,b,ms", *(f"{a},{b},{1 + a + b}" for a in range(choices) for b in range(choices))]
    (folder / "t.csv").write_text("\n".join(lines))
    return load_brute_forced(folder / "t.csv")


class Notes(Callback):
    def __init__(self):
        self.heard = []

    def note(self, text):
        self.heard.append(text)


def test_tuning_begins_with_the_best_of_another_machine(tmp_path):
    there, here, notes = MadeUp(), MadeUp(), Notes()
    known = list(dict.fromkeys(matmul_space().sample(np.random.default_rng(7)) for _ in range(9)))
    with RecordStore(tmp_path / "r.db") as store:
        for measured in there.measure(matmul(), known):
            elsewhere = {"processor": "another one"}
            store.add([Record.of(matmul(), there.target, elsewhere, measured)])
    tune(
        matmul(),
        device=here,
        trials=12,
        strategy="transfer",
        records=tmp_path / "r.db",
        transfer=None,
        callbacks=[notes],
    )
    assert here.measured[0] == matmul_space().default
    assert here.measured[1] == min(known, key=cost)
    assert "begins with what was best on another one" in notes.heard
    again = MadeUp()
    options = {"strategy": "transfer", "records": tmp_path / "r.db", "transfer": None}
    tune(matmul(), device=again, trials=13, callbacks=[notes], **options)
    assert notes.heard.count("begins with what was best on another one") == 2
