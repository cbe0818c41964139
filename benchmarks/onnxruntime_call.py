"""A model of one input by onnxruntime, for benchmarks that compare calls of any kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def onnxruntime_call(model: Any, x: np.ndarray, threads: int) -> Callable[[], object]:
    """Calls a `ModelProto` with the array as its input "x"."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings)
    return lambda: session.run(None, {"x": x})
