"""Model-guided search: the body of Algorithm 1, by parallel simulated annealing (section 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from loopwright.costmodel.model import CostModel
from loopwright.costmodel.models.acquisition import acquired, check_acquisition
from loopwright.costmodel.sequence.model import SequenceModel
from loopwright.explore.strategies.encoded_space import (
    EncodedSpace,
    Floats,
    Hashes,
    Points,
    Seen,
    distinct,
    hashes,
)
from loopwright.explore.strategies.features import Rows
from loopwright.explore.strategies.improvement import Improvement
from loopwright.explore.strategies.proposals import Proposals
from loopwright.explore.strategies.selection import select
from loopwright.explore.strategies.strategy import Strategy


@dataclass(frozen=True)
class Schedule:
    """The numbers of Algorithm 1 and of the chains that serve it.

    Attributes
    ----------
    epsilon: ε, the share of a batch that is drawn at random.
    candidates: λ, how many candidates per point of a batch Eq. 3 chooses among.
    alpha: α, the weight of diversity, in standard deviations of the score.
    chains, steps: Markov chains, and moves of each in a round.
    hot, cold: temperatures of the first and the last step, in standard deviations of the score.
    learn_from: measured points below which the model is not asked.
    acquisition: what is maximized: "mean", the predicted score, or, of a model that is uncertain,
        "ei" or "ucb"; see `costmodel.models.acquisition`.
    sketches, more: how many sketches a search looks at first, and how many more with each batch.
        The features of one take up to a quarter of a second to record, which a search of a few
        dozen trials should not spend on hundreds of them.
    advice: whether a search of a space that has rules of thumb begins with what they say.
    likely: the share of a batch that a Gaussian process chooses, see `strategies.improvement`.

    Scoring a batch has a fixed cost, so there are many chains that take few steps a round, and
    go on in the next.
    """

    epsilon: float = 0.05
    candidates: float = 4.0
    alpha: float = 0.1
    chains: int = 2048
    steps: int = 4
    hot: float = 0.5
    cold: float = 0.02
    learn_from: int = 16
    acquisition: str = "mean"
    sketches: int = 16
    more: int = 4
    advice: bool = True
    likely: float = 0.75


@dataclass(frozen=True, eq=False)
class Guide:
    """What guides annealing, and strategies made of it.

    Attributes
    ----------
    encoded, rng: as those of any `Strategy`.
    model, features: a cost model, which may have learned elsewhere, and what makes its rows of
        points.
    proposer: a sequence model, whose samples take the place of guesses in the first batch.
    """

    encoded: EncodedSpace
    rng: np.random.Generator
    model: CostModel
    features: Callable[[Points], Rows]
    schedule: Schedule = Schedule()
    proposer: SequenceModel | None = None


class Annealing(Strategy):
    """Asks a cost model, by Markov chains that walk to where it predicts low costs.

    The chains persist: after the model has learned more they go on from where they were.
    """

    least = 8  # the process learns much from each of the first few

    def __init__(self, guide: Guide) -> None:
        encoded, rng, self.model = guide.encoded, guide.rng, guide.model
        super().__init__(encoded, rng)
        self.proposals = Proposals(encoded, guide.proposer, rng) if guide.proposer else None
        self.features, self.schedule = guide.features, guide.schedule
        check_acquisition(self.schedule.acquisition, self.model)
        self.known = np.empty((0, 0), np.float32)
        """The features of every point told."""
        self.chains = np.empty((0, encoded.width), np.int64)
        self.rows = np.empty((0, 0), np.float32)
        """The features of where the chains are."""
        self.programs = np.empty(0, np.uint64)
        """Hashes of the programs told, and of those that the model chose."""
        self.improvement = Improvement(encoded, rng)
        self.open = encoded.some(self.schedule.sketches)
        """The sketches that are looked at."""

    def _propose(self, n: int) -> Points:
        self._open()
        if not self.model.ready:
            return self._completed(self._first(n), n)
        # A model that only knows other workloads is asked for a part, rules of thumb for the rest.
        foreign = not self._knows_enough
        advice = self._first(n // 2) if foreign else self._untried(max(1, n // 8))
        if not foreign:
            likely = round(self.schedule.likely * (n - len(advice)))
            advice = distinct(np.concatenate([advice, self._likely(likely)]))
        self.seen.add(advice)
        found = self._anneal(int(self.schedule.candidates * n))
        left = n - len(advice)
        greedy = left - self.rng.binomial(left, self.schedule.epsilon)
        values = self.encoded.values(found.points)
        chosen = found.take(select(found.scores, values, greedy, self.schedule.alpha))
        self.programs = np.union1d(self.programs, chosen.programs)
        return self._completed(distinct(np.concatenate([advice, chosen.points])), n)

    def _likely(self, n: int) -> Points:
        """Points that a Gaussian process chooses, one for each new program."""
        if not n:
            return self.points[:0]
        points = self.improvement.choose(n, self.points, self.costs, self.seen, self.open)
        if not len(points):  # every candidate was measured, or all cost the same
            return points
        found = programs(self.features(points))
        first = np.sort(np.unique(found, return_index=True)[1])
        first = first[~np.isin(found[first], self.programs)]
        self.programs = np.union1d(self.programs, found)
        return points[first]

    def _open(self) -> None:
        """Look at those sketches, too, that somebody measured, and at a few more."""
        known = np.union1d(self.open, self.points[:, 0])
        left = np.setdiff1d(self.encoded.every, known)
        more = self.schedule.more if len(self.points) else 0
        self.open = np.union1d(known, self.encoded.some(more, left))

    def _completed(self, points: Points, n: int) -> Points:
        taken = self.seen.and_also(points)
        more = self.encoded.fresh(n - len(points), taken, self.rng, self.open)
        return np.concatenate([points, more])

    @property
    def _knows_enough(self) -> bool:
        """Return whether so many points worked that models learn from them."""
        return bool(np.isfinite(self.costs).sum() >= self.schedule.learn_from)

    def _learn(self) -> None:
        new = self.features(self.points[len(self.known) :])
        self.known = new if not len(self.known) else np.concatenate([self.known, new])
        self.programs = np.union1d(self.programs, programs(new))
        if self._knows_enough:
            self.model.fit(self.known, self.costs, np.zeros(len(self.costs), np.int64))

    def _anneal(self, keep: int) -> Found:
        """The best `keep` new programs that the chains visit."""
        s = self.schedule
        self._start()
        scores = self._scores(self.rows)
        best = self._best(Found(self.chains, programs(self.rows), scores), keep)
        spread = float(scores.std()) or 1.0
        for temperature in spread * np.geomspace(s.hot, s.cold, s.steps):
            moved = self.encoded.neighbours(self.chains, self.rng, among=self.open)
            legal = self.encoded.is_legal(moved)
            if not legal.any():
                continue
            moved, rows = moved[legal], self.features(moved[legal])
            new = self._scores(rows)
            chance = np.exp(np.minimum((new - scores[legal]) / temperature, 0.0))
            accept = self.rng.random(len(chance)) < chance
            places = np.flatnonzero(legal)[accept]
            self.chains[places], self.rows[places] = moved[accept], rows[accept]
            scores[places] = new[accept]
            best = self._best(best.joined(Found(moved, programs(rows), new)), keep)
        return best

    def _first(self, n: int) -> Points:
        """Points to measure before the model knows anything: defaults of sketches, then
        guesses."""
        count = np.clip(len(self.encoded.leaders), n // 2, 3 * n // 4)
        defaults = self.encoded.defaults(int(count) if self._advised else 0, self.open)
        defaults = defaults[self.encoded.is_legal(defaults)]
        guesses = self.proposals.first(n) if self.proposals else self._guesses(n)
        points = np.concatenate([defaults, guesses])
        return self.seen.unseen(points)[: -(-3 * n // 4)]

    def _untried(self, n: int) -> Points:
        """Defaults of algorithms that are not known yet: records may be older than these, or
        know little of them."""
        points = self.encoded.untried(self.points) if self._advised else self.points[:0]
        return self.seen.unseen(points[self.encoded.is_legal(points)])[:n]

    @property
    def _advised(self) -> bool:
        return self.schedule.advice and self.encoded.advised

    def _guesses(self, n: int) -> Points:
        points = self.encoded.guesses(n if self._advised else 0, self.rng, self.open)
        return points[self.encoded.is_legal(points)]

    def _start(self) -> None:
        """Set the chains up: at the best measured points, guesses, and random points."""
        if not len(self.chains):
            count = self.schedule.chains
            good = self.points[self._cheapest(count // 4)]
            good = np.concatenate([good, self._guesses(count // 2)])
            rest = self.encoded.fresh(count - len(good), Seen(), self.rng, self.open)
            self.chains = np.concatenate([good, rest])
            self.rows = self.features(self.chains)

    def _scores(self, rows: Rows) -> Floats:
        return np.asarray(acquired(self.model, rows, self.schedule.acquisition), np.float64)

    def _best(self, found: Found, keep: int) -> Found:
        """The best of what is new, one point for each program."""
        order = np.argsort(-found.scores, kind="stable")
        _, first = np.unique(found.programs[order], return_index=True)
        order = order[np.sort(first)]
        known = np.isin(found.programs[order], self.programs)
        return found.take(order[~(known | self.seen.has(found.points[order]))][:keep])


@dataclass(frozen=True, eq=False)
class Found:
    """Points that chains came by: which programs they are, and their scores."""

    points: Points
    programs: Hashes
    scores: Floats

    def take(self, places: Points) -> Found:
        return Found(self.points[places], self.programs[places], self.scores[places])

    def joined(self, other: Found) -> Found:
        return Found(
            np.concatenate([self.points, other.points]),
            np.concatenate([self.programs, other.programs]),
            np.concatenate([self.scores, other.scores]),
        )


def programs(rows: Rows) -> Hashes:
    """A hash of each program by its features. Points of equal features are one program nearly
    always (a block larger than what there is to do, say), and never told apart by the model."""
    return hashes(np.ascontiguousarray(rows).view(np.uint32))
