"""Models in: ONNX and torch in the notation, Relax as a module of fixed shapes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tvm import IRModule, relax, tirx

from loopwright.dsl.words import brief
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.definitions import Written
from loopwright.graph.importers.inputs import Inputs, arrays, by_name, shape_of
from loopwright.graph.importers.onnx.file import OpenOnnx, inputs_of, onnx_file, prepared
from loopwright.graph.importers.onnx.graph import written
from loopwright.graph.importers.reference import Reference, no_reference, tensors_of
from loopwright.graph.importers.torch.eager import BesideModule
from loopwright.graph.importers.torch.inputs import arguments_of, input_names
from loopwright.graph.importers.torch.program import structure_of, torch_program
from loopwright.graph.importers.torch.to_onnx import onnx_of
from loopwright.packages import torch


@dataclass(frozen=True, eq=False)
class Source:
    """A model that was read. `make` makes its module in Relax, whose "main" takes the inputs
    alone; None where the model is `written` in the notation, as of ONNX. `ask` has the framework
    that it comes from compute it, if there is one. `structure` makes of its outputs what the model
    returns, None for an output or a tuple; `outputs` are their names, if it has any. `examples`
    are arrays for the inputs, if such were given, and `order` has the inputs' names. `arguments`
    are nested as the model takes them, with these names in place of tensors."""

    module: Any = None
    ask: Callable[[], Reference | str | None] = no_reference
    structure: Callable[[Sequence[Any]], Any] | None = None
    outputs: tuple[str, ...] = ()
    examples: tuple[Any, ...] = ()
    written: Written | None = None
    order: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def reference(self) -> Reference | str | None:
        """Reference outputs of the framework, or why there are none; None where it has none."""
        return self.ask()

    def for_calls(self) -> Source:
        """What calls need of it: the model itself may be as large as its weights."""
        return replace(self, module=None, ask=no_reference, written=None)


def read_model(model: Any, inputs: Inputs = None) -> Source:
    """A model of fixed shapes, read.

    Parameters
    ----------
    model: the path of an ONNX file, or a `ModelProto`; a `torch.nn.Module`, in inference mode
        whatever its own; an `ExportedProgram` of torch; or a Relax `IRModule`.
    inputs: example arrays, in order or by name; for ONNX and Relax, shapes will do. A
        torch.nn.Module needs them, the others do where their shapes are open.

    Raises `ModelError`: an unsupported operator or opset, open shapes, missing weights.
    """
    program = torch_program(model, inputs)
    if program is not None:
        given = dict(zip(input_names(program), tensors_of(program.example_inputs or ())))
        read = _of_onnx(onnx_of(program), given)
        return replace(
            read,
            ask=lambda: _of_module(model, program),
            structure=structure_of(program),
            arguments=arguments_of(program),
        )
    if isinstance(model, IRModule):
        module = _fixed(_from_relax(model, inputs))
        return Source(module, examples=arrays(inputs, [p.name for p in module["main"].params]))
    if isinstance(model, (str, os.PathLike)):
        model = onnx_file(Path(model))
    if isinstance(model, OpenOnnx) and isinstance(inputs, Mapping):
        return _of_onnx(model.model, inputs, model)
    if type(model).__name__ == "ModelProto":
        given = dict(by_name(inputs, [value.name for value in inputs_of(model)]))
        return _of_onnx(model, given)
    raise ModelError(
        f"{brief(model)} is no model: give an ONNX file or ModelProto, a torch.nn.Module, a "
        "program of torch.export, or a Relax IRModule"
    )


def _of_module(model: Any, program: Any) -> Reference | str:
    """Reference of a torch program, which must do what its module does. A graph of torch.compile
    asks nothing."""
    if isinstance(model, torch.nn.Module) and not isinstance(model, torch.fx.GraphModule):
        BesideModule(model, program, None).check_examples()
    return Reference.of_torch(program)


def _of_onnx(model: Any, given: Mapping[str, Any], whole: OpenOnnx | None = None) -> Source:
    """A `ModelProto`, for arrays or shapes that are `given` for some of its inputs, or the `whole`
    at these sizes."""
    values = inputs_of(model)
    own = written(prepared(model, values, given), values, given, whole)
    names = list(own.inputs)
    return Source(
        ask=lambda: Reference.of_onnx(model, values, given),
        outputs=tuple(value.name for value in model.graph.output),
        examples=arrays({n: x for n, x in given.items() if n in names}, names),
        written=own,
        order=tuple(value.name for value in values),
    )


def _from_relax(module: Any, inputs: Inputs) -> Any:
    """The module, its open shapes those of the inputs that are given."""
    functions = [v.name_hint for v, f in module.functions.items() if isinstance(f, relax.Function)]
    if "main" not in functions:
        raise ModelError(f'the module has no Relax function "main", only {functions or "none"}')
    parameters = {p.name: p for p in module["main"].params}
    extents: dict[Any, int] = {}
    for name, given in by_name(inputs, list(parameters)).items():
        own, shape = getattr(parameters[name].ty, "shape", None), shape_of(name, given)
        if own is None or len(own) != len(shape):
            raise ModelError(f"input {name} is {parameters[name].ty}, {shape} is given")
        for n, extent in zip(own, shape):
            fixed = int(n) if isinstance(n, tirx.IntImm) else extents.get(n, extent)
            if fixed != extent:
                raise ModelError(f"input {name} is {_extents(own)}, {shape} is given")
            if isinstance(n, tirx.Var):
                extents[n] = extent
    return relax.transform.BindSymbolicVars(extents)(module) if extents else module


def _extents(shape: Any) -> str:
    """A shape of TVM's as text, known extents as numbers alone."""
    known = (n.value if isinstance(n, tirx.IntImm) else n for n in shape)
    return f"({', '.join(map(str, known))})"


def _fixed(module: Any) -> Any:
    """The module, if the shapes of its inputs are known. Raises `ModelError` with the remedy."""
    for p in module["main"].params:
        shape = getattr(p.ty, "shape", None)
        if shape is None or any(not isinstance(n, tirx.IntImm) for n in shape):
            shown = "an unknown shape" if shape is None else f"the open shape {_extents(shape)}"
            raise ModelError(
                f"input {p.name} has {shown}: give example inputs; programs are made for fixed "
                "shapes"
            )
    return module
