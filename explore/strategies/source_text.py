"""Features of programs from their text, made one by one: for a few hundred, not for thousands."""

from __future__ import annotations

import numpy as np

from loopwright.costmodel.features.batch_arithmetic import Array
from loopwright.costmodel.features.representation import Numbers, Representation
from loopwright.costmodel.features.selection import SELECTION_FEATURES, selection_features
from loopwright.costmodel.model import ModelError
from loopwright.costmodel.source.tokens import Vocabulary
from loopwright.costmodel.source.words import LANGUAGES
from loopwright.dsl.errors import BuildError
from loopwright.schedule.lowering import lower
from loopwright.schedule.space import Space
from loopwright.schedule.target import Target


class SourceText(Representation):
    """Counts of the symbols of a program's text, and the 28 numbers of `selection` beside them.

    Texts are those that are compiled, without what all programs have. Nothing is compiled. A
    program that cannot be written has NaN in all columns.
    """

    @classmethod
    def of(cls, space: Space) -> SourceText:
        """The representation of a space whose programs have a text; `ModelError` for another."""
        if not space.sketches[0].has_loops:
            raise ModelError('a table of known costs has no programs to read: give model="gbt"')
        _vocabulary(space.target)
        return cls()

    def features(self, space: Space, sketch: int, numbers: Numbers) -> Array:
        from loopwright.codegen.build import Program, program_text

        target, chosen = space.target, space.sketches[sketch]
        vocabulary = _vocabulary(target)
        made = np.full((len(numbers), len(self.names(space))), np.nan, np.float32)
        if not len(numbers):
            return made
        trees = lower(chosen, target, numbers)
        for place, choices in enumerate(numbers):
            tree = trees.row(place)
            try:
                text = program_text(Program(space.workload, target, chosen.at(choices), tree))
            except BuildError:
                continue
            exact = np.log2(1 + selection_features(tree, target))
            made[place] = np.concatenate([vocabulary.count([text])[0], exact])
        return made

    def names(self, space: Space) -> tuple[str, ...]:
        symbols = _vocabulary(space.target).symbols
        return ("unknown", *(f"symbol {s!r}" for s in symbols), *SELECTION_FEATURES)


def _vocabulary(target: Target) -> Vocabulary:
    if target.kind not in LANGUAGES:  # which are called as the targets are
        raise ModelError(
            f'model="source" reads the text of programs, and those for target {target.kind!r} '
            'have none: give target="c", "opencl" or "cuda", or another model'
        )
    return Vocabulary.whole(target.kind)
