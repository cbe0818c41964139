"""ONNX files, and what must hold of a model before it is read."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loopwright.graph.errors import ModelError, OpenShape
from loopwright.graph.importers.inputs import reason, shape_of
from loopwright.graph.importers.onnx.call import SCANS
from loopwright.graph.importers.onnx.protos import in_order, inner_graphs
from loopwright.graph.importers.onnx.values import Array, Scaled
from loopwright.packages import onnx, optional
from loopwright.paths import file_at

_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")
"""Whose operators are known."""


_OTHERS = (
    "files of models are ONNX's; a model of torch is given as a module, or as what "
    "torch.export.load reads"
)


@dataclass(frozen=True, eq=False)
class KnownArrays:
    """The arrays of a model's weights, and what `Weights.scaled` made of them, which its readings
    at several sizes share."""

    weights: Mapping[str, Array]
    scaled: dict[Scaled, tuple[Array, Array]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class OpenOnnx:
    """A `ModelProto` of open axes, read at some of their sizes. `varying` names known values that
    are others at other sizes, so that each call computes them; `growing` those that have one
    element at some size and more at others. `fixed` are inputs that decide what is computed at
    some size: they are what is given at all."""

    model: Any
    known: KnownArrays
    varying: frozenset[str] = frozenset()
    growing: frozenset[str] = frozenset()
    fixed: frozenset[str] = frozenset()


def onnx_file(path: Path) -> Any:
    """The `ModelProto` of a file, its weights read. Raises `ModelError`."""
    file_at(path, "the model", ModelError)
    onnx = optional("onnx", f"{path}: an ONNX model", ModelError)
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # of protobuf, whose version decides the class
        raise ModelError(f"{path} is no ONNX model, or is damaged: {error}; {_OTHERS}") from error
    if not model.HasField("graph"):  # of an empty file, and of some texts
        raise ModelError(f"{path} is no ONNX model, or is damaged: it has no graph; {_OTHERS}")
    try:
        onnx.load_external_data_for_model(model, str(path.parent))
    except Exception as error:  # of the system, or of onnx's checker
        raise ModelError(
            f"{path}: its weights are missing; they belong beside it: {error}"
        ) from error
    return model


def weights_of(graph: Any, besides: Container[str] = ()) -> dict[str, Array]:
    """The weights of a graph, but for those of some names."""
    given = [weight for weight in graph.initializer if weight.name not in besides]
    outside = next((w for w in given if onnx.external_data_helper.uses_external_data(w)), None)
    if outside is not None:
        raise ModelError(
            f"weight {outside.name} lies in another file: give the path of the model in place of "
            "a ModelProto, or load that with its external data"
        )
    return {weight.name: onnx.numpy_helper.to_array(weight) for weight in given}


def inputs_of(model: Any) -> list[Any]:
    """The inputs of an ONNX model that are no weights."""
    known = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in known]


def prepared(model: Any, values: Sequence[Any], given: Mapping[str, Any]) -> Any:
    """A `ModelProto` that is complete, without functions of its own, for arrays or shapes that are
    `given` for some of its inputs, which are `values`. Raises `ModelError`."""
    shapes = {name: shape_of(name, x) for name, x in given.items()}
    for value in values:
        check_shape(value, shapes.get(value.name))
    if not model.graph.output:
        raise ModelError("the model has no outputs: name those of its values that it is to give")
    model = in_order(_inlined(model))
    _check_opset(model)
    _check_graph(model.graph, frozenset())
    return model


def _inlined(model: Any) -> Any:
    """The model without functions of its own."""
    if not model.functions:
        return model
    import onnx.inliner

    try:
        return onnx.inliner.inline_local_functions(model, convert_version=True)
    except Exception as error:  # of protobuf, for more than 2 GiB, or of onnx
        raise ModelError(
            f"the model has functions of its own, which cannot be inlined: {reason(error)}"
        ) from error


def _check_opset(model: Any) -> None:
    """Raise `ModelError` for a version of ONNX's operators that is not known here."""
    newest = onnx.defs.onnx_opset_version()
    found = [o.version for o in model.opset_import if o.domain in _DOMAINS[:2]]
    if not found or not 1 <= found[0] <= newest:
        shown = f"opset {found[0]}" if found else "no opset"
        raise ModelError(
            f"the model is of {shown} of ai.onnx; the package onnx {onnx.__version__} knows 1 to "
            f"{newest}: get a newer one, or export the model with one of these"
        )


