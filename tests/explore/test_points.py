"""Points in batches: to configs and back, neighbours, sketches, sets of points."""

from __future__ import annotations

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl.errors import ConfigError
from loopwright.explore.strategies.encoded_space import EncodedSpace, Seen, distinct, hashes
from loopwright.schedule.space import space
from tests.explore.synthetic import TARGET, matmul, matmul_space, tiny
from tests.targets import HERE


@pytest.fixture
def encoded():
    return EncodedSpace(matmul_space())


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def in_range(encoded, points):
    counts = encoded.tables.counts[points[:, 0]]
    return (points >= 0).all() and (points[:, 1:] < counts).all()


def test_configs_become_points_and_back(encoded, rng):
    points = encoded.sample(200, rng)
    configs = encoded.configs(points)
    assert np.array_equal(encoded.points(configs), points)
    assert encoded.points([]).shape == (0, encoded.width)


def test_the_default_is_the_spaces(encoded):
    assert encoded.configs(encoded.default) == [encoded.space.default]


def test_a_config_of_another_space_has_no_point(encoded):
    other = space(tiny(), TARGET).default
    with pytest.raises(ConfigError, match="no sketch"):
        encoded.points([other])


def test_samples_cover_all_sketches_and_stay_in_range(encoded, rng):
    points = encoded.sample(2000, rng)
    assert in_range(encoded, points)
    assert set(points[:, 0]) == set(range(len(encoded.space.sketches)))


def test_neighbours_differ_in_one_knob_or_in_the_sketch(encoded, rng):
    points = encoded.sample(2000, rng)
    moved = encoded.neighbours(points, rng)
    assert in_range(encoded, moved)
    stayed = moved[:, 0] == points[:, 0]
    assert 0.8 < stayed.mean() < 0.97
    assert ((moved != points).sum(axis=1)[stayed] == 1).all()


def test_neighbours_prefer_near_values(encoded, rng):
    sketch = encoded.space.sketches[0]
    block = next(i for i, k in enumerate(sketch.knobs) if k.name.startswith("block"))
    start = np.repeat(encoded.default, 4000, axis=0)
    start[:, 1 + block] = 0
    moved = encoded.neighbours(start, rng, hop=0.0)[:, 1 + block]
    moved = moved[moved > 0]
    assert (moved <= 4).mean() > 0.5
    assert moved.max() == len(sketch.knobs[block].choices) - 1


def test_every_choice_is_reached_from_any_other(encoded, rng):
    points = np.repeat(encoded.default, 500, axis=0)
    reached = Seen()
    for _ in range(30):
        points = encoded.neighbours(points, rng)
        reached.add(points)
    assert len(reached) > 5000


def test_moving_to_another_sketch_keeps_values_where_it_can(encoded, rng):
    points = encoded.sample(300, rng)
    target = rng.integers(len(encoded.space.sketches), size=300)
    moved = encoded.moved(points, target)
    assert in_range(encoded, moved)
    for old, new in zip(encoded.configs(points), encoded.configs(moved), strict=True):
        before = dict(old.values)
        knobs = {k.name: k for k in encoded.space.sketch(new.sketch).knobs}
        for name, value in new.values:
            if before.get(name) in knobs[name].choices:
                assert value == before[name]


def test_moving_to_the_same_sketch_changes_nothing(encoded, rng):
    points = encoded.sample(100, rng)
    assert np.array_equal(encoded.moved(points, points[:, 0]), points)


def test_children_take_every_knob_from_a_parent(encoded, rng):
    one = encoded.sample(200, rng)
    other = encoded.sample(200, rng)
    other[:, 0] = one[:, 0]
    other[:, 1:] = rng.integers(encoded.tables.counts[one[:, 0]])
    child = encoded.crossed(one, other, rng)
    assert ((child == one) | (child == other)).all()
    assert (child != one).any()
    assert (child != other).any()


def test_values_are_equal_for_equal_values_of_any_sketch(encoded, rng):
    points = encoded.sample(100, rng)
    values = encoded.values(points)
    configs = encoded.configs(points)
    for a, b in zip(range(99), range(1, 100), strict=True):
        x, y = dict(configs[a].values), dict(configs[b].values)
        same = sum(x[name] == y.get(name) for name in x)
        both = (values[a, 1:] == values[b, 1:]) & (values[a, 1:] >= 0)
        assert both.sum() == same


