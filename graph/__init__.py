"""Whole models: ONNX, torch and Relax in, tuning tasks, and the tuned module out."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopwright.graph.model import TunedModel, build_model
    from loopwright.graph.relax_pass import apply, lower
    from loopwright.graph.tir import from_tir
    from loopwright.graph.tune import tune_model

# All of it needs TVM, which takes its time to import.
_LATER = {
    "TunedModel": "model",
    "apply": "relax_pass",
    "build_model": "model",
    "from_tir": "tir",
    "lower": "relax_pass",
    "tune_model": "tune",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'loopwright.graph' has no attribute {name!r}")
    return getattr(importlib.import_module(f"loopwright.graph.{_LATER[name]}"), name)


__all__ = ["TunedModel", "apply", "build_model", "from_tir", "lower", "tune_model"]
