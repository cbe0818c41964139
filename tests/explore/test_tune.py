"""Whole searches, on devices that make costs up or look them up."""

from __future__ import annotations

import dataclasses
import math
import zlib

import numpy as np
import pytest

import loopwright as lw
from loopwright.costmodel.model import ModelError
from loopwright.costmodel.models.gbt import GBTModel
from loopwright.dsl.errors import LoopwrightError, NotationError
from loopwright.explore.budget import EFFORTS, Budget, TuningError
from loopwright.explore.finalize import LONGEST, ROUNDS, TRIES
from loopwright.explore.report.callbacks import Callback
from loopwright.explore.strategies.annealing import Schedule
from loopwright.explore.tune import tune
from loopwright.explore.tuner import Tuner
from loopwright.measure.device import Comparison, Measurement
from loopwright.measure.tabular import TabularDevice, load_brute_forced
from loopwright.schedule.space import Space, space
from loopwright.transfer.records.store import Record, RecordStore
from tests.explore.synthetic import MadeUp, cost, matmul, matmul_space, tiny
from tests.sketches import derived

QUICK = Schedule(chains=64, steps=2)


def run(device, workload=None, **options):
    """A search with few chains and a small model, unless told otherwise."""
    model = GBTModel(rounds=4)
    settings = {"trials": 80, "records": None, "schedule": QUICK, "model": model, **options}
    return tune(workload or matmul(), device=device, **settings)


def taking(found, samples):
    """What a comparison found, with other samples."""
    return dataclasses.replace(found, samples=tuple(samples))


@pytest.fixture
def table(tmp_path):
    """A replayed table of 8 × 8 × 8 points, some missing and some failing."""
    lines = ["a,b,c,time_ms"]
    for a in range(8):
        for b in range(8):
            for c in range(8):
                value = 1 + (a - 3) ** 2 + (b - 5) ** 2 + abs(c - 2) + (a * b) % 3
                if (a + b + c) % 7:
                    lines.append(f"{1 << a},{b},{c},{'' if value > 40 else value}")
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return load_brute_forced(path)


def test_a_device_is_checked_once_while_its_processes_had_time_to_start():
    seen = []

    class Told(Callback):
        def update(self, progress):
            seen.append(progress.doing)

    device = MadeUp()
    device.check = lambda: seen.append("check")
    run(device, trials=20, callbacks=[Told()])
    assert seen[:3] == ["choosing", "check", "measuring"]
    assert seen.count("check") == 1


def test_the_default_is_candidate_0_and_the_best_is_at_least_as_fast():
    device = MadeUp()
    tuned = run(device)
    assert device.measured[0] == matmul_space().default
    assert len(tuned.history) == len(set(device.measured)) == 80
    assert tuned.seconds <= tuned.default
    assert cost(tuned.config) <= 1.01 * min(map(cost, device.measured))
    gain = tuned.default / tuned.seconds
    assert tuned.speedup.low * (1 - 1e-9) <= gain <= tuned.speedup.high * (1 + 1e-9)
    assert tuned.claim == f"{gain:.2f} ({gain:.2f} to {gain:.2f}) times as fast as the default"
    assert not device.closed


@pytest.mark.parametrize("strategy", ["annealing", "random", "grid", "genetic"])
def test_two_runs_on_a_replayed_device_are_equal_bit_for_bit(table, strategy):
    def history():
        options = {"seed": 7, "strategy": strategy, "model": "gbt"}
        tuned = run(table, table.space.workload, trials=120, **options)
        return [(m.config, m.seconds) for m in tuned.history], tuned.config, tuned.seconds

    assert history() == history()


def test_another_seed_is_another_search(table):
    one, other = (run(table, table.space.workload, seed=s).history for s in (1, 2))
    assert one != other


def test_a_replayed_search_asks_only_for_points_of_the_table(table):
    tuned = run(table, table.space.workload, trials=200)
    assert "illegal" not in tuned.failures
    assert tuned.seconds == table.optimum


