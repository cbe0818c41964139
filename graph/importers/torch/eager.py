"""What a torch module gives at some sizes, and whether a program that was traced of it agrees."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from loopwright.dsl.size import Dim, extent_at, named
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.words import assigned
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.inputs import Inputs, reason
from loopwright.graph.importers.reference import Reference, closeness
from loopwright.graph.importers.torch.layers import has_layers
from loopwright.graph.importers.torch.program import as_torch, example_of, inferring
from loopwright.packages import torch

Differs = Callable[[Mapping[str, int]], str]
"""How a program differs at some sizes from its module, in words; nothing where it does not."""

_CLOSE = 1e-4
"""Share of an output's largest value: both are computed by torch."""
_MIDDLE = 7  # of the sizes of a dim, where another one is the least
_WHOLE = (1, 0)
"""Integers that are tried in this order: lengths are not 0, and places in one row are."""
_FAILS = "the module fails"
_FAILURES = (RuntimeError, ValueError, TypeError, IndexError, AssertionError, ArithmeticError)
_NUMBER = "where Python makes a number of a size, as int(n * 0.5) does, write n // 2"
_DIFFERS = (
    "what torch.export traces of the model gives other results than the model, which asks "
    "whether it is traced, as by torch.compiler.is_compiling(), or keeps something from call to "
    "call, as a counter: have it do the same in both cases, take what it keeps as an input and "
    "return the new value, or build what torch.export.export(…) makes of it"
)
_Given = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments of a module, in order and by name."""


@dataclass(frozen=True, eq=False)
class BesideModule:
    """An open program beside the module that it was traced of, the same for one that a user has
    exported. Its inputs are tensors of the notation, or what is given for those of fixed shape."""

    model: Any
    program: Any
    inputs: Inputs

    def differs(self, sizes: Mapping[str, int]) -> str:
        """How the program differs from its module, whatever it asserts. What a user has exported
        has no module: its assertions have to hold."""
        if self.model is self.program:
            return "there is no module"
        found = ""
        for whole in _WHOLE:
            given = self._given(sizes, whole)
            try:
                outputs = self._outputs(given)
            except _FAILURES as error:
                found = found or f"{_FAILS} ({reason(error).splitlines()[0]})"
                continue
            agrees = self._agrees(given, outputs, closeness(self.program, _CLOSE))
            return "" if agrees else "the module does something else"
        return found

    def check_examples(self) -> None:
        """Raises `ModelError` where a program of fixed shapes gives something else than its module
        for the example inputs, or after these for others: a module may ask whether it is traced,
        or keep something from call to call."""
        given, close = self.program.example_inputs, closeness(self.program)
        others = torch.utils._pytree.tree_map(_turned, given)
        for each in (given, others):
            try:
                outputs = self._outputs(each)
            except _FAILURES:
                return
            if not self._agrees(each, outputs, close):
                raise ModelError(_DIFFERS)

    def reference_at(self, sizes: Mapping[str, int]) -> Reference | str:
        """What the module gives at some sizes; why it gives nothing, if it does not. Raises
        `ModelError` where the program gives something else."""
        failure, close = "", closeness(self.program)
        for whole in _WHOLE:
            try:
                given = self._given(sizes, whole)
                outputs = self._outputs(given)
            except (ModelError, *_FAILURES) as error:
                failure = f"torch fails at {assigned(sizes)}: {reason(error).splitlines()[0]}"
                continue
            if self.model is not self.program and not self._agrees(given, outputs, close):
                raise ModelError(_for_some(sizes, "the module gives something else"))
            leaves = torch.utils._pytree.tree_leaves(given)
            tensors = [x.clone() for x in leaves if isinstance(x, torch.Tensor)]
            return Reference("torch", tensors, outputs, close)
        return failure

    @functools.cached_property
    def _traced(self) -> Any:
        """The program without its assertions."""
        made = self.program.module(check_guards=False)
        if self.model is not self.program:
            made.validate_inputs = False  # which takes no n for 0 where an extent is n + 1
            graphs = [m for m in made.modules() if hasattr(m, "graph")]  # as under autocast
            for each in graphs:
                for node in [*each.graph.nodes]:
                    if node.target is torch.ops.aten._assert_scalar.default:
                        each.graph.erase_node(node)
                each.recompile()
        return made

    def _given(self, sizes: Mapping[str, int], whole: int) -> _Given:
        """Arguments, integers among them `whole`."""

        def example(x: Any) -> Any:
            if isinstance(x, Tensor):
                return example_of(x, [extent_at(n, sizes) for n in x.shape or ()], whole)
            return as_torch(x)

        args, words = tuple(self.inputs or ()), {}
        if isinstance(self.inputs, Mapping):  # in the program's order
            args, words = (), {name: self.inputs[name] for name in self.program.example_inputs[1]}
        given: _Given = torch.utils._pytree.tree_map(example, (args, words))
        return given

    def _outputs(self, given: _Given) -> list[Any]:
        if self.model is self.program:
            return _called(self._traced, given)
        with inferring(self.model), _by_operators(self.program):
            return _called(self.model, given)

    def _agrees(self, given: _Given, outputs: list[Any], close: float) -> bool:
        found = Reference("torch", (), outputs, close)
        try:
            found.check(functools.partial(_called, self._traced, given))
        except (ModelError, *_FAILURES):
            return False
        return True


def _turned(x: Any) -> Any:
    """An example input with other numbers, the same ones in reverse; all but floats stay."""
    is_real = isinstance(x, torch.Tensor) and x.is_floating_point()
    return x.flip([*range(x.dim())]) if is_real else x


@contextmanager
def _by_operators(program: Any) -> Iterator[None]:
    """Have layers of transformers compute by the operators that were traced: as one operator of
    torch's, their results have other types under autocast."""
    usual = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(usual and has_layers(program))
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(usual)


