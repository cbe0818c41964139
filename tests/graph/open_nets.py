"""Models of open axes, and numbers for them."""

import numpy as np


def model_of(nodes, inputs, outputs, weights=()):
    """A model of some nodes, whose inputs are shapes by name, some of their axes named."""
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(x, n) for n, x in weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def random(*shape, seed=0):
    """Numbers that are the same in every run."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
