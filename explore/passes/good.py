"""Lists that served many kernels, to begin a search with."""

from __future__ import annotations

from loopwright.codegen.passes.table import PIPELINES, Elements

GOOD: tuple[Elements, ...] = tuple((one,) for one in PIPELINES)
"""Lists in the order in which they come."""
