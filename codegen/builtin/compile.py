"""Object files of trees by the built-in code generator, or the reason why there is none."""

from __future__ import annotations

from loopwright.codegen.builtin.code import Uncovered
from loopwright.codegen.builtin.elf import object_file
from loopwright.codegen.builtin.emit import emit_tree
from loopwright.codegen.library.linker import architecture
from loopwright.codegen.target import cpu_features
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Tree

NEEDED = frozenset(("avx2", "fma"))
"""Features of the processor, in the words of /proc/cpuinfo."""
VECTOR_BYTES = 32
"""A wider program has larger register tiles, which would lie in memory here."""


def compile_builtin(tree: Tree, target: Target) -> tuple[bytes | None, str]:
    """The object file of a tree of one config, or None and what of the tree is not covered."""
    if architecture(target.triple) != "x86_64" or not set(cpu_features(target)) >= NEEDED:
        return None, "processors other than x86-64 with AVX2 and FMA"
    if target.vector_bytes > VECTOR_BYTES:
        return None, f"vectors of more than {VECTOR_BYTES} bytes, for which the program is made"
    try:
        return object_file(emit_tree(tree, target.threads)), ""
    except Uncovered as reason:
        return None, str(reason)
