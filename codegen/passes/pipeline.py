"""Pass lists as text: LLVM's pipeline, and switches behind it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from loopwright.dsl.errors import BuildError

DEFAULT = "default<O3>"
"""The passes that LLVM runs on TVM's IR where no list is given."""
_WORD = re.compile(r"[\w\-.<>(),;=:*]+")


@dataclass(frozen=True)
class Pipeline:
    """Passes in the syntax of `opt -passes=…`, such as "default<O3>,function(gvn)", and switches
    of `opt` and `llc`, such as "-disable-lsr"."""

    passes: str = DEFAULT
    switches: tuple[str, ...] = ()

    @staticmethod
    def of(text: str) -> Pipeline:
        """Read a list and switches apart by blanks; without a list it is `DEFAULT`.

        Raises `BuildError` for anything that is neither.
        """
        words = text.split() if isinstance(text, str) else []
        switches = tuple(w for w in words if w.startswith("-"))
        passes = [w for w in words if not w.startswith("-")]
        if not words or len(passes) > 1 or not all(map(_WORD.fullmatch, words)):
            raise BuildError(
                f"passes={text!r}: give one list without blanks, as of opt -passes, or switches "
                'that begin with "-", or both: "default<O3>,function(gvn) -disable-lsr"'
            )
        return Pipeline(passes[0] if passes else DEFAULT, switches)

    def __str__(self) -> str:
        return " ".join((self.passes, *self.switches))
