"""What benchmarks/gpu.py would measure, built without a GPU: nothing of it runs."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from contenders.gpu_dlight import compiled
from contenders.gpu_operators import module, tensors
from suites.row import Row

from loopwright.codegen.build import program
from loopwright.codegen.compile import compile_by
from loopwright.codegen.devices.code import resources
from loopwright.codegen.target import resolve

_KERNEL = re.compile(r"__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(")
HEAD = ("row", "kernels", "registers", "spilled bytes", "shared bytes", "dlight", "torch")


def build(rows: Sequence[Row], arch: str, peers: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """A line for each row: what our default schedule's kernels use, as nvcc tells; kernels of
    dlight's that nvcc takes; the type of torch's result, from shapes alone."""
    for row in rows:
        dlight = _dlight(row, arch) if "dlight" in peers else "–"
        yield (f"{row.suite} {row.name}", *_ours(row, arch), dlight, _torch(row))


def _ours(row: Row, arch: str) -> tuple[str, ...]:
    target = resolve({"kind": "cuda", "arch": arch})
    (code,) = compile_by(program(row.request.workload, None, target)).objects
    found = resources(code)
    if not found:
        return "source", "?", "?", "?"
    most = [str(max(r[name] for r in found)) for name in ("registers", "shared")]
    return str(len(found)), most[0], str(sum(r["spills"] for r in found)), most[1]


def _dlight(row: Row, arch: str) -> str:
    texts = list(_sources(compiled(row, row.inputs(), arch).mod))
    with tempfile.TemporaryDirectory() as folder:
        for number, text in enumerate(texts):
            source = Path(folder, f"{number}.cu")
            source.write_text(text)
            command = ["nvcc", f"-arch={arch}", "-cubin", source, "-o", source.with_suffix(".o")]
            subprocess.run(command, check=True, capture_output=True)
    names = {name for text in texts for name in _KERNEL.findall(text)}
    return str(len(names))


def _sources(built: Any) -> Iterator[str]:
    """CUDA's source in a module and in those that it imports."""
    if built.kind == "cuda":
        yield str(built.inspect_source("cuda"))
    for inner in built.imports:
        yield from _sources(inner)


def _torch(row: Row) -> str:
    result = module(row)(*tensors(row.inputs(), "meta"))
    (out,) = row.request.workload.outputs
    shape, dtype = tuple(result.shape), str(result.dtype).removeprefix("torch.")
    if (shape, dtype) != (out.shape, out.dtype):
        raise SystemExit(f"{row.name}: torch gives {dtype}{shape}, ours {out.dtype}{out.shape}")
    return dtype
