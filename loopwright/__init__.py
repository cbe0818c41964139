"""Loopwright: from Einstein notation to the fastest code it can find for the host."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

# In the root of a checkout that is not installed, Python finds this file, but no dependencies.
if importlib.util.find_spec("numpy") is None:
    raise ImportError(
        f"the packages that Loopwright needs are not installed for {sys.executable}, numpy first "
        "of all: `make` installs them into .venv, `pip install -c constraints.txt -e .` in the "
        "checkout's root for this Python"
    )

from loopwright import costmodel, graph
from loopwright.dsl import functions, ops
from loopwright.dsl.errors import LoopwrightError
from loopwright.dsl.functions import *  # noqa: F403 - its `__all__`, which is added below
from loopwright.dsl.index import indices
from loopwright.dsl.ops.einsum import einsum
from loopwright.dsl.padding import pad
from loopwright.dsl.size import dim
from loopwright.dsl.tensor import tensor
from loopwright.dsl.workload import Workload, workload
from loopwright.version import __version__

if TYPE_CHECKING:
    from loopwright.codegen.build import build
    from loopwright.codegen.either.join import either
    from loopwright.codegen.explain import explain
    from loopwright.codegen.explain import space_of as space
    from loopwright.codegen.library.library import Library
    from loopwright.codegen.load import load
    from loopwright.costmodel.source.model import SourceModel
    from loopwright.explore.budget import Interrupted
    from loopwright.explore.passes.tune import tune_passes
    from loopwright.explore.scheduling.environment import ScheduleEnv
    from loopwright.explore.tune import tune
    from loopwright.explore.tune_many import tune_many
    from loopwright.graph.build import build_model
    from loopwright.graph.importers.tir import from_tir
    from loopwright.graph.tuning.tune import tune_model
    from loopwright.measure.nest import nest

# What needs TVM, or is seldom needed, is imported when it is first used.
_LATER = {
    "Interrupted": ("loopwright.explore.budget", "Interrupted"),
    "Library": ("loopwright.codegen.library.library", "Library"),
    "ScheduleEnv": ("loopwright.explore.scheduling.environment", "ScheduleEnv"),
    "SourceModel": ("loopwright.costmodel.source.model", "SourceModel"),
    "build": ("loopwright.codegen.build", "build"),
    "build_model": ("loopwright.graph.build", "build_model"),
    "either": ("loopwright.codegen.either.join", "either"),
    "explain": ("loopwright.codegen.explain", "explain"),
    "from_tir": ("loopwright.graph.importers.tir", "from_tir"),
    "load": ("loopwright.codegen.load", "load"),
    "nest": ("loopwright.measure.nest", "nest"),
    "space": ("loopwright.codegen.explain", "space_of"),
    "tune": ("loopwright.explore.tune", "tune"),
    "tune_many": ("loopwright.explore.tune_many", "tune_many"),
    "tune_model": ("loopwright.graph.tuning.tune", "tune_model"),
    "tune_passes": ("loopwright.explore.passes.tune", "tune_passes"),
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'loopwright' has no attribute {name!r}")
    module, attribute = _LATER[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    """Names for users, lazy ones among them; not the modules that this one imports."""
    return sorted(__all__)


__all__ = [
    "Interrupted",
    "Library",
    "LoopwrightError",
    "ScheduleEnv",
    "SourceModel",
    "Workload",
    "__version__",
    "build",
    "build_model",
    "costmodel",
    "dim",
    "einsum",
    "either",
    "explain",
    "from_tir",
    "graph",
    "indices",
    "load",
    "nest",
    "ops",
    "pad",
    "space",
    "tensor",
    "tune",
    "tune_many",
    "tune_model",
    "tune_passes",
    "workload",
]
__all__ += functions.__all__
