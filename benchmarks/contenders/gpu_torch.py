"""torch on the GPU: cuDNN and cuBLAS, in either layout, and what Inductor compiles."""

from __future__ import annotations

from typing import Any

from peers import UnableError
from suites.row import Arrays, Row

from contenders.gpu_contract import OnGpu, gpu_torch
from contenders.gpu_operators import module, tensors


def plain(row: Row, inputs: Arrays) -> OnGpu:
    gpu_torch()
    return _made(module(row), tensors(inputs, "cuda"))


def channels_last(row: Row, inputs: Arrays) -> OnGpu:
    """Activations and weights of convolutions in that layout."""
    torch = gpu_torch()
    if "conv2d" not in row.operator:
        raise UnableError("no channels")
    last = torch.channels_last
    return _made(module(row), [x.to(memory_format=last) for x in tensors(inputs, "cuda")])


def compiled(row: Row, inputs: Arrays) -> OnGpu:
    """torch.compile, max-autotune; its own graphs are left out, since all are timed in one."""
    torch = gpu_torch()
    mode = "max-autotune-no-cudagraphs"
    return _made(torch.compile(module(row), mode=mode, dynamic=False), tensors(inputs, "cuda"))


def _made(work: Any, values: list[Any]) -> OnGpu:
    torch = gpu_torch()
    kept: list[Any] = [None]

    def run() -> None:
        with torch.inference_mode():
            kept[0] = work(*values)

    run()  # algorithms are chosen, kernels compiled
    torch.cuda.synchronize()
    return OnGpu(run, lambda: kept[0].float().cpu().contiguous().numpy())
