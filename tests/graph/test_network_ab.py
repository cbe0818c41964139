"""Networks that are compared as wholes: weights that share a cache, and parts that cores share."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

import loopwright as lw
from loopwright.graph.tuning import in_situ as in_place
from loopwright.graph.tuning import network_ab as whole
from loopwright.graph.tuning.candidates import Compared, chosen, expected, fastest
from loopwright.graph.tuning.network_ab import Change, lighter
from loopwright.measure.device import Failure
from tests.targets import AVX512_LARGE

TARGET = AVX512_LARGE


class Session:
    """Knows what the configs of a workload cost alone."""

    def __init__(self, workload, costs):
        self.workload, self.costs = workload, costs
        self.space = lw.space(workload, TARGET, numerics="fast")
        self.device = self

    target = TARGET

    def ranked(self):
        return sorted(self.costs, key=self.costs.get)

    def cost(self, config):
        return self.costs[config]


class Task:
    def __init__(self, workload, count=1):
        self.workload, self.count, self.name = workload, count, f"step of {workload.key[:4]}"


def convolution(channels):
    x = lw.tensor("x", (1, 14, 14, channels))
    w = lw.tensor("w", (3, 3, channels, 64), constant=True)
    return lw.workload(lw.ops.conv2d(x, w, padding=1, layout="NHWC"))


def searched(channels, direct, two, four, count=1):
    """A task, and the configs of three algorithms that take so many seconds alone."""
    workload = convolution(channels)
    found = {}
    for sketch in lw.space(workload, TARGET, numerics="fast").sketches:
        found.setdefault(str(sketch.algorithm), sketch.config())
    algorithms = ("direct", "winograd(results=2)", "winograd(results=4)")
    configs = [found[name] for name in algorithms]
    session = Session(workload, dict(zip(configs, (direct, two, four))))
    return Compared(Task(workload, count), session, tuple(configs)), configs


def test_networks_with_fewer_weights_are_those_that_pay_at_some_price():
    mb = 4e-6 * 3 * 3 * 64  # of one channel's direct weights; Winograd's are 16/9 and 4 times that
    one, (direct, two, four) = searched(64, 30e-6, 12e-6, 10e-6)
    other, (_, _, large) = searched(128, 200e-6, 190e-6, 20e-6)
    samples = {one.key: {four: [1e-5], two: [2e-5]}, other.key: {large: [2e-5]}}
    changes = lighter([one, other], samples)
    # 0.33 MB less for 2 µs, then 0.11 MB for 18 µs; of the other, 0.9 MB for 180 µs at no price
    assert [dict(change.configs) for change in changes] == [{one.key: two}]
    whole_mb, left_mb = 4 * (64 + 128) * mb, (16 / 9 * 64 + 4 * 128) * mb
    assert changes[0].what == f"{left_mb:.1f} MB of weights in place of {whole_mb:.1f}"
    one.session.costs[direct] = 15e-6
    changes = lighter([one, other], samples)
    assert [dict(change.configs) for change in changes] == [{one.key: two}, {one.key: direct}]


def test_what_is_lightest_already_stays():
    one, (direct, _, _) = searched(64, 10e-6, 12e-6, 20e-6)
    assert lighter([one], {one.key: {direct: [1e-5]}}) == []


def test_work_without_weights_stays():
    workload = lw.workload(lw.ops.softmax(lw.tensor("x", (8, 32))))
    config = lw.space(workload, TARGET).default
    session = Session(workload, {config: 1e-6})
    one = Compared(Task(workload), session, (config,))
    assert lighter([one], {one.key: {config: [1e-6]}}) == []


@pytest.fixture
def networks(monkeypatch):
    """What a call takes for a task with a config; "another task" is in all networks."""
    taken = {}

    class Model:
        def __init__(self, _, configs, *__):
            assert configs["another task"] == "known"
            self.configs = configs

        def profile(self, calls):
            own = ((key, c) for key, c in self.configs.items() if c != "known")
            return [("the whole", sum(taken[pair] for pair in own))]

    monkeypatch.setattr(whole, "TunedModel", Model)

    class Composed(dict):
        notes = ()

    monkeypatch.setattr(whole, "link", lambda work, configs, *_: Composed(configs))
    monkeypatch.setattr(whole, "too_large", lambda models: False)
    return taken


def compare(tasks, samples, changes, monkeypatch):
    monkeypatch.setattr(whole, "lighter", lambda *_: changes)
    monkeypatch.setattr(whole, "_parts", lambda *_: [])
    others = {"another task": "known", **{t.key: "not this" for t in tasks}}
    compared = whole.NetworkComparison(None, TARGET, tasks, others, all_of_it=False)
    return list(whole.compare_networks(compared, samples, math.inf))


def test_candidates_win_where_the_network_gains_by_them(networks, monkeypatch):
    """By 1 of 10 ms, of which two steps take 4."""
    (one, (_, two, four)), (other, (_, small, large)) = (searched(c, 3, 2, 1) for c in (64, 128))
    networks |= {(one.key, four): 6e-3, (one.key, two): 5.5e-3}
    networks |= {(other.key, large): 4e-3, (other.key, small): 3.5e-3}
    samples = {one.key: {four: [3e-3] * 5}, other.key: {large: [1e-3] * 5, small: [1.1e-3] * 5}}
    change = Change("less", {one.key: two, other.key: small})
    (line,) = compare([one, other], samples, [change], monkeypatch)
    assert line == "less: 0.900 (0.900 to 0.900) of a call's time"
    np.testing.assert_allclose(samples[one.key][two], 3e-3 * 3 / 4)
    np.testing.assert_allclose(samples[other.key][small], 1e-3 * 3 / 4)
    np.testing.assert_allclose(samples[one.key][four], 3e-3)


def test_of_two_changes_of_a_step_the_better_one_wins(networks, monkeypatch):
    one, (direct, two, four) = searched(64, 3, 2, 1)
    networks |= {(one.key, c): t for c, t in ((four, 10e-3), (two, 8e-3), (direct, 9e-3))}
    samples = {one.key: {four: [5e-3] * 5}}
    changes = [Change("a", {one.key: two}), Change("b", {one.key: direct})]
    assert len(compare([one], samples, changes, monkeypatch)) == 2
    assert min(samples[one.key], key=lambda c: np.median(samples[one.key][c])) == two


def test_steps_win_together_that_were_measured_together(networks, monkeypatch):
    """The better network has one change, the worse one that and another, which is a loss."""
    (one, (_, two, four)), (other, (_, small, large)) = (searched(c, 3, 2, 1) for c in (64, 128))
    networks |= {(one.key, four): 6e-3, (one.key, two): 5e-3}
    networks |= {(other.key, large): 4e-3, (other.key, small): 4.5e-3}
    samples = {one.key: {four: [3e-3] * 5}, other.key: {large: [1e-3] * 5}}
    changes = [Change("both", {one.key: two, other.key: small}), Change("one", {one.key: two})]
    lines = compare([one, other], samples, changes, monkeypatch)
    assert lines == [
        "both: 0.950 (0.950 to 0.950) of a call's time",
        "one: 0.900 (0.900 to 0.900) of a call's time",
    ]
    assert two in samples[one.key]
    assert small not in samples[other.key]


def test_networks_that_cannot_be_built_as_wanted_are_left_out(networks, monkeypatch):
    one, (_, two, four) = searched(64, 3, 2, 1)
    networks |= {(one.key, four): 10e-3}
    samples = {one.key: {four: [5e-3] * 5}}

    class Composed(dict):
        @property
        def notes(self):
            return ("its record cannot be built",) if two in self.values() else ()

    monkeypatch.setattr(whole, "link", lambda work, configs, *_: Composed(configs))
    assert compare([one], samples, [Change("a", {one.key: two})], monkeypatch) == []


def test_what_no_network_gains_by_changes_nothing(networks, monkeypatch):
    one, (_, two, four) = searched(64, 3, 2, 1)
    networks |= {(one.key, four): 10e-3, (one.key, two): 9.99e-3}
    samples = {one.key: {four: [5e-3] * 5}}
    compare([one], samples, [Change("a", {one.key: two})], monkeypatch)
    assert list(samples[one.key]) == [four]


def test_what_is_poor_in_one_state_of_the_machine_does_not_win():
    near, far = [1.0] * 10, [3.0] * 5
    samples = {"fickle": near + far, "steady": [1.1] * 10 + [1.5] * 5}
    assert fastest(samples) == "steady"
    assert expected(samples)["fickle"] == pytest.approx(25 / 15)


def test_of_steps_that_a_test_cannot_tell_apart_the_default_and_then_stricter_ones_are_chosen():
    one, (direct, two, four) = searched(64, 3, 2, 1)
    assert one.session.space.default == two
    noise = np.random.default_rng(0).normal(1, 0.01, (3, 15))
    samples = {four: 1e-3 * noise[0], two: 2e-3 * noise[1], direct: 1.002e-3 * noise[2]}
    assert fastest(samples) == four
    assert chosen(one.session, samples) == direct
    samples[two] = 1.003e-3 * noise[1]
    assert chosen(one.session, samples) == two


def test_disturbed_samples_do_not_decide():
    samples = {"good": [1.0] * 19 + [50.0], "other": [1.2] * 20}
    assert fastest(samples) == "good"
    assert expected({"good": [1.0] * 19 + [50.0]})["good"] < 1.2
    assert expected({}) == {}


def test_rounds_that_may_use_all_of_the_time_do(monkeypatch):
    clock = SimpleNamespace(monotonic=itertools.count().__next__)  # a second a round
    monkeypatch.setattr(whole, "time", clock)
    assert len(list(whole.rounds(40, all_of_it=True))) == 40


def test_slow_networks_are_compared_in_few_rounds():
    assert list(whole.rounds(-math.inf)) == list(range(7))  # the first one does not count
    assert len(list(whole.rounds(math.inf))) == 16


def test_the_config_that_is_chosen_is_stored_first_and_a_wrong_one_not_at_all():
    one, (direct, two, four) = searched(64, 3, 2, 1)
    stored, rejected = [], []
    one.session.verified = {direct}
    one.session.verify = lambda config: Failure("wrong", "it is") if config == two else None
    one.session.reject = lambda config, failure: rejected.append(config)
    one.session.record_finals = stored.extend
    in_place._record(one, {four: [1e-3] * 8, two: [1e-3] * 8, direct: [1.001e-3] * 8}, TARGET)
    assert rejected == [two]  # the default came first
    assert [m.config for m in stored] == [direct, four]
    assert stored[0].cost > stored[1].cost
