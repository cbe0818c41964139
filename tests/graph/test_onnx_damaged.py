"""Nodes and inputs that are not as ONNX defines them end in errors that say what may be."""

import numpy as np
import pytest

from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError
from tests.graph.onnx_nodes import node_model

pytestmark = pytest.mark.onnx
X = np.zeros((2, 3, 4), np.float32)


def ints(*numbers):
    return np.array(numbers, np.int64)


def lstm(gates=8):
    return {"w": np.zeros((1, gates, 4), np.float32), "r": np.zeros((1, gates, 2), np.float32)}


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
        ("SpaceToDepth", {}, {"blocksize": 2}, r"is \(2, 3, 4\); it may be \(batch, depth, 2\*h"),
        ("DepthToSpace", {}, {"blocksize": 2}, r"it may be \(batch, 4\*depth, height, width\)"),
        ("Conv", {"w": X[:1]}, {"kernel_shape": [5]}, r"kernel_shape is \[5\]; it may be \[4\]"),
        ("Conv", {"w": X[:1]}, {"auto_pad": "SAME"}, "auto_pad is 'SAME'; it may be NOTSET, SAME"),
        ("Conv", {"w": X[:1]}, {"group": 2}, r"it may be \(2, 2\*inner, ...\)"),
        ("Gelu", {}, {"approximate": "erf"}, "its approximate is 'erf'; it may be none, tanh"),
        ("Pad", {"p": ints(0, 0, 4, 0, 0, 0)}, {"mode": "reflect"}, "of an axis of 4; reflect"),
        ("Reshape", {"s": ints(5, 5)}, {}, r"elements of \(5, 5\): where its export fixed a size"),
        ("Reshape", {"s": np.float32([2, 12])}, {}, "input 1 is float32; it may be integers"),
        ("Gather", {"i": np.float32([0])}, {}, "input 1 is float32; it may be integers"),
        (
            "DequantizeLinear",
            {"s": X[0, 0, 0]},
            {},
            "its input 0 is float32; it may be float8e4m3fn",
        ),
        ("Add", {"w": X.astype(np.float64)}, {}, "input 1 is float64 and one before it float32"),
        ("LSTM", lstm(gates=9), {"hidden_size": 2}, r"is \(1, 9, 4\); it may be \(1, 8, 4\)"),
        ("LSTM", lstm(), {"hidden_size": 3}, r"it may be \(1, 12, 4\)"),
        ("LSTM", lstm(), {"direction": "bidirectional"}, r"it may be \(2, 4\*hidden, 4\)"),
        ("LSTM", lstm(), {"direction": "both"}, "it may be forward, reverse, bidirectional"),
        ("ScatterND", {"i": ints(0, 0, 0, 0), "u": X[0, 0, 0]}, {}, "indices name 4 axes"),
        ("ScatterND", {"i": ints([0, 1]), "u": X[0]}, {}, r"is \(3, 4\); it may be \(1, 4\)"),
        ("Tile", {"r": ints(2)}, {}, r"not as ONNX 20 defines it: .* int64 \(1,\)"),
    ],
)
def test_a_node_that_is_not_as_onnx_defines_it_is_refused(op, known, attributes, said):
    refused(node_model(op, {"x": X}, known, **attributes), said)


def test_known_shapes_that_do_not_broadcast_are_refused():
    known = {"a": ints(1, 2), "b": ints(1, 2, 3)}
    refused(node_model("Add", {}, known), r"its inputs \(2,\) and \(3,\) do not broadcast")


def test_a_value_that_is_given_twice_is_refused():
    model = node_model("Relu", {"x": X})
    model.graph.node.add().CopyFrom(model.graph.node[0])
    refused(model, "gives 'y0', which another one gives, .* each value has one origin")


def test_operators_that_read_each_other_are_refused():
    model = node_model("Relu", {"x": X}, order=["a"])
    model.graph.node.add(op_type="Relu", input=["y0"], output=["a"])
    refused(model, "operator Relu reads 'a', which is no input, no weight and no result before it")


@pytest.mark.parametrize("opset", [0, 99])
def test_a_model_of_an_unknown_opset_is_refused(opset):
    refused(node_model("Relu", {"x": X}, opset=opset), f"the model is of opset {opset} of ai.onnx")


def test_a_pool_over_the_whole_image_needs_channels():
    model = node_model("GlobalAveragePool", {"x": X[0, 0]})
    refused(model, r"its input 0 is \(4,\); it may be \(batch, channels, ...\) here")


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


@pytest.mark.parametrize(
    ("op", "inputs", "number"),
    [
        ("Identity", [""], 0),
        ("Relu", [""], 0),
        ("Concat", ["x", ""], 1),
        ("SequenceConstruct", ["x", ""], 1),
        ("SequenceConstruct", ["", "x"], 0),
        ("SequenceLength", [""], 0),
        ("SplitToSequence", [""], 0),
    ],
)
def test_an_input_that_is_left_out_and_must_be_given_is_named(op, inputs, number):
    from onnx import helper

    model = node_model("Relu", {"x": np.ones(2, np.float32)})
    axis = {"axis": 0} if op == "Concat" else {}
    model.graph.node.insert(0, helper.make_node(op, inputs, ["made"], **axis))
    model.graph.output.append(helper.make_empty_tensor_value_info("made"))
    refused(model, f"operator {op}: its input {number} is left out; name a value there")


def test_an_identity_of_nothing_is_refused():
    model = node_model("Relu", {"x": np.ones(2, np.float32)})
    model.graph.node[0].op_type = "Identity"
    del model.graph.node[0].input[:]
    refused(model, "operator Identity has 0 inputs; it may have 1")


def test_an_extent_of_zero_in_a_file_is_open_and_named_by_its_input_and_axis():
    model = node_model("Relu", {"x": np.ones((2, 3), np.float32)})
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 0
    refused(
        model, r"open shape \(\?, 3\); its axis 0 is 0 in the file, which counts as open: give"
    )
    given = {"x": np.zeros((0, 3), np.float32)}
    assert build_model(model, given, threads=1, check=False)(*given.values()).shape == (0, 3)
    batch = model.graph.input[0].type.tensor_type.shape.dim[1]
    batch.dim_param = "n"
    with pytest.raises(ModelError, match=r"axis 0 of input x \(0 in the file\) is open: give its"):
        build_model(model, dims={"n": (1, 4)}, threads=1, check=False)
