"""Constants of a program: what is known before any call, and what follows from it alone."""

from __future__ import annotations

from loopwright.dsl.workload import Workload
from loopwright.schedule.program.nest import reads_of
from loopwright.schedule.program.plan import FusionGroup


def constants_of(workload: Workload, groups: tuple[FusionGroup, ...]) -> frozenset[str]:
    """The constants, and every tensor that follows from constants alone, outputs excepted."""
    known = {t.name for t in workload.constants}
    outputs = {t.name for t in workload.outputs}
    sources = reads_of(n for group in groups for n in group.nests)
    for group in groups:
        made = {n.out.name for n in group.nests}
        names = set().union(*(sources[name] for name in made))
        # Without a constant, nothing is prepared, not even what is made of numbers alone.
        if known and names and names <= known | made and not made & outputs:
            known |= made
    return frozenset(known)
