"""What a torch module gives at some sizes, and whether a program that was traced of it agrees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.dsl.size import Dim, extent_at
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.words import assigned
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.inputs import Inputs, reason
from loopwright.graph.importers.reference import Reference
from loopwright.graph.importers.torch.program import example_of, inferring

_CLOSE = 1e-4
"""Share of an output's largest value: both are computed by torch."""
_Given = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments of a module, in order and by name."""
_FAILURES = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)
_MIDDLE = 7  # of the sizes of a dim, where another one is 1


def agrees(model: Any, program: Any, inputs: Inputs, sizes: Mapping[str, int]) -> bool:
    """Return whether an open program computes at some sizes what its module does, whatever the
    program asserts. What a user has exported has no module: its assertions have to hold."""
    if model is program:
        return False
    given = _examples(program, inputs, sizes, 1)
    try:
        return _same(program, given, _outputs(model, given), _CLOSE)
    except _FAILURES:
        return False


def reference_at(
    model: Any, program: Any, inputs: Inputs, sizes: Mapping[str, int]
) -> Reference | str:
    """What a torch module gives at some sizes, or an open program that a user has exported; why
    it gives nothing, if it does not. Raises `ModelError` where the program that was traced of a
    module gives something else."""
    import torch

    failure = ""
    for integers in (2, 1):  # some modules take no number but 0
        given = _examples(program, inputs, sizes, integers)
        tensors = [x for x in torch.utils._pytree.tree_leaves(given) if hasattr(x, "detach")]
        try:
            if model is program:
                outputs = _leaves(_called(program.module(check_guards=False), given))
            else:
                outputs = _outputs(model, given)
        except _FAILURES as error:
            failure = f"torch fails at {assigned(sizes)}: {reason(error).splitlines()[0]}"
            continue
        if model is not program and not _same(program, given, outputs):
            raise ModelError(
                f"torch.export traces the model for some sizes alone: at {assigned(sizes)} the "
                "module gives something else. Python may have made a number of a size, as "
                "int(n * 0.5) does: write n // 2, or build the model for each size"
            )
        return Reference("torch", [_copied(x) for x in tensors], outputs)
    return failure


def _same(program: Any, given: _Given, outputs: list[Any], *close: float) -> bool:
    """Return whether a program gives certain outputs, whatever it asserts."""
    import torch

    traced = program.module(check_guards=False)
    for node in [*traced.graph.nodes]:
        if node.target is torch.ops.aten._assert_scalar.default:
            traced.graph.erase_node(node)
    traced.recompile()
    found = Reference("torch", (), outputs, *close)
    try:
        found.check(lambda: _called(traced, given))
    except (ModelError, *_FAILURES):
        return False
    return True


def _examples(program: Any, inputs: Inputs, sizes: Mapping[str, int], integers: int) -> _Given:
    """Arguments of a module, in the order of its program: random numbers in place of tensors of
    the notation; of integers such below a number."""
    import torch

    rng = np.random.default_rng(0)

    def example(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        made = example_of(x, shape := [extent_at(n, sizes) for n in x.shape or ()])
        if made.dtype.is_floating_point:
            return made
        return torch.as_tensor(rng.integers(0, integers, shape)).to(made.dtype)

    if isinstance(inputs, Mapping):
        _, words = program.example_inputs
        return (), {name: example(inputs[name]) for name in words}
    return tuple(map(example, inputs or ())), {}


def _outputs(model: Any, given: _Given) -> list[Any]:
    with inferring(model):
        return _leaves(_called(model, given))


def _called(module: Any, given: _Given) -> Any:
    """The results of a module, which may write to buffers and inputs."""
    import torch

    args, words = torch.utils._pytree.tree_map(_copied, given)
    buffers = {name: _copied(x) for name, x in module.named_buffers()}
    with torch.no_grad():
        return torch.func.functional_call(module, buffers, args, words)


def _leaves(results: Any) -> list[Any]:
    import torch

    leaves = torch.utils._pytree.tree_leaves(results)
    return [torch.as_tensor(x) for x in leaves if x is not None]


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
