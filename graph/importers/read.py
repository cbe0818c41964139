"""Models in: torch and Relax as a Relax module of fixed shapes, ONNX in the notation."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tvm import IRModule, relax, tirx

from loopwright.graph.errors import ModelError
from loopwright.graph.importers.definitions import Written
from loopwright.graph.importers.inference import check_inference
from loopwright.graph.importers.inputs import (
    Inputs,
    arrays,
    by_name,
    check_several,
    reason,
    shape_of,
)
from loopwright.graph.importers.onnx.file import inputs_of, onnx_file, prepared
from loopwright.graph.importers.onnx.graph import written
from loopwright.graph.importers.reference import Reference, example_tensors
from loopwright.graph.importers.torch_inputs import (
    arranged,
    check_given,
    check_tensors,
    fixed_shapes,
    input_names,
)


@dataclass(frozen=True, eq=False)
class Source:
    """A model that was read.

    Attributes
    ----------
    make: makes its module in Relax, whose function "main" takes the inputs alone; None where the
        model is `written`.
    ask: has the framework that the model comes from compute it; for Relax there is none.
    structure: what the model returns, made of the outputs of "main"; None for an output, or a
        tuple of them.
    outputs: the names of these, where the model has any.
    examples: arrays for the inputs of "main", if such were given.
    written: the model in the notation, for ONNX.
    order: the names of the model's inputs.
    """

    make: Callable[[], Any]
    ask: Callable[[], Reference | None] = lambda: None
    structure: Callable[[Sequence[Any]], Any] | None = None
    outputs: tuple[str, ...] = ()
    examples: tuple[Any, ...] = ()
    written: Written | None = None
    order: tuple[str, ...] = ()

    @functools.cached_property
    def module(self) -> Any:
        """The model in Relax."""
        return self.make()

    @functools.cached_property
    def reference(self) -> Reference | None:
        """Reference outputs of the framework."""
        return self.ask()


def read_model(model: Any, inputs: Inputs = None) -> Source:
    """A model as a Relax module of fixed shapes.

    Parameters
    ----------
    model: the path of an ONNX file, or a `ModelProto`; a `torch.nn.Module`, in inference mode
        whatever its own; an `ExportedProgram` of torch; or a Relax `IRModule`.
    inputs: example arrays, in order or by name; for ONNX and Relax, shapes will do. A
        torch.nn.Module needs them, the others do where their shapes are open.

    Raises `ModelError`: an unsupported operator or opset, open shapes, missing weights.
    """
    program = _torch_program(model, inputs)
    if program is not None:
        module = _fixed(_renamed(_from_program(program), input_names(program)))
        ask, made = lambda: Reference.of_torch(program), _structure(program)
        return Source(lambda: module, ask, made, examples=example_tensors(program))
    if isinstance(model, IRModule):
        module = _fixed(_from_relax(model, inputs))
        return Source(
            lambda: module, examples=arrays(inputs, [p.name for p in module["main"].params])
        )
    if isinstance(model, (str, os.PathLike)):
        model = onnx_file(Path(model))
    kind = type(model)
    name = f"{kind.__module__}.{kind.__name__}"
    if name.endswith(".ModelProto"):
        values = inputs_of(model)
        given = by_name(inputs, [value.name for value in values])
        whole = prepared(model, values, given)
        own = written(whole, values, given)
        names = list(own.inputs)
        return Source(
            lambda: None,
            lambda: Reference.of_onnx(model, values, given),
            None,
            tuple(value.name for value in model.graph.output),
            arrays({n: x for n, x in given.items() if n in names}, names),
            own,
            tuple(value.name for value in values),
        )
    raise ModelError(
        f"a {name} is no model: give an ONNX file or ModelProto, a torch.nn.Module, a program of "
        "torch.export, or a Relax IRModule"
    )


def _structure(program: Any) -> Callable[[Sequence[Any]], Any] | None:
    """Function that makes dicts, lists and the like of a program's outputs."""
    from torch.utils import _pytree

    spec = program.call_spec.out_spec
    if spec.is_leaf() or (spec.type is tuple and all(c.is_leaf() for c in spec.children())):
        return None
    return lambda outputs: _pytree.tree_unflatten(list(outputs), spec)


