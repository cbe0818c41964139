"""Models of a single ONNX operator, and what they compute."""

import numpy as np

from loopwright.graph.build import build_model


def node_model(op, arrays, known=None, results=1, opset=20, order=None, ml=3, **attributes):
    """A model of one operator: arrays for its inputs and, `known`, for its weights, by name."""
    from onnx import ValueInfoProto, helper, numpy_helper

    def value(name, array):
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(name, kind, array.shape)

    known = known or {}
    names = [f"y{n}" for n in range(results)]
    node = helper.make_node(op, order or [*arrays, *known], names, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [value(name, array) for name, array in arrays.items()],
        [ValueInfoProto(name=name) for name in names],
        [numpy_helper.from_array(array, name) for name, array in known.items()],
    )
    versions = {"": opset, "com.microsoft": 1, "ai.onnx.ml": ml}
    opsets = [helper.make_opsetid(*pair) for pair in versions.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def computed(op, arrays, known=None, **options):
    """What a compiled operator gives for arrays that are known at the call only."""
    arrays = {name: np.asarray(x) for name, x in arrays.items()}
    return build_model(node_model(op, arrays, known, **options), threads=1)(*arrays.values())
