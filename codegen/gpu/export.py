"""GPU libraries as files: NAME.so with the kernels and their launcher, NAME.h and NAME.json.

NAME.so needs the C library alone; the launcher looks for NVIDIA's driver when it is first called.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loopwright.codegen.devices.code import GpuCode, Plan
from loopwright.codegen.library.export import check_place, write_library
from loopwright.codegen.library.header import MADE_BY, Functions
from loopwright.codegen.library.linker import link_launcher
from loopwright.codegen.library.manifest import describe, embedded
from loopwright.codegen.library.signature import Origin, Parameter, Signature
from loopwright.dsl.errors import LibraryError
from loopwright.temporary import TemporaryFolder

_WIDEST = 16  # bytes of the widest load of a kernel


def export(signature: Signature, code: GpuCode, origin: Origin, path: Path) -> Path:
    """Writes NAME.so, NAME.h and NAME.json, where `path` is …/NAME.so; returns `path`.

    Raises `LibraryError` for a bad name or place, and for OpenCL; `BuildError` where the
    toolchain fails.
    """
    if code.language != "cuda":
        raise LibraryError(
            "libraries for OpenCL cannot be exported, since drivers compile them: keep the text "
            'that source("opencl") gives, or build for "cuda"'
        )
    if not code.image:
        raise LibraryError(
            f"{signature.name} was loaded from a file, which is an export already: copy its "
            ".so, .h and .json instead"
        )
    name = path.stem
    check_place(path)
    gpu = {"gpu": {"language": code.language, "arch": code.arch}}
    manifest = describe(path.name, signature, origin) | gpu
    with TemporaryFolder() as folder:
        image, built = folder / "image", folder / path.name
        image.write_bytes(code.image)
        link_launcher(_wrapper(name, signature, code, image) + embedded(manifest), built)
        binary = built.read_bytes()
    write_library(path, binary, header(name, signature, code.arch), manifest)
    return path


def header(name: str, signature: Signature, arch: str) -> str:
    """The text of NAME.h."""
    return _Functions(name, signature).header(
        f"""{MADE_BY} for NVIDIA GPUs, {arch} and newer.
 *
 * Link with {name}.so, which needs the C library alone, and looks for libcuda.so.1 when it is
 * called.
 *
 * Arrays are dense, in C order, in the memory of the GPU, aligned to {_WIDEST} bytes (shorter ones
 * to the largest power of two that is no longer):""",
        """`stream` is a CUstream or cudaStream_t, null for the default stream; the work is
 * started on it, in the thread's current context (where there is none, on the first GPU).
 * Functions may be called from any thread. An output must not overlap an input or another
 * output.""",
        f"""
/* What a status means, in English. The text lives as long as the library. */
const char *{name}_error(int status);

/* What the driver said of the last failure in this thread. */
const char *{name}_detail(void);""",
    )


class _Functions(Functions):
    """Functions that start kernels."""

    stream = ("stream",)
    memory = "of the GPU's memory at `prepared`, aligned"

    def call(self, step: str, pointers: Sequence[str]) -> str:
        listed = ", ".join(f"(uint64_t)(uintptr_t){pointer}" for pointer in pointers)
        return (
            f"  const uint64_t pointers[] = {{{listed}}};\n"
            f"  return lw_gpu_checked_call(LW_{step.upper()}, pointers, {step}_arguments, stream);"
        )

    def allocation(self, size: int) -> tuple[str, str]:
        allocate = f"""  uint64_t block;
  int failed = lw_gpu_allocate({size}, &block, stream);
  if (failed) return failed;
  void *prepared = (void *)(uintptr_t)block;"""
        return allocate, "lw_gpu_release(block, stream);"


def _wrapper(name: str, signature: Signature, code: GpuCode, image: Path) -> str:
    """C source that holds the image, and defines what the header declares."""
    functions = {"main": signature.main_parameters}
    if signature.prepared:
        functions["prepare"] = signature.prepare_parameters
    written = {
        "main": {p.name for p in signature.outputs},
        "prepare": {p.name for p in signature.prepared},
    }
    plans = "".join(
        _plan_table(f, code.functions[f], ps, written[f]) for f, ps in functions.items()
    )
    used = ", ".join(
        f"{{{len(ps)}, {len(code.functions[f].launches)}, {len(code.functions[f].workspaces)}, "
        f"{f}_launches, {f}_bytes}}"
        for f, ps in functions.items()
    )
    path = str(image).replace("\\", "\\\\").replace('"', '\\"')
    return f"""#include <stddef.h>
#include "cuda.h"
#define LW_PUBLIC __attribute__((visibility("default")))

__asm__(".pushsection .rodata\\n.balign 64\\n.hidden lw_gpu_image\\n.globl lw_gpu_image\\n"
        "lw_gpu_image:\\n.incbin \\"{path}\\"\\n.byte 0\\n.popsection\\n");
extern const char lw_gpu_image[] __attribute__((visibility("hidden")));

{plans}
#define LW_HIDDEN __attribute__((visibility("hidden")))
LW_HIDDEN lw_gpu_library lw_gpu_own = {{lw_gpu_image, {{{used}}}, NULL}};

{_Functions(name, signature).definitions()}
LW_PUBLIC const char *{name}_error(int status) {{ return loopwright_gpu.error(status); }}
LW_PUBLIC const char *{name}_detail(void) {{ return loopwright_gpu.detail(); }}
"""


def _plan_table(
    function: str, plan: Plan, parameters: Sequence[Parameter], written: set[str]
) -> str:
    lines = []
    for number, launch in enumerate(plan.launches):
        numbers = ", ".join(map(str, launch.arguments)) or "0"
        lines.append(f"static const int32_t {function}_{number}[] = {{{numbers}}};")
    rows = ", ".join(
        f'{{"{launch.kernel}", {launch.grid}, {launch.block}, {launch.shared_bytes}, '
        f"{len(launch.arguments)}, {function}_{number}}}"
        for number, launch in enumerate(plan.launches)
    )
    sizes = ", ".join(f"{size}u" for size in plan.workspaces) or "0"
    arguments = ", ".join(
        f"{{{p.nbytes}u, {_alignment(p)}, {int(p.name in written)}}}" for p in parameters
    )
    lines += [
        f"static const lw_launch {function}_launches[] = {{{rows}}};",
        f"static const uint64_t {function}_bytes[] = {{{sizes}}};",
        f"static const lw_gpu_argument {function}_arguments[] = {{{arguments}}};",
    ]
    return "\n".join(lines) + "\n"


def _alignment(p: Parameter) -> int:
    """Alignment of an argument, which no load is wider than."""
    return _WIDEST if p.nbytes >= _WIDEST else 1 << (p.nbytes.bit_length() - 1)
