"""onnxruntime on the CPU: every graph optimization, weights packed by the session, arrays bound
so that nothing is copied."""

from __future__ import annotations

import os

from peers import UnableError
from suites.row import Arrays, Row

from contenders.contract import Prepared
from contenders.onnx_model import feeds, model

try:
    import onnxruntime as ort
except ImportError as missing:
    raise UnableError("onnxruntime is not installed") from missing


def plain(row: Row, inputs: Arrays, threads: int) -> Prepared:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    if threads > 1:  # one core for each that it starts, counted from 1; the caller has the first
        cores = sorted(os.sched_getaffinity(0))
        places = ";".join(str(core + 1) for core in cores[1:threads])
        options.add_session_config_entry("session.intra_op_thread_affinities", places)
    session = ort.InferenceSession(
        model(row, inputs).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    fed = {n: ort.OrtValue.ortvalue_from_numpy(a) for n, a in feeds(row, inputs).items()}
    for name, value in fed.items():
        binding.bind_ortvalue_input(name, value)
    out = ort.OrtValue.ortvalue_from_shape_and_type(
        list(row.request.workload.outputs[0].shape), inputs[next(iter(inputs))].dtype
    )
    binding.bind_ortvalue_output("out", out)
    return Prepared(
        lambda: session.run_with_iobinding(binding), lambda _: out.numpy(), keeps=(fed, out)
    )
