"""Packages that not every user needs: where one is missing, a line tells how to get it."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cached_property
from typing import Any

from loopwright.dsl.errors import LoopwrightError

EXTRAS = {
    "matplotlib": "plots",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "torch",
    "psycopg": "postgresql",
    "pyopencl": "opencl",
    "ray": "ray",
    "tensorboardX": "tensorboard",
    "torch": "torch",
}
"""The extra that brings a package."""


def optional(module: str, user: str, error: type[LoopwrightError]) -> Any:
    """Import a module of an optional package for its `user`, which begins the message.

    Raises `error` where the package is missing or cannot be loaded.
    """
    package = module.partition(".")[0]
    try:
        importlib.import_module(package)
        return importlib.import_module(module)
    except ImportError as cause:
        missing = isinstance(cause, ModuleNotFoundError) and cause.name == package
        why = "" if missing else f" ({cause})"
        raise error(
            f"{user} needs the package {package}: {install(EXTRAS[package])}{why}"
        ) from cause


def install(extra: str) -> str:
    """Command that installs an extra of this package."""
    return f'pip install "loopwright[{extra}]"'


class Later:
    """A module, or what it has behind a colon, that is imported at its first use."""

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def _found(self) -> Any:
        return pkgutil.resolve_name(self._name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)

    def __reduce__(self) -> tuple[type[Later], tuple[str]]:
        return Later, (self._name,)


# Large or optional: to import what may use them takes neither time nor the package.
aten: Any = Later("torch.ops:aten")
functional: Any = Later("torch.nn.functional")
onnx: Any = Later("onnx")
torch: Any = Later("torch")
xgboost: Any = Later("xgboost")
