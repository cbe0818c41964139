"""Result of a search on several devices."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from loopwright.codegen.either import Either, either
from loopwright.dsl.words import html_table
from loopwright.explore.tuned import Tuned


@dataclass(frozen=True)
class EitherTuned:
    """What `tune` found on the processor and on a GPU.

    Attributes
    ----------
    parts: the results by target, such as "cpu" and "opencl".
    """

    parts: Mapping[str, Tuned]

    @functools.cached_property
    def library(self) -> Either:
        """One callable, which runs each call where it is predicted to end first."""
        cpu, gpu = self.parts.values()
        return either(cpu=cpu.library, gpu=gpu.library)

    def __str__(self) -> str:
        return "\n".join(f"{target}: {tuned}" for target, tuned in self.parts.items())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table("EitherTuned", self.parts)
