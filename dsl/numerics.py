"""Numerics: what the user allows a program to do to rounding errors.

====================  ============================================================================
"strict"              The definition's own products and sums, in any order. At every result the
                      error is within the bound of the direct sum, and infinities and NaN are where
                      the definition has them.
"standard"            Also rewrites within 4 times that bound, where inside of a convolution's
                      window the largest element of a channel may stand for the channel. Reduction
                      axes may be scaled against each other at will.
"fast"                Everything. Errors are bounded by the largest terms of a sum. Besides, data
                      under about 1e-26 may count as nothing, sums of terms over about 1e28 may
                      overflow, and a value that is no number may reach the rows beside its own.
====================  ============================================================================
"""

from __future__ import annotations

import enum

from loopwright.dsl.errors import ConfigError

BOUND = 4.0
"""Error under "standard", at most, as a multiple of the direct sum's bound."""


class Numerics(enum.IntEnum):
    """A word of the table above; each allows all that the words before it allow."""

    STRICT = 0
    STANDARD = 1
    FAST = 2

    @staticmethod
    def of(word: str | Numerics) -> Numerics:
        """The numerics of a word. Raises `ConfigError` for another."""
        if isinstance(word, Numerics):
            return word
        found = {str(n): n for n in Numerics}.get(word) if isinstance(word, str) else None
        if found is None:
            words = ", ".join(f'"{n}"' for n in Numerics)
            raise ConfigError(f"numerics = {word!r}: use one of {words}")
        return found

    def __str__(self) -> str:
        return self.name.lower()
