"""What the rules need to know of a machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A machine that code is made for.

    Attributes
    ----------
    kind: "llvm" (machine code) or "c" (C source, compiled by the C compiler).
    triple: LLVM's target triple.
    mcpu: LLVM's name of the processor; empty for the triple's generic one.
    features: LLVM's feature switches beyond `mcpu`, such as "+avx2".
    vector_bytes: width of a vector register.
    vector_registers: how many of them an inner loop may use.
    threads: threads that a parallel loop is meant to run on.
    l1_bytes, l2_bytes: data caches of one core.
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

    def lanes(self, item_bytes: int) -> int:
        """Elements of one vector register."""
        return max(1, self.vector_bytes // item_bytes)

    def __str__(self) -> str:
        extra = f" {' '.join(self.features)}" if self.features else ""
        return f"{self.kind} {self.triple} {self.mcpu or 'generic'}{extra}"
