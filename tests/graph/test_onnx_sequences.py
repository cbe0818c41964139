"""Sequences of tensors in ONNX models, beside NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError

pytestmark = pytest.mark.onnx
X = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)


def node(op, inputs, outputs, **attributes):
    from onnx import helper

    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def model(nodes, rows=6, opset=17, **known):
    """A model of x and y, of which known arrays are weights."""
    from onnx import TensorProto, helper, numpy_helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(np.array(array), name) for name, array in known.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def check(nodes, wanted, **options):
    got = build_model(model(nodes, **options), threads=1, check=False)(X)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize("opset", [11, 17])
def test_parts_are_read_at_known_places(opset):
    at = node("SequenceAt", "s k", "y")
    split = node("SplitToSequence", "x p", "s", axis=1)
    check([split, at], X[:, 2:], opset=opset, p=[2, 3], k=-1)
    split = node("SplitToSequence", "x p", "s", axis=0, keepdims=0)
    check([split, at], X[4:], opset=opset, p=4, k=1)
    for keep, wanted in ((0, X[:, 2]), (1, X[:, 2:3])):
        split = node("SplitToSequence", "x", "s", axis=-1, keepdims=keep)
        check([split, at], wanted, opset=opset, k=2)


@pytest.mark.parametrize("opset", [11, 17])
def test_tensors_are_put_in_taken_out_and_joined(opset):
    nodes = [
        node("SequenceEmpty", "", "e"),
        node("Neg", "x", "n"),
        node("SequenceInsert", "e x", "one"),
        node("SequenceInsert", "one n first", "two"),
        node("Identity", "two", "same"),
        node("SequenceInsert", "same x", "three"),
        node("SequenceErase", "three second", "left"),
    ]
    known = {"first": 0, "second": 1}
    joined = node("ConcatFromSequence", "left", "y", axis=1)
    check([*nodes, joined], np.concatenate([-X, X], 1), opset=opset, **known)
    stacked = node("ConcatFromSequence", "left", "y", axis=-1, new_axis=1)
    check([*nodes, stacked], np.stack([-X, X], -1), opset=opset, **known)


@pytest.mark.parametrize("place", [-2, -1, 0, 1, 2])
def test_a_place_below_zero_counts_from_the_end_of_what_is_there(place):
    nodes = [
        node("Neg", "x", "n"),
        node("Add", "x x", "d"),
        node("SequenceConstruct", "x n", "s"),
        node("SequenceInsert", "s d p", "t"),
        node("ConcatFromSequence", "t", "y", axis=1),
    ]
    wanted = [X, -X]
    wanted.insert(place, X + X)
    check(nodes, np.concatenate(wanted, 1), p=place)


def test_an_input_that_decides_what_is_in_a_sequence_is_fixed_to_the_array_that_is_given():
    from onnx import TensorProto, helper

    nodes = [node("SplitToSequence", "x p", "s", axis=1), node("SequenceAt", "s k", "y")]
    made = model(nodes, k=-1)
    made.graph.input.append(helper.make_tensor_value_info("p", TensorProto.INT64, [2]))
    parts = np.array([2, 3])
    built = build_model(made, {"x": X, "p": parts}, threads=1, check=False)
    np.testing.assert_array_equal(built(X, parts), X[:, 2:])


def test_a_size_at_which_a_sequence_has_no_such_place_is_named():
    nodes = [node("SplitToSequence", "x", "s", axis=0), node("SequenceAt", "s k", "y")]
    with pytest.raises(
        ModelError, match=r"at n=1, which .* is 1, in a sequence of 1; it may be -1"
    ):
        build_model(model(nodes, "n", k=1), dims={"n": (1, 6)}, threads=1)


def test_a_sequence_has_a_length():
    nodes = [
        node("SequenceConstruct", "x x x", "s"),
        node("SequenceLength", "s", "l"),
        node("Cast", "l", "f", to=1),
        node("Mul", "x f", "y"),
    ]
    check(nodes, 3 * X)


def test_parts_of_an_open_model_are_followed_too():
    split = node("SplitToSequence", "x p", "s", axis=1)
    at = node("SequenceAt", "s k", "a")
    nodes = [split, at, node("Relu", "a", "y")]
    built = build_model(model(nodes, "n", p=[2, 3], k=1), dims={"n": (1, 9)}, threads=1)
    for n in (1, 4, 6):
        np.testing.assert_allclose(built(X[:n]), np.maximum(X[:n, 2:], 0))


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([("SequenceConstruct", "x x", "s"), ("Relu", "s", "y")], "reads 's', a sequence"),
        ([("SequenceConstruct", "x x", "y")], "output 'y' is a sequence"),
        ([("SequenceConstruct", "x x", "s"), ("SequenceAt", "s two", "y")], "its place is 2, in"),
        ([("SequenceAt", "x two", "y")], "'x' is no sequence that is followed"),
        (
            [
                ("SequenceConstruct", "x x", "s"),
                ("ReduceMax", "x", "m"),
                ("Cast", "m", "i"),
                ("SequenceAt", "s i", "y"),
            ],
            "what 'i' holds decides what is computed, and it is known at a call only",
        ),
        (
            [("SequenceConstruct", "x x", "s"), ("SequenceInsert", "s", "y")],
            "has 1 inputs; it may",
        ),
        (
            [("SequenceConstruct", "x x", "s"), ("SplitToSequence", "s", "y")],
            "reads 's', a sequen",
        ),
        ([("SplitToSequence", "x none", "y")], "its parts are of 0"),
        ([("SplitToSequence", "x x", "y")], "its input 1 is float32; it may be integers"),
        (
            [("SequenceConstruct", "x x", "s"), ("SequenceAt", "s several", "y")],
            r"an input of it is \(2,\); it may be one number",
        ),
        ([("SequenceEmpty", "", "s"), ("ConcatFromSequence", "s", "y")], "of no tensors"),
    ],
)
def test_what_is_not_followed_is_refused_by_name(nodes, words):
    options = {"Cast": {"to": 7}, "ReduceMax": {"keepdims": 0}, "ConcatFromSequence": {"axis": 0}}
    made = [node(*each, **options.get(each[0], {})) for each in nodes]
    with pytest.raises(ModelError, match=words):
        build_model(model(made, two=2, none=0, several=[0, 1]), threads=1)
