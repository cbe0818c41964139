"""TVM's default schedules for GPUs, which need no tuning (dlight), for the operator as torch says
it: exported, legalized, fused, scheduled by the first rule that fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import tvm
from peers import UnableError
from suites.row import Arrays, Row
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program
from tvm.s_tir import dlight

from contenders.gpu_contract import OnGpu
from contenders.gpu_operators import module, tensors


def plain(row: Row, inputs: Arrays) -> OnGpu:
    device = tvm.cuda()
    if not device.exist:
        raise UnableError("TVM finds no GPU")
    made = compiled(row, inputs, f"sm_{device.compute_version.replace('.', '')}")
    machine = relax.VirtualMachine(made, device)
    values = [tvm.runtime.tensor(a, device) for a in inputs.values()]
    kept: list[Any] = [None]

    def run() -> None:
        kept[0] = machine["main"](*values)

    def timer(count: int) -> float:
        clock = machine.time_evaluator("main", device, number=count)
        return float(clock(*values).mean) * count

    return OnGpu(run, lambda: np.asarray(kept[0].numpy(), np.float32), timer)


def compiled(row: Row, inputs: Arrays, arch: str) -> Any:
    """The executable; where there is no driver its kernels are CUDA's source."""
    target = tvm.target.Target({"kind": "cuda", "arch": arch}, host={"kind": "llvm"})
    return tvm.compile(scheduled(row, inputs, target), target)


def scheduled(row: Row, inputs: Arrays, target: Any) -> Any:
    """The module of kernels, each bound to threads by a rule of dlight's."""
    with torch.no_grad():
        exported = torch.export.export(module(row), tuple(tensors(inputs, "cpu")))
    found = from_exported_program(exported, unwrap_unit_return_tuple=True)
    gpu = dlight.gpu
    # Not its rule for transpositions, which raises an error in TVM 0.27.
    rules = (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction())
    steps = (relax.get_pipeline("zero"), dlight.ApplyDefaultSchedule(*rules, gpu.Fallback()))
    with target:
        return tvm.transform.Sequential(steps)(found)
