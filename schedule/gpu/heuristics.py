"""Heuristics of the rules for GPUs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuHeuristics:
    """Numbers by which the rules for GPUs choose; measured, not derived."""

    copy_threads: int = 256
    """Threads of a block that copies."""
    register_tile_elements: int = 64
    """Register tile of one virtual thread, at most."""
    block_threads: int = 512
    """Threads of a tiled block, at most."""
    full_warp_share: float = 0.85
    """Share of the lanes of a block's warps that have work."""
    unrolled_chunk_steps: int = 64
    """Steps of a chunk with its windows, unrolled, at most."""
    usual_warps: int = 8
    """Warps of a multiprocessor, each with a few independent multiply-adds."""
    usual_threads: int = 192
    """Threads of a block, usually."""
    shared_load_elements: int = 4
    """Elements of one load from shared memory."""
    spare_registers: int = 40
    """Registers for addresses, counters and what is on its way."""
    usual_chunk_steps: int = 22
    """Steps of a chunk, usually."""
    usual_chunk_bytes: int = 16 << 10
    """Shared memory for one chunk."""
    unroll_iterations: int = 9
    """A 3×3 window."""
    line_elements: int = 8
    """Elements of a line of memory."""
    shared_tile_uses: int = 8
    """Uses of an element by a block that repay a shared-memory tile."""
    team_steps: int = 32
    """Steps of a reduction that a team of threads shares."""
    mma_accumulators: int = 16
    """Accumulators of a warp, of 8 registers each."""
    mma_warps: int = 8
    """Warps of a block, at most."""
    mma_alone_share: float = 0.9
    """Speed of a block that has its multiprocessor for itself, and waits at its barriers."""
    inlined_uses: int = 32
    """Evaluations of an element that cost less than a kernel that stores it."""
    unrolled_window_steps: int = 16
    """Steps of windows that are unrolled, at most."""
    sketches: int = 64
    """Combinations of structures of one program, at most."""


GPU = GpuHeuristics()
