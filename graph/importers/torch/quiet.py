"""What torch says beside its errors, hidden or left out."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any


@contextmanager
def quiet(least: int, *names: str) -> Iterator[None]:
    """Hide what loggers of these names say below the level `least`."""
    logs = [logging.getLogger(name) for name in names]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(least)
    try:
        yield
    finally:
        for log, level in zip(logs, levels):
            log.setLevel(level)


def fake_tensors_quiet() -> AbstractContextManager[None]:
    """Hide what torch says of operators that do not take some sizes, and of places in a user's
    code that it does not find: an error says it, too."""
    names = ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")
    return quiet(logging.CRITICAL, *names)


def decomposed(program: Any, *table: Any) -> Any:
    """A program of torch.export by simpler operators. Torch copies what it itself calls outdated,
    and warns of that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return program.run_decompositions(*table)


@contextmanager
def without_graph() -> Iterator[None]:
    """Keep torch.export from printing the graph that it has made where it fails."""
    from torch.export import _trace

    vars(_trace)["print"] = lambda *args, **how: None
    try:
        yield
    finally:
        vars(_trace).pop("print", None)


@contextmanager
def suggesting() -> Iterator[None]:
    """Let torch.export leave out what it suggests of sizes, where it fails to: a quotient of a
    size that may be 1 alone is no `Dim`, and an error even where nothing is to be told."""
    from torch.fx.experimental.symbolic_shapes import DimConstraints

    name = "_process_derived_dim_roots"
    whole = getattr(DimConstraints, name, None)  # None in another version of torch

    def some(*args: Any) -> None:
        with suppress(AssertionError):
            whole(*args)  # type: ignore[misc]

    if whole is not None:
        setattr(DimConstraints, name, some)
    try:
        yield
    finally:
        if whole is not None:
            setattr(DimConstraints, name, whole)