def test_a_table_is_of_its_own_workload(table):
    with pytest.raises(TuningError, match="another workload"):
        run(table, matmul())


def test_a_small_space_ends_the_search():
    tuned = run(MadeUp(), tiny(), trials=10_000)
    assert tuned.end == "the space is exhausted"
    assert len(tuned.history) < 10_000
    assert len({m.config for m in tuned.history}) == len(tuned.history)


@pytest.mark.parametrize(
    "options",
    [
        {"trials": -1},
        {"trials": -3},
        {"trials": 2.5},
        {"trials": True},
        {"minutes": 0},
        {"minutes": math.nan},
        {"minutes": "3"},
        {"trials": None, "effort": "lots"},
        {"batch": 0},
        {"seed": -1},
        {"seed": 1 << 63},
        {"seed": "x"},
        {"strategy": "luck"},
        {"model": "crystal ball"},
        {"schedule": Schedule(acquisition="luck")},
        {"schedule": Schedule(acquisition="ei")},
    ],
)
def test_a_bad_request_is_refused_before_anything_is_measured(options):
    device = MadeUp()
    with pytest.raises((TuningError, ModelError)):
        run(device, **options)
    assert not device.measured


def test_budgets_are_presets_or_what_is_given():
    assert Budget.of(None, None, "quick") == EFFORTS["quick"]
    assert Budget.of(5, None) == Budget(5, math.inf)
    assert Budget.of(None, 0.5) == Budget(math.inf, 0.5)
    assert str(Budget.of(5, 2.0)) == "5 trials or 2 minutes"
    assert str(Budget.of(1, 1)) == "1 trial or 1 minute"
    assert str(Budget.of(None, 0.5)) == "0.5 minutes"


def test_a_defined_tensor_is_searched_like_its_workload():
    workload = matmul()
    device = MadeUp()
    tuned = run(device, workload.outputs[0], trials=8)
    assert tuned.workload == workload
    with pytest.raises(NotationError, match=r"lw\.workload\(C"):
        run(device, "matmul")


def test_an_interrupt_ends_a_loop_of_searches_and_carries_what_was_found(tmp_path):
    device = MadeUp(interrupt_at=45)
    with pytest.raises(lw.Interrupted, match=r"45 trials.*the `tuned` of this") as caught:
        run(device, records=tmp_path / "r.db")
    assert not isinstance(caught.value, Exception)
    tuned = caught.value.tuned
    assert tuned.end == "interrupted"
    assert len(tuned.history) == 45
    assert tuned.config == min(device.measured, key=cost)
    assert not tuned.finalists
    with RecordStore(tmp_path / "r.db") as store:
        assert len(store) == 45


def test_an_interrupt_before_anything_was_measured_passes_through():
    with pytest.raises(KeyboardInterrupt) as caught:
        run(MadeUp(interrupt_at=0))
    assert not isinstance(caught.value, lw.Interrupted)


def test_the_same_command_again_goes_on_and_counts_what_was_done(tmp_path):
    first, second, third = MadeUp(interrupt_at=45), MadeUp(), MadeUp()
    path = tmp_path / "r.db"
    with pytest.raises(lw.Interrupted):
        run(first, records=path)
    resumed = run(second, records=path)
    assert resumed.resumed == 45
    assert len(resumed.history) == 80
    assert len(second.measured) == 35
    assert not set(first.measured) & set(second.measured)
    again = run(third, records=path)
    assert not third.measured
    assert again.config == resumed.config


def test_records_of_another_machine_do_not_count(tmp_path):
    class Elsewhere(MadeUp):
        def fingerprint(self):
            return {"processor": "another"}

    run(Elsewhere(), records=tmp_path / "r.db", trials=8)
    assert run(MadeUp(), records=tmp_path / "r.db", trials=8).resumed == 0


def test_failures_are_counted_and_recorded_never_trained_as_zeros(tmp_path):
    device = MadeUp(fails=frozenset({0, 1}))
    tuned = run(device, records=tmp_path / "r.db")
    assert set(tuned.failures) == {"build", "timeout"}
    assert math.isfinite(tuned.seconds)
    with RecordStore(tmp_path / "r.db") as store:
        failed = list(store.query(failed=True))
    assert len(failed) == sum(tuned.failures.values())
    assert all(r.failure.traceback == "a traceback" for r in failed)


