"""Sketches of a space by the rewrites that derive their programs."""

from collections.abc import Iterable

from loopwright.schedule.sketch.naming import Derivation, SketchName
from loopwright.schedule.sketch.sketch import Sketch


def direct(structure: str) -> SketchName:
    """The name of a sketch of the definition's own loops."""
    return SketchName(Derivation(), structure)


def derived(sketches: Iterable[Sketch], *rewrites: str) -> list[Sketch]:
    """The sketches of programs that just these rewrites derive; none for the definition's own."""
    return [s for s in sketches if s.derivation.names == rewrites]


def of_each_program(sketches: Iterable[Sketch]) -> dict[str, Sketch]:
    """A sketch of each program, by its derivation."""
    return {str(s.derivation): s for s in sketches}
