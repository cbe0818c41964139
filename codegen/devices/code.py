"""Code for a GPU and the launches of its kernels. No TVM: run workers read it. No TVM: run workers
read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from loopwright.dsl.errors import LibraryError

FORMAT = "loopwright-gpu-code"
SCHEMA = 1


@dataclass(frozen=True)
class Launch:
    """One kernel of a function, by its name in the code. `arguments` are numbers of its function's
    buffers, in the order of its parameters: arguments first, then workspaces. `grid` and `block`
    count blocks and threads; `shared_bytes` are asked for at the launch."""

    kernel: str
    arguments: tuple[int, ...]
    grid: int
    block: int
    shared_bytes: int = 0


@dataclass(frozen=True)
class Plan:
    """Launches of a function of a library, one after the other. There are as many `pointers` as
    the function has arguments; `workspaces` of that many bytes are not initialised."""

    pointers: int
    launches: tuple[Launch, ...]
    workspaces: tuple[int, ...] = ()


@dataclass(frozen=True)
class Resources:
    """Resources that a kernel needs, as NVIDIA's assembler reports them. They are registers of a
    thread, bytes of its stack, bytes that it spills (stores and loads), and shared bytes of a
    block."""

    kernel: str
    registers: int
    stack: int
    spills: int
    shared: int


@dataclass(frozen=True)
class GpuCode:
    """Code for GPUs with what it needs to be run: the `image` is a cubin, a fat binary, which has
    PTX for newer GPUs too, compiled for an `arch` such as "sm_90", or OpenCL source. `functions`
    are plans by name, "main" and perhaps "prepare"; `resources` of kernels may be known."""

    language: str
    arch: str
    image: bytes
    functions: Mapping[str, Plan]
    resources: tuple[Resources, ...] = ()

    def to_bytes(self) -> bytes:
        """One blob: a line of JSON, then the image."""
        header = {
            "format": FORMAT,
            "schema": SCHEMA,
            "language": self.language,
            "arch": self.arch,
            "image": len(self.image),
            "functions": {name: asdict(plan) for name, plan in self.functions.items()},
            "resources": [asdict(r) for r in self.resources],
        }
        return json.dumps(header).encode() + b"\n" + self.image

    @staticmethod
    def from_bytes(blob: bytes) -> GpuCode:
        """The inverse of `to_bytes`. Raises `LibraryError` where `blob` is not its work."""
        line, _, rest = blob.partition(b"\n")
        try:
            header = json.loads(line)
            if header["format"] != FORMAT or header["schema"] != SCHEMA:
                raise ValueError(f"it is {header['format']!r}, version {header['schema']}")
            size = header["image"]
            if len(rest) != size:
                raise ValueError(f"its image has {len(rest)} bytes, not {size}")
            return GpuCode(
                header["language"],
                header["arch"],
                rest,
                {name: _plan(p) for name, p in header["functions"].items()},
                tuple(Resources(**r) for r in header["resources"]),
            )
        except (
            AttributeError,
            KeyError,
            OverflowError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise LibraryError(f"not the code of a GPU library, or damaged: {error}") from error


def _plan(data: Any) -> Plan:
    launches = tuple(
        Launch(**each | {"arguments": tuple(each["arguments"])}) for each in data["launches"]
    )
    return Plan(int(data["pointers"]), launches, tuple(map(int, data["workspaces"])))


def resources(blob: bytes) -> list[dict[str, Any]]:
    """Resources of the kernels of a blob, where the compiler told: `Resources` as plain dicts."""
    return [asdict(each) for each in GpuCode.from_bytes(blob).resources]
