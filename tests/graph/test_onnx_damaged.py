"""Nodes and inputs that are not as ONNX defines them end in errors that say what may be."""

import numpy as np
import pytest

from loopwright.graph.compile.model import build_model
from loopwright.graph.errors import ModelError
from tests.graph.onnx_nodes import node_model

pytestmark = pytest.mark.onnx
X = np.zeros((2, 3, 4), np.float32)


def ints(*numbers):
    return np.array(numbers, np.int64)


def refused(model, said):
    with pytest.raises(ModelError, match=said):
        build_model(model, threads=1, check=False)


@pytest.mark.parametrize(
    ("op", "known", "attributes", "said"),
    [
        ("Transpose", {}, {"perm": [0, 0, 1]}, r"axes are \[0, 0, 1\]; each may be named once"),
        ("Transpose", {}, {"perm": [1, 0]}, "of a tensor with 3 axes; it names each"),
        ("Transpose", {}, {"perm": [0, 1, 7]}, "its axis is 7, of a tensor with 3 axes"),
        ("Squeeze", {"a": ints(9)}, {}, "its axis is 9"),
        ("Unsqueeze", {"a": ints(0, 0)}, {}, "each may be named once"),
        ("ReduceMax", {"a": ints(1, -2)}, {}, "each may be named once"),
        ("Flatten", {}, {"axis": 9}, "its axis is 9"),
        ("ReverseSequence", {"l": ints(1, 1)}, {"batch_axis": 9}, "its axis is 9"),
        ("Slice", {"s": ints(0, 0), "e": ints(1, 1), "a": ints(0, 0)}, {}, "named once"),
        ("Slice", {"s": ints(0), "e": ints(1, 2)}, {}, "there are as many of each"),
        ("Split", {"s": ints(1, 1)}, {"results": 2, "axis": 2}, "of an axis of 4; they are 2"),
        ("Pad", {"p": ints(1, 1)}, {}, "each of 3 axes has two"),
        ("AveragePool", {}, {"kernel_shape": [2, 2]}, r"kernel_shape is \[2, 2\], of an image"),
        ("LayerNormalization", {"s": X[0, 0, [0] * 7]}, {}, r"is \(7,\); it may be \(4,\) here"),
        ("InstanceNormalization", dict.fromkeys("ab", X[0, 0]), {}, r"it may be \(3,\) here"),
        ("BatchNormalization", dict.fromkeys("abcd", X[0, 0]), {}, r"it may be \(3,\) here"),
        ("Conv", {"w": X[:1], "b": X[0, 0]}, {}, r"input 2 is \(4,\); it may be \(1,\) here"),
        ("Add", {}, {}, "Add has 1 inputs; it may have 2"),
        ("Clip", dict.fromkeys("abcd", X[0, 0, 0]), {}, "Clip has 5 inputs; it may have 1 to 3"),
        ("Relu", {}, {"results": 2}, "Relu has 2 outputs; it may have 1"),
        ("Cast", {}, {}, "Cast lacks its attribute to, of type INT"),
        ("Cast", {}, {"to": "float"}, "its attribute to is of type STRING; it may be of INT"),
        ("Cast", {}, {"to": 99}, "99 is the number of none of ONNX's element types"),
        ("SpaceToDepth", {}, {"blocksize": 0}, r"as ONNX 20 defines it: its inputs are float32"),
        ("Tile", {"r": ints(2)}, {}, r"not as ONNX 20 defines it: .* int64 \(1,\)"),
    ],
)
def test_a_node_that_is_not_as_onnx_defines_it_is_refused(op, known, attributes, said):
    refused(node_model(op, {"x": X}, known, **attributes), said)


def test_known_shapes_that_do_not_broadcast_are_refused():
    known = {"a": ints(1, 2), "b": ints(1, 2, 3)}
    refused(node_model("Add", {}, known), r"its inputs \(2,\) and \(3,\) do not broadcast")


def test_a_model_without_outputs_is_refused():
    refused(node_model("Relu", {"x": X}, results=0), "the model has no outputs: name those")


@pytest.mark.parametrize(("kind", "called"), [(8, "string"), (14, "complex64"), (0, "undefined")])
def test_an_input_of_another_element_type_is_refused(kind, called):
    model = node_model("Identity", {"x": X})
    model.graph.input[0].type.tensor_type.elem_type = kind
    refused(model, f"input x is of the element type {called}; allowed are float64, float32,")


def test_an_input_that_is_no_tensor_is_refused():
    from onnx import TensorProto, helper

    model = node_model("Identity", {"x": X})
    sequence = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, (2,))
    model.graph.input[0].CopyFrom(sequence)
    refused(model, "input x is a sequence; it may be a tensor")
