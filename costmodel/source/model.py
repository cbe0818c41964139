"""Decisions learned from the text of programs and labels, such as which device runs a kernel."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set, Sized

import numpy as np
from numpy.typing import ArrayLike

from loopwright.costmodel.model import Floats, Integers, ModelError, check_seed
from loopwright.costmodel.models.file import SOURCE, read_model, write_model
from loopwright.costmodel.source.batch import Batch
from loopwright.costmodel.source.lstm import LSTMClassifier
from loopwright.costmodel.source.tokens import Vocabulary
from loopwright.costmodel.source.trees import TreeClassifier
from loopwright.costmodel.source.words import LANGUAGES
from loopwright.dsl.words import brief

_KINDS: dict[str, type[TreeClassifier] | type[LSTMClassifier]] = {
    "trees": TreeClassifier,
    "lstm": LSTMClassifier,
}

_LARGEST = 1e18
"""Greatest auxiliary number: models sum squares of them in float32."""


class SourceModel:
    """A classifier of sources.

    Parameters
    ----------
    kind: "trees" for boosted trees over counts of symbols, "lstm" for the network of Cummins et
        al. 2017 (section 3), which needs torch.
    language: of the sources: "opencl", "c" or "cuda".
    seed: decides all that is drawn.

    Attributes
    ----------
    labels: the labels that it chooses from; empty before `fit`.
    """

    def __init__(self, kind: str = "trees", language: str = "opencl", seed: int = 0) -> None:
        for what, given, known in (("kind", kind, _KINDS), ("language", language, LANGUAGES)):
            if not isinstance(given, str) or given not in known:
                choices = ", ".join(known)
                raise ModelError(f"a source model of {what} {given!r}: choose one of {choices}")
        check_seed(seed)
        self.kind, self.seed = kind, seed
        self._vocabulary = Vocabulary.of([], language)
        self._classifier: TreeClassifier | LSTMClassifier = _KINDS[kind](self.seed)
        self._auxiliary = 0
        self.labels: tuple[str | int, ...] = ()

    def fit(
        self,
        sources: Sequence[str],
        labels: Sequence[str | int],
        auxiliary: ArrayLike | None = None,
        groups: Sequence[str | int] | None = None,
        weights: ArrayLike | None = None,
    ) -> SourceModel:
        """Learn from labelled sources, forget what was learned before, and return the model.

        Parameters
        ----------
        sources: n texts.
        labels: n strings, integers or truth values, at least two of which differ.
        auxiliary: numbers of shape (n, columns) that are known beside the text.
        groups: n names of which sources belong together, such as those of one program. For trees,
            a source of a large group counts less.
        weights: n positive numbers, such as what a wrong choice would cost; their ratios count. 1
            each if None.

        Raises `ModelError` where the data do not fit together.
        """
        count = len(_texts(sources))
        known = _values("labels", labels, count)
        together = range(count) if groups is None else _values("groups", groups, count)
        weighted = np.ones(count) if weights is None else _as_floats("weights", weights)
        if weighted.shape != (count,):
            raise ModelError(
                f"{count} sources, weights of shape {weighted.shape}: give ({count},)"
            )
        if not (np.isfinite(weighted) & (weighted > 0)).all():
            raise ModelError("weights must be positive and finite")
        weighted = weighted / weighted.max(initial=0.0)  # so that no sum overflows
        if len(kinds := {type(x) for x in known}) > 1:
            names = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise ModelError(f"labels of types {names}: give one of these")
        distinct, classes = _numbered(known)
        if len(distinct) < 2:
            raise ModelError(f"labels {distinct}: two or more kinds are needed")
        beside = _numbers(auxiliary, count)
        vocabulary = Vocabulary.of(sources, self._vocabulary.language)
        batch = Batch(sources, vocabulary, beside)
        weighted /= weighted.mean()  # trees would not split where all weights are small
        self._classifier.fit(batch, classes, weighted, _numbered(together)[1])
        self._vocabulary, self._auxiliary = vocabulary, beside.shape[1]
        self.labels = tuple(distinct)
        return self

    def scores(self, sources: Sequence[str], auxiliary: ArrayLike | None = None) -> Floats:
        """Share of belief in each label, of shape (sources, labels); each row sums to 1."""
        if not self.labels:
            raise ModelError("this model has not learned anything yet: fit it first")
        beside = _numbers(auxiliary, len(_texts(sources)))
        if beside.shape[1] != self._auxiliary:
            raise ModelError(
                f"{beside.shape[1]} auxiliary columns, but {self._auxiliary} were learned from"
            )
        if not len(sources):
            return np.zeros((0, len(self.labels)))
        return self._classifier.scores(Batch(sources, self._vocabulary, beside))

    def predict(
        self, sources: Sequence[str], auxiliary: ArrayLike | None = None
    ) -> list[str | int]:
        """The most likely label of each source; the first of those that tie."""
        return [self.labels[k] for k in self.scores(sources, auxiliary).argmax(axis=1)]

    def describe(self) -> str:
        """The model in a few words: what it is, and what it tells apart."""
        return f"source model of {self.kind}, for texts in {self._vocabulary.language}"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file of JSON."""
        if not self.labels:
            raise ModelError("this model has not learned anything yet: fit it before saving it")
        content = {
            "kind": self.kind,
            "language": self._vocabulary.language,
            "seed": self.seed,
            "symbols": list(self._vocabulary.symbols),
            "auxiliary": self._auxiliary,
            "labels": list(self.labels),
            "learned": self._classifier.content(),
        }
        write_model(path, SOURCE, content)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> SourceModel:
        """Read what `save` wrote; `ModelError` for anything else."""
        _, content = read_model(path, SOURCE)
        try:
            model = SourceModel(content["kind"], content["language"], content["seed"])
            model._vocabulary = Vocabulary(content["language"], tuple(content["symbols"]))
            model._auxiliary, model.labels = int(content["auxiliary"]), tuple(content["labels"])
            model._classifier.restore(content["learned"])
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise ModelError(f"{path} is damaged ({brief(error)}); save it again") from error
        return model