def _torch_program(model: Any, inputs: Inputs) -> Any:
    """The program of a torch.nn.Module; None for a model that is neither that nor a program.
    Raises `ModelError` for one that does more than infer."""
    if type(model).__module__.startswith("torch.export") and hasattr(model, "graph_module"):
        check_tensors(model)
        program = _closed(model, inputs)
    elif hasattr(model, "state_dict") and hasattr(model, "forward"):
        program = _exported(model, inputs)
        check_tensors(program)
    else:
        return None
    check_inference(program)
    for number, spec in enumerate(program.graph_signature.output_specs):
        if hasattr(spec.arg, "value"):  # a constant
            raise ModelError(
                f"output {number} of the model is {spec.arg.value!r}: return tensors alone"
            )
    return program


def _closed(program: Any, inputs: Inputs) -> Any:
    """A program of torch.export, its open shapes those of the inputs that are given."""
    if inputs is None:
        return program
    if fixed_shapes(program):
        check_given(program, inputs)
        return program
    return _traced(program.module(), *arranged(program, inputs))


def _exported(module: Any, inputs: Inputs) -> Any:
    """A torch.nn.Module as a program, traced in inference mode."""
    if inputs is None:
        raise ModelError("a torch.nn.Module needs example inputs: inputs=(x,)")
    modes = {each: each.training for each in module.modules()}
    try:
        if isinstance(inputs, Mapping):
            # A program takes its inputs in the order in which they are given here.
            own: Iterable[str] = ()
            with suppress(ValueError):  # what is traced by torch.jit has no signature
                own = inspect.signature(module.forward).parameters
            words = {name: inputs[name] for name in (*own, *inputs) if name in inputs}
            return _traced(module.eval(), (), words)
        return _traced(module.eval(), inputs)
    finally:
        for each, mode in modes.items():
            if each.training != mode:
                each.train(mode)  # which may do more: undo what it merged for inference
            each.training = mode


def _traced(module: Any, inputs: Sequence[Any], words: Mapping[str, Any] | None = None) -> Any:
    """Program that torch.export makes of a module for inputs of these shapes."""
    import torch

    def tensor(x: Any) -> Any:
        if isinstance(x, np.ndarray):  # torch knows no negative strides
            return torch.as_tensor(np.ascontiguousarray(x).reshape(x.shape))
        if isinstance(x, torch.Tensor):  # given twice, it would be one input to torch.export
            return x.detach()
        return x if x is None else torch.as_tensor(x)

    check_several(inputs)
    try:
        tensors = torch.utils._pytree.tree_map(tensor, (tuple(inputs), words))
    except Exception as error:  # of many kinds
        raise ModelError(f"an input is no tensor: {reason(error)}") from error
    try:
        return torch.export.export(module, *tensors)
    except Exception as error:  # of many kinds
        raise ModelError(f"torch.export cannot export the model: {reason(error)}") from error


def _from_program(program: Any) -> Any:
    from tvm.relax.frontend.torch import from_exported_program

    def imported(in_parts: bool) -> Any:
        return from_exported_program(
            program,
            unwrap_unit_return_tuple=program.call_spec.out_spec.is_leaf(),
            custom_convert_map=_OPERATORS,
            run_ep_decomposition=in_parts,
        )

    with suppress(Exception):  # TVM's errors have no root of their own
        return imported(True)
    try:  # it knows some operators by their own names alone
        return imported(False)
    except Exception as error:
        raise ModelError(
            f"TVM cannot import this torch program: {reason(error)}; use other operators, "
            "in float32, or give the model as ONNX (torch.onnx.export)"
        ) from error


def _renamed(module: Any, names: Sequence[str]) -> Any:
    """The module with inputs of these names."""
    main = module["main"]
    if [p.name for p in main.params] == list(names):
        return module
    new = [relax.Var(name, p.ty) for name, p in zip(names, main.params, strict=True)]
    body = main.bind_params(dict(zip(main.params, new))).body
    module["main"] = relax.Function(new, body, main.ret_ty, main.is_pure, main.attrs)
    return module


