"""Features of programs from their text, made one by one: for a few hundred, not for thousands."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from loopwright.costmodel.features.batch_arithmetic import Array
from loopwright.costmodel.features.representation import Numbers, Representation
from loopwright.costmodel.features.selection import (
    SELECTION_FEATURES,
    group_size,
    selection_features,
)
from loopwright.costmodel.model import Floats, ModelError
from loopwright.costmodel.source.tokens import LONGEST, Vocabulary
from loopwright.costmodel.source.words import LANGUAGES
from loopwright.dsl.errors import BuildError
from loopwright.schedule.lowering import lower
from loopwright.schedule.space import Space
from loopwright.schedule.target import Target

EXACT = (*SELECTION_FEATURES, "group")
"""Columns that are known beside the text: the 28 numbers of `selection`, threads of a block."""


class _Written(Representation):
    """Columns of a program's text and what is `EXACT`, as logarithms.

    They come twice: as they are, and less what they are for the space's default config. Plain
    columns come once, as they are. Texts are those that are compiled, without what all programs
    have. Nothing is compiled. A program that cannot be written has NaN in all columns.
    """

    def __init__(self) -> None:
        self._default: tuple[Space, Array] | None = None

    @classmethod
    def of(cls, space: Space, model: str) -> Representation:
        """The representation of a space whose programs have a text. `ModelError` for another,
        which names the `model` that reads it."""
        if not space.sketches[0].has_loops:
            raise ModelError('a table of known costs has no programs to read: give model="gbt"')
        if space.target.kind not in LANGUAGES:
            raise ModelError(
                f'model="{model}" reads the text of programs, and those for target '
                f"{space.target.kind!r} have none: "
                'give target="c", "opencl" or "cuda", or another model'
            )
        return cls()

    @abstractmethod
    def of_text(self, vocabulary: Vocabulary, text: str) -> tuple[Floats, Floats]:
        """Columns of a text: those in front of what is exact, and the plain ones."""

    @abstractmethod
    def text_names(self, vocabulary: Vocabulary) -> tuple[Sequence[str], Sequence[str]]:
        """Names of the columns of `of_text`."""

    def features(self, space: Space, sketch: int, numbers: Numbers) -> Array:
        found, plain = self._read(space, sketch, numbers)
        if self._default is None or self._default[0] is not space:
            default = np.array([space.sketches[0].default], np.int64)
            self._default = space, self._read(space, 0, default)[0]
        return np.concatenate([found, found - self._default[1], plain], axis=1)

    def _read(self, space: Space, sketch: int, numbers: Numbers) -> tuple[Array, Array]:
        """Columns as they are, and the plain ones."""
        from loopwright.codegen.compile import Program, program_text

        target, chosen = space.target, space.sketches[sketch]
        vocabulary = _vocabulary(target)
        first, behind = self.text_names(vocabulary)
        made = np.full((len(numbers), len(first) + len(EXACT)), np.nan, np.float32)
        plain = np.full((len(numbers), len(behind)), np.nan, np.float32)
        if not len(numbers):
            return made, plain
        trees = lower(chosen, target, numbers)
        for place, choices in enumerate(numbers):
            tree = trees.row(place)
            try:
                text = program_text(Program(space.workload, target, chosen.at(choices), tree))
            except BuildError:
                continue
            exact = [*selection_features(tree, target), group_size(tree)]
            counts, plain[place] = self.of_text(vocabulary, text)
            made[place] = np.log2(1.0 + np.array([*counts, *exact]))
        return made, plain

    def names(self, space: Space) -> tuple[str, ...]:
        first, behind = self.text_names(_vocabulary(space.target))
        own = (*first, *EXACT)
        return (*own, *(f"{name} to default" for name in own), *behind)


class SourceText(_Written):
    """Counts of each symbol in a program's text, its runs, and what is `EXACT`."""

    def of_text(self, vocabulary: Vocabulary, text: str) -> tuple[Floats, Floats]:
        counts = [*vocabulary.count([text])[0], *vocabulary.runs(text)]
        return np.array(counts), np.zeros(0)

    def text_names(self, vocabulary: Vocabulary) -> tuple[Sequence[str], Sequence[str]]:
        known = ("unknown", *(f"symbol {s!r}" for s in vocabulary.symbols))
        return (*known, *(f"{name} run" for name in known)), ()


class SourceSymbols(_Written):
    """What is `EXACT`, then the numbers of the last `LONGEST` symbols of a program's text, in
    their order, and -1 behind its end: rows of `SourceLSTM`."""

    def of_text(self, vocabulary: Vocabulary, text: str) -> tuple[Floats, Floats]:
        last = vocabulary.encode(text)[-LONGEST:]
        return np.zeros(0), np.append(last, np.full(LONGEST - len(last), -1)).astype(np.float32)

    def text_names(self, vocabulary: Vocabulary) -> tuple[Sequence[str], Sequence[str]]:
        return (), [f"symbol {place}" for place in range(LONGEST)]


def _vocabulary(target: Target) -> Vocabulary:
    return Vocabulary.whole(target.kind)  # languages are called as the targets are
