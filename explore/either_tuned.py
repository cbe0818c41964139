"""Result of a search on several devices."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from loopwright.codegen.either.fixed import Either
from loopwright.codegen.either.join import either
from loopwright.codegen.either.open import OpenEither
from loopwright.dsl.words import html_table
from loopwright.explore.open.tuned import OpenTuned
from loopwright.explore.tuned import Tuned


@dataclass(frozen=True)
class EitherTuned:
    """Results of `tune` on the processor and on a GPU: `parts` by target, such as "opencl", or of
    a workload with dims by target and size, such as "opencl n=128"."""

    parts: Mapping[str, Tuned | OpenTuned]

    @functools.cached_property
    def library(self) -> Either | OpenEither:
        """One callable, which runs each call where it is predicted to end first."""
        cpu, *gpus = (part.library for part in self.parts.values())
        made = either(cpu=cpu, gpu=gpus)
        assert isinstance(made, Either | OpenEither), "networks alone are placed"
        return made

    def __str__(self) -> str:
        return "\n".join(f"{target}: {tuned}" for target, tuned in self.parts.items())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table("EitherTuned", self.parts)
