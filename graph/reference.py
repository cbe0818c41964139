"""What a torch program gives for its example inputs, to find what TVM imports wrongly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.graph.errors import ModelError

_CLOSE = 1e-2
"""Of the largest value of an output: more than rounding, less than another operator."""
_HALVES = 0.1


@dataclass(frozen=True)
class Reference:
    """Example inputs of a torch program, in order and by name, and what they give."""

    inputs: tuple[Any, ...]
    words: Mapping[str, Any]
    outputs: list[Any]

    @staticmethod
    def of(program: Any) -> Reference | None:
        """Runs the program in torch; None if it has no example inputs."""
        import torch

        if program.example_inputs is None:
            return None
        inputs, words = program.example_inputs
        with torch.no_grad():
            return Reference(inputs, words, _leaves(program.module()(*inputs, **words)))

    def check(self, model: Callable[..., Any]) -> None:
        """Raises `ModelError` if a compiled model gives something else. Integers may differ, as
        those that tell the place of the largest do where there are several."""
        made = _leaves(model(*self.inputs, **self.words))
        if len(made) != len(self.outputs):
            raise _wrong(f"it has {len(made)} outputs, not {len(self.outputs)}")
        for number, (got, wanted) in enumerate(zip(made, self.outputs, strict=True)):
            for what, a, b in (
                ("shape", got.shape, wanted.shape),
                ("type", got.dtype, wanted.dtype),
            ):
                if a != b:
                    raise _wrong(f"output {number} is of {what} {a}, not {b}")
            if wanted.dtype.is_floating_point:
                _check_close(number, got, wanted)


def _check_close(number: int, got: Any, wanted: Any) -> None:
    close = _HALVES if wanted.dtype.itemsize < 4 else _CLOSE
    a, b = (np.asarray(x.detach().cpu().double()) for x in (got, wanted))
    finite = np.isfinite(b)
    same = np.array_equal(a[~finite], b[~finite], equal_nan=True)
    error = np.abs(a[finite] - b[finite]).max(initial=0.0)
    scale = np.abs(b[finite]).max(initial=0.0)
    if not same or not error <= close * max(scale, 1e-6):
        raise _wrong(f"output {number} is off by {error:.2g}, its largest value is {scale:.2g}")


def _wrong(what: str) -> ModelError:
    return ModelError(
        f"compiled, the model gives other results than in torch for its example inputs: {what}. "
        "TVM reads one of its operators in another way: say it by others, or give the model as "
        "ONNX (torch.onnx.export); a model in another type than float32 by .float()"
    )


def _leaves(outputs: Any) -> list[Any]:
    import torch
    from torch.utils import _pytree

    return [torch.as_tensor(x) for x in _pytree.tree_leaves(outputs)]
