"""The TreeGRU as a cost model (Chen et al. 2018, section 4, Figures 3c and 3d).

Needs torch, which is imported when a model first learns or is loaded.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from loopwright.costmodel.features.context import IDENTIFIERS, names, text_names
from loopwright.costmodel.model import Floats, Integers, ModelError, RandomModel, check_data
from loopwright.costmodel.models.file import (
    StoredModel,
    learned_from,
    numbers_of_text,
    numbers_to_text,
)
from loopwright.costmodel.models.losses import LOSSES, checked_objective, relative
from loopwright.costmodel.models.torch_threads import one_thread
from loopwright.costmodel.models.tree_batch import TreeBatch
from loopwright.packages import optional

if TYPE_CHECKING:
    from loopwright.costmodel.models.network_training import Training
    from loopwright.costmodel.models.tree_network import Batch, TreeNetwork

_FEWEST = 8  # successful records below which the scores are random
_EXPLAINED = 256  # trees that say which columns matter
_TUNED = 0.2  # the rate of learning where a base is fine-tuned, relative to that from scratch


class TreeGRU(StoredModel):
    """A recurrent network over the tree of loops.

    Loops are encoded by their context vectors (Figure 3d), or, plainly, by what the text says of
    them, with learned embeddings of loop variables (Figure 3c). A part of the records, drawn by
    the seed, is held out, and the weights that were best for those are kept.

    Parameters
    ----------
    objective: "rank" (Eq. 2; a step compares all records of a group that are in it, and failures
        come last) or "regression" (of the logarithm of throughput; failures are left out).
    seed: decides the split, the first weights, the order of records, and the random scores before
        there is data.
    reads: "tree" for context vectors, "text" for the plain variant.
    hidden, slots: numbers of a loop's embedding, and slots that it is scattered into.
    base: a model of the same kind that learned from other records: this one is fine-tuned from
        its weights, and as long as nothing was learned here, the scores are the base's.
    training: the numbers of training, `network_training.Training()` if None.
    device: where torch computes, "cpu" or "cuda".
    """

    kind: ClassVar[str] = "treegru"

    def __init__(
        self,
        objective: str = "rank",
        seed: int = 0,
        reads: str = "tree",
        hidden: int = 32,
        slots: int = 8,
        base: StoredModel | None = None,
        training: Training | None = None,
        device: str = "cpu",
    ) -> None:
        if reads not in ("tree", "text"):
            raise ModelError(f'a TreeGRU reads "tree" or "text" features, not {reads!r}')
        _torch()  # its absence is told before anything was measured
        self.objective, self.seed, self.reads = checked_objective(objective), int(seed), reads
        self.hidden, self.slots, self.training, self.device = hidden, slots, training, device
        self.about: dict[str, Any] = {}
        self._random = RandomModel(seed)
        self._columns = names() if reads == "tree" else text_names()
        self._shares: dict[str, float] = {}
        self._start = self._network = None if base is None else self._checked(base)

    def _checked(self, base: StoredModel) -> TreeNetwork | None:
        if not isinstance(base, TreeGRU) or base.reads != self.reads:
            raise ModelError(
                f"the base is {base.describe()} over {base.reads!r} features; a TreeGRU goes on "
                f"from one over the same features, {self.reads!r}"
            )
        self.hidden, self.slots, self._shares = base.hidden, base.slots, base._shares
        return base._network

    @property
    def ready(self) -> bool:
        return self._network is not None

    @property
    def weights(self) -> int:
        """Numbers that were learned; 0 before there is data."""
        return 0 if self._network is None else sum(w.numel() for w in self._network.parameters())

    def fit(self, features: Floats, costs: Floats, groups: Integers) -> None:
        check_data(features, costs, groups)
        self._network = self._start
        if np.isfinite(costs).sum() < _FEWEST:
            return
        costs, rng = relative(costs, groups), np.random.default_rng(self.seed)
        if not LOSSES[self.objective].of(costs, groups, rng).informative:
            return
        from loopwright.costmodel.models.network_training import Records, Training, learn
        from loopwright.costmodel.models.tree_network import explained

        training = self.training or Training()
        if self._start is not None:
            training = replace(training, rate=_TUNED * training.rate)
        network = self._new(features)
        records = Records(features, costs, groups, self._read)
        chosen = rng.permutation(len(features))[:_EXPLAINED]
        with one_thread():
            learn(network, records, self.objective, training, rng)
            matter = explained(network, features[chosen], self._columns)
        self._shares = dict(zip(self._columns, (matter / (matter.sum() or 1.0)).tolist()))
        self._network = network
        self.about |= learned_from(costs, groups)

    def _new(self, features: Floats) -> TreeNetwork:
        """A copy of the base's network, or one with weights that the seed decides."""
        if self._start is not None:
            network = copy.deepcopy(self._start)
            network.to(self.device)
            return network
        network = self._empty()
        network.standardize(TreeBatch.of(features, self._columns).loops)
        network.to(self.device)
        return network

    def _empty(self) -> TreeNetwork:
        """One with weights that the seed decides; the caller's random numbers stay as they are."""
        torch = _torch()
        from loopwright.costmodel.models.tree_network import TreeNetwork

        identifiers = IDENTIFIERS if self.reads == "text" else 0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed % (1 << 63))
            return TreeNetwork(len(self._columns), identifiers, self.hidden, self.slots)

    def predict(self, features: Floats) -> Floats:
        if self._network is None:
            return self._random.predict(features)
        from loopwright.costmodel.models.network_training import predicted

        with one_thread():
            return -predicted(self._network, features, self._read)

    def _read(self, rows: Floats, device: str) -> Batch:
        from loopwright.costmodel.models.tree_network import Batch

        return Batch(TreeBatch.of(rows, self._columns), device)

    def describe(self) -> str:
        plain = "plain " if self.reads == "text" else ""
        return f"a {plain}TreeGRU of {self.weights} numbers, {self.objective} objective"

    def importance(self) -> dict[str, float]:
        """By |∂f/∂z|, averaged over loops, where z is a column in standard deviations."""
        return dict(self._shares)

    def content(self) -> dict[str, Any]:
        assert self._network is not None
        weights = self._network.state_dict()
        return {
            "objective": self.objective,
            "seed": self.seed,
            "reads": self.reads,
            "hidden": self.hidden,
            "slots": self.slots,
            "importance": self._shares,
            "weights": {name: numbers_to_text(w.cpu().numpy()) for name, w in weights.items()},
        }

    @classmethod
    def of_content(cls, content: Mapping[str, Any]) -> TreeGRU:
        made = {name: content[name] for name in ("objective", "seed", "reads", "hidden", "slots")}
        model = cls(**made)
        model._shares = dict(content["importance"])
        torch = _torch()
        weights = {n: torch.as_tensor(numbers_of_text(w)) for n, w in content["weights"].items()}
        model._network = model._empty()
        model._network.load_state_dict(weights)
        return model


def _torch() -> Any:
    """torch, or a `ModelError` that says how to get it."""
    return optional("torch", 'model="treegru"', ModelError)
