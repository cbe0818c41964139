"""Lists that a search begins with."""

from __future__ import annotations

from loopwright.codegen.passes.table import PIPELINES, SWITCHES, Elements

GOOD: tuple[Elements, ...] = (
    *((one,) for one in PIPELINES),
    *(("default<O3>", one) for one in SWITCHES),
)
"""LLVM's own lists, and -O3 with each of the switches: what a variation of the best combines."""