def _reduction(operator: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Translation of a reduction of torch's over some axes, or one, for TVM's importer."""

    def convert(node: Any, importer: Any) -> Any:
        given = [*importer.retrieve_args(node), None, False]
        axis = None if given[1] in (None, [], ()) else given[1]
        keep = bool(node.kwargs.get("keepdim", given[2]))
        wide = relax.op.astype(given[0], str(node.meta["val"].dtype).removeprefix("torch."))
        return importer.block_builder.emit(operator(wide, axis, keepdims=keep))

    return convert


def _min_dim(node: Any, importer: Any) -> Any:
    """The least elements along an axis, and where they are."""
    given = [*importer.retrieve_args(node), False]
    x, axis, keep = given[0], given[1], bool(node.kwargs.get("keepdim", given[2]))
    parts = (relax.op.min(x, axis, keep), relax.op.argmin(x, axis, keep))
    return importer.block_builder.emit(relax.Tuple(parts))


def _any(node: Any, importer: Any) -> Any:
    """Return whether any element is other than zero."""
    (x,) = importer.retrieve_args(node)
    truth = relax.op.not_equal(x, relax.const(0, x.ty.dtype))
    most = relax.op.max(relax.op.astype(truth, "int8"))
    return importer.block_builder.emit(relax.op.astype(most, "bool"))


def _elu(node: Any, importer: Any) -> Any:
    """ELU, and SELU and CELU, which torch says by it: TVM's importer forgets the factors."""
    given = [*importer.retrieve_args(node)]
    x, (alpha, scale, of_input) = given[0], [*given[1:], 1.0, 1.0, 1.0][:3]
    dtype = x.ty.dtype

    def times(value: Any, factor: float) -> Any:
        return relax.op.multiply(value, relax.const(float(factor), dtype))

    below = relax.op.subtract(relax.op.exp(times(x, of_input)), relax.const(1.0, dtype))
    positive = relax.op.greater(x, relax.const(0.0, dtype))
    value = relax.op.where(positive, times(x, scale), times(below, alpha * scale))
    return importer.block_builder.emit(value)


def _group_norm(node: Any, importer: Any) -> Any:
    """Group norm, with weights or, as TVM's importer does not have it, without."""
    given = importer.retrieve_args(node)
    if "native" in str(node.target):
        x, weight, bias, _, _, _, groups, epsilon = given
    else:
        x, groups, weight, bias, epsilon = [*given, *(None, None, 1e-5)[len(given) - 2 :]][:5]
    shape, dtype = importer.shape_of(x), x.ty.dtype
    channels = np.ones(int(shape[1]), str(dtype))
    weight = relax.const(channels) if weight is None else weight
    bias = relax.const(0 * channels) if bias is None else bias
    axes = list(range(2, len(shape)))
    return importer.block_builder.emit(
        relax.op.nn.group_norm(x, weight, bias, groups, 1, axes, epsilon)
    )


_OPERATORS = {
    "amax.default": _reduction(relax.op.max),
    "amin.default": _reduction(relax.op.min),
    "prod.dim_int": _reduction(relax.op.prod),
    "min.dim": _min_dim,
    "any.default": _any,
    "elu.default": _elu,
    "group_norm.default": _group_norm,
    "native_group_norm.default": _group_norm,
}
"""Operators that TVM's importer lacks, or has otherwise."""


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
                raise ModelError(f"input {name} is {list(own)}, {shape} is given")
            if isinstance(n, tirx.Var):
                extents[n] = extent
    return relax.transform.BindSymbolicVars(extents)(module) if extents else module


def _fixed(module: Any) -> Any:
    """The module, if the shapes of its inputs are known. Raises `ModelError` with the remedy."""
    for p in module["main"].params:
        shape = getattr(p.ty, "shape", None)
        if shape is None or any(not isinstance(n, tirx.IntImm) for n in shape):
            shown = "an unknown shape" if shape is None else f"the open shape {list(shape)}"
            raise ModelError(
                f"input {p.name} has {shown}: give example inputs; programs are made for fixed "
                "shapes"
            )
    return module