def test_a_search_in_which_nothing_works_shows_the_first_failure_of_each_kind():
    device = MadeUp(fails=frozenset(range(8)))
    with pytest.raises(LoopwrightError) as caught:
        run(device)
    text = str(caught.value)
    assert "none of 80 candidates worked" in text
    assert "build: number" in text
    assert "timeout: number" in text
    assert "a traceback" in text


def test_a_failing_default_does_not_end_the_search():
    class NoDefault(MadeUp):
        def _measured(self, config):
            measured = super()._measured(config)
            if config != matmul_space().default:
                return measured
            failed = super(NoDefault, NoDefault(frozenset(range(8))))._measured(config)
            return dataclasses.replace(failed, seconds=())

    tuned = run(NoDefault())
    assert math.isinf(tuned.default)
    assert math.isfinite(tuned.seconds)


def test_a_wrong_best_is_rejected_and_recorded(tmp_path):
    plain = run(MadeUp())
    device = MadeUp(wrong=frozenset({plain.config}))
    tuned = run(device, records=tmp_path / "r.db")
    assert tuned.config != plain.config
    assert device.verified[-1] == tuned.config
    with RecordStore(tmp_path / "r.db") as store:
        best = store.best(matmul(), device.target, machine=device.fingerprint())
        assert best.config != plain.config
        assert best.cost == cost(tuned.config)  # two sketches may cost the same
        kinds = {r.failure.kind for r in store.query(failed=True)}
    assert kinds <= {"wrong"}


def test_every_new_best_of_a_batch_is_verified():
    device = MadeUp()
    run(device, batch=8)
    best = math.inf
    for start in range(0, 80, 8):
        batch = device.measured[start : start + 8]
        champion = min(batch, key=cost)
        if cost(champion) < best:
            best = cost(champion)
            assert champion in device.verified


def test_batches_grow_by_an_eighth_of_what_was_measured():
    asked = []

    class Counting(MadeUp):
        def measure(self, workload, configs, *more):
            asked.append(len(configs))
            return super().measure(workload, configs, *more)

    run(Counting(), trials=100)
    assert asked[:10] == [8, 8, 8, 8, 8, 8, 8, 8, 8, 9]
    assert sum(asked) == 100


def test_one_that_fails_in_the_comparison_does_not_win():
    best = run(MadeUp()).config

    class Shaky(MadeUp):
        def compare(self, workload, configs, rounds):
            found = super().compare(workload, configs, rounds)
            bad = (math.inf,) * rounds
            return taking(found, [bad if c == best else s for c, s in zip(configs, found.samples)])

    tuned = run(Shaky())
    assert tuned.config != best
    assert best not in {f.config for f in tuned.finalists}


def test_a_search_whose_every_candidate_fails_in_the_comparison_says_so():
    class Broken(MadeUp):
        def compare(self, workload, configs, rounds):
            found = super().compare(workload, configs, rounds)
            return taking(found, [(math.inf,) * rounds for _ in configs])

    with pytest.raises(TuningError, match="failed when it was measured again"):
        run(Broken(fails=frozenset({zlib.crc32(str(matmul_space().default).encode()) % 8})))


def test_a_disturbed_sample_does_not_decide_the_winner():
    calm = run(MadeUp(), strategy="random")
    best, tenth = calm.config, sorted(m.cost for m in calm.history)[10]

    class Disturbed(MadeUp):
        def _measured(self, config):
            found = super()._measured(config)
            return dataclasses.replace(found, seconds=(tenth,) * 3) if config == best else found

    disturbed = run(Disturbed(), strategy="random")
    assert disturbed.config == best
    assert best not in [f.config for f in disturbed.finalists[1:]]


