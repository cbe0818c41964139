"""Loopwright on the GPU: the config that it is given, or the default one; constants bound."""

from __future__ import annotations

from typing import Any

from suites.row import Arrays, Row

import loopwright as lw
from contenders.gpu_contract import OnGpu, gpu_torch
from loopwright.schedule.sketch.sketch import Config


def plain(row: Row, inputs: Arrays, config: dict[str, Any] | None = None) -> OnGpu:
    torch = gpu_torch()
    workload = row.request.workload
    chosen = None if config is None else Config.from_json(config)
    constants = [t.name for t in workload.constants]
    library = lw.build(workload, chosen, "cuda").bind(**{n: inputs[n] for n in constants})
    values = {n: torch.from_numpy(a).cuda() for n, a in inputs.items() if n not in constants}
    (out,) = workload.outputs
    result = torch.empty(out.shape, dtype=getattr(torch, out.dtype), device="cuda")
    torch.cuda.synchronize()
    return OnGpu(lambda: library(**values, out=result), lambda: result.float().cpu().numpy())
