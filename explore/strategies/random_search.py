"""Random search: the baseline that every learned strategy has to beat."""

from __future__ import annotations

from loopwright.explore.strategies.encoded_space import Points
from loopwright.explore.strategies.strategy import Strategy


class RandomSearch(Strategy):
    """New points, drawn evenly over sketches, and then over the choices of each knob."""

    def _propose(self, n: int) -> Points:
        return self.encoded.fresh(n, self.seen, self.rng)
