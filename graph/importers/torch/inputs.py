"""The inputs of a program of torch.export: what they are called, and what may be given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from loopwright.dsl.tensor import Tensor
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.inputs import Inputs, by_name
from loopwright.graph.importers.sums import renamed, words_in
from loopwright.packages import torch


def check_tensors(program: Any) -> None:
    """Raises `ModelError` for an input that is a number, or text, that was exported as itself."""
    for spec in program.graph_signature.input_specs:
        if getattr(spec.arg, "value", None) is not None:
            raise ModelError(
                f"input {spec.arg.name} is {spec.arg.value!r}, a constant; inputs are tensors: "
                "leave it out where the model has a default, by giving the others by name, or "
                "wrap the model in a module that takes tensors alone and gives it the constant"
            )


def check_numbers(inputs: Any) -> None:
    """Raises `ModelError` for an input that is text, or has complex numbers."""
    for x in torch.utils._pytree.tree_leaves(inputs):
        if isinstance(x, (str, bytes)):
            raise ModelError(
                f"inputs have the text {x!r}: give an array, or the shape and type of one, as by "
                f'lw.tensor({x!r}, (1, 3, 224, 224), "float32")'
            )
        if "complex" in str(getattr(x, "dtype", "")):
            raise ModelError(
                f"an input of shape {tuple(x.shape)} has complex numbers, which no program has: "
                "wrap the model in a module that takes the two parts along a last axis, and gives "
                "the model torch.view_as_complex(x)"
            )


def input_names(program: Any) -> list[str]:
    """Names of the tensors that a program takes, in order, as the user calls them: torch writes
    the names of arguments in lower case."""
    return [name for name in _leaf_names(program) if name is not None]


def _leaf_names(program: Any) -> list[str | None]:
    """Names of the tensors that a program takes, and None in each place of a None."""
    own = list(program.graph_signature.user_inputs)
    left = iter(own)
    names: list[str | None] = []
    for name, part in _parts(program):
        inner = [next(left) for _ in range(part.num_leaves)]
        names += [name] if part.is_leaf() and inner != [None] else inner
    several = [name for name in names if name is not None]
    return names if len(set(several)) == len(several) else own


def arguments_of(program: Any) -> dict[str, Any]:
    """The arguments of a program by name, nested as it takes them, with the names of their tensors
    in place of these."""
    left = iter(_leaf_names(program))
    return {
        name: part.unflatten([next(left) for _ in range(part.num_leaves)])
        for name, part in _parts(program)
    }


def _parts(program: Any) -> Iterator[tuple[str, Any]]:
    """The arguments' names, and how each is nested."""
    specs = program.call_spec.in_spec.children()
    return zip(_arguments(program), (part for spec in specs for part in spec.children()))


def fixed_shapes(program: Any) -> bool:
    """Return whether a program takes tensors of one shape each."""
    return all(isinstance(n, int) for shape in _shapes(program) for n in shape)


def check_fixed(program: Any) -> None:
    """Raises `ModelError` for a program that takes tensors of several shapes."""
    known = dim_names(program)
    for name, shape in zip(input_names(program), _shapes(program)):
        shown = ", ".join(renamed(str(n), known) for n in shape)
        if names := words_in(shown):
            raise ModelError(
                f"input {name} has the open shape [{shown}]: give example inputs, or bounds "
                f'for all sizes, e.g. dims={{"{names[0]}": (1, 512)}}'
            )


def dim_names(program: Any) -> dict[str, str]:
    """The names of the user's `torch.export.Dim`s, by torch's symbols. A program that was read
    from a file has none."""
    own = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    spaces = (getattr(getattr(x, "fake_mode", None), "shape_env", None) for x in own)
    found: dict[str, str] = {}
    for space in spaces:
        symbols = getattr(space, "source_to_var", {})
        for source, name in getattr(space, "source_name_to_debug_name", {}).items():
            if source in symbols and name.isidentifier():
                found[str(symbols[source])] = name
    return found


def arranged(program: Any, inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by position and by name, as given. Raises `ModelError` for those that the program
    does not have, and where one is missing."""
    names = _arguments(program)
    given = by_name(inputs, names)
    missing = [name for name in names if name not in given]
    if missing:
        raise ModelError(f"input {missing[0]} is not given; the model takes {', '.join(names)}")
    words = program.call_spec.in_spec.children()[1].context
    values = [given[name] for name in names]
    first = len(names) - len(words)
    return tuple(values[:first]), dict(zip(words, values[first:]))


def shapes_given(program: Any, inputs: Inputs) -> dict[str, Any]:
    """The shapes, or arrays, given for the tensors that a program takes, by their names."""
    leaves = program.call_spec.in_spec.flatten_up_to(arranged(program, inputs))
    shapes = (x.shape if isinstance(x, Tensor) else x for x in leaves)
    given = dict(zip(_leaf_names(program), shapes))
    return {name: shape for name, shape in given.items() if name is not None}


def check_given(program: Any, inputs: Inputs) -> None:
    """Raises `ModelError` for inputs that a program of fixed shapes cannot take."""
    remedy = (
        "leave inputs out, as the shapes of the program are fixed, or export it for these, by "
        "torch.export.export(…, dynamic_shapes=…) for any"
    )
    try:
        leaves = program.call_spec.in_spec.flatten_up_to(arranged(program, inputs))
    except ValueError as error:
        raise ModelError(
            f"inputs are nested otherwise than in the program: {error}; {remedy}"
        ) from error
    shapes = dict(zip(input_names(program), _shapes(program)))
    for name, x in zip(_leaf_names(program), leaves):
        if name is None:
            if x is not None:
                raise ModelError(f"inputs have an array where the program has None: {remedy}")
            continue
        shape, found = shapes[name], tuple(np.shape(x))
        if found != shape:
            raise ModelError(f"input {name} is {shape} in the program, {found} is given: {remedy}")


def _arguments(program: Any) -> list[str]:
    """The names of the arguments, each of which is a tensor or made of some."""
    called = program.module_call_graph[0].signature.forward_arg_names
    return list(program.graph_signature.user_inputs if called is None else called)


def _shapes(program: Any) -> list[tuple[Any, ...]]:
    names = program.graph_signature.user_inputs
    values = [n.meta.get("val") for n in program.graph.nodes if n.name in names]
    return [tuple(getattr(value, "shape", ())) for value in values]


def check_results(program: Any) -> None:
    """Raise `ModelError` for an output that is a number, as a size of a tensor is, or complex."""
    (results,) = next(node for node in program.graph.nodes if node.op == "output").args
    for number, x in enumerate(results):
        dtype = getattr(getattr(x, "meta", {}).get("val"), "dtype", None)
        if "complex" in str(dtype):
            raise ModelError(
                f"output {number} of the model has complex numbers, which no program has: return "
                "torch.view_as_real(y), the two parts along a last axis"
            )
        if x is None or dtype is not None:
            continue
        of_axis = hasattr(x, "meta")
        what = "a size" if of_axis else repr(x)
        remedy = "as torch.tensor(x.shape[0])" if of_axis else "or None"
        raise ModelError(f"output {number} of the model is {what}: return tensors, {remedy}")
