"""`Tuner`: a search that its user drives, by asking for configs and telling what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.costmodel.features.representation import Representation
from loopwright.costmodel.model import CostModel
from loopwright.costmodel.models.file import StoredModel
from loopwright.costmodel.models.gbt import GBTModel
from loopwright.costmodel.models.registry import make_model
from loopwright.costmodel.sequence.model import SequenceModel
from loopwright.costmodel.source.ranker import SourceLSTM
from loopwright.dsl.words import brief
from loopwright.explore.budget import TuningError
from loopwright.explore.strategies.annealing import Annealing, Guide, Schedule
from loopwright.explore.strategies.baselines import Genetic, GridSearch, RandomSearch
from loopwright.explore.strategies.compiled import Compiled, Feedback
from loopwright.explore.strategies.encoded_space import EncodedSpace
from loopwright.explore.strategies.features import Features
from loopwright.explore.strategies.machines import MachinesSearch
from loopwright.explore.strategies.reranking import Reranking
from loopwright.explore.strategies.sampled import Judged, Sampled
from loopwright.explore.strategies.source_text import SourceSymbols, SourceText
from loopwright.explore.strategies.strategy import Strategy
from loopwright.explore.strategies.transfer_search import TransferSearch
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import Space

Begin = Config | SequenceModel | Sequence[Mapping[Config, float]] | None
"""The beginning of a search, see `Tuner`."""
StrategyLike = str | Callable[[EncodedSpace, np.random.Generator], Strategy]

STRATEGIES = ("annealing", "transfer", "sampled", "random", "grid", "genetic")
_BASELINES: dict[str, type[Strategy]] = {
    "random": RandomSearch,
    "grid": GridSearch,
    "genetic": Genetic,
}
MODELLED = ("annealing", "transfer")
"""Strategies that ask a cost model."""
SOURCES = {"source": SourceText, "source-lstm": SourceSymbols}
"""Models of programs' text, which rank what "gbt" proposes, and what makes their rows."""
PROPOSED = ("annealing", "sampled")
"""Strategies that a sequence model proposes points to."""
POLICY = "policy"
"""The model of `lw.tune` that chooses decision by decision: the strategy "sampled"."""
_SEEDS = 1 << 63
"""The first one that is refused."""


def check_seed(seed: int) -> None:
    """Raise `TuningError` for a seed that decides nothing."""
    whole = isinstance(seed, int) and not isinstance(seed, bool)
    if not whole or not 0 <= seed < _SEEDS:
        raise TuningError(f"seed = {seed!r}: give an integer from 0 to 2**63 - 1")


