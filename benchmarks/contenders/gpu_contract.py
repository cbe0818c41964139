"""What a contender on a GPU is, and how it is timed: by events, in a CUDA graph where it may be.

A graph holds several runs, so that what is timed is the GPU's work and not how fast Python can
launch it: that is the same for all contenders that way. Data stays in the GPU's caches if it fits.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from peers import Peer, Timer, UnableError
from suites.row import Row

from contenders.reference import error

FUNCTIONS = {
    "ours": "gpu_ours:plain",
    "torch": "gpu_torch:plain",
    "torch-last": "gpu_torch:channels_last",
    "torch-compile": "gpu_torch:compiled",
    "dlight": "gpu_dlight:plain",
}
PEERS = tuple(name for name in FUNCTIONS if name != "ours")
TOLERANCE = {"float32": 1e-3, "float16": 1e-2}
"""Of results, as a share of the largest. Winograd's algorithms are used by cuDNN too."""
_RUNS = 10  # in a graph


@dataclass(frozen=True)
class OnGpu:
    """Work that was made ready: constants laid out, kernels compiled, data on the GPU.

    Attributes
    ----------
    run: enqueues it once on torch's current stream.
    result: the array in the row's layout, of the last run.
    timer: seconds of `n` runs, where the contender's own clock is needed.
    facts: anything to be kept beside the times.
    """

    run: Callable[[], Any]
    result: Callable[[], np.ndarray]
    timer: Timer | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def peer(name: str, row: Row, processors: int, expected: str, **more: Any) -> Peer:
    """A contender, as `peers` measures it: see `contenders.peer`."""
    arguments = {"function": FUNCTIONS[name.partition("@")[0]], "row": row.to_json()}
    arguments |= {"expected": expected, "more": more}
    return Peer(name, "contenders.gpu_contract:timed", arguments, processors)


def timed(
    function: str, row: list, expected: str, more: dict[str, Any]
) -> tuple[Timer, dict[str, Any]]:
    """Prepare, compare the result with the right one, and return the timer, in a process."""
    chosen = Row.from_json(row)
    module, _, attribute = function.partition(":")
    make = getattr(importlib.import_module(f"contenders.{module}"), attribute)
    made: OnGpu = make(chosen, chosen.inputs(), **more)
    made.run()
    found = error(np.asarray(made.result(), np.float64), np.load(expected))
    most = TOLERANCE[chosen.request.workload.outputs[0].dtype]
    if not found <= most:
        raise ValueError(f"wrong: its results deviate by {found:.1e} of the largest")
    timer, graph = (made.timer, False) if made.timer else _timer(made.run)
    timer.made = made  # the memory that a graph works on lives as long as its timer
    return timer, {"error": found, "graph": graph, **made.facts}


def _timer(run: Callable[[], Any]) -> tuple[Timer, bool]:
    """By events around graphs of several runs; of plain runs where they cannot be captured."""
    torch = gpu_torch()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for _ in range(_RUNS):
                run()
    except RuntimeError:
        torch.cuda.synchronize()
        return by_events(run, 1), False
    return by_events(graph.replay, _RUNS), True


def by_events(launch: Callable[[], Any], runs: int) -> Timer:
    """A timer for launches of so many runs each."""
    torch = gpu_torch()

    def timer(count: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        launches = -(-count // runs)
        start.record()
        for _ in range(launches):
            launch()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3 / (launches * runs) * count

    return timer


def gpu_torch() -> Any:
    """torch, with a GPU and without TF32, so that float32 is float32 for all."""
    try:
        import torch
    except ImportError as missing:
        raise UnableError("torch is not installed") from missing
    if not torch.cuda.is_available():
        raise UnableError("torch finds no GPU: install a CUDA build, and NVIDIA's driver")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cudnn.benchmark = True  # its fastest algorithm, found before timing
    return torch
