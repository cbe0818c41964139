"""Features of GPU programs: coalescing, bank conflicts, occupancy, reuse."""

from __future__ import annotations

import numpy as np
import pytest

import loopwright as lw
from loopwright.costmodel.features.gpu_memory import CHOSEN, apart, spread
from loopwright.costmodel.features.gpu_summary import gpu_summary_names
from loopwright.costmodel.features.relation import relation_names
from loopwright.costmodel.features.representation import ContextRelation, FlattenedTree
from loopwright.schedule.lowering import lower
from loopwright.schedule.space import space
from tests.costmodel import gpu_trees
from tests.costmodel.gpu_trees import TARGET

pytestmark = pytest.mark.sampled(0.34)

NAMES = (*relation_names(gpu=True), *gpu_summary_names())


def features(tree, flops=1):
    """The summary by name, without the logarithm."""
    (row,) = ContextRelation().of_tree(tree, TARGET, flops)
    assert row.shape == (len(NAMES),)
    summary = row[-len(gpu_summary_names()) :].astype(np.float64)
    return dict(zip(gpu_summary_names(), np.exp2(summary) - 1))


def test_the_columns_have_names_of_their_own():
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(
    ("numbers", "count"),
    [
        (lambda lane: 0 * lane, 1),
        (lambda lane: lane, 32),
        (lambda lane: lane // 8, 4),
        (lambda lane: lane % 16, 16),
        (lambda lane: lane * 20 % 32, 8),
        (lambda lane: lane // 8 + lane % 8 * 100, 32),
        (lambda lane: lane % 8 + lane // 8 * 36 % 32, 20),
    ],
)
def test_different_numbers_of_a_warp_are_counted(numbers, count):
    assert len({int(numbers(lane)) for lane in range(32)}) == count
    runs, length = spread(apart(numbers(CHOSEN)), 1.0)
    assert runs * length == count


def test_neighbouring_threads_share_sectors_and_strides_do_not():
    # Two warps a block; reads and writes of 32 floats are 4 sectors each, or 32 for distant ones.
    assert features(gpu_trees.row_copy())["sectors"] == pytest.approx(2 * 2 * (4 + 4), rel=1e-4)
    far = features(gpu_trees.row_copy(stride=8))
    assert far["sectors"] == pytest.approx(2 * 2 * (32 + 4), rel=1e-4)
    same = features(gpu_trees.row_copy(broadcast=True))
    assert same["sectors"] == pytest.approx(2 * 2 * (1 + 4), rel=1e-4)


def test_coalescing_is_the_share_of_what_moves_that_is_used():
    good, bad = (features(gpu_trees.row_copy(stride=s))["coalesced"] for s in (1, 8))
    assert good == pytest.approx(1.0, abs=0.3)
    assert bad < 0.3


def test_vectors_are_fewer_operations_on_as_many_sectors():
    one, four = features(gpu_trees.vector_copy(1)), features(gpu_trees.vector_copy(4))
    assert one["global"] == pytest.approx(4 * four["global"], rel=1e-3)
    assert one["sectors"] == pytest.approx(four["sectors"], rel=1e-3)


def test_padding_takes_bank_conflicts_away():
    # Lanes write s[j, 0]: words 16 apart are in two banks of 32, 17 apart in 32.
    conflict, free = features(gpu_trees.turned(0)), features(gpu_trees.turned(1))
    assert conflict["conflicts"] == pytest.approx(16, rel=1e-3)
    assert free["conflicts"] == pytest.approx(1, rel=1e-3)


def test_a_kernel_has_its_blocks_threads_and_memory():
    found = features(gpu_trees.matmul())
    assert found["blocks"] == pytest.approx(16, rel=1e-4)
    assert found["threads"] == pytest.approx(256, rel=1e-4)
    assert found["warps"] == pytest.approx(8, rel=1e-4)
    assert found["shared bytes"] == pytest.approx(2 * 16 * 8 * 4, rel=1e-4)
    assert found["registers"] == pytest.approx(24 + 1, rel=1e-4)
    # 2048 threads of a multiprocessor are 8 blocks; 25 registers each allow more, and so does
    # the shared memory. All 16 blocks fit at once.
    assert found["resident"] == pytest.approx(8, rel=1e-4)
    assert found["occupancy"] == pytest.approx(1, rel=1e-4)
    assert found["waves"] == pytest.approx(0.5, rel=1e-4)
    assert found["kernels"] == pytest.approx(1, rel=1e-4)
    assert found["barriers"] == pytest.approx(4 * 8 * 2 * 8, rel=1e-3)


def test_arithmetic_counts_what_is_needed_and_tiles_are_read_again():
    n = 64
    found = features(gpu_trees.matmul(n), flops=2 * n**3)
    assert found["flops"] == pytest.approx(2 * n**3, rel=1e-3)
    assert found["waste"] == pytest.approx(1, rel=1e-3)
    # Every block reads a row and a column of tiles: 4 times what there is of A and B.
    whole = 3 * n * n * 4 / 64
    assert found["unique"] == pytest.approx(whole, rel=0.05)
    assert 3 < found["reuse"] < 7  # rows of a tile are one line long, but may begin anywhere
    larger = features(gpu_trees.matmul(n, tile=32, depth=16), flops=2 * n**3)
    assert larger["intensity"] > 1.5 * found["intensity"]


def test_tiles_of_matrices_count_as_one_operation_of_a_warp():
    found = features(gpu_trees.products(), flops=2 * 64 * 16 * 64)
    assert found["products"] == pytest.approx(4, rel=1e-4)
    assert found["flops"] == pytest.approx(2 * 64 * 16 * 64, rel=1e-3)
    assert found["registers"] == pytest.approx(24 + 8 + 4 + 4, rel=1e-4)
    # 16 bytes a lane are 4 turns at best, for the copy and for the tile.
    assert found["turns"] == pytest.approx(4 * (4 + 4), rel=1e-3)
    crowded = features(gpu_trees.products(pad=16))
    assert crowded["turns"] > found["turns"]


def matmul_space():
    workload = lw.workload(lw.ops.matmul(lw.tensor("A", (96, 64)), lw.tensor("B", (64, 80))))
    return space(workload, TARGET)


def test_the_recorded_program_gives_the_features_of_the_lowered_batch():
    points, rng = matmul_space(), np.random.default_rng(0)
    representation = ContextRelation()
    assert representation.names(points)[: len(NAMES)] == NAMES
    for number, sketch in enumerate(points.sketches[:3]):
        counts = [len(knob.choices) for knob in sketch.knobs]
        numbers = rng.integers(counts, size=(40, len(counts)))
        recorded = representation.features(points, number, numbers)
        lowered = lower(sketch, TARGET, numbers)
        expected = ContextRelation().of_tree(lowered, TARGET, points.workload.flops)
        half = recorded[:, : len(NAMES)]
        np.testing.assert_allclose(half, expected, rtol=1e-3, atol=1e-3)
        one = ContextRelation().of_tree(lowered.row(7), TARGET, points.workload.flops)
        np.testing.assert_allclose(one[0], expected[7], rtol=1e-3, atol=1e-3)


def test_flattened_trees_know_blocks_and_threads():
    points = matmul_space()
    sketch = points.sketches[0]
    found = FlattenedTree().features(points, 0, np.array([sketch.default]))
    names = FlattenedTree().names(points)
    assert found.shape == (1, len(names))
    kinds = {n: v for n, v in zip(names, found[0]) if n.endswith((" block", " thread"))}
    assert kinds["loop 0 block"] == 1
    assert sum(v for n, v in kinds.items() if n.endswith("thread")) >= 1