def test_the_winner_is_in_the_store_with_the_samples_of_the_comparison(tmp_path):
    tuned = run(MadeUp(), records=tmp_path / "r.db")
    with RecordStore(tmp_path / "r.db") as store:
        record = store.get(tuned.record.id)
    assert record == tuned.record
    assert record.seconds == tuned.finalists[0].seconds
    assert record.seed == 0


class Drifting(MadeUp):
    """All that is compared runs while the machine is busy."""

    def compare(self, workload, configs, rounds):
        found = super().compare(workload, configs, rounds)
        return taking(found, [tuple(9 * s for s in each) for each in found.samples])


def test_it_is_told_if_the_machine_became_busier():
    class Notes(Callback):
        def __init__(self):
            self.told = []

        def note(self, text):
            self.told.append(text)

    busier, as_before = Notes(), Notes()
    run(Drifting(), callbacks=[busier])
    run(MadeUp(), callbacks=[as_before])
    assert any("9.00 times" in text and "busier" in text for text in busier.told)
    assert not any("busier" in text or "less busy" in text for text in as_before.told)


def test_times_of_the_comparison_are_not_those_of_the_search(tmp_path):
    """A search that goes on would take what was compared in a busy hour for slow programs."""
    device = Drifting()
    first = run(device, records=tmp_path / "r.db", trials=40)
    costs = {m.config: m.cost for m in first.history}
    second = run(device, records=tmp_path / "r.db", trials=41)
    again = {m.config: m.cost for m in second.history}
    assert {config: again[config] for config in costs} == costs


def test_the_store_chooses_the_winner_of_the_comparison_and_compares_it_next_time(tmp_path):
    def best():
        with RecordStore(tmp_path / "r.db") as store:
            return store.best(
                matmul_space().workload, device.target, machine=device.fingerprint()
            ).config

    device = Drifting()
    first = run(device, records=tmp_path / "r.db", trials=40)
    assert best() == first.config
    second = run(device, records=tmp_path / "r.db", trials=80)
    assert first.config in [f.config for f in second.finalists]
    assert best() == second.config
    assert run(device, records=tmp_path / "r.db", trials=0).config == second.config


def test_a_search_without_records_derives_no_space_of_other_numerics(tmp_path, monkeypatch):
    monkeypatch.setattr("loopwright.explore.session.space", None)
    run(MadeUp(), trials=4, records=tmp_path / "r.db")
    run(MadeUp(), trials=8, records=tmp_path / "r.db")


def test_a_search_of_a_part_of_the_space_does_not_hide_what_was_found_in_the_rest(tmp_path):
    x, w = lw.tensor("x", (1, 64, 28, 28)), lw.tensor("w", (64, 64, 3, 3), constant=True)
    y = lw.ops.conv2d(x, w, padding=1)
    device = MadeUp()
    whole = space(lw.workload(y), device.target)
    by_winograd = derived(whole.sketches, "winograd")[0].config()
    fast = Measurement(by_winograd, (1e-9,), None, 0.0, 0.0, "warm", 2, 0.0)
    facts = (lw.workload(y), device.target, device.fingerprint())
    with RecordStore(tmp_path / "r.db") as store:
        store.add([Record.of(*facts, fast, seed=0, session="before")])
    found = run(device, y, records=tmp_path / "r.db", trials=16, numerics="strict")
    assert "winograd" not in found.config.sketch.derivation.names
    with RecordStore(tmp_path / "r.db") as store:
        assert store.best(*facts[:2], machine=facts[2]).config == by_winograd


def test_times_with_cold_caches_and_with_warm_ones_are_kept_apart(tmp_path):
    class Cold(MadeUp):
        cache = "cold"

        def _measured(self, config):
            return dataclasses.replace(super()._measured(config), cache="cold")

    run(MadeUp(), records=tmp_path / "r.db", trials=20)
    cold = run(Cold(), records=tmp_path / "r.db", trials=20)
    assert cold.resumed == 0
    assert cold.record.cache == "cold"
    with RecordStore(tmp_path / "r.db") as store:
        assert {r.cache for r in store.query(session=cold.record.session)} == {"cold"}


