"""Configs of schema 1, brought up to schema 2.

There, the name of a sketch began with the words of its rewrites, such as "winograd=4 rows=2", and
nothing said what its program does to rounding errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.numerics import Numerics
from loopwright.schedule.sketch.naming import Derivation, SketchName, Step

_STEPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (r"split(\d+)=(\d+)", "rfactor", ("stage", "parts")),
    (r"im2col", "im2col", ()),
    (r"matrix", "ttgt", ()),
    (r"kn2row", "kn2row", ()),
    (r"rows=(\d+)", "padding_at_blocks", ("rows",)),
    (r"edges", "boundary_peeling", ()),
    (r"through=(\d+)", "producer_at_blocks", ("rows",)),
    (r"unpadded", "predicated_padding", ()),
    (r"clamped", "clamped_padding", ()),
    (r"strassen=(\d+) rows=(\d+)", "strassen", ("levels", "rows")),
    (r"winograd=(\d+) rows=(\d+)", "winograd", ("results", "rows")),
    (r"winograd=(\d+) tiles=(\d+)", "winograd", ("results", "tiles")),
    (r"winograd=(\d+)", "winograd", ("results",)),
    (r"phases=(\d+)", "winograd_by_phase", ("results",)),
    (r"fixed=24", "int24_weights", ()),
    (r"sparse=(\d+)", "activation_sparsity", ("depth",)),
)
"""The words that a name began with, and the step that each of them is now."""


def sketch_name(old: str) -> SketchName:
    """The name of a sketch of schema 1."""
    steps: list[Step] = []
    rest = old
    while True:
        for pattern, rewrite, names in _STEPS:
            found = re.match(rf"{pattern} ", rest)
            if found:
                values = map(int, found.groups())
                steps.append(Step(rewrite, tuple(zip(names, values, strict=True))))
                rest = rest[found.end() :]
                break
        else:
            return SketchName(Derivation(tuple(steps)), rest)


def numerics_of(derivation: Derivation) -> Numerics:
    """Numerics of a derivation by its rewrites. Raises `ConfigError` for a damaged one."""
    word = Numerics.STRICT
    for step in derivation.steps:
        if step.rewrite in ("strassen", "winograd_by_phase", "int24_weights"):
            return Numerics.FAST
        if step.rewrite == "winograd":
            word = Numerics.STANDARD
            results = dict(step.parameters).get("results")
            if results is None:
                raise ConfigError("a damaged derivation: winograd has no parameter results")
            if results > 2:
                return Numerics.FAST
    return word


def config_json(old: Mapping[str, Any]) -> dict[str, Any]:
    """A config's JSON of schema 1 in today's form. Raises `ConfigError` for damaged ones."""
    if not isinstance(old, Mapping) or not isinstance(old.get("sketch"), str):
        raise ConfigError(f"a damaged config: it has no sketch in {old!r}")
    name = sketch_name(old["sketch"])
    return {"derivation": name.derivation.to_json(), **old, "sketch": name.structure}
