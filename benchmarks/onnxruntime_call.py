"""A model of one input by onnxruntime, for benchmarks that compare calls of any kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def onnxruntime_call(model: Any, x: np.ndarray, threads: int) -> Callable[[], object]:
    """Calls a `ModelProto` with the array as its input "x"."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings)
    return lambda: session.run(None, {"x": x})


def one_operator(
    op: str,
    shape: tuple[int, ...],
    outputs: list[str],
    known: Mapping[str, np.ndarray],
    **attributes: Any,
) -> Any:
    """A model of one operator: an input "x" of some shape, and arrays that are known."""
    from onnx import ValueInfoProto, helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node(op, ["x", *known], outputs, **attributes)],
        op,
        [helper.make_tensor_value_info("x", 1, shape)],
        [ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in known.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
