"""The GPU's rules: which kernels come first, and how large their tiles are."""

import math
from dataclasses import replace

import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.schedule.lowering import lower
from loopwright.schedule.sketch.kernel import Elementwise, Mma, RowReduction, Tiled
from loopwright.schedule.space import space
from loopwright.schedule.target import Gpu, Target
from loopwright.schedule.tree.printer import show
from tests.collection import T

H100 = Gpu("sm_90", multiprocessors=132, tensor_cores=True, async_copies=True)
CUDA = Target("cuda", gpu=H100)


def product(n, dtype="float32", **options):
    return lw.workload(ops.matmul(T("A", n, n, dtype=dtype), T("B", n, n, dtype=dtype), **options))


def first(workload, target=CUDA):
    return space(workload, target).sketches[0]


def blocks_of(sketch):
    tree = lower(sketch, CUDA, sketch.at(sketch.default))
    loop, total = tree.body[-1], 1
    while loop.kind == "block":
        total *= loop.extent
        loop = next(s for s in loop.body if hasattr(s, "kind"))
    return total


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: product(512), Tiled),
        (lambda: product(512, "float16", accumulate="float32"), Mma),
        (lambda: lw.workload(ops.softmax(T("X", 64, 128))), RowReduction),
        (lambda: lw.workload(ops.dense(T("X", 1, 512), T("W", 4096, 512))), RowReduction),
        (lambda: lw.workload(ops.matmul(T("A", 1, 512), T("B", 512, 4096))), Elementwise),
        (lambda: lw.workload(ops.relu(T("X", 64, 128))), Elementwise),
        (
            lambda: lw.workload(ops.max_pool2d(T("X", 1, 64, 56, 56), window=3, stride=2)),
            Elementwise,
        ),
    ],
)
def test_the_first_kernel_is_of_the_kind_that_fits(make, kind):
    assert any(isinstance(k, kind) for k in first(make()).kernels)


def test_large_products_have_large_tiles_and_small_ones_enough_blocks():
    config = first(product(4096))
    values = dict(config.at(config.default).values)
    tile = [math.prod(x) for x in zip(*(values[k] for k in ("tile0", "threads0", "virtual0")))]
    assert min(tile) >= 64
    assert blocks_of(first(product(512))) >= H100.multiprocessors // 2


@pytest.mark.parametrize("accumulate", [None, "float32"])
def test_tensor_cores_multiply_halves_where_the_gpu_has_them(accumulate):
    halves = product(64, "float16", accumulate=accumulate)
    for workload, target, some in (
        (halves, CUDA, True),
        (halves, Target("opencl", gpu=Gpu()), False),
        (product(64), CUDA, False),
    ):
        kernels = [k for sketch in space(workload, target).sketches for k in sketch.kernels]
        assert any(isinstance(k, Mma) for k in kernels) == some


def test_no_asynchronous_copies_where_the_gpu_has_none():
    for sketch in space(product(64), Target("cuda", gpu=Gpu("sm_75"))).sketches:
        assert "async" not in sketch.name.structure


def test_padding_is_computed_where_it_is_staged_or_before():
    w = lw.workload(ops.conv2d(T("X", 1, 16, 14, 14), T("W", 32, 16, 3, 3), padding=1))
    names = [s.name.structure for s in space(w, CUDA).sketches]
    assert "inline" in names[0]
    assert any("inline" not in name for name in names)
    assert len(first(w).kernels) == 1


def test_constant_weights_are_turned_ahead_of_time():
    w = lw.workload(ops.dense(T("X", 64, 64), T("W", 64, 64, constant=True)))
    tree = lower(first(w), CUDA, space(w, CUDA).default)
    assert [b.name for b in tree.prepared] == ["W_turned"]


def test_a_long_sum_is_split_among_blocks():
    sketch = first(lw.workload(ops.matmul(T("A", 16, 65536), T("B", 65536, 16))))
    assert sketch.derivation.names == ("rfactor",)


@pytest.mark.parametrize(
    ("rows", "columns", "steps", "dtype", "split"),
    [
        (128, 768, 768, "float32", True),  # 745 results for each multiprocessor
        (128, 768, 256, "float32", False),
        (128, 3072, 768, "float32", False),
        (128, 768, 768, "float16", False),  # tensor cores take 16 steps at once
        (128, 768, 3072, "float16", True),
    ],
)
def test_sums_are_split_where_results_leave_multiprocessors_idle(
    rows, columns, steps, dtype, split
):
    x, w = T("X", rows, steps, dtype=dtype), T("W", columns, steps, dtype=dtype, constant=True)
    sketch = first(lw.workload(ops.dense(x, w)))
    assert (sketch.derivation.names == ("rfactor",)) == split
    assert isinstance(sketch.kernels[0 if split else -1], Mma) == (dtype == "float16")


def test_tensor_cores_have_as_much_on_its_way_as_fits_beside_another_block():
    target = Target("cuda", gpu=replace(H100, shared_bytes=227 << 10, sm_shared_bytes=228 << 10))

    def chosen(n):
        sketch = first(product(n, "float16", accumulate="float32"), target)
        return dict(sketch.at(sketch.default).values)

    assert chosen(4096) == {"tile0": (2, 2, 4, 4), "chunk0": (32,), "slots0": (4,)}
    assert chosen(512) == {"tile0": (2, 4, 1, 1), "chunk0": (64,), "slots0": (4,)}


@pytest.mark.parametrize(
    "label", ["winograd(results=2)", "winograd(results=4)", "rfactor", "im2col"]
)
def test_rewrites_carry_over(label):
    w = lw.workload(
        ops.conv2d(T("X", 1, 64, 14, 14), T("W", 64, 64, 3, 3, constant=True), padding=1)
    )
    assert any(label in str(s.name) for s in space(w, CUDA, "fast").sketches)


def test_windows_are_staged_once_for_all_positions():
    w = lw.workload(ops.conv2d(T("X", 1, 8, 34, 34), T("W", 16, 8, 3, 3)))
    sketch = first(w)
    (kernel,) = sketch.kernels
    config = sketch.config(
        tile0=(2, 1, 4), threads0=(8, 4, 8), virtual0=(1, 1, 1), chunk0=(2, 3, 3)
    )
    assert isinstance(kernel, Tiled)
    # 4 rows and 32 columns of results read 6 and 34; rows are padded to 16 bytes.
    assert "X_shared: float32[2, 1, 2, 6, 36]" in show(lower(sketch, CUDA, config))


def test_axes_that_fill_no_warp_have_kernels_too():
    w = lw.workload(ops.depthwise_conv2d(T("X", 1, 64, 7, 7), T("W", 64, 1, 3, 3), padding=1))
    for sketch in space(w, CUDA).sketches:
        lower(sketch, CUDA, sketch.at(sketch.default))


def test_sums_that_read_no_tensor_have_kernels():
    i, j = lw.indices(i=128, j=128)
    count = lw.tensor("count")
    count[i] += lw.cast(j <= i, "int32")
    assert lw.space(count, target={"kind": "cuda", "arch": "sm_80"}).sketches
