"""Sketches of a space by the rewrites that derive their programs."""

from collections.abc import Iterable, Sequence

import numpy as np

from loopwright.schedule.sketch.naming import Derivation, SketchName
from loopwright.schedule.sketch.sketch import Config, Sketch
from tests.thin import several


def direct(structure: str) -> SketchName:
    """The name of a sketch of the definition's own loops."""
    return SketchName(Derivation(), structure)


def derived(sketches: Iterable[Sketch], *rewrites: str) -> list[Sketch]:
    """The sketches of programs that just these rewrites derive; none for the definition's own."""
    return [s for s in sketches if s.derivation.names == rewrites]


def of_each_program(sketches: Iterable[Sketch]) -> dict[str, Sketch]:
    """A sketch of each program, by its derivation."""
    return {str(s.derivation): s for s in sketches}


def default_configs(sketches: Sequence[Sketch]) -> list[Config]:
    """The default config of the first sketch of each algorithm: of programs that differ in the
    size of their blocks alone, one is tried, and the others are left to `random_configs`."""
    firsts = {str(s.derivation.algorithm): s for s in reversed(sketches)}
    return [s.at(s.default) for s in firsts.values()]


def random_configs(sketches: Sequence[Sketch], count: int) -> list[Config]:
    """Random configs of random sketches, the same ones in every run; one in the fast suite."""
    rng = np.random.default_rng(0)
    chosen = [sketches[rng.integers(len(sketches))] for _ in range(several(count))]
    return [s.at([int(rng.integers(len(k.choices))) for k in s.knobs]) for s in chosen]
