"""Sources as symbols, with the numbers that are known beside them."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.costmodel.model import Floats, Integers
from loopwright.costmodel.source.tokens import Vocabulary


class Batch:
    """Sources as models read them: `size` counts the symbols with the unknown one, and `auxiliary`
    is of shape (sources, columns), float64."""

    def __init__(self, sources: Sequence[str], vocabulary: Vocabulary, auxiliary: Floats) -> None:
        self._sources, self._vocabulary = sources, vocabulary
        self.size, self.auxiliary = len(vocabulary.symbols) + 1, auxiliary

    def counts(self) -> Floats:
        """Counts of each symbol in each source: (sources, size)."""
        return self._vocabulary.count(self._sources)

    def sequences(self) -> list[Integers]:
        """Numbers of the symbols of each source."""
        return [self._vocabulary.encode(source) for source in self._sources]
