"""Machines that tests fix, so that none depends on the one that it runs on."""

from dataclasses import replace

from loopwright.codegen.target import resolve
from loopwright.schedule.target import Target

AVX2_SMALL = Target(mcpu="znver3", threads=2, l1_bytes=32 << 10, l2_bytes=512 << 10)
AVX512_LARGE = Target(
    mcpu="sapphirerapids",
    vector_bytes=64,
    vector_registers=32,
    threads=2,
    l1_bytes=48 << 10,
    l2_bytes=2 << 20,
)
AARCH64 = Target(
    triple="aarch64-unknown-linux-gnu",
    features=("+neon",),
    vector_bytes=16,
    vector_registers=32,
    threads=4,
    l1_bytes=64 << 10,
    l2_bytes=1 << 20,
)
ONE_THREAD = Target(mcpu="haswell", threads=1, l1_bytes=32 << 10, l2_bytes=256 << 10)
TARGETS = {
    "AVX2, small cache": AVX2_SMALL,
    "AVX-512, large cache": AVX512_LARGE,
    "AArch64": AARCH64,
    "one thread": ONE_THREAD,
}

HERE = replace(resolve("cpu", 2), l1_bytes=32 << 10, l2_bytes=512 << 10)
"""For what tests run: this machine's vectors, with fixed caches and threads."""
ALONE = replace(HERE, threads=1)


def narrow(threads: int) -> Target:
    """`HERE` with vectors and registers as AVX2 has them: spaces and trees are the same on every
    machine, and run on it, since LLVM cuts vectors that are too wide for it."""
    return replace(HERE, threads=threads, vector_bytes=32, vector_registers=16)
