"""Names of programs: the rewrites that derive one from its workload, and its structure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopwright.dsl.errors import ConfigError

_BLOCK_SIZES = ("rows", "tiles")
"""Parameters that say how much is computed at a time, and not how."""


@dataclass(frozen=True)
class Step:
    """One rewrite with its parameters: `Step("winograd", (("results", 4), ("rows", 2)))`."""

    rewrite: str
    parameters: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in self.parameters)
        return f"{self.rewrite}({given})" if given else self.rewrite


@dataclass(frozen=True)
class Derivation:
    """The rewrites that make a program, first to last; none for the definition's own loops."""

    steps: tuple[Step, ...] = ()

    def then(self, rewrite: str, parameters: Mapping[str, int]) -> Derivation:
        """This derivation with one more step."""
        return Derivation((*self.steps, Step(rewrite, tuple(parameters.items()))))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its rewrites."""
        return tuple(step.rewrite for step in self.steps)

    @property
    def algorithm(self) -> Derivation:
        """The derivation without sizes of blocks, which variants of one algorithm differ in."""
        return Derivation(
            tuple(
                Step(s.rewrite, tuple(p for p in s.parameters if p[0] not in _BLOCK_SIZES))
                for s in self.steps
            )
        )

    def to_json(self) -> list[list[Any]]:
        """A list of [name, {parameter: value}]."""
        return [[step.rewrite, dict(step.parameters)] for step in self.steps]

    @staticmethod
    def from_json(data: Sequence[Any]) -> Derivation:
        """Read what `to_json` wrote. Raises `ConfigError` for anything else."""
        try:
            steps = ((str(name), dict(parameters)) for name, parameters in data)
            return Derivation(
                tuple(
                    Step(name, tuple((str(k), int(v)) for k, v in parameters.items()))
                    for name, parameters in steps
                )
            )
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigError(f"a damaged derivation: {error!r} in {data!r}") from error

    def __bool__(self) -> bool:
        return bool(self.steps)

    def __str__(self) -> str:
        return " ".join(map(str, self.steps)) or "direct"


@dataclass(frozen=True)
class SketchName:
    """A sketch's identity within the space of its workload.

    `structure` says every choice by numbers of axes and operands, in the order of the workload's
    canonical form, so that it means the same for equal workloads whatever their names.
    """

    derivation: Derivation
    structure: str

    def __str__(self) -> str:
        return f"{self.derivation} {self.structure}"
