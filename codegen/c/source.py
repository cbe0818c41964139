"""C source of a whole library: kernels from loop trees, and what stands around them.

`kernels` are the same everywhere. Libraries of Python's have `glue` beside them, in the calling
convention of TVM's functions; an exported folder has the functions that its header declares.
"""

from __future__ import annotations

from loopwright.codegen.c.emit import emit_function
from loopwright.codegen.c.text import comment
from loopwright.codegen.library.header import C_TYPES
from loopwright.codegen.library.linker import RUNTIME, architecture, find_compiler
from loopwright.codegen.target import resolve
from loopwright.dsl.workload import Workload
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Buffer, Tree
from loopwright.temporary import TemporaryFolder

_FLAGS = ("-std=c11", "-O3", "-fPIC", "-fno-math-errno", "-ffp-contract=fast")

_LEGEND = """\
 * Of a dimension x, loops count x_block and x_tile. A tile begins at x_base; the last one overlaps
 * the one before it. x_in, x_at and x_lane count inside of a tile. acc is a register tile.
 * Arrays are flat: the element [i][j] of an array of n columns is [n * i + j]."""


def kernels(tree: Tree, workload: Workload, target: Target) -> dict[str, str]:
    """The parts of the source: the head, `kernel_main` and, if needed, `kernel_prepare`."""
    meaning = "\n".join(f" *   {comment(line)}" for line in str(workload).splitlines())
    arguments = (*tree.inputs, *tree.prepared, *tree.outputs)
    parts = {
        "head": f"/* What is computed:\n *\n{meaning}\n *\n{_LEGEND}\n */\n\n"
        '#include "base.h"\n#include "elements.h"\n\n'
    }
    if tree.prepared:
        made = (*tree.constants, *tree.prepared)
        text = emit_function("kernel_prepare", made, tree.prepared, tree.prepare, 1)
        parts["prepare"] = f"/* Lays the constants out as kernel_main reads them. */\n{text}\n"
    main = emit_function("kernel_main", arguments, tree.outputs, tree.body, target.threads)
    return {**parts, "main": main}


def glue(tree: Tree) -> str:
    """The functions of the run-time's table, which call the kernels."""
    functions = {"main": (*tree.inputs, *tree.prepared, *tree.outputs)}
    if tree.prepared:
        functions["prepare"] = (*tree.constants, *tree.prepared)
    return '\n#include "runtime.h"\n' + "".join(_glue(n, b) for n, b in functions.items())


def _glue(name: str, arguments: tuple[Buffer, ...]) -> str:
    # The first member of a DLTensor is its data.
    given = ", ".join(
        f"*({C_TYPES[b.dtype]} **)arguments[{n}].value.pointer" for n, b in enumerate(arguments)
    )
    return f"""
LW_HIDDEN int __tvm_ffi_{name}(void *self, const lw_any *arguments, int32_t count,
                               lw_any *result) {{
  (void)self, (void)count, (void)result;
  return kernel_{name}({given});
}}
"""


def _machine(target: Target) -> list[str]:
    """The compiler's switches for a processor: this one, or one of x86 by name and features."""
    if target == resolve("c", target.threads):
        return ["-march=native"]
    if architecture(target.triple) != "x86_64":
        return []
    named = [f"-march={target.mcpu}"] if target.mcpu else []
    return [*named, *(f"-m{'' if f[0] == '+' else 'no-'}{f[1:]}" for f in target.features)]


def compile_source(source: str, target: Target, assembly: bool = False) -> bytes:
    """The object file of C source, or its assembly. Raises `BuildError`."""
    flags = [*_FLAGS, *_machine(target), "-I", str(RUNTIME)]
    with TemporaryFolder() as folder:
        text, made = folder / "kernel.c", folder / "kernel.o"
        text.write_text(source, encoding="utf-8")
        step = "-S" if assembly else "-c"
        find_compiler(target.triple).run(*flags, step, text, "-o", made)
        return made.read_bytes()
