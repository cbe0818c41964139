"""Object files of trees by the built-in code generator, or the reason why there is none."""

from __future__ import annotations

from loopwright.codegen.builtin.code import AVX2, AVX512, Uncovered, VectorSet
from loopwright.codegen.builtin.elf import object_file
from loopwright.codegen.builtin.emit import emit_tree
from loopwright.codegen.library.linker import architecture
from loopwright.codegen.target import cpu_features, has_avx512
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Tree

_AVX2 = frozenset(("avx2", "fma"))
_AVX512 = frozenset(("avx512f", "avx512vl", "avx512dq"))
"""Features of the processor, in the words of /proc/cpuinfo."""


def vector_set(target: Target) -> VectorSet:
    """The vectors of the programs of a target. Raises `Uncovered`."""
    features = set(cpu_features(target))
    if architecture(target.triple) != "x86_64" or not features >= _AVX2:
        raise Uncovered("processors other than x86-64 with AVX2 and FMA")
    if not has_avx512(target):
        return AVX2
    if not features >= _AVX512:
        raise Uncovered("AVX-512 without AVX512VL and AVX512DQ")
    return AVX512


def compile_builtin(tree: Tree, target: Target) -> tuple[bytes | None, str]:
    """The object file of a tree of one config, or None and what of the tree is not covered."""
    try:
        return object_file(emit_tree(tree, target.threads, vector_set(target))), ""
    except Uncovered as reason:
        return None, str(reason)
