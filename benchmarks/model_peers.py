"""Who runs a whole network: each function prepares one in its own process and returns a timer.

The networks are those of examples/models.py, and every result is compared with torch's.
"""

from __future__ import annotations

import importlib.util
import io
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from contenders.placement import onnxruntime_options, place_openmp
from peers import Timer, UnableError

_EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
_ENTERED = ExitStack()
Made = tuple[Timer, dict[str, Any]]


def networks() -> ModuleType:
    """examples/models.py."""
    spec = importlib.util.spec_from_file_location("models", _EXAMPLES / "models.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # torch.compile looks a network's module up there
    spec.loader.exec_module(module)
    return module


def network_of(name: str) -> tuple[Any, Any]:
    """A network and its inputs by name: "mobilenet", or "mobilenet zeros=0.2" for that share of
    zeros behind its batch norms and ReLUs."""
    name, _, zeros = name.partition(" zeros=")
    return networks().model(name, **({"zeros": float(zeros)} if zeros else {}))


def eager(network: str, threads: int) -> Made:
    """torch as it is."""
    return _torch(network, threads, lambda net: net)


def channels_last(network: str, threads: int) -> Made:
    """torch, activations and weights with channels last."""
    return _torch(network, threads, _turned, True)


def inductor(network: str, threads: int) -> Made:
    """torch.compile with weights frozen."""
    return _torch(network, threads, _compiled)


def inductor_last(network: str, threads: int) -> Made:
    """The same with channels last."""
    return _torch(network, threads, lambda net: _compiled(_turned(net)), True)


def onnxruntime(network: str, threads: int) -> Made:
    """onnxruntime with all of its optimizations."""
    import onnxruntime as ort

    net, inputs, wanted = _network(network, threads)
    options = onnxruntime_options(threads)
    session = ort.InferenceSession(_onnx(net, inputs), options, ["CPUExecutionProvider"])
    feeds = {i.name: x.numpy() for i, x in zip(session.get_inputs(), inputs)}
    return _timed(lambda: session.run(None, feeds), wanted)


def openvino(network: str, threads: int) -> Made:
    """OpenVINO, tuned for latency, in float32."""
    import openvino as ov

    net, inputs, wanted = _network(network, threads)
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    core = ov.Core()
    model = core.compile_model(core.read_model(_onnx(net, inputs)), "CPU", settings)
    request = model.create_infer_request()
    feeds = [x.numpy() for x in inputs]

    def call() -> Sequence[Any]:
        request.infer(feeds, share_inputs=True, share_outputs=True)
        return [request.get_output_tensor(n).data for n in range(len(model.outputs))]

    return _timed(call, wanted)


def ours(network: str, threads: int, **options: Any) -> Made:
    """What `build_model` makes, called as a user calls it."""
    import loopwright as lw

    net, inputs, wanted = _network(network, threads)
    made = lw.build_model(net, inputs, threads=threads, **options)
    given = [x.numpy() for x in inputs]

    def call() -> Sequence[Any]:
        result = made(*given)
        return result if isinstance(result, tuple) else [result]

    timer, facts = _timed(call, wanted)
    facts |= {
        "tuned": len(made.records),
        "tasks": len(made.work.tasks),
        "estimate": made.estimate,
        "weights": made.linked.weight_bytes,
    }
    return timer, facts


def reading(size: int, threads: int) -> Timer:
    """No peer, but its limit: an array as large as a network's weights is read once."""
    from loopwright.codegen.target import resolve
    from loopwright.measure.roofline import reader

    call = reader(size, resolve("cpu", threads))
    return lambda times: call.repeat(times)[0]


def tvm_default(network: str, threads: int) -> Made:
    """TVM's default build, by Relax's "zero" pipeline, nothing tuned."""
    import torch
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    from loopwright.codegen.target import resolve
    from loopwright.codegen.tvm_target import tvm_target

    net, inputs, wanted = _network(network, threads)
    program = torch.export.export(net, tuple(inputs))
    module = relax.get_pipeline("zero")(from_exported_program(program))
    machine = relax.VirtualMachine(tvm.compile(module, tvm_target(resolve("cpu"))), tvm.cpu())
    given = [tvm.runtime.tensor(x.numpy()) for x in inputs]

    def call() -> Sequence[Any]:
        result = machine["main"](*given)
        return [result] if hasattr(result, "numpy") else list(result)

    return _timed(call, wanted)


def _network(network: str, threads: int) -> tuple[Any, Any, list[Any]]:
    import torch

    torch.set_num_threads(threads)
    net, inputs = network_of(network)
    with torch.inference_mode():
        wanted = net(*inputs)
    several = wanted if isinstance(wanted, tuple) else (wanted,)
    return net, inputs, [w.numpy() for w in several]


def _torch(network: str, threads: int, change: Callable[[Any], Any], last: bool = False) -> Made:
    place_openmp()
    import torch

    net, inputs, wanted = _network(network, threads)
    if last:
        if all(x.dim() != 4 for x in inputs):
            raise UnableError("no channels")
        inputs = tuple(
            x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs
        )
    _ENTERED.enter_context(torch.inference_mode())  # for as long as the process lives
    changed = change(net)

    def call() -> Sequence[Any]:
        result = changed(*inputs)
        return result if isinstance(result, tuple) else [result]

    return _timed(call, wanted)


def _turned(net: Any) -> Any:
    import torch

    return net.to(memory_format=torch.channels_last)


def _compiled(net: Any) -> Any:
    import torch
    import torch._inductor.config as config

    config.freezing = True
    return torch.compile(net, backend="inductor")


def _onnx(net: Any, inputs: Any) -> bytes:
    import torch

    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, inputs, file, dynamo=False, opset_version=17)
    return file.getvalue()


def _timed(call: Callable[[], Sequence[Any]], wanted: list[Any]) -> Made:
    error = _error(call(), wanted)

    def repeat(times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            call()
        return time.perf_counter() - start

    return repeat, {"error": error}


def _error(got: Sequence[Any], wanted: list[Any]) -> float:
    """The largest difference, over the largest magnitude of its tensor; checked."""
    errors = []
    for one, other in zip(got, wanted, strict=True):
        array = one.numpy() if hasattr(one, "numpy") else np.asarray(one)
        if array.shape != other.shape:
            raise ValueError(f"a result has the shape {array.shape}, not {other.shape}")
        errors.append(np.abs(array - other).max() / np.abs(other).max())
    worst = float(np.max(errors))  # nan where one is
    if not worst < 1e-3:
        raise ValueError(f"its results are wrong: {worst:.2g} of the largest")
    return worst
