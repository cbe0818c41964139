"""onnxruntime on the CPU: every graph optimization, weights packed by the session, arrays bound
so that nothing is copied."""

from __future__ import annotations

from peers import UnableError
from suites.row import Arrays, Row

from contenders.contract import Prepared
from contenders.onnx_model import feeds, model
from contenders.placement import onnxruntime_options

try:
    import onnxruntime as ort
except ImportError as missing:
    raise UnableError("onnxruntime is not installed") from missing


def plain(row: Row, inputs: Arrays, threads: int) -> Prepared:
    session = ort.InferenceSession(
        model(row, inputs).SerializeToString(),
        onnxruntime_options(threads),
        providers=["CPUExecutionProvider"],
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
