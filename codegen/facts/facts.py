"""Facts of compiled code: numbers by name, from an object file or from a GPU's compiler."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import fields

from loopwright.codegen.devices.code import GpuCode, Resources
from loopwright.codegen.facts.aarch64 import AARCH64
from loopwright.codegen.facts.elf import read_object
from loopwright.codegen.facts.flow import Function, Run, read_function, read_gap
from loopwright.codegen.facts.x86 import X86

Facts = Mapping[str, int]
"""Facts of a program's code, by the names of `CPU_FACTS` or `GPU_FACTS`. A name that is
missing could not be told."""

CPU_FACTS = {
    "code_bytes": "bytes of machine code, of what runs at each call",
    "stack_bytes": "bytes of the largest stack frame",
    "instructions": "instructions",
    "spills": "instructions that write a fixed place of the stack frame",
    "reloads": "instructions that read one",
    "loops": "innermost loops",
    "loop_instructions": "instructions of the innermost loop with the most multiply-adds",
    "loop_bytes": "its bytes",
    "loop_vector_bytes": "bytes of its widest vector",
    "loop_vectors": "its instructions on vectors",
    "loop_multiply_adds": "fused multiply-adds of elements in one iteration of it",
    "loop_loads": "its reads of memory, but for the stack frame",
    "loop_stores": "its writes",
    "loop_spills": "its reads and writes of fixed places of the stack frame",
}
"""Facts of programs for processors, and what they mean. Of processors other than x86-64 and
AArch64 none is known, and of functions with a jump through a table or an instruction that is not
known here the first one alone."""

GPU_FACTS = {
    "code_bytes": "bytes of the code of all kernels",
    "kernels": "kernels",
    "registers": "registers of a thread, of the kernel that has most",
    "stack_bytes": "bytes of a thread's stack, of the kernel that has most",
    "spills": "bytes that a thread writes to and reads from where registers are spilled",
    "shared_bytes": "bytes of shared memory of a block, of the kernel that has most",
}
"""Facts of programs for NVIDIA's GPUs. OpenCL's drivers tell none."""

_READERS = {"x86_64": X86, "aarch64": AARCH64}
_PREPARATION = "prepare"
"""In the names of functions that lay out constants, once."""


def facts_of(code: bytes) -> Facts:
    """The facts of an object file, or of the blob of a GPU's code; none of anything else."""
    if code[:4] != b"\x7fELF":
        return _gpu_facts(GpuCode.from_bytes(code)) if code[:1] == b"{" else {}
    found = read_object(code)
    if found is None:
        return {}
    reader, size = _READERS[found.architecture], 0
    functions: list[Function | None] = []
    for section in found.sections:
        code, outside = section.code, section.outside
        named = [s for name, s in section.functions.items() if _PREPARATION not in name]
        functions += (read_function(reader, code, *span, outside) for span in named)
        for span in section.gaps:
            functions += read_gap(reader, code, *span, outside)
        size += sum(end - begin for begin, end in (*named, *section.gaps))
    facts = {"code_bytes": size}
    known = [function for function in functions if function is not None]
    return facts | _cpu_facts(known) if len(known) == len(functions) else facts


def _cpu_facts(functions: Sequence[Function]) -> dict[str, int]:
    loops = [loop for function in functions for loop in function.loops]
    inner = max(loops, key=_WORK, default=_NOTHING)
    return {
        "stack_bytes": max((f.stack_bytes for f in functions), default=0),
        "instructions": sum(f.whole.instructions for f in functions),
        "spills": sum(f.whole.spills for f in functions),
        "reloads": sum(f.whole.reloads for f in functions),
        "loops": len(loops),
        "loop_instructions": inner.instructions,
        "loop_bytes": inner.bytes,
        "loop_vector_bytes": inner.vector_bytes,
        "loop_vectors": inner.vectors,
        "loop_multiply_adds": inner.multiply_adds,
        "loop_loads": inner.loads,
        "loop_stores": inner.stores,
        "loop_spills": inner.spills + inner.reloads,
    }


_NOTHING = Run(*(0 for _ in fields(Run)))
_WORK = operator.attrgetter("multiply_adds", "vectors", "instructions")
"""Work of an iteration of a loop: where most is done, most time is."""


def _gpu_facts(code: GpuCode) -> Facts:
    if code.language != "cuda":
        return {}
    facts = {"code_bytes": len(code.image)}
    return facts | _of_kernels(code.resources) if code.resources else facts


def _of_kernels(resources: Sequence[Resources]) -> dict[str, int]:
    return {
        "kernels": len(resources),
        "registers": max(r.registers for r in resources),
        "stack_bytes": max(r.stack for r in resources),
        "spills": sum(r.spills for r in resources),
        "shared_bytes": max(r.shared for r in resources),
    }


def names_of_facts(gpu: bool) -> tuple[str, ...]:
    """Names of all facts of programs for GPUs, or for processors, in order."""
    return tuple(GPU_FACTS if gpu else CPU_FACTS)


def shown(facts: Facts) -> str:
    """Facts as lines of text, with what they mean."""
    meanings = {**CPU_FACTS, **(GPU_FACTS if "kernels" in facts else {})}
    width = max((len(str(value)) for value in facts.values()), default=0)
    lines = [f"{value:{width}}  {meanings.get(name, name)}" for name, value in facts.items()]
    if set(facts) <= {"code_bytes"}:
        lines.append(f"nothing {'else ' * bool(facts)}can be told of this code before it runs")
    return "\n".join(lines)
