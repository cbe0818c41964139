"""`feedback="compiled"`: facts of code that is built decide what runs."""

import zlib

import numpy as np
import pytest

from loopwright.codegen.facts.facts import CPU_FACTS
from loopwright.explore.budget import TuningError
from loopwright.explore.strategies.annealing import Schedule
from loopwright.explore.strategies.compiled import Compiled
from loopwright.explore.tune import tune
from loopwright.explore.tuner import Tuner
from loopwright.measure.device import DeviceError
from loopwright.measure.tabular import load_brute_forced
from loopwright.transfer.records.store import RecordStore
from tests.explore.synthetic import Inspected, MadeUp, matmul, matmul_space
from tests.targets import narrow

pytestmark = pytest.mark.optimized

FEW = Schedule(chains=256, steps=2, sketches=3, more=0)


def number(config):
    """A number of a config that its loops do not tell."""
    return zlib.crc32(str(config).encode()) % 64


def facts(config):
    return {**dict.fromkeys(CPU_FACTS, 8), "stack_bytes": number(config), "spills": 0}


def cost(config):
    return 1e-3 * (1 + number(config))


class Told:
    """Feedback that keeps what it was asked; configs of some remainders cannot be built."""

    def __init__(self, fails=()):
        self.asked, self.fails = [], fails

    def __call__(self, configs):
        self.asked += configs
        return [None if number(c) % 8 in self.fails else facts(c) for c in configs]


def run(tuner, feedback, rounds=3):
    """Batches of 16, told with facts and costs."""
    batches = []
    for _ in range(rounds):
        configs = tuner.ask(16)
        fails = [number(c) % 8 in feedback.fails for c in configs]
        costs = [np.inf if f else cost(c) for f, c in zip(fails, configs)]
        tuner.tell(configs, costs, [facts(c) for c in configs])
        batches.append(configs)
    return batches


def made(feedback, seed=0):
    return Tuner(matmul_space(), seed=seed, schedule=FEW, feedback=feedback)


def test_what_runs_are_those_of_many_whose_code_promises_most():
    feedback = Told()
    first, second, third = run(made(feedback), feedback)
    assert len(feedback.asked) >= 2 * 48
    assert {*second[-8:], *third[-8:]} <= {*feedback.asked, *second, *third}
    means = [np.mean([number(c) for c in batch]) for batch in (first, second, third)]
    everything = np.mean([number(c) for c in feedback.asked])
    assert means[1] < 0.8 * everything
    assert means[2] < 0.8 * everything


def test_nothing_is_built_before_the_models_know_the_space():
    feedback = Told()
    made(feedback).ask(16)
    assert feedback.asked == []


def test_equal_seeds_ask_for_equal_configs():
    one, other = Told(), Told()
    assert run(made(one, 3), one) == run(made(other, 3), other)
    assert one.asked == other.asked


def test_what_cannot_be_built_is_not_asked_for_and_not_built_again():
    feedback = Told(fails=(1, 2, 3))
    tuner = made(feedback)
    _, second, third = run(tuner, feedback)
    failed = {c for c in feedback.asked if number(c) % 8 in feedback.fails}
    assert failed
    assert not failed & {*second, *third}
    assert all(feedback.asked.count(c) == 1 for c in failed)
    points = tuner.strategy.points
    known = tuner.space and tuner.strategy.encoded.configs(points[np.isinf(tuner.strategy.costs)])
    assert failed <= set(known)


def test_candidates_whose_checked_fact_was_predicted_wrongly_are_a_few_of_those_that_run():
    def feedback(configs):
        return [{**facts(c), "spills": 40 * (number(c) == 7), "stack_bytes": 9} for c in configs]

    tuner = made(feedback)
    strategy = tuner.strategy
    rng = np.random.default_rng(0)
    points = strategy.encoded.sample(512, rng)
    configs = strategy.encoded.configs(points)
    strategy.note(configs, feedback(configs))
    usual = np.array([number(c) != 7 for c in configs])
    rows = strategy.features(points)
    assert not len(strategy._check(points[usual], rows[usual]))
    assert not len(strategy._check(points[usual][:9], rows[usual][:9]))
    wrong = strategy._check(points, rows)
    assert set(wrong) <= set(np.flatnonzero(~usual))


def test_a_search_inspects_and_keeps_what_could_not_be_built():
    device = Inspected(unbuilt=frozenset([5]))
    options = {"records": None, "trials": 64, "schedule": FEW, "batch": 16, "transfer": None}
    tuned = tune(matmul(), device=device, feedback="compiled", **options)
    assert len(device.inspected) > 64
    assert len(tuned.history) >= 64
    assert any(m.failure and "cannot be built" in m.failure.message for m in tuned.history)


@pytest.mark.parametrize(
    "given", [{"strategy": "random"}, {"strategy": "transfer"}, {"model": "source"}]
)
def test_feedback_is_for_annealing_by_models_of_loop_trees(given):
    with pytest.raises(TuningError, match="leave it out"):
        Tuner(matmul_space(), feedback=Told(), **given)


def test_feedback_that_there_is_not_is_refused(tmp_path):
    with pytest.raises(TuningError, match="give 'compiled', or None"):
        tune(matmul(), device=MadeUp(), feedback="llvm", records=None)
    with pytest.raises(TuningError, match="made up tells nothing: leave it out"):
        tune(matmul(), device=MadeUp(), feedback="compiled", records=None)
    table = tmp_path / "table.csv"
    table.write_text("a,b,time_ms\n1,1,3.0\n1,2,4.0\n")
    device = load_brute_forced(table)
    with pytest.raises(DeviceError, match="tells nothing of programs before they run"):
        device.inspect(device.space.workload, [device.best])


def test_feedback_is_refused_where_nothing_is_learned():
    with pytest.raises(TuningError, match="searches that learn"):
        tune(matmul(), device=Inspected(), feedback="compiled", records=None, trials=0)


def test_without_feedback_a_search_is_annealing_alone():
    assert not isinstance(Tuner(matmul_space()).strategy, Compiled)


@pytest.mark.slow
@pytest.mark.parametrize("codegen", ["llvm", "builtin"])
def test_a_search_with_feedback_gives_a_library_that_is_right(codegen, tmp_path):
    schedule = Schedule(chains=64, steps=2, sketches=2, more=0, learn_from=8)
    tuned = tune(
        matmul(), target=narrow(1), trials=20, batch=8, feedback="compiled", codegen=codegen,
        records=tmp_path / "tuning.db", schedule=schedule, transfer=None,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    a, b = rng.random((24, 36), np.float32), rng.random((36, 48), np.float32)
    np.testing.assert_allclose(tuned.library(a, b), a @ b, rtol=1e-5)
    with RecordStore(tmp_path / "tuning.db") as store:
        known = [r for r in store if r.facts]
    assert len(known) >= 8
    assert known[-1].facts["code_bytes"] > 0
