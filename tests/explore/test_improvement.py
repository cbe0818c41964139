"""Points that a Gaussian process chooses, alone and from what other machines measured."""

import itertools

import numpy as np
import pytest

import loopwright as lw
from loopwright.explore.budget import TuningError
from loopwright.explore.report.callbacks import Callback
from loopwright.explore.strategies.annealing import Schedule
from loopwright.explore.strategies.encoded_space import EncodedSpace, Seen
from loopwright.explore.strategies.improvement import Improvement, expected_improvement
from loopwright.explore.tune import tune
from loopwright.explore.tuner import Tuner
from loopwright.measure.tabular import load_brute_forced
from loopwright.transfer.records.record import Record
from loopwright.transfer.records.store import RecordStore
from tests.explore.synthetic import TARGET, MadeUp, cost, matmul, matmul_space

QUICK = Schedule(chains=64, steps=2)


def table(path, corner, slow=1.0):
    """Six knobs of four choices. The last is bad, unless all others are those of the corner."""
    lines = ["a,b,c,d,e,f,ms"]
    for point in itertools.product(range(1, 5), repeat=6):
        off = sum(abs(p - b) for p, b in zip(point[:-1], corner[:-1]))
        ms = 3 + 0.2 * off if point[-1] == corner[-1] else 2 + 0.1 * sum(point[:-1])
        lines.append(",".join(map(str, (*point, slow * (1.0 if point == corner else ms)))))
    path.write_text("\n".join(lines))
    return load_brute_forced(path)


def searched(device, most, **options):
    tuner = Tuner(device.space, schedule=QUICK, **options)
    while len(tuner.costs) < most and (not tuner.costs or min(tuner.costs) > device.optimum):
        asked = tuner.ask(min(tuner.strategy.least, most - len(tuner.costs)))
        tuner.tell(asked, [m.cost for m in device.measure(device.space.workload, asked)])
    return tuner


def test_points_are_new_legal_and_among_the_sketches_that_are_looked_at():
    encoded = EncodedSpace(matmul_space(), lambda points: points[:, 1] != 0)
    rng = np.random.default_rng(0)
    among = encoded.every[:2]
    points = encoded.fresh(40, Seen(), rng, among)
    costs = np.array([cost(c) for c in encoded.configs(points)])
    costs[:3] = np.inf
    seen = Seen()
    seen.add(points)
    chosen = Improvement(encoded, rng).choose(12, points, costs, seen, among)
    assert len(chosen) == len(np.unique(chosen, axis=0)) == 12
    assert encoded.is_legal(chosen).all()
    assert not seen.has(chosen).any()
    assert np.isin(chosen[:, 0], among).all()


def test_points_are_better_than_those_drawn():
    encoded, rng = EncodedSpace(matmul_space()), np.random.default_rng(1)
    points = encoded.fresh(64, Seen(), rng)
    costs = np.array([cost(c) for c in encoded.configs(points)])
    seen = Seen()
    seen.add(points)
    chosen = Improvement(encoded, rng).choose(8, points, costs, seen, encoded.every)
    assert np.median([cost(c) for c in encoded.configs(chosen)]) < np.quantile(costs, 0.1)


@pytest.mark.parametrize("same", [False, True], ids=["different", "equal"])
def test_a_search_tries_all_of_a_small_space_whatever_the_costs(same):
    i = lw.indices("i")
    X, Y = lw.tensor("X", (64,)), lw.tensor("Y")
    Y[i] = X[i] + 1.0
    tuner = Tuner(lw.space(lw.workload(Y), TARGET), schedule=QUICK)
    while not tuner.exhausted:
        asked = tuner.ask(3)
        tuner.tell(asked, [0.001 if same else cost(c) for c in asked])
    assert len(set(tuner.configs)) == len(tuner.configs) > 10


def test_expected_improvement_grows_with_doubt_and_with_a_lower_mean():
    gain = expected_improvement(np.array([1.0, 1.0, 0.5, -1.0]), np.array([0, 1, 1, 0.0]), 0.0)
    assert gain[0] == pytest.approx(0, abs=1e-9)
    assert gain[0] < gain[1] < gain[2] < gain[3] == pytest.approx(1)


def test_equal_seeds_choose_equal_points(tmp_path):
    device = table(tmp_path / "t.csv", (2, 3, 1, 4, 2, 3))
    assert searched(device, 64).configs == searched(device, 64).configs


def order(devices):
    """The configs by the geometric mean of their costs."""
    means = {c: sum(np.log(d._costs[c]) for d in devices) for c in devices[0]._costs}
    return sorted(means, key=means.__getitem__)


def machines(tmp_path, *corners):
    return [table(tmp_path / "t.csv", corner, 1 + n) for n, corner in enumerate(corners)]


def test_every_other_trial_is_the_next_of_the_list(tmp_path):
    here, *others = machines(tmp_path, (4, 4, 4, 4, 4, 4), (1,) * 6, (1, 1, 1, 1, 1, 2))
    tuner = Tuner(here.space, "transfer", begin=[d._costs for d in others])
    default, *asked = tuner.ask(2)
    asked += tuner.ask(6)
    assert default == here.space.default
    left = [c for c in order(others) if c != default]
    assert asked[0] == left[0]
    assert len({*asked} & {*left[:8]}) >= 3


def test_a_machine_like_one_of_the_others_is_known_by_its_first_costs(tmp_path):
    corner = (2, 3, 1, 4, 2, 3)
    here, *others = machines(tmp_path, corner, (4, 1, 4, 1, 4, 1), (1, 4, 2, 2, 3, 2), corner)
    tuner = searched(here, 24, strategy="transfer", begin=[d._costs for d in others])
    assert min(tuner.costs) == here.optimum


def test_what_others_did_not_measure_or_could_not_run_is_no_obstacle(tmp_path):
    corner = (2, 3, 1, 4, 2, 3)
    here, one, other = machines(tmp_path, corner, corner, corner)
    few = dict(itertools.islice(one._costs.items(), 9))
    failed = dict.fromkeys(itertools.islice(other._costs, 20), np.inf) | {one.best: 1e-3}
    tuner = searched(here, 200, strategy="transfer", begin=[few, failed])
    assert len(set(tuner.configs)) == len(tuner.configs)
    assert min(tuner.costs) == here.optimum


class Notes(Callback):
    def __init__(self):
        self.heard = []

    def note(self, text):
        self.heard.append(text)


def test_tuning_follows_the_order_of_several_machines_in_the_store(tmp_path):
    here, notes = MadeUp(), Notes()
    known = list(dict.fromkeys(matmul_space().sample(np.random.default_rng(n)) for n in range(99)))
    with RecordStore(tmp_path / "r.db") as store:
        for name in ("one", "two"):
            for measured in MadeUp().measure(matmul(), known):
                store.add([Record.of(matmul(), here.target, {"processor": name}, measured)])
    options = {"strategy": "transfer", "transfer": None, "callbacks": [notes]}
    tune(matmul(), device=here, trials=4, records=tmp_path / "r.db", **options)
    default, first = here.measured[:2]
    assert default == matmul_space().default
    assert first == min(known, key=cost)
    assert "begins with the configs that 2 other machines measured" in notes.heard


def test_costs_of_several_machines_are_for_the_strategy_transfer(tmp_path):
    here, one = machines(tmp_path, (1,) * 6, (2,) * 6)
    with pytest.raises(TuningError, match="strategy='transfer'"):
        Tuner(here.space, begin=[one._costs])
