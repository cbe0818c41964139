"""Features of programs from their text, made one by one: for a few hundred, not for thousands."""

from __future__ import annotations

import numpy as np

from loopwright.costmodel.features.batch_arithmetic import Array
from loopwright.costmodel.features.representation import Numbers, Representation
from loopwright.costmodel.features.selection import (
    SELECTION_FEATURES,
    group_size,
    selection_features,
)
from loopwright.costmodel.model import ModelError
from loopwright.costmodel.source.tokens import Vocabulary
from loopwright.costmodel.source.words import LANGUAGES
from loopwright.dsl.errors import BuildError
from loopwright.schedule.lowering import lower
from loopwright.schedule.space import Space
from loopwright.schedule.target import Target

EXACT = (*SELECTION_FEATURES, "group")
"""Columns that are known beside the text: the 28 numbers of `selection`, threads of a block."""


class SourceText(Representation):
    """Counts of each symbol in a program's text, its runs, and what is `EXACT`.

    Numbers are logarithms. Every column comes twice: as it is, and less what it is for the space's
    default config. Texts are those that are compiled, without what all programs have. Nothing is
    compiled. A program that cannot be written has NaN in all columns.
    """

    def __init__(self) -> None:
        self._default: tuple[Space, Array] | None = None

    @classmethod
    def of(cls, space: Space) -> SourceText:
        """The representation of a space whose programs have a text; `ModelError` for another."""
        if not space.sketches[0].has_loops:
            raise ModelError('a table of known costs has no programs to read: give model="gbt"')
        _vocabulary(space.target)
        return cls()

    def features(self, space: Space, sketch: int, numbers: Numbers) -> Array:
        found = self._read(space, sketch, numbers)
        if self._default is None or self._default[0] is not space:
            default = np.array([space.sketches[0].default], np.int64)
            self._default = space, self._read(space, 0, default)
        return np.concatenate([found, found - self._default[1]], axis=1)

    def _read(self, space: Space, sketch: int, numbers: Numbers) -> Array:
        """Columns as they are."""
        from loopwright.codegen.compile import Program, program_text

        target, chosen = space.target, space.sketches[sketch]
        vocabulary = _vocabulary(target)
        made = np.full((len(numbers), len(self._names(space))), np.nan, np.float32)
        if not len(numbers):
            return made
        trees = lower(chosen, target, numbers)
        for place, choices in enumerate(numbers):
            tree = trees.row(place)
            try:
                text = program_text(Program(space.workload, target, chosen.at(choices), tree))
            except BuildError:
                continue
            exact = [*selection_features(tree, target), group_size(tree)]
            counts = [*vocabulary.count([text])[0], *vocabulary.runs(text), *exact]
            made[place] = np.log2(1.0 + np.array(counts))
        return made

    def names(self, space: Space) -> tuple[str, ...]:
        own = self._names(space)
        return (*own, *(f"{name} to default" for name in own))

    def _names(self, space: Space) -> tuple[str, ...]:
        known = ("unknown", *(f"symbol {s!r}" for s in _vocabulary(space.target).symbols))
        return (*known, *(f"{name} run" for name in known), *EXACT)


def _vocabulary(target: Target) -> Vocabulary:
    if target.kind not in LANGUAGES:  # which are called as the targets are
        raise ModelError(
            f'model="source" reads the text of programs, and those for target {target.kind!r} '
            'have none: give target="c", "opencl" or "cuda", or another model'
        )
    return Vocabulary.whole(target.kind)
