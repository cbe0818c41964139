"""`torch.compile(model, backend="loopwright")`."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.codegen.library.torch_tensors import to_torch
from loopwright.dsl.errors import LoopwrightError
from loopwright.dsl.numerics import Numerics
from loopwright.graph.errors import ModelError
from loopwright.graph.torch_open import Calls, OpenAxes, built, built_open
from loopwright.graph.torch_outputs import Outputs
from loopwright.packages import torch
from loopwright.paths import file_at
from loopwright.transfer.records.location import Server, location_of, may_exist

OPTIONS = ("records", "threads", "policy", "layout", "check", "numerics", "sparse")
"""Options that torch.compile(options=…) may have; see `lw.build_model`."""

_MOST = 64
"""Models that a graph is built for: a network's blocks, compiled one by one, are fewer."""
_MOST_SHAPES = 16
"""Shapes of inputs that a graph of open ones is built for."""


def backend(
    graph: Any,
    examples: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph that torch's Dynamo captured, for inference.

    Records come from the store that the options or $LOOPWRIGHT_RECORDS name, by default tuning.db
    where there is one; work without a record of so many threads gets a default schedule, and
    without the option these are all that the process may use. Where the graph cannot be built,
    trains, or writes to what it is given, it runs in torch, which a warning explains.

    Parameters, buffers and other tensors of a model are laid out once; after they have changed,
    the graph runs in torch, and so it does where gradients are wanted, which warnings say. Changes
    through `.data` are noticed where they move a parameter, or change its element of the largest
    magnitude. Others are not: compile anew after them. Where torch gives the graph to other models
    of the same class, it is built for each when that is called first.

    Raises `ModelError`, and torch.compile its own error with the same words, for a mode, and for
    options that are not in `OPTIONS` or have no such value.
    """
    given = dict(options or {})
    unknown = [name for name in given if name not in OPTIONS]
    if unknown or mode not in (None, "default"):
        found = f"option {unknown[0]!r}" if unknown else f"mode={mode!r}"
        raise ModelError(
            f'{found} is nothing that backend="loopwright" knows: give options={{...}} of '
            f"{', '.join(OPTIONS)}"
        )
    _check_values(given)
    with_numbers = _with_numbers(graph)
    examples = with_numbers(examples)
    weights = _static(graph, examples)
    rest = [n for n, x in enumerate(examples) if n not in weights and hasattr(x, "shape")]
    builds = _Shapes(graph, weights, given, any(map(_is_open, examples)))
    only: _Build | None = None
    if not builds.open:
        first = builds.of(examples)
        if isinstance(first, str):
            warnings.warn(first, stacklevel=2)
            forward: Callable[..., Any] = graph.forward
            return forward
        # Without weights and numbers nothing tells calls apart.
        only = None if weights or len(rest) < len(examples) else first
    told: set[str] = set()

    def call(*given: Any) -> Any:
        inputs = with_numbers(given)
        if torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in inputs):
            found: _Build | str = (
                "gradients are wanted, so torch computes: call it under torch.no_grad() for "
                "loopwright's code"
            )
        else:
            found = only or builds.of(inputs)
        if isinstance(found, str):
            if found not in told:
                warnings.warn(found, stacklevel=2)
            told.add(found)
            return graph.forward(*given)
        result = found.model(*(inputs[n] for n in rest))
        results = result if isinstance(result, tuple) else (result,)
        # Without inputs nothing tells that tensors are wanted.
        tensors = [to_torch(x) if isinstance(x, np.ndarray) else x for x in results]
        return found.outputs.of(inputs, tensors)

    return call


@dataclass(frozen=True)
class _Number:
    """A number in place of the tensor as which torch gives a float that may change."""

    value: float

    def item(self) -> float:
        return self.value


def _with_numbers(graph: Any) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Function that puts numbers into the inputs of a graph: one of torch's open graphs has every
    float of a module, such as the epsilon of a norm, as a tensor of which it takes the item."""
    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
    numbers = {
        n
        for n, node in enumerate(nodes)
        if getattr(node.meta.get("example_value"), "shape", None) == ()
        and node.users
        and all(user.op == "call_method" and user.target == "item" for user in node.users)
    }
    if not numbers:
        return lambda inputs: inputs
    return lambda inputs: [_Number(x.item()) if n in numbers else x for n, x in enumerate(inputs)]


class _Left(str):
    """Why torch computes the calls of a model, whatever their shapes."""


@dataclass(frozen=True, eq=False)
class _Build:
    """A graph with the weights of one model in it, and what tells whether these are the same."""

    model: Callable[..., Any]
    seen: Sequence[tuple[int, int, int, memoryview, int]]
    outputs: Outputs

    def changed(self, inputs: Sequence[Any]) -> bool:
        """Return whether a weight is another one than was laid out."""
        return any(
            inputs[n].data_ptr() != pointer or inputs[n]._version != version or largest[()] != bits
            for n, pointer, version, largest, bits in self.seen
        )


class _Shapes:
    """Builds of a graph: one, or where its shapes are open one for all sizes of the axes that
    calls leave open; where that cannot be, one for each of the shapes that it is called with."""

    def __init__(
        self, graph: Any, weights: Sequence[int], options: Mapping[str, Any], is_open: bool
    ) -> None:
        self.open = is_open
        self._calls = Calls(OpenAxes.found(graph) if is_open else None)
        self._new = functools.partial(_Builds, graph, weights, options, self.open)
        self._weights = frozenset(weights)
        self._of: dict[Any, _Builds] = {}

    def of(self, inputs: Sequence[Any]) -> _Build | str:
        """The build for these shapes, and numbers, and the model whose weights are given."""
        axes = self._calls.open_axes(inputs)
        bounds = None if axes is None else axes.bounds(inputs)
        numbers = tuple(x for x in inputs if isinstance(x, _Number))
        if axes is not None and bounds is not None:
            fixed = self._calls.fixed(axes, inputs)
            if (bounds, fixed, numbers) not in self._of:
                self._of[bounds, fixed, numbers] = self._new(axes, bounds)
            found = self._of[bounds, fixed, numbers].of(inputs)
            if not isinstance(found, str) or isinstance(found, _Left):
                return found
            self._calls.failed(axes)  # this shape is built by itself
        key = tuple(
            tuple(x.shape) if hasattr(x, "shape") else x
            for n, x in enumerate(inputs)
            if (self.open and n not in self._weights) or isinstance(x, _Number)
        )
        if key not in self._of:
            if len(self._of) >= _MOST_SHAPES:
                return (
                    f"more than {_MOST_SHAPES} shapes of inputs are called, each of which is "
                    "compiled by itself: torch computes those"
                )
            self._of[key] = self._new()
        return self._of[key].of(inputs)


class _Builds:
    """Builds of a graph: one for every model, since torch gives one graph to all of a class whose
    tensors have the same shapes."""

    def __init__(
        self,
        graph: Any,
        weights: Sequence[int],
        options: Mapping[str, Any],
        is_open: bool,
        axes: OpenAxes | None = None,
        bounds: Sequence[tuple[str, int]] = (),
    ) -> None:
        from torch.utils.weak import WeakTensorKeyDictionary

        self._graph, self._weights, self._options = graph, weights, options
        self._open, self._axes, self._bounds = is_open, axes, bounds
        self._alone: _Build | str | None = None  # of a graph without weights
        # By each weight of its model, so that a build is gone when they all are.
        self._of: MutableMapping[Any, _Build | str] = WeakTensorKeyDictionary()
        self._left = _MOST

    def of(self, inputs: Sequence[Any]) -> _Build | str:
        """The build for the model whose weights are among the inputs, made now if most of them are
        new, or a parameter is; or why torch is to compute. Other tensors may be new every time."""
        own, met = [inputs[n] for n in self._weights], None
        if not own:
            self._alone = self._alone or self._made(inputs)
            return self._alone
        for x in own:  # models may share some
            found = self._of.get(x)
            if found is None or found is met:
                continue
            if isinstance(found, str) or not found.changed(inputs):
                return found
            met = found
        new = [x for x in own if x not in self._of]
        if 2 * len(new) <= len(own) and not any(isinstance(x, torch.nn.Parameter) for x in new):
            return _Left(
                "weights have changed since they were laid out, so torch computes: "
                "torch._dynamo.reset(), and compile anew, for loopwright's code"
            )
        made = self._made(inputs)
        self._of.update((x, made) for x in new)
        return made

    def _made(self, inputs: Sequence[Any]) -> _Build | str:
        if not self._left:
            return _Left(
                f"more than {_MOST} models of one class are called, or one whose tensors are "
                "always others: torch computes those"
            )
        self._left -= 1
        try:
            _check_kept(self._graph, inputs, self._weights)
            outputs = Outputs(self._graph, self._open)
            outputs.check(inputs)
            made = self._model(outputs.graph, inputs) if outputs.any_computed else lambda *_: ()
        except Exception as error:  # noqa: BLE001 - of TVM's many kinds, too; torch can run it
            return f"loopwright leaves a graph to torch: {error}"
        seen = [(n, *_seen(inputs[n])) for n in self._weights if inputs[n].numel()]
        return _Build(made, seen, outputs)

    def _model(self, graph: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        options = {**_records(), **self._options}
        if self._axes is None:
            return _built(graph, inputs, self._weights, options)
        return built_open(graph, inputs, self._weights, self._axes, self._bounds, options)


def _check_values(options: Mapping[str, Any]) -> None:
    from loopwright.codegen.target import resolve
    from loopwright.graph.tasks import LAYOUTS
    from loopwright.transfer.records.lookup import POLICIES

    words = tuple(str(n) for n in Numerics)
    choices: dict[str, tuple[Any, ...]] = dict.fromkeys(("check", "sparse"), (True, False))
    choices |= {"policy": POLICIES, "layout": LAYOUTS, "numerics": words}
    for name, allowed in choices.items():
        if name in options and options[name] not in allowed:
            shown = ", ".join(map(str, allowed))
            raise ModelError(f"option {name} is {options[name]!r}; it must be one of {shown}")
    if options.get("records") is not None:
        if not isinstance(location_of(options["records"]), Server):
            file_at(options["records"], "the record store", ModelError)
    resolve("cpu", options.get("threads"))  # says what is wrong with a number


def _seen(weight: Any) -> tuple[int, int, memoryview, int]:
    """Key that tells in less than a microsecond whether a weight is the same. It is its place, its
    version, and its element of the largest magnitude, as a view and as the bits that are there
    now."""
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    values = weight.detach()
    place = np.unravel_index(int(values.float().abs().argmax()), tuple(values.shape))
    element = values[tuple(map(int, place))]
    largest = memoryview(element.view(integers[element.element_size()]).numpy())
    return weight.data_ptr(), weight._version, largest, largest[()]


def _check_kept(graph: Any, examples: Sequence[Any], weights: Sequence[int]) -> None:
    """Raises `LoopwrightError` where arrays of ours could not stand for torch's tensors."""
    tensors = [x for x in examples if hasattr(x, "untyped_storage")]
    if any(x.device.type != "cpu" for x in tensors):
        raise LoopwrightError("its tensors are not on the CPU")
    if any(examples[n].is_inference() for n in weights):
        raise LoopwrightError(
            "its weights were made under inference_mode and do not tell when they change"
        )
    if any(getattr(x, "is_complex", bool)() for x in examples):
        raise LoopwrightError("its inputs are complex numbers: give torch.view_as_real(x)")
    if any("_enter_autocast" in str(node.target) for node in graph.graph.nodes):
        raise LoopwrightError("it enters torch.autocast: enter that around the compiled model")


def _is_open(x: Any) -> bool:
    """Return whether an example stands for several shapes, or for a number that is given."""
    return not hasattr(x, "shape") or not all(isinstance(n, int) for n in x.shape)


def _static(graph: Any, examples: Sequence[Any]) -> list[int]:
    """The numbers of the inputs that are parameters or buffers of the model."""
    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return [
        n
        for n, (node, x) in enumerate(zip(nodes, examples))
        if isinstance(x, torch.nn.Parameter)
        or node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type")
    ]


def _built(
    graph: Any, examples: Sequence[Any], weights: Sequence[int], options: Mapping[str, Any]
) -> Callable[..., Any]:
    """A graph as a model of ours, its parameters and buffers inside."""
    own = (n for n, x in enumerate(examples) if n not in weights and hasattr(x, "shape"))
    return built(graph, examples, weights, {n: examples[n].detach() for n in own}, {}, options)


def _records() -> dict[str, Any]:
    """The record store that is used unless the options name another."""
    store = os.environ.get("LOOPWRIGHT_RECORDS", "tuning.db")
    return {"records": store if may_exist(store) else None}