def test_slow_programs_are_compared_in_less_time():
    class Slow(MadeUp):
        spent = 0.0

        def _measured(self, config):
            measured = super()._measured(config)
            return dataclasses.replace(measured, seconds=tuple(900 * s for s in measured.seconds))

        def compare(self, workload, configs, rounds):
            found = super().compare(workload, configs, rounds)
            samples = [tuple(900 * s for s in each) for each in found.samples]
            self.spent += sum(map(sum, samples))
            return taking(found, samples)

    device = Slow()
    tuned = run(device)
    assert len(tuned.finalists) >= 2
    assert matmul_space().default in {f.config for f in tuned.finalists}
    assert device.spent < 2 * 2 * LONGEST  # where two configs take longer, they are compared yet


def test_time_is_booked_by_part():
    tuned = run(MadeUp())
    assert {"choosing", "learning", "building", "running", "checking"} <= set(tuned.spent)
    assert all(seconds >= 0 for seconds in tuned.spent.values())


def test_callbacks_hear_it_all_and_always_the_end():
    class Listener(Callback):
        def __init__(self):
            self.heard = []

        def start(self, progress):
            self.heard.append("start")

        def update(self, progress):
            self.heard.append(progress)

        def stop(self):
            self.heard.append("stop")

        def finish(self, tuned):
            self.heard.append(tuned)

    listener = Listener()
    tuned = run(MadeUp(fails=frozenset({3})), callbacks=[listener])
    assert listener.heard[0] == "start"
    assert listener.heard[-2:] == ["stop", tuned]
    last = listener.heard[-3]
    assert last.trials == 80
    assert last.failures == tuned.failures
    assert last.best == min(m.cost for m in tuned.history)
    assert last.default == cost(matmul_space().default)

    listener = Listener()
    with pytest.raises(TuningError):
        run(MadeUp(fails=frozenset(range(8))), callbacks=[listener])
    assert listener.heard[-1] == "stop"


def test_a_user_can_own_the_loop():
    tuner = Tuner(matmul_space(), model=GBTModel(rounds=10), seed=3, schedule=QUICK)
    assert tuner.best is None
    while len(tuner.costs) < 64:
        configs = tuner.ask(16)
        tuner.tell(configs, map(cost, configs))
    assert tuner.best == (min(tuner.configs, key=cost), min(tuner.costs))


def test_a_tuner_refuses_costs_that_are_none():
    tuner = Tuner(matmul_space(), "random")
    configs = tuner.ask(2)
    with pytest.raises(TuningError, match="positive"):
        tuner.tell(configs, [0.0, 1.0])
    with pytest.raises(TuningError, match="positive"):
        tuner.tell(configs, [math.nan, 1.0])
    with pytest.raises(TuningError, match="2 configs, but 1"):
        tuner.tell(configs, [1.0])
    with pytest.raises(TuningError, match="at least 1"):
        tuner.ask(0)


def test_a_device_of_costs_looked_up_may_have_many_sketches():
    space = matmul_space()
    configs = Tuner(space, "random").ask(60)
    device = TabularDevice(space, {c: cost(c) for c in configs} | {space.default: 1.0})
    tuned = tune(
        space.workload, device=device, records=None, trials=1000, strategy="random", batch=16
    )
    assert tuned.seconds == device.optimum
    assert "illegal" not in tuned.failures


class Noisy(MadeUp):
    """What is compared takes `level` of its config; others want cores in the first comparisons."""

    def __init__(self, level, others=()):
        super().__init__()
        self.level, self.others, self.comparisons = level, list(others), 0

    def compare(self, workload, configs, rounds):
        found = super().compare(workload, configs, rounds)
        if rounds < ROUNDS:
            return found
        rng = np.random.default_rng(self.comparisons)
        self.comparisons += 1
        busy = self.others.pop(0) if self.others else 0.0
        samples = [tuple(self.level(c) * rng.normal(1, 0.01, rounds)) for c in configs]
        return Comparison(tuple(samples), found.sizes, busy)


