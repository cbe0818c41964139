"""GPU targets: from what the user says to the limits of a GPU."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from loopwright.dsl.errors import TargetError
from loopwright.schedule.target import Gpu, Target

GPU_KINDS = ("cuda", "opencl")
OLDEST = 70
"""The oldest compute capability that programs are made for: 7.0, Volta."""

_KIB = 1 << 10
_FIELDS = {f.name: f.type for f in fields(Gpu)}
# By compute capability (CUDA C++ Programming Guide, "Technical Specifications per Compute
# Capability"): KiB of shared memory of a block and of a multiprocessor, threads of a
# multiprocessor; and multiprocessors of the largest GPU that is sold.
_ARCHITECTURES = {
    70: (96, 96, 2048, 80),
    72: (96, 96, 2048, 8),
    75: (64, 64, 1024, 72),
    80: (163, 164, 2048, 108),
    86: (99, 100, 1536, 84),
    87: (163, 164, 1536, 16),
    89: (99, 100, 1536, 142),
    90: (227, 228, 2048, 132),
    100: (227, 228, 2048, 148),
    103: (227, 228, 2048, 160),
    110: (227, 228, 1536, 20),
    120: (99, 100, 1536, 188),
    121: (99, 100, 1536, 48),
}
_AMPERE = 80
"""From here on there are asynchronous copies, and matrix products of bfloat16."""


def gpu_of(arch: str) -> Gpu:
    """The limits of an NVIDIA architecture, such as "sm_90". Raises `TargetError`."""
    match = re.fullmatch(r"sm_(\d+)[af]?", arch)
    number = int(match[1]) if match else 0
    known = [a for a in _ARCHITECTURES if a <= number]
    if not match or (not known and number >= OLDEST):
        raise TargetError(f'{arch!r} is no architecture of CUDA; write it as "sm_90"')
    if not known:
        raise TargetError(
            f"{arch} is too old: programs are made for sm_{OLDEST} and newer; for this GPU use "
            'target="opencl"'
        )
    shared, all_shared, threads, multiprocessors = _ARCHITECTURES[known[-1]]
    return Gpu(
        arch=arch,
        shared_bytes=shared * _KIB,
        sm_shared_bytes=all_shared * _KIB,
        sm_threads=threads,
        multiprocessors=multiprocessors,
        tensor_cores=number >= _AMPERE,
        async_copies=number >= _AMPERE,
    )


@functools.cache
def this_gpu(kind: str) -> Target:
    """This machine's GPU. Raises `TargetError` where there is none, or no driver for it."""
    if kind == "cuda":
        from loopwright.codegen.devices.cuda_driver import facts

        device = facts()
        gpu = replace(
            gpu_of(device.arch),
            multiprocessors=device.multiprocessors,
            shared_bytes=device.shared_bytes,
            sm_shared_bytes=device.sm_shared_bytes,
            sm_threads=device.sm_threads,
            sm_registers=device.sm_registers,
        )
        return Target("cuda", gpu=gpu)
    from loopwright.codegen.devices.opencl import device as opencl_device

    found = opencl_device()
    return Target(
        "opencl",
        gpu=Gpu(
            most_threads=min(1024, int(found.max_work_group_size)),
            shared_bytes=min(48 * _KIB, int(found.local_mem_size)),
            multiprocessors=int(found.max_compute_units),
        ),
    )


def named_gpu(config: Mapping[str, Any]) -> Target:
    """The GPU of a mapping: "kind", "arch", and fields of `Gpu`. Raises `TargetError`."""
    kind, limits = str(config["kind"]), {k: v for k, v in config.items() if k != "kind"}
    unknown = sorted(set(limits) - set(_FIELDS))
    if unknown:
        raise TargetError(
            f"{dict(config)}: a GPU has no {', '.join(unknown)}; the keys are kind, "
            f"{', '.join(_FIELDS)}"
        )
    for name, value in limits.items():
        wanted = {"int": int, "bool": bool, "str": str}[str(_FIELDS[name])]
        fits = type(value) is wanted
        if not fits or (wanted is int and value < 1):
            raise TargetError(f"{name} = {value!r}: give a {wanted.__name__}, numbers at least 1")
    arch = limits.get("arch")
    if kind == "opencl":
        if arch is not None:
            raise TargetError('"arch" names architectures of CUDA; OpenCL compiles for any device')
        return Target(kind, gpu=Gpu(**limits))
    if arch is None:
        here = this_gpu("cuda").gpu
        assert here is not None
        return Target(kind, gpu=replace(here, **limits))
    return Target(kind, gpu=replace(gpu_of(arch), **limits))
