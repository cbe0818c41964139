"""Models of many inputs and outputs, as decoders with a cache have them."""

import numpy as np
import pytest

from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError

pytestmark = pytest.mark.onnx


def rectified(count):
    """A model that gives the positive part of each of many inputs."""
    from onnx import TensorProto, helper

    def values(name):
        made = (f"{name}{n}" for n in range(count))
        return [helper.make_tensor_value_info(m, TensorProto.FLOAT, (4,)) for m in made]

    nodes = [helper.make_node("Relu", [f"x{n}"], [f"y{n}"]) for n in range(count)]
    graph = helper.make_graph(nodes, "g", values("x"), values("y"))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_a_model_may_have_a_hundred_inputs_and_outputs():
    inputs = [np.arange(4, dtype=np.float32) - n for n in range(100)]
    results = build_model(rectified(100), threads=1, check=False)(*inputs)
    for x, y in zip(inputs, results, strict=True):
        np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_too_many_are_an_error_that_says_how_many_may_be():
    with pytest.raises(ModelError, match="the model takes 520 arrays; 512 may be"):
        build_model(rectified(260), threads=1, check=False)


def test_a_part_of_what_is_computed_is_an_output_of_its_own():
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Softmax", ["x"], ["whole"]),
        helper.make_node("Slice", ["whole", "start", "end"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (64, 32))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 32))],
        [numpy_helper.from_array(np.array([n]), name) for name, n in (("start", 5), ("end", 7))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    x = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    wanted = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    made = build_model(model, threads=1)(x)
    np.testing.assert_allclose(made, wanted[5:7], rtol=1e-4, atol=1e-6)


def test_a_long_chain_of_elements_becomes_several_steps():
    """One would take minutes to compile."""
    from onnx import TensorProto, ValueInfoProto, helper

    chain = [("Sin", "Neg")[n % 2] for n in range(400)]
    nodes = [helper.make_node(op, [f"v{n}"], [f"v{n + 1}"]) for n, op in enumerate(chain)]
    x = helper.make_tensor_value_info("v0", TensorProto.FLOAT, (8,))
    graph = helper.make_graph(nodes, "g", [x], [ValueInfoProto(name="v400")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    built = build_model(model, threads=1, check=False)
    assert 4 <= len(built.work.network.steps) <= 8
    given = np.linspace(-1, 1, 8, dtype=np.float32)
    wanted = given.astype(np.float64)
    for _ in range(200):
        wanted = -np.sin(wanted)
    np.testing.assert_allclose(built(given), wanted, rtol=1e-3, atol=1e-5)
