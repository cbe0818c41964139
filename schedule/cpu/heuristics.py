"""Heuristics of the rules for processors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CpuHeuristics:
    """Numbers of the rules for processors, measured. Costs are in steps of innermost loops."""

    tile_rows: int = 5
    """Rows of a register tile: with two vectors each, enough accumulators."""
    parallel_steps: int = 1 << 15
    """Steps of a parallel loop, at least. With fewer, starting threads costs more than it
    saves."""
    compared_elements: int = 16
    """Elements of a row whose order is told by comparing all with all, at most."""
    ordered_steps: int = 32
    """Steps of a loop for which an element counts that is put in order."""
    scanned_elements: int = 12
    """A running result of more elements is a loop; of fewer, vectors of masked sums."""
    scanned_rows: int = 4
    """Rows, or vectors of them, whose running results are kept at once: an addition's latency."""
    gather_cost: float = 4.0
    """Cost of a read that is no vector."""
    sliding_cost: float = 0.2
    """Cost of vectors that slide over a window: half of them straddle cache lines."""
    transpose_cost: float = 1.5
    """Cost of an element that is transposed as it is copied or stored."""
    turned_cost: float = 0.8
    """Cost of an element that is copied, a whole line at a time, for tiles that lie across it."""
    missed_line_factor: float = 4.0
    """Times that where its line has left the cache before the next one."""
    strided_elements: int = 4
    """A vector of elements so far apart is loads and a shuffle."""
    strided_cost: float = 0.4
    """Cost of such a vector, for each element from one to the next."""
    page_bytes: int = 4096
    """Lines a multiple of this apart share a set of the first-level cache."""
    imbalance: float = 1.03
    """A thread may have so many times its even share, for larger blocks."""
    panel_copy_rows: int = 4
    """Rows of a tile that take as long as copying a panel."""
    far_element_cost: float = 0.2
    """Cost of an element of a large operand, each from another cache line."""
    rows_streamed_cost: float = 0.55
    """Cost of summing along rows of weights that each call reads once, where they could be laid
    out in the order of tiles: short streams take up to twice the time of a long one."""
    vector_axis_slack: float = 0.5
    """Vector axes that are worse than the best by less are sketches too."""
    panel_lanes: int = 24
    """Elements of a usual tile along the vector axis."""
    pack_uses: int = 8
    """Uses of an element that repay packing it."""
    unroll_iterations: int = 3
    """Iterations unrolled by default, and by the compiler, of a tap's loop."""
    transposed_rows: int = 4
    """Rows of a tile that is transposed in registers."""
    partial_sums: int = 8
    """Vectors of partial results that a reduction keeps at most, a power of two."""
    long_sum: int = 1024
    """Terms of a sum that is worth cutting into blocks."""
    block_terms: int = 256
    """Terms of a block."""
    accumulators_in_flight: int = 10
    """4 cycles of latency, 2 multiply-adds a cycle, and some slack."""
    many_registers: int = 32
    """Vector registers, with which tiles of 5 and 7 vectors have rows enough."""
    l2_bytes_per_cycle: int = 24
    """From the second-level cache, beside two multiply-adds a cycle."""
    sparse_tile_rows: int = 4
    """Rows of a tile that skips zeros, at most."""
    sparse_row_vectors: int = 24
    """Vectors of a row, at most."""
    sparse_block_l1_share: float = 3 / 4
    """Share of the first-level cache that a block of weights may use."""
    relu_zeros: float = 0.5
    """Share of zeros behind a ReLU."""
    sparse_accumulators: int = 8
    """Keep two multiply-add units of 4 cycles busy."""
    sparse_switch_cycles: int = 25
    """From one row's block to the next: a branch that is not foreseen."""
    sketches: int = 256
    """Combinations of structures of one program, at most."""


@dataclass(frozen=True)
class PriorHeuristics:
    """Rates of the analytical cost prior, for one core."""

    bytes_per_cycle: float = 4.0
    """Bandwidth for tensors too large for the nearest caches."""
    reread_bytes_per_cycle: float = 6.0
    """Bandwidth for what several rows read and no near cache keeps, beside arithmetic."""
    last_cache_bytes: int = 32 << 20
    """The last-level cache, of all cores."""
    reuse_operations: float = 3.4
    """Operations a cycle and lane: two multiply-adds for 85 % of the time."""
    sum_operations: float = 2.0
    """One multiply-add, where each loads both of its operands."""
    element_operations: float = 1.0
    """Operations of an element where nothing is used again: loads and stores stand between."""
    scanned_cycles: float = 4.0
    """A step of a running result: it waits for the one before it."""
    ordered_cycles: float = 10.0
    """An element of a row that is put in order."""


CPU = CpuHeuristics()
PRIOR = PriorHeuristics()
