"""What a plan does with arrays that share memory: views, inputs and weights that are results."""

import numpy as np
import pytest

from loopwright.graph.build import build_model

pytestmark = pytest.mark.onnx
X = np.arange(24, dtype=np.float32).reshape(4, 6) + 1
W = X[::-1] * 2


def computed(nodes, outputs, arrays=None):
    """The results of a graph that takes `x`, and knows the weight `w` and some integers."""
    from onnx import ValueInfoProto, helper, numpy_helper

    arrays = arrays or {"x": X}
    known = {"w": W, "none": [0, 6], "flat": [-1]}
    known |= {"zero": [0], "one": [1], "two": [2], "three": [3]}
    kind = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [helper.make_node(op, given, made) for op, given, made in nodes],
        "g",
        [helper.make_tensor_value_info(n, kind(a.dtype), a.shape) for n, a in arrays.items()],
        [ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in known.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    built = build_model(model, threads=2)
    before = {n: a.copy() for n, a in arrays.items()}
    first, second = built(*arrays.values()), built(*arrays.values())
    for name, a in arrays.items():
        np.testing.assert_array_equal(a, before[name])
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
        assert not np.shares_memory(a, b)
    for number, one in enumerate(first):
        assert not any(np.shares_memory(one, a) for a in (*first[:number], *arrays.values()))
    return first


def check(found, *wanted):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_inputs_weights_and_their_parts_are_results():
    nodes = [
        ("Slice", ["x", "one", "three", "zero"], ["part"]),
        ("Reshape", ["part", "flat"], ["flat_part"]),
        ("Slice", ["w", "one", "three", "zero"], ["known"]),
    ]
    found = computed(nodes, ["x", "part", "flat_part", "w", "known", "x", "part", "w"])
    flat = X[1:3].reshape(-1)
    check(found, X, X[1:3], flat, W, W[1:3], X, X[1:3], W)


def test_a_result_is_read_by_later_steps_and_given_with_its_parts():
    nodes = [
        ("Neg", ["x"], ["y"]),
        ("Slice", ["y", "one", "three", "zero"], ["part"]),
        ("Reshape", ["y", "flat"], ["all"]),
        ("Transpose", ["w"], ["turned"]),
        ("MatMul", ["part", "turned"], ["z"]),
    ]
    found = computed(nodes, ["y", "part", "all", "z", "y", "z", "all"])
    y, flat, z = -X, -X.reshape(-1), -X[1:3] @ W.T
    check(found, y, -X[1:3], flat, z, y, z, flat)


def test_results_without_elements_lie_beside_others():
    nodes = [
        ("Slice", ["x", "one", "one", "zero"], ["empty"]),
        ("Reshape", ["empty", "none"], ["nothing"]),
        ("Neg", ["x"], ["y"]),
    ]
    found = computed(nodes, ["empty", "nothing", "y", "empty"])
    check(found, X[:0], X[:0], -X, X[:0])


def test_code_of_tvm_reads_parts_and_misaligned_inputs():
    """It wants arrays aligned, so inputs and parts of arrays are copied for it."""
    nodes = [
        ("ScatterND", ["x", "rows", "new"], ["changed"]),
        ("Slice", ["changed", "one", "three", "zero"], ["part"]),  # 24 bytes behind the start
        ("Slice", ["rows", "zero", "one", "zero"], ["row"]),
        ("Slice", ["new", "one", "two", "zero"], ["last"]),
        ("ScatterND", ["part", "row", "last"], ["again"]),
    ]
    room = np.zeros(25, np.float32)
    x = room[1:].reshape(4, 6)  # four bytes behind where an array begins
    x[...] = X
    arrays = {"x": x, "rows": np.array([[1], [3]]), "new": -X[:2]}
    found = computed(nodes, ["changed", "part", "x", "again", "changed"], arrays)
    changed = X.copy()
    changed[[1, 3]] = -X[:2]
    again = changed[1:3].copy()
    again[1] = -X[1]
    check(found, changed, changed[1:3], X, again, changed)