def _texts(sources: Sequence[str]) -> Sequence[str]:
    if isinstance(sources, str):
        raise ModelError("sources are one text: give a list of texts")
    if not _is_list(sources):
        raise ModelError(f"sources are {brief(sources)}: give a list of texts")
    return sources


def _is_list(given: object) -> bool:
    unordered = isinstance(given, str | bytes | Set | Mapping)
    return isinstance(given, Sized) and not unordered and getattr(given, "ndim", 1) > 0


def _values(what: str, given: Sequence[str | int], count: int) -> list[str | int]:
    """A label or the name of a group for each source."""
    if not _is_list(given):
        raise ModelError(f"{what} are {brief(given)}: give a list, one for each source")
    if len(given) != count:
        raise ModelError(f"{count} sources, {len(given)} {what}: give one for each")
    values = [x.item() if isinstance(x, np.generic) else x for x in given]
    for row, value in enumerate(values):
        if not isinstance(value, str | int):
            raise ModelError(
                f"{what}[{row}] is {brief(value)}: give strings, integers or truth values"
            )
    return values


def _numbered(values: Sequence[str | int]) -> tuple[list[str | int], Integers]:
    """The distinct values, sorted, numbers before strings, and the number of each value."""
    distinct = sorted(set(values), key=lambda x: (isinstance(x, str), x))
    numbers = {value: k for k, value in enumerate(distinct)}
    return distinct, np.array([numbers[value] for value in values], np.int64)


def _as_floats(what: str, given: ArrayLike) -> Floats:
    try:
        return np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{what} are {brief(given)}: give numbers, rows of one length") from error


def _numbers(auxiliary: ArrayLike | None, count: int) -> Floats:
    if auxiliary is None:
        return np.zeros((count, 0))
    numbers = _as_floats("auxiliary numbers", auxiliary)
    if numbers.ndim != 2 or len(numbers) != count or not (np.abs(numbers) <= _LARGEST).all():
        raise ModelError(
            f"auxiliary numbers of shape {numbers.shape}: give finite ones of shape "
            f"({count}, columns), of at most {_LARGEST:g}"
        )
    return numbers
