"""Evaluation of how a model ranks programs of workloads that it has not learned from."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from loopwright.costmodel.model import CostModel, Floats, ModelError
from loopwright.costmodel.models.losses import pairwise_accuracy, top_k_recall
from loopwright.dsl.words import counted
from loopwright.transfer.pretrained.dataset import RecordGroup

TOPS = (1, 8, 64)
RECALL = 8
_APART = 1.05
_FEWEST = 8  # records below which a group says too little

Trained = Callable[[Sequence[RecordGroup]], CostModel]


@dataclass(frozen=True)
class Score:
    """Score of how one group was ranked.

    Attributes
    ----------
    kind, workload, threads, records: what was ranked.
    accuracy: of pairs of different cost, the share in the right order.
    clear: the same, of pairs whose costs differ by more than 5 %, which is more than noise.
    recall: the share of the 8 fastest that are among the 8 that the model ranks first.
    regret: for each of `TOPS`, the best cost among so many that it ranks first, over the best of
        all: 1 is perfect. Infinite if all of them failed.
    """

    kind: str
    workload: str
    threads: int
    records: int
    accuracy: float
    clear: float
    recall: float
    regret: tuple[float, ...]

    @staticmethod
    def of(group: RecordGroup, scores: Floats) -> Score:
        """Compare predicted scores with the costs of a group."""
        c = group.costs
        order = np.argsort(-scores, kind="stable")
        regret = tuple(float(c[order[:k]].min() / c.min()) for k in TOPS)
        return Score(
            group.kind,
            group.workload.key,
            group.threads,
            len(c),
            pairwise_accuracy(scores, c),
            pairwise_accuracy(scores, c, _APART),
            top_k_recall(scores, c, RECALL),
            regret,
        )


@dataclass(frozen=True)
class Summary:
    """The means of scores: accuracy and recall arithmetic, regret geometric (of finite ones)."""

    groups: int
    records: int
    accuracy: float
    clear: float
    recall: float
    regret: tuple[float, ...]

    @staticmethod
    def of(scores: Sequence[Score]) -> Summary:
        """Raises `ModelError` where there is nothing to average."""
        if not scores:
            raise ModelError(
                f"nothing to judge by: no workload that is new to the model has {_FEWEST} records"
            )
        finite = ([s.regret[t] for s in scores if math.isfinite(s.regret[t])] for t in range(3))
        return Summary(
            len(scores),
            sum(s.records for s in scores),
            _mean([s.accuracy for s in scores]),
            _mean([s.clear for s in scores]),
            _mean([s.recall for s in scores]),
            tuple(statistics.geometric_mean(r) if r else math.inf for r in finite),
        )


def table(scores: Sequence[Score]) -> str:
    """The means by kind of workload, and of all, as lines of text."""
    by_kind: dict[str, list[Score]] = {}
    for s in scores:
        by_kind.setdefault(s.kind, []).append(s)
    head = ["groups", "records", "accuracy", "(clear)", "recall@8", *(f"regret@{k}" for k in TOPS)]
    lines = [" ".join(f"{title:>9}" for title in head) + "  kind"]
    ordered = sorted(by_kind.items(), key=lambda pair: -len(pair[1]))
    lines += [_line(found, name) for name, found in (*ordered, ("all", scores))]
    for t, k in enumerate(TOPS):
        if failed := sum(math.isinf(s.regret[t]) for s in scores):
            groups = counted(failed, "group")
            lines.append(f"regret@{k} leaves out {groups}, where all of the first {k} failed")
    return "\n".join(lines)


def _line(scores: Sequence[Score], name: str) -> str:
    s = Summary.of(scores)
    numbers = [s.accuracy, s.clear, s.recall, *s.regret]
    cells = [f"{s.groups:>9}", f"{s.records:>9}", *(f"{x:>9.3f}" for x in numbers)]
    return " ".join(cells) + f"  {name}"


def judged(model: CostModel, groups: Sequence[RecordGroup]) -> list[Score]:
    """The scores of a model on groups that are large enough, and in which something worked."""
    return [Score.of(g, model.predict(g.features)) for g in groups if _tells(g)]


def cross_validated(
    groups: Sequence[RecordGroup], trained: Trained, by: str = "workload", folds: int = 5
) -> Iterator[Score]:
    """Every group ranked by a model that has seen neither its workload, on any machine or number
    of threads, nor, `by` "kind", any of its kind."""
    if by not in ("workload", "kind"):
        raise ModelError(f"hold out by {by!r}: use 'workload' or 'kind'")
    names = [label(g, by) for g in groups]
    distinct = sorted(set(names))
    folds = min(folds, len(distinct))
    if folds < 2:
        raise ModelError(
            f"records of {counted(len(distinct), by)}: at least 2 are needed to hold one out"
        )
    order = np.random.default_rng(0).permutation(len(distinct))
    fold = {distinct[place]: n % folds for n, place in enumerate(order)}
    for n in range(folds):
        seen = [g for g, name in zip(groups, names, strict=True) if fold[name] != n]
        held_out = [g for g, name in zip(groups, names, strict=True) if fold[name] == n]
        yield from judged(trained(seen), held_out)


def label(group: RecordGroup, by: str) -> str:
    """The "workload" of a group, as its key, or its "kind"."""
    return group.workload.key if by == "workload" else group.kind


def _tells(group: RecordGroup) -> bool:
    finite = group.costs[np.isfinite(group.costs)]
    return len(group.costs) >= _FEWEST and len(np.unique(finite)) > 1


def _mean(values: Sequence[float]) -> float:
    finite = [v for v in values if not math.isnan(v)]
    return statistics.fmean(finite) if finite else math.nan
