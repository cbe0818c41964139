"""Whether a program that was traced of a torch module gives what the module itself gives."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loopwright.dsl.size import Dim, extent_at
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.words import assigned
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.inputs import Inputs, reason
from loopwright.graph.importers.reference import Reference
from loopwright.graph.importers.torch.program import as_torch, example_of, inferring

Differs = Callable[[Mapping[str, int]], str]
"""How a program differs at some sizes from its module, in words; nothing where it does not."""

_CLOSE = 1e-4
"""Share of an output's largest value: both are computed by torch."""
_MIDDLE = 7  # of the sizes of a dim, where another one is the least
_WHOLE = (1, 0)
"""Integers that are tried in this order: lengths are not 0, and places in one row are."""
_FAILS = "the module fails"
_FAILURES = (RuntimeError, ValueError, TypeError, IndexError, AssertionError, ArithmeticError)


def beside_module(model: Any, program: Any, inputs: Inputs) -> Differs:
    """How an open program differs from its module, whatever the program asserts. What a user has
    exported has no module: its assertions have to hold."""
    import torch

    @functools.cache
    def traced() -> Any:
        made = program.module(check_guards=False)
        for node in [*made.graph.nodes]:
            if node.target is torch.ops.aten._assert_scalar.default:
                made.graph.erase_node(node)
        made.recompile()
        return made

    def called(module: Any, sizes: Mapping[str, int], whole: int) -> Any:
        """The results of a module, which may write to buffers and inputs."""

        def example(x: Any) -> Any:
            if isinstance(x, Tensor):
                return example_of(x, [extent_at(n, sizes) for n in x.shape or ()], whole)
            return x if x is None else as_torch(x).clone()

        given = torch.utils._pytree.tree_map(example, inputs)
        buffers = {name: x.detach().clone() for name, x in module.named_buffers()}
        args, words = ((), given) if isinstance(given, Mapping) else (tuple(given), {})
        with torch.no_grad():
            return torch.func.functional_call(module, buffers, args, words)

    def differs(sizes: Mapping[str, int]) -> str:
        if model is program:
            return "there is no module"
        found = ""
        for whole in _WHOLE:
            try:
                with inferring(model):
                    wanted = called(model, sizes, whole)
            except _FAILURES as error:
                found = found or f"{_FAILS} ({reason(error).splitlines()[0]})"
                continue
            leaves = torch.utils._pytree.tree_leaves(wanted)
            outputs = [torch.as_tensor(x) for x in leaves if x is not None]
            compute = functools.partial(called, traced(), sizes, whole)
            try:
                Reference("torch", (), outputs, _CLOSE).check(compute)
            except (ModelError, *_FAILURES):
                return "the module does something else"
            return ""
        return found

    return differs


def check_least(dims: Sequence[Dim], differs: Differs) -> None:
    """Raises `ModelError` where a program differs from its module at the least sizes: torch takes
    a size, and what follows from sizes, for greater than 1, and asserts it nowhere."""
    lines = [range(d.low, d.high + 1, d.multiple)[:_MIDDLE] for d in dims]
    few = [[*dict.fromkeys((line[-1], *line[:2]))] for line in lines]
    for number, each in enumerate(itertools.product(*few)):
        sizes = dict(zip((d.name for d in dims), each))
        least = [d for d in dims if sizes[d.name] == d.low < d.high]
        found = differs(sizes) if least or not number else ""
        if found.startswith(_FAILS) and not number:
            return  # it takes no integers like ours, so that nothing can be compared
        if found:
            known = (least or dims)[0]
            raise ModelError(
                f"torch.export traces the model for extents greater than 1, and at "
                f"{assigned(sizes)} {found}: let {known.name} begin with "
                f"{known.low + known.multiple}, and build the model for {known.low} by itself"
            )