def _check_graph(graph: Any, outside: frozenset[str]) -> None:
    """Raise `ModelError` for operators of other domains, and for what nothing gives; `outside` is
    what graphs around this one give."""
    if graph.sparse_initializer:
        name = graph.sparse_initializer[0].values.name
        raise ModelError(f"weight {name} is sparse: make it dense")
    made = {*(v.name for v in graph.input), *(w.name for w in graph.initializer)}
    known = {*outside, *made}
    for node in graph.node:
        called = f"{node.op_type} {node.name}".rstrip()
        if node.domain not in (*_DOMAINS, SCANS):
            raise ModelError(
                f"operator {called} is of the domain {node.domain!r}; known are those of "
                f"{', '.join(_DOMAINS[1:])}: compute it outside, and end the model before it "
                "or make what it gives an input, as onnx.utils.extract_model does"
            )
        if twice := [n for n in node.output if n in made]:
            raise ModelError(
                f"operator {called} gives {twice[0]!r}, which another one gives, or which is an "
                "input or a weight: each value has one origin"
            )
        missing = [name for name in node.input if name and name not in known]
        if missing:
            raise ModelError(
                f"operator {called} reads {missing[0]!r}, which is no input, no weight and no "
                "result before it: the model is incomplete"
            )
        for inner in inner_graphs(node):
            _check_graph(inner, frozenset(known))
        known.update(node.output)
        made.update(name for name in node.output if name)
    if lost := [v.name for v in graph.output if v.name not in known]:
        raise ModelError(
            f"output {lost[0]!r} is the result of no operator: the model is incomplete"
        )


def check_shape(value: Any, given: Sequence[Any] | None) -> None:
    """Raise `ModelError` unless the shape of an input is known, and is that which is given."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        shown = kind.removesuffix("_type").replace("_", " ") if kind else "value of no type"
        article = "an" if shown.startswith("o") else "a"
        raise ModelError(
            f"input {value.name} is {article} {shown}; it may be a tensor: give its parts"
        )
    known = value.type.tensor_type.HasField("shape")
    if not known and given is None:
        raise ModelError(
            f'input {value.name} has a shape of unknown rank: give it, inputs={{"{value.name}": '
            f"(1, 3, 224, 224)}} or --shape {value.name}=1,3,224,224, say"
        )
    if not known:
        return
    dims = value.type.tensor_type.shape.dim
    extents = [max(d.dim_value, 0) for d in dims]  # 0 and -1 leave one open
    shown = ", ".join(d.dim_param or str(n or "?") for d, n in zip(dims, extents))
    if given is None and not all(extents):
        axes = dict.fromkeys(d.dim_param for d in dims if d.dim_param)
        zeros = "".join(
            f"; its axis {k} is 0 in the file, which counts as open"
            for k, d in enumerate(dims)
            if is_zero(d)
        )
        raise OpenShape(value.name, shown, tuple(n or 1 for n in extents), tuple(axes), zeros)
    if given is not None and (
        len(given) != len(dims) or any(n not in (0, m) for n, m in zip(extents, given))
    ):
        raise ModelError(f"input {value.name} is ({shown}) in the model, {given} is given")


def is_zero(axis: Any) -> bool:
    """Return whether a file states 0 for an extent, as some exporters do for an unknown one."""
    return axis.HasField("dim_value") and not axis.dim_value
