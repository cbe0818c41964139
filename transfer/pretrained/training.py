"""Global models, f̂(global) of Eq. 4, and sequence models, learned from many workloads."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.costmodel.features.fingerprint import fingerprint, same_features
from loopwright.costmodel.model import Floats, ModelError
from loopwright.costmodel.models.ensemble import Ensemble
from loopwright.costmodel.models.file import StoredModel, load_model
from loopwright.costmodel.models.gbt import GBTModel
from loopwright.costmodel.models.mlp import MLP
from loopwright.costmodel.models.registry import blend
from loopwright.costmodel.sequence.examples import Group
from loopwright.costmodel.sequence.grammar import Grammar
from loopwright.costmodel.sequence.model import SequenceModel
from loopwright.dsl.words import counted
from loopwright.packages import optional
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import Space
from loopwright.transfer.pretrained.dataset import RecordGroup, known_costs, stacked
from loopwright.transfer.records.lookup import Setting, comparable
from loopwright.transfer.records.record import current_versions
from loopwright.transfer.records.store import RecordStore

MODELS = ("gbt", "mlp", "blend", "treegru")
"""Names of global models."""
_BESIDE = 0.5  # the weight of what was learned elsewhere: `docs/global-models.md`
_TREES: dict[str, Any] = {"rounds": 400, "depth": 6, "eta": 0.1}


def train(
    groups: Sequence[RecordGroup],
    model: str = "gbt",
    seed: int = 0,
    base: StoredModel | None = None,
    beside: Sequence[StoredModel] = (),
) -> StoredModel:
    """A global model of the records of all groups, ranks compared within each; `base` is one
    that it goes on from. Its scores are the mean of those of its parts and of models `beside` it
    that have learned elsewhere, which count half. What it learned from is in its `about`.

    Raises `ModelError` where there is too little to learn, and for a name not in `MODELS`.
    """
    made = _made(model, seed, base)
    made.fit(*stacked(groups))
    if "records" not in made.about:  # a base is ready whatever was learned
        raise ModelError(
            f"{counted(sum(len(g.costs) for g in groups), 'record')} of "
            f"{counted(len(groups), 'workload')}: too few to learn from; tune or collect more"
        )
    about = made.about | provenance(groups, made.reads)
    for before in (other.about for other in (*filter(None, [base]), *beside)):
        for name in ("workloads", "threads", "targets"):
            about[name] = sorted({*about[name], *before.get(name, ())})
        for name in ("kinds", "processors"):
            about[name] = dict(Counter(before.get(name, {})) + Counter(about[name]))
        for name in ("records", "failures", "groups"):
            about[name] += before.get(name, 0)
    if beside:
        own = made.members if isinstance(made, Ensemble) else (made,)
        weights = [1.0] * len(own) + [_BESIDE] * len(beside)
        made = Ensemble([*own, *beside], seed, bootstrap=False, weights=weights)
    made.about = about
    return made


def provenance(groups: Sequence[RecordGroup], reads: str) -> dict[str, object]:
    """Provenance of a model, as JSON."""
    processors = Counter(dict(g.hardware).get("processor", "unknown") for g in groups)
    return {
        "workloads": sorted({g.workload.key for g in groups}),
        "kinds": dict(Counter(g.kind for g in groups).most_common()),
        "threads": sorted({g.threads for g in groups}),
        "targets": sorted({g.target for g in groups}),
        "processors": dict(processors.most_common()),
        "trained": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "versions": current_versions(),
        "probe": fingerprint(reads),
    }


def load_global(path: Path) -> StoredModel:
    """A global model from a file.

    Raises `ModelError` for a damaged file, a model that cannot rank other workloads, and one that
    learned from features of another definition than this version's.
    """
    model = load_model(path)
    try:
        same = same_features(model.reads, model.about.get("probe"))
    except ModelError as error:
        raise ModelError(
            f"{path}: {error}; `loopwright model train` makes models for other workloads"
        ) from error
    if not same:
        raise ModelError(
            f"{path} learned from {model.reads!r} features as another version of Loopwright "
            "defines them, so its scores would mean nothing here: make it again with `loopwright "
            "model train`, or go on without it (transfer=None, --transfer none)"
        )
    return model


def _made(model: str, seed: int, base: StoredModel | None) -> StoredModel:
    if model == "gbt":
        return GBTModel("rank", seed, base=base, **_TREES)
    if model == "blend":
        return blend(seed, base, **_TREES)
    if model == "mlp":
        return MLP("rank", seed, base=base)
    if model == "treegru":
        from loopwright.costmodel.models.treegru import TreeGRU

        return TreeGRU("rank", seed, base=base)
    raise ModelError(f"model = {model!r}: a global model is one of {', '.join(MODELS)}")


def read_examples(
    stores: Iterable[RecordStore], wanted: Callable[[Setting], bool] = lambda _: True
) -> Iterator[Group]:
    """The good configs of stores, a group for each workload on each machine.

    Settings that are not `wanted` are left out, and so are those of which no config that this
    version has worked.
    """
    for store in stores:
        for members in comparable(filter(wanted, store.settings())):
            found = known_costs(store, members)
            if found and any(map(math.isfinite, found[1].values())):
                points, costs, _ = found
                yield _group(points, list(costs), np.array(list(costs.values())))


def _group(points: Space, configs: list[Config], costs: Floats) -> Group:
    grammar = Grammar(points)
    numbers = {sketch.name: number for number, sketch in enumerate(points.sketches)}
    sequences = [
        grammar.sequence((numbers[c.sketch], *points.sketch(c.sketch).numbers(c))) for c in configs
    ]
    return Group.of(grammar, sequences, costs)


def train_sequence(
    groups: Sequence[Group], seed: int = 0, base: SequenceModel | None = None
) -> SequenceModel:
    """A sequence model of groups; `base` is one that it goes on from. Raises `ModelError` where
    there is nothing to learn, or no torch."""
    optional("torch", "the training of a sequence model", ModelError)
    from loopwright.costmodel.sequence.training import train

    return train(groups, seed=seed, base=base)
