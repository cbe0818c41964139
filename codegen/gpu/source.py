"""From the loop tree of a GPU program to source text, the plan of its launches, and code."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from loopwright.codegen.devices.code import GpuCode, Launch, Plan
from loopwright.codegen.devices.nvidia import compile_cuda, compile_ptx
from loopwright.codegen.gpu.emit import buffers, emit_kernel, written_buffers
from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.errors import BuildError
from loopwright.schedule.target import Target
from loopwright.schedule.tree.gpu_verifier import SHARED_BLOCK
from loopwright.schedule.tree.grammar import Allocate, Buffer, Loop, Stmt, Tree

_PRELUDES = Path(__file__).parent / "prelude"
_STATIC_BYTES = 48 << 10
"""Shared memory that CUDA gives to static arrays; more has to be asked for at the launch."""

_DEVICE_KERNEL = 2  # TVM's calling convention of kernels


@dataclass(frozen=True)
class GpuProgram:
    """Kernels as TIR and as source text, and what launches them. `kernels` is their text alone,
    without the functions that all programs have."""

    tir: Mapping[str, Any]
    kernels: str
    source: str
    plans: Mapping[str, Plan]


def gpu_program(tree: Tree, target: Target) -> GpuProgram:
    """The kernels of a tree of one config. Raises `BuildError` where it cannot be one."""
    made = [("main", (*tree.inputs, *tree.prepared, *tree.outputs), tree.body)]
    if tree.prepared:
        made.append(("prepare", (*tree.constants, *tree.prepared), tree.prepare))
    functions: dict[str, Any] = {}
    texts: list[str] = []
    plans: dict[str, Plan] = {}
    for name, arguments, body in made:
        plans[name] = _function(name, arguments, body, target, functions, texts)
    preludes = [(_PRELUDES / name).read_text(encoding="utf-8") for name in _PRELUDE[target.kind]]
    source = "\n".join([_pragmas(texts), *preludes, *texts])
    return GpuProgram(functions, "\n".join(texts), source, plans)


_PRELUDE = {"cuda": ("cuda_ptx.cu", "cuda.cu"), "opencl": ("opencl.cl",)}


def _function(
    name: str,
    arguments: tuple[Buffer, ...],
    body: tuple[Stmt, ...],
    target: Target,
    functions: dict[str, Any],
    texts: list[str],
) -> Plan:
    known = {b.name: b for b in arguments}
    # Arguments keep their numbers; workspaces follow, as they are allocated.
    workspaces: list[int] = []
    launches: list[Launch] = []
    for stmt in body:
        if isinstance(stmt, Allocate):
            b = known[stmt.buffer.name] = stmt.buffer
            workspaces.append(int(b.size) * item_bytes(b.dtype))
            continue
        kernel = f"lw_{name}_{len(launches)}"
        used = {b.name for b in buffers(stmt)}
        names = [name for name in known if name in used]
        made = emit_kernel(kernel, stmt, [known[name] for name in names], target.kind)
        functions[kernel] = made.function
        written = written_buffers(stmt)
        text = _with_const(
            _text(kernel, made.function, target.kind), kernel, [n in written for n in names]
        )
        dynamic = 0
        if target.kind == "cuda":
            text, dynamic = _with_dynamic_memory(text, _shared_buffers(stmt))
        else:
            size = f"__attribute__((reqd_work_group_size({made.block}, 1, 1)))"
            text = text.replace("__kernel void", f"__kernel {size} void")
        texts.append(text)
        numbers = tuple(list(known).index(name) for name in names)
        launches.append(Launch(kernel, numbers, made.grid, made.block, dynamic))
    return Plan(len(arguments), tuple(launches), tuple(workspaces))


def _text(name: str, function: Any, kind: str) -> str:
    """Source of a kernel by TVM's code generator, without the head that it puts before."""
    # The architecture makes no difference to the text that we let TVM write.
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"} if kind == "cuda" else kind)
    function = function.with_attr("target", target).with_attr("calling_conv", _DEVICE_KERNEL)
    function = function.with_attr("tirx.is_global_func", True)
    if kind == "cuda":
        _leave_to_us()
    token = _WRITES.set(True)
    try:
        module = tirx.transform.LowerIntrin()(tvm.IRModule({name: function}))
        built = tvm.get_global_func(f"target.build.{kind}")(module, target)
    except Exception as error:  # TVM's errors have no root of their own
        raise BuildError(f"TVM could not write {name} as {kind}: {error}") from error
    finally:
        _WRITES.reset(token)
    text = str(built.inspect_source())
    if kind == "opencl":
        return text
    head = 'extern "C" __global__'
    return head + text.rsplit(head, 1)[1]


