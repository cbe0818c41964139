"""Decoders, on made-up distributions whose every sequence can be listed."""

import itertools
import math

import numpy as np
import pytest

from loopwright.costmodel.model import ModelError
from loopwright.costmodel.sequence.decoders import (
    KEYS,
    BestFirst,
    Greedy,
    Nucleus,
    PrioritySampling,
)

SIZES = (3, 4, 2, 3)


class Toy:
    """A prefix whose next choice has chances that depend on all of it."""

    def __init__(self, sequence=(), sizes=SIZES):
        self.sequence, self._sizes = sequence, sizes
        self.log_probabilities = None
        if len(sequence) < len(sizes):
            rng = np.random.default_rng((7, *sequence))
            chances = rng.dirichlet(np.ones(sizes[len(sequence)]))
            self.log_probabilities = np.log(chances)

    def child(self, place):
        return Toy((*self.sequence, place), self._sizes)


def every():
    """The log-probability of every sequence."""
    result = {}
    for sequence in itertools.product(*map(range, SIZES)):
        logs = [Toy(sequence[:n]).log_probabilities[c] for n, c in enumerate(sequence)]
        result[sequence] = sum(logs)
    return result


def taken(decoder, n=None, seed=0):
    samples = decoder.samples(Toy(), np.random.default_rng(seed))
    return list(itertools.islice(samples, n))


def test_best_first_lists_every_sequence_in_the_order_of_its_probability():
    known = every()
    found = taken(BestFirst())
    assert [s.sequence for s in found] == sorted(known, key=lambda s: -known[s])


DECODERS = [
    BestFirst(),
    *(PrioritySampling(key) for key in KEYS),
    *(PrioritySampling(key, 2) for key in KEYS),
]


@pytest.mark.parametrize("decoder", DECODERS, ids=str)
def test_samples_differ_and_tell_their_probability(decoder):
    known, found = every(), taken(decoder, 40)
    assert len({s.sequence for s in found}) == len(found) == 40
    assert [s.log_probability for s in found] == pytest.approx([known[s.sequence] for s in found])


@pytest.mark.parametrize("key", KEYS)
def test_priority_sampling_without_a_limit_reaches_every_sequence(key):
    found = taken(PrioritySampling(key))
    assert {s.sequence for s in found} == set(every())


def test_a_limit_of_branches_leaves_the_unlikely_choices_of_a_step_out():
    found = {s.sequence for s in taken(PrioritySampling(branches=1))}
    assert len(found) == 2 ** len(SIZES)
    for sequence in found:
        for n, choice in enumerate(sequence):
            logs = Toy(sequence[:n]).log_probabilities
            assert choice in np.argsort(-logs)[:2]


def test_greedy_takes_the_likeliest_choice_of_each_step_once():
    (found,) = taken(Greedy())
    for n, choice in enumerate(found.sequence):
        assert choice == np.argmax(Toy(found.sequence[:n]).log_probabilities)


@pytest.mark.parametrize("key", KEYS)
def test_priority_sampling_begins_with_the_greedy_sample(key):
    assert taken(PrioritySampling(key), 1) == taken(Greedy())


def test_the_second_sample_follows_the_likeliest_alternative_of_the_first():
    first, second = taken(PrioritySampling("token"), 2)
    chances = {}
    for n, choice in enumerate(first.sequence):
        logs = Toy(first.sequence[:n]).log_probabilities
        chances |= {(*first.sequence[:n], c): p for c, p in enumerate(logs) if c != choice}
    best = max(chances, key=chances.get)
    assert second.sequence[: len(best)] == best


def test_a_nucleus_of_everything_draws_by_the_probabilities():
    known, found = every(), taken(Nucleus(1.0, 1.0), 5_000)
    counts = dict.fromkeys(known, 0)
    for sample in found:
        counts[sample.sequence] += 1
    for sequence, logarithm in known.items():
        chance = math.exp(logarithm)
        assert abs(counts[sequence] / 5_000 - chance) < 5 * math.sqrt(chance / 5_000) + 1e-3


def test_a_cold_nucleus_repeats_the_greedy_sample():
    assert taken(Nucleus(1e-3), 5) == taken(Greedy()) * 5


def test_a_nucleus_leaves_the_tail_of_each_step_out():
    for sample in taken(Nucleus(1.0, 0.5), 50):
        for n, choice in enumerate(sample.sequence):
            chances = np.exp(Toy(sample.sequence[:n]).log_probabilities)
            assert chances[chances > chances[choice]].sum() < 0.5


@pytest.mark.parametrize("decoder", [*DECODERS, Nucleus()], ids=str)
def test_the_same_generator_gives_the_same_samples(decoder):
    assert taken(decoder, 20, seed=3) == taken(decoder, 20, seed=3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PrioritySampling("median"), "token, mean, joint"),
        (lambda: PrioritySampling(branches=0), "at least 1"),
        (lambda: Nucleus(0.0), "positive"),
        (lambda: Nucleus(1.0, 1.5), "at most 1"),
    ],
)
def test_options_that_cannot_be_are_refused_with_what_is_allowed(make, words):
    with pytest.raises(ModelError, match=words):
        make()
