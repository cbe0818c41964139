"""What every strategy promises."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import loopwright as lw
from loopwright.costmodel.features.representation import ConfigVector
from loopwright.costmodel.models.gbt import GBTModel
from loopwright.explore.strategies.annealing import Annealing, Guide, Schedule
from loopwright.explore.strategies.baselines import Genetic, GridSearch, RandomSearch
from loopwright.explore.strategies.encoded_space import EncodedSpace, distinct
from loopwright.explore.strategies.features import Features
from loopwright.explore.strategies.transfer_search import TransferSearch
from loopwright.schedule.space import space
from tests.explore.synthetic import TARGET, cost, matmul_space, tiny

SMALL = Schedule(chains=256, steps=6)


def annealing(encoded, rng):
    features = Features(encoded.space, ConfigVector())
    return Annealing(Guide(encoded, rng, GBTModel("rank", 0, rounds=60), features, SMALL))


def probing(encoded, rng):
    features = Features(encoded.space, ConfigVector())
    return TransferSearch(Guide(encoded, rng, GBTModel("rank", 0, rounds=60), features, SMALL))


STRATEGIES = {
    "annealing": annealing,
    "transfer": probing,
    "random": RandomSearch,
    "grid": GridSearch,
    "genetic": Genetic,
}


@pytest.fixture(params=STRATEGIES)
def make(request):
    def made(encoded, seed=0):
        return STRATEGIES[request.param](encoded, np.random.default_rng(seed))

    return made


def costs(encoded, points, every=5):
    """Made up; some points fail."""
    values = np.array([cost(c) for c in encoded.configs(points)])
    return np.where(points.sum(axis=1) % every == 1, np.inf, values)


def search(strategy, batches, n=32):
    asked = []
    for _ in range(batches):
        asked.append(strategy.ask(n))
        strategy.tell(asked[-1], costs(strategy.encoded, asked[-1]))
    return np.concatenate(asked)


def scores(strategy, points):
    return strategy.model.predict(strategy.features(points))


def test_the_default_comes_first(make):
    encoded = EncodedSpace(matmul_space())
    assert np.array_equal(make(encoded).ask(1), encoded.default)


def test_points_are_of_the_space_and_never_come_twice(make):
    encoded = EncodedSpace(matmul_space())
    points = search(make(encoded), 8)
    assert len(points) == len(distinct(points)) == 256
    assert np.array_equal(encoded.points(encoded.configs(points)), points)


def test_points_are_new_even_if_costs_come_late(make):
    strategy = make(EncodedSpace(matmul_space()))
    search(strategy, 3)
    points = np.concatenate([strategy.ask(16), strategy.ask(16), strategy.ask(16)])
    assert len(distinct(points)) == 48


def test_points_that_were_told_are_not_asked_for(make):
    encoded = EncodedSpace(matmul_space())
    told = distinct(
        np.concatenate([encoded.default, encoded.sample(64, np.random.default_rng(5))])
    )
    strategy = make(encoded)
    strategy.tell(told, costs(encoded, told))
    assert not strategy.seen.has(encoded.fresh(8, strategy.seen, np.random.default_rng(1))).any()
    points = search(strategy, 3)
    assert len(distinct(np.concatenate([told, points]))) == len(told) + len(points)


def test_a_small_space_is_searched_whole_and_then_exhausted(make):
    encoded = EncodedSpace(space(tiny(), TARGET))
    strategy = make(encoded)
    points = []
    while not strategy.exhausted:
        points.append(strategy.ask(3))
        strategy.tell(points[-1], costs(encoded, points[-1]))
        assert len(points) < 1000
    found = np.concatenate(points)
    assert len(found) == len(distinct(found)) == encoded.space.size
    assert len(strategy.ask(3)) == 0


def test_only_legal_points_are_asked_for(make):
    encoded = EncodedSpace(matmul_space(), lambda points: points[:, 1:].sum(axis=1) % 4 == 0)
    points = search(make(encoded), 4)
    assert len(points) == 128
    assert (points[:, 1:].sum(axis=1) % 4 == 0).all()


def test_the_same_generator_gives_the_same_search(make):
    encoded = EncodedSpace(matmul_space())
    one, other = search(make(encoded), 4), search(make(encoded), 4)
    assert np.array_equal(one, other)


def test_if_everything_fails_it_goes_on(make):
    encoded = EncodedSpace(matmul_space())
    strategy = make(encoded)
    for _ in range(4):
        points = strategy.ask(16)
        assert len(points) == 16
        strategy.tell(points, np.full(16, np.inf))


def test_learned_search_beats_chance():
    """On costs with structure, at equal trials; in the mean of a few seeds."""

    def best(name):
        found = []
        for seed in range(3):
            encoded = EncodedSpace(matmul_space())
            strategy = STRATEGIES[name](encoded, np.random.default_rng(seed))
            search(strategy, 8)
            found.append(strategy.costs.min())
        return np.mean(found)

    chance = best("random")
    assert best("annealing") < chance
    assert best("transfer") < chance
    assert best("genetic") < chance


def test_chains_persist_from_round_to_round():
    strategy = annealing(EncodedSpace(matmul_space()), np.random.default_rng(0))
    search(strategy, 2)
    before = strategy.chains.copy()
    assert len(before) == SMALL.chains
    strategy._start()
    assert np.array_equal(strategy.chains, before)
    search(strategy, 1)
    assert not np.array_equal(strategy.chains, before)


def test_chains_climb():
    """Annealing raises the scores of its chains."""
    encoded = EncodedSpace(matmul_space())
    strategy = annealing(encoded, np.random.default_rng(0))
    search(strategy, 2)
    random = encoded.sample(64, np.random.default_rng(3))
    assert scores(strategy, strategy.chains).mean() > scores(strategy, random).mean()


def test_random_share_is_epsilon():
    """With ε = 1 the model is not followed at all, with ε = 0 in everything."""

    def mean_score(epsilon):
        strategy = annealing(EncodedSpace(matmul_space()), np.random.default_rng(0))
        search(strategy, 2)
        strategy.schedule = Schedule(chains=64, steps=4, epsilon=epsilon)
        return scores(strategy, strategy.ask(64)).mean()

    assert mean_score(0.0) > mean_score(1.0)


def test_configs_of_the_same_program_are_measured_once():
    """A block larger than what there is to do is as large as what there is to do."""
    encoded = EncodedSpace(matmul_space())
    features = Features(encoded.space)
    model = GBTModel("rank", 0, rounds=60)
    schedule = dataclasses.replace(SMALL, epsilon=0.0)
    strategy = Annealing(Guide(encoded, np.random.default_rng(0), model, features, schedule))
    points = search(strategy, 6)[64:]
    assert len(np.unique(features(points), axis=0)) == len(points)
    walk = encoded.default
    for _ in range(4):
        walk = encoded.neighbours(np.repeat(walk, 4, axis=0), np.random.default_rng(0))
    assert len(np.unique(features(distinct(walk)), axis=0)) < len(distinct(walk))


def test_a_space_of_many_sketches_is_looked_at_little_by_little():
    encoded = EncodedSpace(matmul_space())
    few = Schedule(chains=64, steps=4, sketches=2, more=1)
    strategy = annealing(encoded, np.random.default_rng(0))
    strategy = Annealing(Guide(encoded, strategy.rng, strategy.model, strategy.features, few))
    assert len(encoded.every) > 5
    for batch in range(4):
        points = strategy.ask(16)
        assert len(points) == 16
        assert set(points[:, 0]) <= set(strategy.open)
        assert len(strategy.open) == 2 + batch
        strategy.tell(points, costs(encoded, points))
    elsewhere = encoded.defaults(len(encoded.every))[-1:]
    strategy.tell(elsewhere, np.array([1e-3]))
    strategy.ask(16)
    assert elsewhere[0, 0] in strategy.open


def test_without_advice_a_search_begins_with_random_points():
    encoded = EncodedSpace(matmul_space())

    def advised(advice):
        made = annealing(encoded, np.random.default_rng(0))
        schedule = dataclasses.replace(SMALL, advice=advice)
        asked = Annealing(Guide(encoded, made.rng, made.model, made.features, schedule)).ask(32)
        return sum(any((point == d).all() for d in encoded.defaults(99)) for point in asked)

    assert advised(True) > 4
    assert advised(False) < 4


def test_algorithms_that_are_newer_than_all_records_are_measured_first():
    x, w = lw.tensor("x", (1, 16, 14, 14)), lw.tensor("w", (32, 16, 3, 3), constant=True)
    encoded = EncodedSpace(space(lw.workload(lw.ops.conv2d(x, w, padding=1)), TARGET))
    names = [s.derivation.names for s in encoded.space.sketches]
    newer = {n for n, of in enumerate(names) if of == ("padding_at_blocks",)}
    rng = np.random.default_rng(0)
    known = encoded.sample(400, rng)
    known = distinct(known[~np.isin(known[:, 0], list(newer))])[:120]
    strategy = STRATEGIES["annealing"](encoded, rng)
    strategy.tell(known, np.linspace(1.0, 2.0, len(known)))
    assert newer & set(strategy.ask(8)[:, 0])
