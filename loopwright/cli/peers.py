"""What torch, or else NumPy, needs for the same work: to show beside the result of a search.

They are called from Python, and what that costs is much of the time of small work. So ours is
timed like that too: a search times kernels, in a loop of machine code.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from loopwright.cli.workload import Request
from loopwright.dsl.oracle import random_inputs
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload
from loopwright.explore.report.callbacks import speed
from loopwright.measure.timing import typical

if TYPE_CHECKING:
    from loopwright.codegen.library.library import Library

_SECONDS = 0.5
_LONG = 5.0
_ROUNDS = 200
_SEED = 0


def compare_peer(request: Request, library: Library) -> str | None:
    """A line on another library beside ours, both called from Python; None where there is none."""
    peer = peer_seconds(request, library.threads)
    if peer is None:
        return None
    name, seconds = peer
    own = called_seconds(library, request.workload)
    return (
        f"{name:<10} {speed(request.workload.flops, seconds, None)}; called from Python like it, "
        f"the best takes {own * 1e3:.4g} ms: {seconds / own:.2f} times as fast"
    )


def peer_seconds(request: Request, threads: int) -> tuple[str, float] | None:
    """The name of the other library and its time in seconds; None where there is no
    counterpart. NumPy stands in for torch for products; its threads are its own affair."""
    if request.arguments.get("accumulate") or request.arguments.get("layout", "NCHW") != "NCHW":
        return None
    if importlib.util.find_spec("torch") is not None and request.name in _TORCH:
        name = "torch"
    elif request.name in _NUMPY and "bias" not in request.arguments:
        name = "numpy"
    else:
        return None
    try:
        call = _torch_call(request, threads) if name == "torch" else _numpy_call(request)
        return name, _seconds(call)
    except Exception:  # noqa: BLE001 - it lacks the type, or unequal padding, or is broken itself
        return None


def called_seconds(library: Library, workload: Workload) -> float:
    """The time in seconds of a library of ours, called from Python like the others, its constants
    bound ahead."""
    data = zip(workload.inputs, random_inputs(workload, np.random.default_rng(_SEED)), strict=True)
    arrays = {t.name: array for t, array in data}
    bound = library.bind(**{t.name: arrays.pop(t.name) for t in workload.constants})
    inputs = tuple(arrays.values())
    return _seconds(lambda: bound(*inputs))


def _torch_call(request: Request, threads: int) -> Callable[[], object]:
    import torch

    torch.set_num_threads(threads)
    rng = np.random.default_rng(_SEED)
    arrays = _arrays(request, random_inputs(request.workload, rng))
    arguments = {
        n: torch.from_numpy(a) if isinstance(a, np.ndarray) else a for n, a in arrays.items()
    }

    return lambda: _TORCH[request.name](torch, arguments)


def _numpy_call(request: Request) -> Callable[[], object]:
    rng = np.random.default_rng(_SEED)
    arguments = _arrays(request, random_inputs(request.workload, rng))
    return lambda: _NUMPY[request.name](arguments)


def _arrays(request: Request, inputs: tuple[Any, ...]) -> dict[str, Any]:
    """The arguments with arrays for tensors; a workload names its inputs as its tensors."""
    by_name = {t.name: a for t, a in zip(request.workload.inputs, inputs, strict=True)}
    return {
        n: by_name[a.name] if isinstance(a, Tensor) else a for n, a in request.arguments.items()
    }


def _seconds(call: Callable[[], object]) -> float:
    """What a call costs, by as many samples as half a second allows; at least three of those that
    do not take seconds."""
    call()
    samples: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(samples) < (3 if sum(samples) < _LONG else 1) or (
        time.perf_counter() < end and len(samples) < _ROUNDS
    ):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return typical(samples)


def _conv2d(torch: Any, a: Mapping[str, Any]) -> Any:
    """torch's convolution takes channels first; padding before and after must be equal."""
    options = {n: a[n] for n in ("stride", "padding", "dilation", "groups") if n in a}
    return torch.nn.functional.conv2d(a["x"], a["w"], a.get("bias"), **options)


def _product(module: Any, a: Mapping[str, Any]) -> Any:
    one = a["a"].swapaxes(-1, -2) if a.get("transpose_a") else a["a"]
    other = a["b"].swapaxes(-1, -2) if a.get("transpose_b") else a["b"]
    return module.matmul(one, other)


def _operands(a: Mapping[str, Any]) -> list[Any]:
    return [v for n, v in a.items() if n != "spec"]


_TORCH: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "conv2d": _conv2d,
    "matmul": _product,
    "batch_matmul": _product,
    "dense": lambda torch, a: torch.nn.functional.linear(a["x"], a["w"], a.get("bias")),
    "einsum": lambda torch, a: torch.einsum(a["spec"], *_operands(a)),
}
_NUMPY: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "matmul": lambda a: _product(np, a),
    "batch_matmul": lambda a: _product(np, a),
    "dense": lambda a: a["x"] @ a["w"].T,
    "einsum": lambda a: np.einsum(a["spec"], *_operands(a), optimize=True),
}
