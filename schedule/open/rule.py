"""The choice of a program by the sizes of a call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """A program, by its number, for the sizes of a box: the least and the greatest of each dim."""

    bounds: tuple[tuple[int, int], ...]
    program: int

    def holds(self, sizes: Sequence[int]) -> bool:
        """Return whether the sizes, in the order of the dims, are in the box."""
        return all(low <= s <= high for s, (low, high) in zip(sizes, self.bounds, strict=True))

    def box(self, names: Iterable[str]) -> str:
        """The box in words, by the names of the dims: `n from 1 to 8`."""
        ends = zip(names, self.bounds, strict=True)
        return ", ".join(f"{name} from {low} to {high}" for name, (low, high) in ends)