_COMPILE = "tvm_callback_cuda_compile"
_WRITES: ContextVar[bool] = ContextVar("_WRITES", default=False)
"""True where TVM is asked for the text of one of our kernels, in this thread."""


@functools.cache
def _leave_to_us() -> None:
    """Keep TVM from compiling the kernels that it writes for us.

    Where a GPU is, TVM compiles what it writes at once. Our kernels' texts are not whole yet, and
    are compiled by nvcc later.
    """
    compile_theirs = tvm.get_global_func(_COMPILE)

    def compile_others(code: str) -> Any:
        return code.encode() if _WRITES.get() else compile_theirs(code)

    tvm_ffi.register_global_func(_COMPILE, compile_others, override=True)


def _with_const(text: str, kernel: str, written: list[bool]) -> str:
    """`const` for parameters that are only read: the GPU may use its read-only cache for them."""

    def signature(match: re.Match[str]) -> str:
        parameters = [
            each if stays else re.sub(r"^(__global )?", r"\1const ", each, count=1)
            for each, stays in zip(match[2].split(", "), written, strict=True)
        ]
        return f"{match[1]}({', '.join(parameters)})"

    return re.sub(rf"(\b{kernel})\(([^)]*)\)", signature, text)


def _whole(size: int) -> int:
    """Bytes of the shared memory that so many take."""
    return -(-size // SHARED_BLOCK) * SHARED_BLOCK


def _with_dynamic_memory(text: str, shared: list[Buffer]) -> tuple[str, int]:
    """Shared arrays as parts of one block, where they are too large for static ones: the text,
    and the bytes to ask for."""
    total = sum(_whole(int(b.size) * item_bytes(b.dtype)) for b in shared)
    if total <= _STATIC_BYTES:
        return text, 0
    offset = 0

    def pointer(match: re.Match[str]) -> str:
        nonlocal offset
        dtype, name, count = match[1], match[2], int(match[3])
        place, size = offset, count * _C_BYTES[dtype]
        offset += _whole(size)
        return f"{dtype}* {name} = ({dtype}*)(lw_shared + {place});"

    array = r"__shared__ (?:alignas\(\d+\) )?([\w ]+) (\w+)\[(\d+)\];"
    text = re.sub(array, pointer, text)
    declared = f"extern __shared__ __align__({SHARED_BLOCK}) unsigned char lw_shared[];\n"
    head, body = text.split(") {\n", 1)
    return f"{declared}{head}) {{\n{body}", offset


_C_BYTES = {
    "signed char": 1, "char": 1, "uchar": 1, "unsigned char": 1, "ushort": 2, "int": 4, "uint": 4,
    "short": 2, "float": 4, "double": 8, "int64_t": 8, "long long": 8, "uint64_t": 8,
    "unsigned long long": 8,
}  # fmt: skip


def _shared_buffers(stmt: Stmt) -> list[Buffer]:
    if isinstance(stmt, Allocate):
        return [stmt.buffer] if stmt.buffer.scope == "shared" else []
    if isinstance(stmt, Loop):
        return [b for inner in stmt.body for b in _shared_buffers(inner)]
    return []


def _pragmas(texts: list[str]) -> str:
    """OpenCL before version 2 wants to be told that kernels use doubles."""
    if any("__kernel" in t and re.search(r"\bdouble\b", t) for t in texts):
        return "#pragma OPENCL EXTENSION cl_khr_fp64 : enable"
    return ""


def compile_gpu(tree: Tree, target: Target, draft: bool = False) -> GpuCode:
    """The code of a tree of one config: a fat binary (a cubin alone in a draft), or OpenCL
    source, which its driver compiles.

    Raises `BuildError` with the compiler's words, or where there is no compiler.
    """
    made = gpu_program(tree, target)
    if target.kind == "opencl":
        return GpuCode("opencl", "", made.source.encode(), made.plans)
    arch = target.gpu.arch if target.gpu else ""
    image, resources = compile_cuda(made.source, arch, portable=not draft)
    asked = {each.kernel: each.shared_bytes for p in made.plans.values() for each in p.launches}
    resources = tuple(replace(r, shared=r.shared + asked[r.kernel]) for r in resources)
    return GpuCode("cuda", arch, image, made.plans, resources)


def gpu_sources(tree: Tree, target: Target) -> dict[str, Callable[[], str]]:
    """The texts that a library shows of a tree."""
    source = {target.kind: lambda: gpu_program(tree, target).source}
    if target.kind == "opencl":
        return dict(source)
    arch = target.gpu.arch if target.gpu else ""
    return {**source, "ptx": lambda: compile_ptx(gpu_program(tree, target).source, arch)}
