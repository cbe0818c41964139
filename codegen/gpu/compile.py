"""From the loop tree of a GPU program to code that its driver loads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from loopwright.codegen.devices.code import GpuCode
from loopwright.codegen.devices.nvidia import compile_cuda, compile_ptx
from loopwright.codegen.gpu.source import gpu_program
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Tree


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
