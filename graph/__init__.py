"""Whole models: ONNX, torch and Relax in, tuning tasks, and the tuned module out."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopwright.graph.build import build_model
    from loopwright.graph.compile.model import TunedModel
    from loopwright.graph.compile.relax_pass import apply, lower
    from loopwright.graph.importers.tir import from_tir
    from loopwright.graph.tuning.tune import tune_model

# All of it needs TVM, which takes its time to import.
_LATER = {
    "TunedModel": "compile.model",
    "apply": "compile.relax_pass",
    "build_model": "build",
    "from_tir": "importers.tir",
    "lower": "compile.relax_pass",
    "tune_model": "tuning.tune",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'loopwright.graph' has no attribute {name!r}")
    return getattr(importlib.import_module(f"loopwright.graph.{_LATER[name]}"), name)


__all__ = ["TunedModel", "apply", "build_model", "from_tir", "lower", "tune_model"]
