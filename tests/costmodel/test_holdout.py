"""Which records are held out."""

import numpy as np

from loopwright.costmodel.models.holdout import split


def parts(features, groups, seed=0):
    seen, held_out = split(features, groups, np.random.default_rng(seed))
    assert sorted([*seen, *held_out]) == list(range(len(features)))
    return seen, held_out


def test_a_fifth_of_the_records_is_held_out():
    _, held_out = parts(np.arange(200.0)[:, None], np.zeros(200, int))
    assert len(held_out) == 40
    assert len(np.unique(held_out // 20)) > 5


def test_of_few_records_none_is():
    for features in (np.arange(99.0)[:, None], np.ones((1, 3)), np.ones((0, 3))):
        assert len(parts(features, np.zeros(len(features), int))[1]) == 0
    assert len(parts(np.arange(99.0)[:, None], np.arange(99) % 12)[1]) == 0


def test_records_of_one_program_stay_together():
    features = np.random.default_rng(0).normal(size=(60, 3)).repeat(4, axis=0)
    seen, held_out = parts(features, np.zeros(240, int))
    assert len(held_out) == 48
    assert not set(seen // 4) & set(held_out // 4)


def test_of_many_groups_whole_ones_are_held_out():
    groups = np.arange(300) % 15
    seen, held_out = parts(np.arange(300.0)[:, None], groups)
    assert len(held_out) == 60
    assert not set(groups[seen]) & set(groups[held_out])


def test_another_seed_holds_others_out():
    features, groups = np.arange(200.0)[:, None], np.zeros(200, int)
    assert not np.array_equal(parts(features, groups)[1], parts(features, groups, seed=1)[1])
