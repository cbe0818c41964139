"""OpenVINO on the CPU, tuned for latency, in float32; arrays are set once and shared.

plain: activations channels first, as in the row.
channels_last: activations channels last, in and out, which its convolutions prefer on AVX2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from peers import UnableError
from suites.row import Arrays, Row, aligned

from contenders.contract import Prepared
from contenders.onnx_model import feeds, model, shape

try:
    import openvino as ov
    from openvino.preprocess import PrePostProcessor
except ImportError as missing:
    raise UnableError("openvino is not installed") from missing


def plain(row: Row, inputs: Arrays, threads: int) -> Prepared:
    out = aligned(np.zeros(shape(row), np.float32))
    fed = feeds(row, inputs)
    run = _request(_read(row, inputs), fed, out, threads)
    return Prepared(run, lambda _: out, keeps=(fed, out))


def channels_last(row: Row, inputs: Arrays, threads: int) -> Prepared:
    fed = feeds(row, inputs)
    if len(shape(row)) != 4 or list(fed) != ["x"]:
        raise UnableError("no channels")
    process = PrePostProcessor(_read(row, inputs))
    for side in (process.input(), process.output()):
        side.tensor().set_layout(ov.Layout("NHWC"))
        side.model().set_layout(ov.Layout("NCHW"))
    n, c, height, width = shape(row)
    out = aligned(np.zeros((n, height, width, c), np.float32))
    last = {"x": aligned(fed["x"].transpose(0, 2, 3, 1))}
    run = _request(process.build(), last, out, threads)
    return Prepared(run, lambda _: out.transpose(0, 3, 1, 2), keeps=(last, out))


def _read(row: Row, inputs: Arrays) -> Any:
    return ov.Core().read_model(model(row, inputs).SerializeToString())


def _request(network: Any, fed: Arrays, out: np.ndarray, threads: int) -> Any:
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": "f32",
        "ENABLE_CPU_PINNING": True,
    }
    request = ov.Core().compile_model(network, "CPU", settings).create_infer_request()
    for name, array in fed.items():
        request.set_tensor(name, ov.Tensor(array, shared_memory=True))
    request.set_output_tensor(ov.Tensor(out, shared_memory=True))
    return lambda: request.infer(share_inputs=True, share_outputs=True)