def test_where_none_is_told_from_the_default_it_is_chosen_and_no_speed_up_is_claimed():
    tuned = run(Noisy(lambda config: 1e-3))
    assert tuned.config == matmul_space().default
    assert tuned.speedup is None
    assert tuned.claim == "tied with the default"
    assert all(f.standing == "tied" for f in tuned.finalists[1:])
    assert "times as fast" not in str(tuned)


def test_of_ties_without_the_default_the_stricter_numerics_win(monkeypatch):
    default, find = matmul_space().default, Space.sketch

    def tied():
        tuned = run(Noisy(lambda config: 2e-3 if config == default else 1e-3), strategy="random")
        return tuned, {f.config.sketch for f in tuned.finalists if f.standing == "tied"}

    before, among = tied()
    (strict, *_) = sorted(among - {before.config.sketch}, key=str)
    monkeypatch.setattr(
        Space,
        "sketch",
        lambda self, name: dataclasses.replace(
            find(self, name), error_growth=1.0 + (name != strict)
        ),
    )
    tuned, _ = tied()
    assert tuned.config.sketch == strict
    assert tuned.speedup.value == pytest.approx(2, rel=0.02)


def test_a_comparison_while_other_programs_want_the_cores_is_made_again():
    default = matmul_space().default
    device = Noisy(lambda config: 2e-3 if config == default else 1e-3, others=[1.0, 0.6])
    tuned = run(device)
    assert device.comparisons == 3
    assert tuned.speedup.value == pytest.approx(2, rel=0.02)


def test_what_a_loaded_core_makes_of_a_comparison_is_not_claimed():
    default = matmul_space().default
    device = Noisy(lambda config: 3e-3 if config == default else 1e-3, others=[1.0] * 9)
    tuned = run(device)
    assert device.comparisons == TRIES
    assert tuned.speedup is None
    assert "no speed-up is claimed, since other programs kept 1.0 cores busy" in tuned.claim
    assert any("disturbed" in note for note in tuned.notes)


def test_all_samples_of_disturbed_comparisons_are_judged_and_those_of_an_undisturbed_one_alone():
    default = matmul_space().default
    for others, rounds in (([1.0] * 9, TRIES * ROUNDS), ([1.0], ROUNDS)):
        device = Noisy(lambda config: 2e-3 if config == default else 1e-3, others)
        tuned = run(device)
        assert tuned.config != default
        assert {len(f.seconds) for f in tuned.finalists} == {rounds}


def test_a_speed_up_that_differs_from_round_to_round_is_not_claimed():
    class Erratic(MadeUp):
        def compare(self, workload, configs, rounds):
            found = super().compare(workload, configs, rounds)
            rng = np.random.default_rng(0)
            samples = [tuple(np.array(s) * rng.uniform(1, 3, rounds)) for s in found.samples]
            return taking(found, samples)

    tuned = run(Erratic())
    assert tuned.speedup is None
    assert "no speed-up is claimed" in tuned.claim or "tied" in tuned.claim


def test_a_speed_up_of_disturbed_rounds_that_the_faster_calls_do_not_show_is_not_claimed():
    default = matmul_space().default

    class Unlike(MadeUp):
        """The default takes a quarter longer in two rounds of three."""

        def compare(self, workload, configs, rounds):
            found = super().compare(workload, configs, rounds)
            slow = 1e-3 * np.where(np.arange(rounds) % 3, 1.25, 1.0)
            samples = [tuple(slow) if c == default else (0.95e-3,) * rounds for c in configs]
            return taking(found, samples)

    tuned = run(Unlike())
    assert tuned.speedup is None
    assert "is 1.05 by the faster calls" in tuned.claim


def test_what_takes_longer_than_during_the_search_is_not_claimed():
    tuned = run(Drifting())
    assert tuned.speedup is None
    assert "9.00 times as long as during the search" in tuned.claim


def test_the_docstring_begins_with_how_long_it_takes():
    head = tune.__doc__.partition("Parameters")[0]
    assert all(words in head for words in ("15 minutes", '"quick"', '"instant"'))
