"""Torch's tensors where a model is called: taken in as arrays, and given back."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from loopwright.dsl.dtypes import numpy_dtype
from loopwright.dsl.errors import ShapeError
from loopwright.dsl.words import brief


def any_tensor(inputs: Iterable[Any]) -> bool:
    """Return whether an input is a tensor of torch's, which is never imported for this."""
    torch = sys.modules.get("torch")
    if torch is not None:
        for x in inputs:  # any() takes twice as long, and torch's own test is slow
            if type(x) is not np.ndarray and isinstance(x, torch.Tensor):
                return True
    return False


def to_numpy(x: Any) -> Any:
    """A tensor without its history, as an array on its memory where that is the processor's;
    anything else as it is. Raises `ShapeError` for a tensor that no array can be."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor):
        return x
    try:
        return on_memory(x.cpu())
    except (RuntimeError, TypeError) as error:  # of sparse ones, say, or of types of its own
        raise ShapeError(
            f"{brief(x)}, {x.dtype} on {x.device}, is no dense array of numbers: {error}"
        ) from error


def given_back(results: tuple[Any, ...], inputs: Iterable[Any]) -> Any:
    """The results of a call, as tensors of torch's where an input is one; one of them alone."""
    if any_tensor(inputs):
        results = tuple(map(to_torch, results))
    return results[0] if len(results) == 1 else results


def on_memory(tensor: Any) -> Any:
    """A tensor without its history, as an array on its memory. Raises `RuntimeError` or
    `TypeError` where torch has no such array.

    DLPack asks less: it hands out a tensor that is negated only when read, and a fake one.
    """
    torch = sys.modules["torch"]
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:  # NumPy knows no such type of torch's
        return tensor.view(torch.int16).numpy().view(numpy_dtype("bfloat16"))
    return tensor.numpy()


def to_torch(x: Any) -> Any:
    """A NumPy array as a tensor on its memory."""
    torch = sys.modules["torch"]
    if x.dtype == numpy_dtype("bfloat16"):  # torch knows no such type of NumPy's
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)