def test_a_range_is_the_whole_space_in_order():
    encoded = EncodedSpace(space(tiny(), TARGET))
    points = encoded.range(0, encoded.space.size)
    assert len(distinct(points)) == encoded.space.size
    assert np.array_equal(points, np.concatenate([encoded.range(0, 1), encoded.range(1, 1 << 40)]))


def test_fresh_points_are_new_and_run_out():
    encoded = EncodedSpace(space(tiny(), TARGET))
    seen = Seen()
    seen.add(encoded.default)
    fresh = encoded.fresh(1 << 12, seen, np.random.default_rng(0))
    assert len(fresh) == encoded.space.size - 1
    assert not seen.has(fresh).any()


def test_fresh_points_are_legal(rng):
    encoded = EncodedSpace(matmul_space(), lambda points: points[:, 1] == 2)
    fresh = encoded.fresh(50, Seen(), rng)
    assert len(fresh) == 50
    assert (fresh[:, 1] == 2).all()


def test_a_set_of_points_knows_its_own(encoded, rng):
    points = distinct(encoded.sample(500, rng))
    seen = Seen()
    seen.add(points[:100])
    assert seen.has(points[:100]).all()
    assert not seen.has(points[100:]).any()
    assert len(seen) == 100
    assert np.array_equal(seen.unseen(np.repeat(points, 2, axis=0)), points[100:])
    assert len(seen.and_also(points)) == len(points)
    assert len(seen) == 100


def test_a_workload_without_knobs_has_one_point(rng):
    X, Y = lw.tensor("X", ()), lw.tensor("Y")
    Y[()] = X[()] * 2.0
    encoded = EncodedSpace(space(lw.workload(Y), TARGET))
    assert encoded.space.size == 1
    assert in_range(encoded, encoded.sample(4, rng))
    assert np.array_equal(encoded.neighbours(encoded.default, rng), encoded.default)


def test_the_first_defaults_are_of_different_algorithms():
    x, w = lw.tensor("x", (1, 32, 14, 14)), lw.tensor("w", (32, 32, 3, 3), constant=True)
    space = lw.space(lw.workload(lw.ops.conv2d(x, w, padding=1)), HERE, numerics="fast")
    algorithms = list(dict.fromkeys(s.algorithm for s in space.sketches))
    assert {"direct", "winograd(results=2)", "winograd(results=4)"} <= set(map(str, algorithms))
    encoded = EncodedSpace(space)
    chosen = [space.sketches[number] for number in encoded.defaults(len(algorithms))[:, 0]]
    assert [s.algorithm for s in chosen] == algorithms
    looked_at = {space.sketches[n].algorithm for n in encoded.some(2 * len(algorithms))}
    assert looked_at == set(algorithms)
    variants = {s.derivation for s in space.sketches}
    assert {space.sketches[n].derivation for n in encoded.leaders} == variants


def test_algorithms_of_which_nothing_is_known_have_their_defaults_untried():
    x, w = lw.tensor("x", (1, 16, 14, 14)), lw.tensor("w", (32, 16, 3, 3), constant=True)
    encoded = EncodedSpace(space(lw.workload(lw.ops.conv2d(x, w, padding=1)), TARGET))
    algorithms = [s.derivation.names for s in encoded.space.sketches]
    every = {algorithms[n] for n in encoded.untried(np.zeros((0, encoded.width), np.int64))[:, 0]}
    assert every == set(algorithms)
    known = encoded.points([s.at(s.default) for s in encoded.space.sketches if s.derivation])
    own = next(s for s in encoded.space.sketches if not s.derivation)
    assert encoded.configs(encoded.untried(known)) == [own.at(own.default)]


def test_an_algorithm_with_weights_of_three_bytes_is_another_one():
    x, w = lw.tensor("x", (1, 256, 14, 14)), lw.tensor("w", (256, 256, 3, 3), constant=True)
    encoded = EncodedSpace(space(lw.workload(lw.ops.conv2d(x, w, padding=1)), TARGET, "fast"))
    every = encoded.space.sketches
    known = encoded.points(
        [s.at(s.default) for s in every if "int24_weights" not in s.derivation.names]
    )
    found = [every[n].derivation.names for n in encoded.untried(known)[:, 0]]
    assert sorted(found) == [("int24_weights",), ("winograd", "int24_weights")]


def test_rare_legal_points_are_found_in_a_large_space(rng):
    large = space(matmul(240, 360, 480), TARGET)
    assert large.size > 1 << 18  # of smaller ones all points are listed
    encoded = EncodedSpace(large, lambda points: hashes(points) % 500 == 0)
    assert len(encoded.fresh(64, Seen(), rng)) == 64
