"""Heuristics of rewrites."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RewriteHeuristics:
    """Thresholds of when a rewrite is worth a try; measured, not derived."""

    copy_uses: int = 32
    """Uses of each copied element that repay the copy."""
    gpu_columns_l2_bytes: int = 16 << 20
    """Half of the bytes that a copy of all windows may have on a GPU."""
    int24_uses_per_read: int = 4
    """Weights used more often for each time that they are read are not scaled."""
    int24_depth: int = 16
    """Terms of a sum, at least."""
    peeling_window_elements: int = 64
    """Elements of another operand that a channel meets: a window, not a matrix."""
    peeling_parts: int = 9
    """More parts are not made: each is code of its own."""
    peeling_busy_share: float = 0.85
    """The share of the time in which all threads have work, at least."""
    sparse_row_vectors: int = 4
    """Vectors of a row of the result, at least."""
    sparse_rows: int = 16
    """Rows for which a block of weights is used, at least, if not for one."""
    sparse_block_l2_share: float = 1 / 4
    """Share of the second-level cache that the sums of a row block may use."""
    chain_rows: tuple[int, ...] = tuple(range(8, 129, 8))
    """Rows of a block: whole register tiles."""
    chain_block_rows: int = 2
    """Rows whose time a block takes beside that of its own."""
    chain_l2_shares: tuple[float, ...] = (1 / 2, 1 / 4, 1 / 8)
    """Shares of the second-level cache that a block's largest intermediate result may use."""
    chain_again_l2_caches: int = 2
    """Second-level caches that what each block reads again may fill."""
    chain_idle_share: float = 0.15
    """The share of the time of all threads in which some may have no block."""
    rfactor_few_results: int = 256
    """So few results are not enough parallel work."""
    rfactor_results_per_thread: int = 32
    """Results for each thread that are parallel work enough."""
    rfactor_deep_steps: int = 1 << 12
    """Panels of so many steps leave no cache for anything else."""
    rfactor_long_steps: int = 1 << 15
    """A reduction of so many steps is worth splitting."""
    rfactor_prior: float = 0.64
    """Factor on the estimate, which does not see threads without work."""
    scanned_part_elements: int = 512
    """Elements of a part of a scanned row, at least."""
    scanned_rows: int = 4
    """Rows, or parts of them, that a thread scans at once: an addition's latency."""
    gpu_busy_results: int = 4096
    """Results that keep a multiprocessor busy: a tile of 64×64."""
    gpu_idle_threads: int = 256
    """Threads that leave a multiprocessor nearly idle."""
    gpu_idle_results: int = 1024
    """Results that leave a multiprocessor idle for the most part: a quarter of a tile."""
    gpu_long_steps: int = 512
    """Steps of a reduction that is split where its results are so few."""
    gpu_long_mma_steps: int = 1024
    """Steps of one on tensor cores, which take many at once."""
    gpu_long_team_steps: int = 1024
    """Steps of one that a team of threads shares."""
    gpu_steps_per_thread: int = 16
    """Steps of a thread that shares a reduction."""
    gpu_team_threads: int = 256
    """Threads that share one reduction."""
    gpu_part_steps: int = 32
    """Steps of one part of a reduction, at least."""
    producer_l2_shares: tuple[float, ...] = (1 / 4, 1 / 16)
    """Shares of the second-level cache that a row block may use."""
    padding_copied_ratio: float = 1.6
    """Rows copied for each that is there, at most, if blocks may be larger."""
    padding_l2_share: float = 0.5
    """Share of the second-level cache that a row block may use."""


@dataclass(frozen=True)
class BilinearHeuristics:
    """Thresholds of when bilinear algorithms (Winograd, Strassen) are worth a try."""

    window_axes: int = 2
    """Axes that one algorithm slides along."""
    products_per_axis: int = 7
    """More need more registers, and round more."""
    products_for_odd_results: int = 6
    """Products for an odd number of results, at least. With fewer, the next even number serves as
    well."""
    channels: int = 8
    """Fewer channels, in or out, do not repay the transforms."""
    vector_channels: int = 8
    """Channels of a vector. With fewer, components are put beside them for a full vector."""
    winograd_block_l2_caches: int = 2
    """Second-level caches that a block of tiles may fill."""
    winograd_imbalance: float = 1.03
    """A thread may have so many times its even share of tiles."""
    strassen_saved_per_moved: int = 5
    """Multiply-adds that are saved for an element moved, at least."""
    strassen_saved_per_read: int = 8
    """Multiply-adds that are saved for an element of sums read, at least."""
    strassen_tile_rows: int = 4
    """Rows of a register tile, the fewest that are computed at a time."""
    strassen_imbalance: float = 1.02
    """A thread may have so many times its even share of rows."""
    strassen_depth: int = 32
    """Terms of a product's sums, and elements of its rows, at least."""


REWRITE = RewriteHeuristics()
BILINEAR = BilinearHeuristics()
