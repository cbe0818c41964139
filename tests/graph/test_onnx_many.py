"""Models of many inputs and outputs, as decoders with a cache have them."""

import numpy as np
import pytest

from loopwright.graph.compile.model import build_model
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