class Tuner:
    """Chooses configs of a space to measure, and learns from what they cost.

    ::

        tuner = Tuner(lw.space(workload), seed=0)
        while len(tuner.costs) < 500 and not tuner.exhausted:
            configs = tuner.ask(32)
            tuner.tell(configs, [my_measurement(c) for c in configs])
        print(tuner.best)

    Attributes
    ----------
    strategy: what chooses.
    configs, costs: everything told, in order; seconds, infinite for what failed.
    """

    def __init__(  # noqa: PLR0913 - what users choose
        self,
        space: Space | EncodedSpace,
        strategy: StrategyLike = "annealing",
        model: str | CostModel = "gbt",
        seed: int = 0,
        *,
        representation: Representation | None = None,
        schedule: Schedule | None = None,
        base: StoredModel | None = None,
        begin: Begin = None,
        feedback: Feedback | None = None,
    ) -> None:
        """
        Parameters
        ----------
        space: where configs come from; an encoded space of it, if not all of its points may be
            asked for.
        strategy: one of `STRATEGIES`, or a function of an encoded space and a generator.
        model: one of `costmodel.models.registry.MODELS`, or a cost model, which "annealing" and
            "transfer" then train. "source" and "source-lstm", of "annealing", read the text of the
            programs that "gbt" proposes; the target must be one whose programs have a text.
        seed: decides everything that is random, the model's part included.
        representation: features for the model; by default those that it reads, or
            `ConfigVector` for a table of known costs, which has no loops.
        schedule: the numbers of annealing.
        base: the global model of Eq. 4, which a model that is named goes on from, and which
            judges what "sampled" proposes; see `transfer.pretrained.base.find_base`.
        begin: what a search begins with: "transfer" with a config, such as what was best on
            another machine, or with costs of configs for each of several machines, in seconds,
            infinite for failures; "annealing" with samples of a sequence model, which "sampled"
            needs.
        feedback: builds configs and tells the facts of their code, by the names of
            `codegen.facts`, None for a failure. "annealing" then has several times as many built
            as it asks for, and chooses by the facts, too.

        Raises `TuningError` for an unknown strategy or a seed that cannot be, or where a strategy
        cannot begin with what it is given, `ConfigError` if that is not of the space, `ModelError`
        for an unknown model, or one that the schedule's acquisition cannot ask.
        """
        check_seed(seed)
        encoded = space if isinstance(space, EncodedSpace) else EncodedSpace(space)
        self.space = encoded.space
        self.configs: list[Config] = []
        self.costs: list[float] = []
        if isinstance(begin, Config | Sequence) and strategy != "transfer":
            raise TuningError(
                f"begin = {brief(begin)} is for strategy='transfer', not {strategy!r}"
            )
        proposer = begin if isinstance(begin, SequenceModel) else None
        if proposer and strategy not in PROPOSED:
            raise TuningError(
                f"begin = a {proposer.describe()} is for strategy='sampled' or 'annealing', not "
                f"{strategy!r}"
            )
        if feedback is not None and (strategy != "annealing" or reads_of(model) in SOURCES):
            other = f"model={model!r}" if strategy == "annealing" else f"strategy={strategy!r}"
            raise TuningError(
                "feedback is for strategy='annealing' and models of loop trees, not for "
                f"{other}: leave it out"
            )
        chance, of_model = np.random.SeedSequence(seed).spawn(2)
        rng = np.random.default_rng(chance)
        if callable(strategy):
            self.strategy = _given(strategy, encoded, rng)
        elif strategy in MODELLED:
            drawn = int(of_model.generate_state(1)[0]) >> 1
            ranker = _source_ranker(self.space, model, drawn)
            trained = make_model("gbt" if ranker else model, drawn, base, (*SOURCES, POLICY))
            features = Features(self.space, representation or trained.reads)
            guide = Guide(encoded, rng, trained, features, schedule or Schedule(), proposer)
            if strategy == "transfer":
                self.strategy = _transfer(guide, begin, ranker)
            elif feedback is not None:
                self.strategy = Compiled(guide, feedback, drawn)
            else:
                self.strategy = Reranking(guide, **ranker) if ranker else Annealing(guide)
        elif strategy == "sampled":
            self.strategy = _sampled(encoded, rng, proposer, base)
        elif isinstance(strategy, str) and strategy in _BASELINES:
            self.strategy = _BASELINES[strategy](encoded, rng)
        else:
            raise TuningError(f"strategy = {strategy!r}: use one of {', '.join(STRATEGIES)}")

    @property
    def exhausted(self) -> bool:
        """Return whether nothing is left to ask for."""
        return self.strategy.exhausted

    @property
    def best(self) -> tuple[Config, float] | None:
        """The cheapest config told and its cost in seconds; None if none worked."""
        place = int(np.argmin(self.costs)) if self.costs else -1
        if place < 0 or not np.isfinite(self.costs[place]):
            return None
        return self.configs[place], self.costs[place]

    def ask(self, n: int = 32) -> list[Config]:
        """Up to `n` configs that are worth measuring, none twice, the default first of all."""
        if n < 1:
            raise TuningError(f"ask({n}): give a number of configs of at least 1")
        return self.strategy.encoded.configs(self.strategy.ask(n))

    def tell(
        self,
        configs: Sequence[Config],
        costs: Iterable[float],
        facts: Sequence[Mapping[str, int]] = (),
    ) -> None:
        """Learn costs in seconds, infinite for configs that failed; of configs asked for, or of
        any others of the space. With `feedback` the facts of their code, too, where known.

        Raises `ConfigError` for a config that is not of the space, `TuningError` for a cost that
        is not positive or a number of costs that is not that of the configs.
        """
        values = np.array([float(c) for c in costs], np.float64)
        if len(values) != len(configs):
            raise TuningError(f"{len(configs)} configs, but {len(values)} costs")
        if not (values > 0).all():
            raise TuningError(f"costs {values} must be positive: seconds, infinite for failures")
        points = self.strategy.encoded.points(configs)
        self.configs += configs
        self.costs += values.tolist()
        if isinstance(self.strategy, Compiled):
            self.strategy.note(configs, facts)
        self.strategy.tell(points, values)


def reads_of(model: str | CostModel) -> str:
    """The name of a model, or of what a given one reads: `SOURCES` has either."""
    return model.reads if isinstance(model, CostModel) else str(model)


def _source_ranker(space: Space, model: str | CostModel, seed: int) -> dict[str, Any]:
    """The ranking of programs by their text: the arguments of `Reranking`; none for other models.
    `ModelError` where the space's programs have no text."""
    reads = reads_of(model)
    if reads not in SOURCES:
        return {}
    rows = Features(space, SOURCES[reads].of(space, reads))
    if isinstance(model, str):
        model = (
            SourceLSTM(seed) if model == SourceLSTM.reads else GBTModel("rank", seed, reads=model)
        )
    return {"ranker": model, "ranked_by": rows}


def _given(
    make: Callable[[EncodedSpace, np.random.Generator], Strategy],
    encoded: EncodedSpace,
    rng: np.random.Generator,
) -> Strategy:
    """The strategy that a user's function makes."""
    made = make(encoded, rng)
    if not isinstance(made, Strategy):
        raise TuningError(
            f"strategy made {brief(made)}: return a Strategy of the space it is given"
        )
    return made


def _transfer(guide: Guide, begin: Begin, ranker: Mapping[str, Any]) -> Strategy:
    """Transfer search, from other machines' costs of configs, or from one's best config."""
    if ranker:
        raise TuningError(
            f"model={ranker['ranker'].reads!r} ranks what annealing proposes: leave out "
            "strategy='transfer'"
        )
    encoded = guide.encoded
    if isinstance(begin, Sequence) and begin:
        machines = [(encoded.points(m), np.array(list(m.values()), np.float64)) for m in begin]
        return MachinesSearch(guide, machines)
    return TransferSearch(guide, encoded.points([begin]) if isinstance(begin, Config) else None)


def _sampled(
    encoded: EncodedSpace,
    rng: np.random.Generator,
    proposer: SequenceModel | None,
    judge: StoredModel | None,
) -> Strategy:
    """What a sequence model proposes, in a judge's order if there is one."""
    if proposer is None:
        raise TuningError(
            "strategy='sampled' needs a sequence model: give begin=SequenceModel.load(FILE), or "
            "transfer=FILE of lw.tune"
        )
    if judge is None:
        return Sampled(encoded, rng, proposer)
    return Judged(encoded, rng, proposer, judge)
