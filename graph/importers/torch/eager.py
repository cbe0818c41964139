"""Whether a program that was traced of a torch module gives what the module itself gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loopwright.dsl.size import Dim, extent_at
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.words import assigned
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.inputs import Inputs
from loopwright.graph.importers.reference import Reference
from loopwright.graph.importers.torch.program import example_of, inferring

_CLOSE = 1e-4
"""Share of an output's largest value: both are computed by torch."""
_MIDDLE = 7  # of the sizes of a dim, where another one is 1


def agrees(model: Any, program: Any, inputs: Inputs, sizes: Mapping[str, int]) -> bool:
    """Return whether an open program computes at some sizes what its module does, whatever the
    program asserts. What a user has exported has no module: its assertions have to hold."""
    import torch

    if model is program:
        return False

    def example(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        return example_of(x, [extent_at(n, sizes) for n in x.shape or ()])

    def called(module: Any) -> Any:
        """The results of a module, which may write to buffers and inputs."""
        words = inputs if isinstance(inputs, Mapping) else {}
        args = () if isinstance(inputs, Mapping) or inputs is None else inputs
        copies = tuple(_copied(example(x)) for x in args)
        named = {name: _copied(example(x)) for name, x in words.items()}
        buffers = {name: _copied(x) for name, x in module.named_buffers()}
        with torch.no_grad():
            return torch.func.functional_call(module, buffers, copies, named)

    traced = program.module(check_guards=False)
    for node in [*traced.graph.nodes]:
        if node.target is torch.ops.aten._assert_scalar.default:
            traced.graph.erase_node(node)
    traced.recompile()
    try:
        with inferring(model):
            wanted = called(model)
        leaves = torch.utils._pytree.tree_leaves(wanted)
        outputs = [torch.as_tensor(x) for x in leaves if x is not None]
        found = Reference("torch", (), outputs, _CLOSE)
        found.check(lambda: called(traced))
    except (ModelError, RuntimeError, ValueError, TypeError, IndexError, AssertionError):
        return False
    return True


def check_ones(dims: Sequence[Dim], agreed: Callable[[Mapping[str, int]], bool]) -> None:
    """Raises `ModelError` where a program does not agree with its module at a size of 1: torch
    takes a size for greater than that, and asserts it nowhere."""
    for known in dims:
        if known.low == 1 < known.high:
            sizes = {d.name: range(d.low, d.high + 1, d.multiple)[:_MIDDLE][-1] for d in dims}
            sizes[known.name] = 1
            if not agreed(sizes):
                raise ModelError(
                    f"torch.export traces the model for sizes from 2 on, and at {assigned(sizes)} "
                    f"it does something else, or fails: let {known.name} begin with 2, and build "
                    "the model for 1 by itself"
                )


def _copied(x: Any) -> Any:
    return x.detach().clone() if hasattr(x, "detach") else x