def _called(module: Any, given: _Given) -> list[Any]:
    """The results of a module, which may write to buffers and inputs."""
    args, words = torch.utils._pytree.tree_map(_copied, given)
    buffers = {name: _copied(x) for name, x in module.named_buffers()}
    with torch.no_grad():
        results = torch.func.functional_call(module, buffers, args, words)
    return [torch.as_tensor(x) for x in torch.utils._pytree.tree_leaves(results) if x is not None]


def _copied(x: Any) -> Any:
    return x.detach().clone() if hasattr(x, "detach") else x


def _for_some(sizes: Mapping[str, int], found: str) -> str:
    """Error where a program differs from its module at sizes that are not the least."""
    return (
        f"torch.export traces the model for some sizes alone: at {assigned(sizes)} {found}: build "
        f"the model for each size; {_NUMBER}"
    )


def check_least(dims: Sequence[Dim], differs: Differs) -> None:
    """Raises `ModelError` where a program differs from its module at the least sizes: torch takes
    a size, and what follows from sizes, for greater than 1, and asserts it nowhere."""
    lines = [d.values[:_MIDDLE] for d in dims]
    few = [[*dict.fromkeys((line[-1], *line[:2]))] for line in lines]
    for number, each in enumerate(itertools.product(*few)):
        sizes = named(dims, each)
        least = [d for d in dims if sizes[d.name] == d.low < d.high]
        found = differs(sizes) if least or not number else ""
        if found.startswith(_FAILS) and not number:
            return  # it takes no integers like ours, so that nothing can be compared
        if found and not least:
            raise ModelError(_for_some(sizes, found))
        if found:
            known = least[0]
            raise ModelError(
                f"torch.export traces the model for extents greater than 1, and at "
                f"{assigned(sizes)} {found}: let {known.name} begin with "
                f"{known.low + known.multiple}, and build the model for {known.low} by itself; "
                f"{_NUMBER}"
            )
