"""Description of a machine for the rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Gpu:
    """The limits of a GPU.

    Attributes
    ----------
    arch: NVIDIA's name of the architecture, such as "sm_90"; empty for other GPUs.
    warp: threads that run in step.
    most_threads: of a block.
    shared_bytes: of a block, as far as code generation can use them.
    registers: of 4 bytes, of a thread.
    sm_registers, sm_shared_bytes, sm_threads: of a multiprocessor, for all blocks on it.
    multiprocessors: how many there are.
    vector_bytes: of the widest load and store.
    tensor_cores: whether warps multiply matrices of float16 and bfloat16.
    async_copies: whether copies from global to shared memory run beside other work.
    """

    arch: str = ""
    warp: int = 32
    most_threads: int = 1024
    shared_bytes: int = 48 << 10
    registers: int = 255
    sm_registers: int = 64 << 10
    sm_shared_bytes: int = 100 << 10
    sm_threads: int = 2048
    multiprocessors: int = 64
    vector_bytes: int = 16
    tensor_cores: bool = False
    async_copies: bool = False


@dataclass(frozen=True)
class Target:
    """A machine that code is made for.

    Attributes
    ----------
    kind: "llvm" (machine code), "builtin" (machine code without LLVM), "c" (C source, compiled by
        the C compiler), "cuda" or "opencl".
    triple: LLVM's target triple.
    mcpu: LLVM's name of the processor; empty for the triple's generic one.
    features: LLVM's feature switches beyond `mcpu`, such as "+avx2".
    vector_bytes: width of a vector register.
    vector_registers: how many of them an inner loop may use.
    threads: threads that a parallel loop is meant to run on.
    l1_bytes, l2_bytes: data caches of one core.
    gpu: the limits of a GPU; None for processors. Of the rest, a GPU has its kind alone.
    """

    kind: str = "llvm"
    triple: str = "x86_64-unknown-linux-gnu"
    mcpu: str = ""
    features: tuple[str, ...] = ()
    vector_bytes: int = 32
    vector_registers: int = 16
    threads: int = 1
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    gpu: Gpu | None = None

    def lanes(self, item_bytes: int) -> int:
        """Elements of one vector register."""
        return max(1, self.vector_bytes // item_bytes)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Target:
        """Read what `to_json` wrote."""
        gpu = None if data["gpu"] is None else Gpu(**data["gpu"])
        return Target(**{**data, "features": tuple(data["features"]), "gpu": gpu})

    def __str__(self) -> str:
        if self.gpu is not None:
            return f"{self.kind} {self.gpu.arch}".strip()
        extra = f" {' '.join(self.features)}" if self.features else ""
        return f"{self.kind} {self.triple} {self.mcpu or 'generic'}{extra}"


def vector_registers(triple: str, features: Collection[str]) -> tuple[int, int]:
    """Bytes of a vector register of a processor, and how many there are."""
    if not triple.startswith("x86_64"):
        return 16, 32
    if "+avx512f" in features:
        return 64, 32
    return (32, 16) if "+avx2" in features or "+avx" in features else (16, 16)
