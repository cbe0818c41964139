"""Operators on known values, computed once by NumPy: shapes, weights, what follows from them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.graph.errors import ModelError
from loopwright.graph.importers.inputs import reason
from loopwright.graph.importers.onnx.values import Array
from loopwright.packages import onnx

DRAWN = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial",
         "Bernoulli")  # fmt: skip
"""Operators whose results differ from run to run."""


def folded(node: Any, inputs: Sequence[Array | None], version: int) -> list[Array]:
    """The outputs of a node for known inputs. Raises `ModelError` with the node's name."""
    if node.op_type in _SQUARES and not node.domain and inputs[0] is not None:
        node = node if inputs[0].size else _with_type(node, "ReduceL1")
    if version < _UNLIKE.get(node.op_type, 0) and not node.domain:
        raise ModelError(f"{node.op_type} {node.name}: ONNX's reference computes it otherwise")
    if node.op_type == "Constant" and not node.domain and (made := _constant(node)) is not None:
        return [made]
    if not node.domain and len(node.output) == 1:
        quick, along = _QUICK.get(node.op_type), _ALONG.get(node.op_type)
        try:
            if quick is not None:
                return [np.asarray(quick(*inputs))]
            if along is not None and version >= _NEW_AXES:
                return [np.asarray(along(next((a.i for a in node.attribute), 0), *inputs))]
        except (
            ValueError,
            IndexError,
            TypeError,
        ):  # shapes that do not fit: the reference says so
            pass
    return _by_reference(node, inputs, version)


def _with_type(node: Any, op_type: str) -> Any:
    made = type(node)()
    made.CopyFrom(node)
    made.op_type = op_type
    return made


def _constant(node: Any) -> Array | None:
    """The numbers that a node states, of which exporters write hundreds; None for other ones."""
    if [a.name for a in node.attribute] != ["value"]:
        return None
    array: Array = onnx.numpy_helper.to_array(node.attribute[0].t)
    return array


Marks = Array | bool
"""Which elements of a known value may be others at other sizes of open axes."""


def marked(
    node: Any, inputs: Sequence[Array | None], marks: Mapping[str, Marks], version: int
) -> Marks:
    """The marks of the result of a node, given those of its inputs. Elements that it moves keep
    theirs; others may vary where any input may. So may names that have no marks."""
    own = [marks.get(name, bool(name)) for name in node.input]
    moves = node.op_type in _MOVING and not node.domain
    data = len(own) if node.op_type == "Concat" else 1
    if not moves or any(map(np.any, own[data:])):
        return any(map(np.any, own))
    if all(isinstance(m, bool) and m == own[0] for m in own[:data]):
        return own[0]
    some = zip(own[:data], inputs)
    given = [np.zeros(x.shape, np.int64) + m for m, x in some if x is not None]
    return np.asarray(folded(node, [*given, *inputs[data:]], version)[0] != 0)


def _by_reference(node: Any, inputs: Sequence[Array | None], version: int) -> list[Array]:
    from onnx.reference import ReferenceEvaluator

    given = {name: x for name, x in zip(node.input, inputs) if name and x is not None}
    graph = onnx.helper.make_graph(
        [node],
        "node",
        [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in given],
        [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in node.output if name],
    )
    opsets = [onnx.helper.make_opsetid("", version)]
    if node.domain:
        opsets.append(onnx.helper.make_opsetid(node.domain, 1))
    model = onnx.helper.make_model(graph, opset_imports=opsets)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Mean of empty slice", RuntimeWarning)
            results = ReferenceEvaluator(model).run(None, given)
    except Exception as error:  # of many kinds
        results = _by_onnxruntime(model, given)
        if results is None:
            raise ModelError(
                f"{node.op_type} {node.name} of known values cannot be computed: {reason(error)}"
            ) from error
    found = iter(results)
    return [np.asarray(next(found)) if name else np.zeros(0) for name in node.output]


def _by_onnxruntime(model: Any, given: Mapping[str, Array]) -> Sequence[Any] | None:
    """The outputs by onnxruntime, where it is installed: the reference has faults of its own."""
    model.ir_version = min(model.ir_version, 10)  # onnxruntime may be older than onnx
    for value in model.graph.input:
        x = given[value.name]
        kind = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
        value.type.CopyFrom(onnx.helper.make_tensor_type_proto(kind, x.shape))
    try:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, ["CPUExecutionProvider"]
        )
        found: Sequence[Any] = session.run(None, dict(given))
    except Exception:  # noqa: BLE001 - of many kinds; the reference's error says what is wrong
        return None
    return found


_EVER = 1 << 30
_UNLIKE: dict[str, int] = {
    "AveragePool": _EVER, "LpPool": _EVER, "MaxPool": _EVER, "GRU": _EVER, "LSTM": _EVER,
    "RNN": _EVER, "LRN": _EVER, "LpNormalization": _EVER, "ReduceL2": _EVER,
    "ReduceSumSquare": _EVER, "Resize": _EVER, "Upsample": _EVER, "BatchNormalization": 14,
    "Hardmax": 13, "LogSoftmax": 13, "Softmax": 13,
}  # fmt: skip
"""Operators with rules of ours, and the version before which ONNX's reference computes something
else than onnxruntime and torch: no absolute values, other windows, an axis too few."""

_SQUARES = ("ReduceL2", "ReduceSumSquare")
"""Those of them that have results without elements: zeros, as the sum of magnitudes then has."""

_MOVING = frozenset(
    ("Concat", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Gather", "Cast",
     "Flatten", "Expand", "Identity")
)  # fmt: skip
"""Operators whose results have the elements of the first input, or of all."""

_QUICK: dict[str, Any] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Identity": np.array,
    "Equal": np.equal, "Less": np.less, "Greater": np.greater, "Not": np.logical_not,
    "And": np.logical_and, "Or": np.logical_or, "Where": np.where, "Neg": np.negative,
}  # fmt: skip
"""Operators that shapes have by the hundred: the reference takes a millisecond for each."""

_NEW_AXES = 13  # the version from which on axes are inputs
_ALONG: dict[str, Any] = {
    "Concat": lambda axis, *arrays: np.concatenate(arrays, axis),
    "Gather": lambda axis, x, places: np.take(x, places, axis),
    "Unsqueeze": lambda _, x, axes: np.expand_dims(x, tuple(axes.tolist())),
}
"""The same of those that have an axis, an attribute or an input."""
