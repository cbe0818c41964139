"""Lowering for GPUs: every kind of kernel, run by an interpreter, equals the oracle."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.dsl.oracle import evaluate, random_inputs, tolerance
from loopwright.schedule.lowering import lower
from loopwright.schedule.space import space
from loopwright.schedule.target import Gpu, Target
from loopwright.schedule.tree.printer import show
from loopwright.schedule.tree.verifier import legal, verify
from tests.collection import WORKLOADS, T
from tests.schedule.gpu_interpreter import run
from tests.thin import thinned

pytestmark = pytest.mark.sampled(0.34)

GPU = Gpu("sm_90", multiprocessors=4, tensor_cores=True, async_copies=True)
CUDA = Target("cuda", gpu=GPU)
OPENCL = Target("opencl", gpu=Gpu(most_threads=128, shared_bytes=16 << 10, multiprocessors=2))


def halves(m, n, k, dtype="float16", **options):
    A = T("A", *((k, m) if options.get("transpose_a") else (m, k)), dtype=dtype)
    B = T("B", *((n, k) if options.get("transpose_b") else (k, n)), dtype=dtype)
    return ops.matmul(A, B, accumulate="float32", **options)


def transposed(A):
    B, (i, j) = lw.tensor("B"), lw.indices("i j")
    B[j, i] = lw.relu(A[i, j])
    return B


def backwards(A, B):
    C, (i, j, k) = lw.tensor("C"), lw.indices("i j k")
    C[i, j] += A[i, k] * B[B.shape[0] - 1 - k, j]
    return C


def read_again_after_the_sum(X, A, B):
    P, C, D = map(lw.tensor, "PCD")
    i, j, k = lw.indices("i j k")
    P[i] = lw.where(i >= 1, X[i - 1], 0.0)
    C[i, j] += P[i] * A[i, k] * B[k, j]
    D[i, j] = C[i, j] + P[i]
    return D


def turned_sum(*operands):
    B, (i, j) = lw.tensor("B"), lw.indices("i j")
    total = operands[0][i, j]
    for operand in operands[1:]:
        total = total + operand[i, j]
    B[j, i] = total
    return B


CASES = {
    "products with a reversed operand": lambda: backwards(T("A", 24, 30), T("B", 30, 20)),
    "padding that is read again after the sum": lambda: read_again_after_the_sum(
        T("X", 31), T("A", 32, 24), T("B", 24, 32)
    ),
    "sums wider than what they add up": lambda: ops.dense(
        T("X", 1, 64, dtype="float16"), T("W", 24, 64, dtype="float16"), accumulate="float32"
    ),
    "odd rows of halves": lambda: halves(24, 33, 16, transpose_a=True),
    "transposition of many operands": lambda: turned_sum(
        *(T(f"A{n}", 33, 40, dtype="float64") for n in range(6))
    ),
    "odd products": lambda: ops.matmul(T("A", 21, 37), T("B", 37, 18)),
    "transposed products": lambda: ops.matmul(
        T("A", 24, 16), T("B", 24, 24), transpose_a=True, transpose_b=True
    ),
    "constant weights": lambda: ops.relu(
        ops.dense(T("X", 9, 24), T("W", 20, 24, constant=True), T("b", 20))
    ),
    "padding and a stride": lambda: ops.conv2d(
        T("X", 1, 5, 11, 9), T("W", 8, 5, 3, 3), padding=1, stride=2
    ),
    "dilation": lambda: ops.conv2d(T("X", 1, 4, 9, 9), T("W", 6, 4, 3, 3), dilation=2),
    "depthwise": lambda: ops.depthwise_conv2d(T("X", 1, 6, 9, 7), T("W", 6, 1, 3, 3), padding=1),
    "pooling": lambda: ops.max_pool2d(T("X", 1, 3, 9, 9), window=3, stride=2, padding=1),
    "attention": lambda: ops.attention(
        T("Q", 1, 2, 9, 8), T("K", 1, 2, 9, 8), T("V", 1, 2, 9, 8), causal=True
    ),
    "transposition": lambda: transposed(T("A", 21, 40)),
    "rows": lambda: ops.softmax(T("X", 7, 45)),
    "long rows": lambda: ops.global_avg_pool2d(T("X", 1, 5, 16, 8)),
    "one row of products": lambda: ops.matmul(T("A", 1, 64), T("B", 64, 20)),
    "tensor cores": lambda: halves(37, 49, 53),
    "tensor cores after arithmetic": lambda: ops.matmul(
        ops.sigmoid(T("A", 32, 48, dtype="float16")),
        T("B", 48, 32, dtype="float16"),
        accumulate="float32",
    ),
    "products after arithmetic": lambda: ops.matmul(ops.tanh(T("A", 24, 32)), T("B", 32, 20)),
    "tensor cores, transposed": lambda: halves(32, 48, 40, transpose_a=True, transpose_b=True),
    "tensor cores, bfloat16": lambda: ops.relu(halves(16, 32, 48, "bfloat16")),
}


REWRITES = {
    "winograd(results=2)": lambda: ops.conv2d(
        T("X", 1, 16, 7, 6), T("W", 16, 16, 3, 3, constant=True), padding=1
    ),
    "winograd(results=4)": lambda: ops.conv2d(
        T("X", 1, 16, 8, 9), T("W", 16, 16, 3, 3, constant=True)
    ),
    "im2col": lambda: ops.conv2d(T("X", 1, 4, 8, 7), T("W", 64, 4, 3, 3), padding=1),
    "rfactor": lambda: ops.matmul(T("A", 4, 4096), T("B", 4096, 6)),
    "rfactor(stage=0, parts=8) matrix": lambda: halves(16, 32, 256),
}


def assert_equals_oracle(workload, points, configs):
    inputs = random_inputs(workload, np.random.default_rng(0))
    expected = evaluate(workload, inputs)
    arrays = {t.name: np.asarray(a) for t, a in zip(workload.inputs, inputs, strict=True)}
    for config in configs:
        sketch = points.sketch(config.sketch)
        tree = lower(sketch, CUDA, config)
        verify(tree, GPU)
        made = run(tree, arrays)
        rtol, atol = tolerance(workload, sketch.error_growth)
        for tensor, reference in zip(workload.outputs, expected, strict=True):
            got, wanted = made[tensor.name].astype(float), reference.astype(float)
            np.testing.assert_allclose(got, wanted, rtol, atol, err_msg=f"{config}\n{show(tree)}")


def draw(sketch, count, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(len(k.choices), size=count) for k in sketch.knobs], axis=1)


@pytest.mark.parametrize("name", thinned(CASES))
def test_every_sketch_by_default_and_at_random_equals_the_oracle(name):
    workload = lw.workload(CASES[name]())
    points, rng = space(workload, CUDA), np.random.default_rng(2)
    configs = [s.at(s.default) for s in points.sketches[:5]] + [points.sample(rng)]
    assert_equals_oracle(workload, points, configs)


@pytest.mark.parametrize("label", REWRITES)
def test_rewritten_programs_equal_the_oracle(label):
    workload = lw.workload(REWRITES[label]())
    points = space(workload, CUDA, "fast")
    sketch = next(s for s in points.sketches if str(s.name).startswith(label))
    assert_equals_oracle(workload, points, [sketch.at(sketch.default)])


@pytest.mark.parametrize("name", thinned(WORKLOADS, keep=3))
@pytest.mark.parametrize("target", [CUDA, OPENCL], ids=["cuda", "opencl"])
def test_the_defaults_of_all_sketches_are_legal(name, target):
    for sketch in space(WORKLOADS[name](), target).sketches[:12]:
        verify(lower(sketch, target, sketch.at(sketch.default)), target.gpu)


@pytest.mark.parametrize("name", ["matmul_of_odd_extents", "softmax", "conv2d_with_residual"])
def test_a_row_of_a_batch_is_the_tree_of_that_config(name):
    for sketch in space(WORKLOADS[name](), CUDA).sketches[:4]:
        numbers = draw(sketch, 8)
        batch = lower(sketch, CUDA, numbers)
        for i in range(len(numbers)):
            assert show(batch.row(i)) == show(lower(sketch, CUDA, sketch.at(numbers[i])))


def test_most_points_are_legal():
    workload = lw.workload(ops.matmul(T("A", 512, 512), T("B", 512, 512)))
    for sketch in space(workload, CUDA).sketches[:4]:
        assert legal(lower(sketch, CUDA, draw(sketch, 500)), GPU).mean() > 0.5


def test_samples_are_legal():
    workload, rng = lw.workload(ops.matmul(T("A", 512, 512), T("B", 512, 512))), None
    points, rng = space(workload, CUDA), np.random.default_rng(5)
    for _ in range(20):
        config = points.sample(rng)
        verify(lower(points.sketch(config.sketch), CUDA, config), GPU)


@pytest.mark.parametrize("name", ["matmul_of_odd_extents", "softmax"])
def test_the_default_tree_reads_as_expected(name, golden):
    points = space(WORKLOADS[name](), CUDA)
    tree = lower(points.sketches[0], CUDA, points.default)
    golden(f"gpu_{name}", f"{points.default}\n{show(tree)}")


def test_a_tree_of_matrix_statements_reads_as_expected(golden):
    points = space(lw.workload(halves(64, 64, 64)), CUDA)
    tree = lower(points.sketches[0], CUDA, points.default)
    golden("gpu_matrix_product", f"{points.default}\n{show(tree)}")
