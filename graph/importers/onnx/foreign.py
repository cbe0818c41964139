"""One operator by TVM's importer: what the table lacks, or leaves to it.

The operator becomes a model of its own, TVM lowers it to functions, and these become steps of the
network. TVM's importer knows operators by their names alone and takes the nearest version of one;
the comparison with onnxruntime, `check`, finds what it takes for another.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from loopwright.codegen.target import resolve
from loopwright.dsl.tensor import Tensor
from loopwright.graph.errors import ModelError, UnsupportedOperator
from loopwright.graph.importers.definitions import Foreign
from loopwright.graph.importers.inputs import reason
from loopwright.graph.importers.onnx.call import Call
from loopwright.graph.importers.onnx.protos import inner_graphs
from loopwright.graph.importers.onnx.values import Value, identifier, shape_of
from loopwright.graph.importers.passes import fused
from loopwright.graph.network import Network, NotPlannable, check_plannable, network
from loopwright.packages import onnx


def foreign(
    node: Any, label: str, inputs: Sequence[Value | None], versions: Mapping[str, int]
) -> Foreign:
    """A node as functions of TVM's. Raises `UnsupportedOperator` where TVM has none for it."""
    values = {name: x for name, x in zip(node.input, inputs) if name and x is not None}
    try:
        if any(0 in shape_of(x) for x in values.values()):
            raise ModelError("one of its inputs has no elements")
        if inner_graphs(node):
            raise ModelError("it has graphs of its own")
        if _of_sequences(node, versions):
            raise ModelError("it takes or gives a sequence, or a value that may be missing")
        found = _lowered(_alone(node, values, versions))
    except ModelError as error:
        raise UnsupportedOperator(
            f"{label} has no rule here, and none in TVM's importer: {error}. Leave what needs it "
            "to the caller, or export the model otherwise"
        ) from error
    tensors = tuple(x for x in values.values() if isinstance(x, Tensor))
    return Foreign(node.op_type, found, tensors, _results(found, tensors))


def _of_sequences(node: Any, versions: Mapping[str, int]) -> bool:
    """Return whether an operator is one of sequences or optional values: TVM's importer takes
    them for tensors, and may come to no end."""
    from onnx import defs

    try:
        schema = defs.get_schema(node.op_type, versions.get(node.domain, 1), node.domain)
    except defs.SchemaError:
        return False
    return any(
        all(str(kind).startswith(("seq(", "optional(")) for kind in parameter.types)
        for parameter in (*schema.inputs, *schema.outputs)
    )


def of_operator(
    call: Call, op: str, inputs: Sequence[Value], version: int, **attributes: Any
) -> Foreign:
    """An operator as functions of TVM's, for a call; `version` is that of ONNX's operators."""
    names = [f"input{n}" for n in range(len(inputs))]
    node = onnx.helper.make_node(op, names, ["output"], **attributes)
    return foreign(node, call.label, inputs, {"": version})


def reinterpreted(x: Tensor, dtype: str) -> Foreign:
    """The bits of a tensor's elements as another type of the same size."""
    builder = relax.BlockBuilder()
    given = relax.Var(x.name, relax.TensorType(x.shape, x.dtype))

    def bits(a: Any) -> Any:
        return te.compute(a.shape, lambda *i: tirx.reinterpret(dtype, a[i]), "bits")

    with builder.function("main", [given]):
        builder.emit_func_output(builder.emit_te(bits, given))
    found = network(builder.get())
    return Foreign("BitCast", found, (x,), _results(found, (x,)))


def _alone(node: Any, values: Mapping[str, Value], versions: Mapping[str, int]) -> Any:
    """A `ModelProto` of one node; known inputs are its weights."""
    from onnx import ValueInfoProto, numpy_helper

    def described(name: str, x: Value) -> Any:
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(str(x.dtype)))
        return onnx.helper.make_tensor_value_info(name, kind, shape_of(x))

    graph = onnx.helper.make_graph(
        [node],
        "operator",
        [described(name, x) for name, x in values.items() if isinstance(x, Tensor)],
        [ValueInfoProto(name=name) for name in node.output if name],
        [numpy_helper.from_array(x, n) for n, x in values.items() if isinstance(x, np.ndarray)],
    )
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in versions.items()]
    return onnx.helper.make_model(graph, opset_imports=opsets)


def _lowered(model: Any) -> Network:
    """The calls of TVM's functions that a model of one node is."""
    from tvm.relax.frontend.onnx import from_onnx

    try:
        with warnings.catch_warnings():  # of onnx's checker: the type of the result is not said
            warnings.simplefilter("ignore")
            module = from_onnx(model, sanitize_input_names=False)
    except Exception as error:  # TVM's errors have no root of their own
        raise ModelError(reason(error)) from error
    try:
        found = network(fused(module, resolve("cpu", 1)))
        for name, function in found.functions.items():
            check_plannable(function, name)
    except NotPlannable as error:
        raise ModelError(f"{error}, which needs TVM's virtual machine") from error
    return found


def _results(found: Network, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The tensors that a network gives of its inputs."""
    made = tuple(Tensor(identifier(v.name), v.shape, v.dtype) for v in found.outputs)
    for tensor in made:
        tensor.operands = inputs
    return made
