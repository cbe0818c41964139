"""Workloads that tests build: all operators, odd and prime extents, several stages, all types."""

from __future__ import annotations

from collections.abc import Callable

import loopwright as lw
from loopwright.dsl import ops
from loopwright.dsl.tensor import Tensor

WORKLOADS: dict[str, Callable[[], lw.Workload]] = {}


def case(make: Callable[[], Tensor | tuple[Tensor, ...]]) -> Callable[[], lw.Workload]:
    """Register a function that returns output tensors as a named workload."""

    def workload() -> lw.Workload:
        outputs = make()
        return lw.workload(*outputs) if isinstance(outputs, tuple) else lw.workload(outputs)

    WORKLOADS[make.__name__] = workload
    return workload


def T(name: str, *shape: int, dtype: str = "float32", constant: bool = False) -> Tensor:
    return lw.tensor(name, shape, dtype, constant)


@case
def matmul_of_odd_extents():
    return ops.matmul(T("A", 37, 53), T("B", 53, 29))


@case
def matmul_of_one_row():
    return ops.matmul(T("A", 1, 301), T("B", 301, 77))


@case
def matmul_of_four_rows_with_constant_weights():
    return ops.matmul(T("A", 4, 100), T("B", 100, 61, constant=True))


@case
def matmul_with_both_transposed():
    return ops.matmul(T("A", 41, 23), T("B", 31, 41), transpose_a=True, transpose_b=True)


@case
def matmul_of_a_matrix_with_itself():
    A, C = T("A", 24, 24), lw.tensor("C")
    i, j, k = lw.indices("i j k")
    C[i, j] += A[i, k] * A[j, k]
    return C


@case
def matmul_in_float64():
    return ops.matmul(T("A", 19, 33, dtype="float64"), T("B", 33, 21, dtype="float64"))


@case
def matmul_in_float16():
    return ops.matmul(T("A", 17, 16, dtype="float16"), T("B", 16, 23, dtype="float16"))


@case
def matmul_in_float16_accumulated_in_float32():
    A, B = T("A", 17, 31, dtype="float16"), T("B", 31, 23, dtype="float16")
    return ops.matmul(A, B, accumulate="float32")


@case
def matmul_in_bfloat16_accumulated_in_float32():
    A, B = T("A", 17, 31, dtype="bfloat16"), T("B", 31, 23, dtype="bfloat16")
    return ops.matmul(A, B, accumulate="float32")


@case
def matmul_in_int8_accumulated_in_int32():
    A, B = T("A", 19, 45, dtype="int8"), T("B", 45, 33, dtype="int8", constant=True)
    return ops.matmul(A, B, accumulate="int32")


@case
def matmul_in_int8_that_wraps():
    return ops.matmul(T("A", 19, 45, dtype="int8"), T("B", 45, 33, dtype="int8"))


@case
def batch_matmul():
    return ops.batch_matmul(T("A", 3, 17, 19), T("B", 3, 19, 23))


@case
def dense_with_bias_and_relu():
    y = ops.dense(T("X", 5, 67), T("W", 43, 67, constant=True), T("bias", 43))
    return ops.relu(y)


@case
def dense_of_batch_1_with_weights_unknown():
    return ops.dense(T("X", 1, 131), T("W", 59, 131))


@case
def conv2d():
    return ops.conv2d(T("X", 1, 5, 13, 13), T("W", 19, 5, 3, 3), padding=1)


@case
def conv2d_with_constant_weights_bias_and_relu():
    W = T("W", 21, 8, 3, 3, constant=True)
    return ops.relu(ops.conv2d(T("X", 1, 8, 11, 17), W, padding=1, bias=T("b", 21)))


@case
def conv2d_with_stride_2_and_batch_2():
    W = T("W", 16, 3, 7, 7, constant=True)
    return ops.conv2d(T("X", 2, 3, 23, 23), W, stride=2, padding=3)


@case
def conv2d_pointwise():
    return ops.conv2d(T("X", 1, 24, 7, 7), T("W", 18, 24, 1, 1, constant=True))


@case
def conv2d_pointwise_with_stride_2():
    return ops.conv2d(T("X", 1, 12, 14, 14), T("W", 18, 12, 1, 1, constant=True), stride=2)


@case
def conv2d_with_dilation():
    return ops.conv2d(T("X", 1, 4, 15, 15), T("W", 9, 4, 3, 3), dilation=2, padding=2)


@case
def conv2d_in_groups():
    return ops.conv2d(T("X", 1, 12, 9, 9), T("W", 18, 4, 3, 3), groups=3, padding=1)


@case
def conv2d_channels_last():
    X, W = T("X", 1, 12, 13, 7), T("W", 3, 3, 7, 24, constant=True)
    return ops.conv2d(X, W, padding=1, layout="NHWC")


@case
def conv2d_of_three_output_channels():
    return ops.conv2d(T("X", 1, 9, 10, 10), T("W", 3, 9, 3, 3, constant=True), padding=1)


@case
def conv2d_in_int8_accumulated_in_int32():
    X, W = T("X", 1, 7, 9, 9, dtype="int8"), T("W", 11, 7, 3, 3, dtype="int8", constant=True)
    return ops.conv2d(X, W, padding=1, accumulate="int32")


@case
def conv2d_with_residual():
    x = T("X", 1, 8, 9, 9)
    y = ops.conv2d(x, T("W", 8, 8, 3, 3, constant=True), padding=1, bias=T("b", 8))
    return ops.relu(ops.add(y, x))


@case
def two_convolutions_in_a_row():
    x = ops.relu(ops.conv2d(T("X", 1, 6, 10, 10), T("W", 10, 6, 3, 3, constant=True), padding=1))
    return ops.conv2d(x, T("V", 9, 10, 1, 1, constant=True))


@case
def depthwise_conv2d():
    return ops.depthwise_conv2d(
        T("X", 1, 11, 13, 13), T("W", 11, 1, 3, 3, constant=True), padding=1
    )


@case
def depthwise_conv2d_with_stride_and_multiplier():
    return ops.depthwise_conv2d(T("X", 1, 6, 15, 15), T("W", 12, 1, 3, 3), stride=2, padding=1)


@case
def conv2d_transpose():
    x, w = T("X", 1, 7, 5, 5), T("W", 7, 9, 4, 4, constant=True)
    return ops.conv2d_transpose(x, w, stride=2, padding=1)


@case
def conv1d():
    return ops.conv1d(T("X", 2, 5, 37), T("W", 13, 5, 5), stride=2, padding=2)


@case
def max_pool2d():
    return ops.max_pool2d(T("X", 1, 5, 15, 15), 3, stride=2, padding=1)


@case
def max_pool2d_in_int8():
    return ops.max_pool2d(T("X", 1, 5, 11, 11, dtype="int8"), 3, stride=1, padding=1)


@case
def avg_pool2d():
    return ops.avg_pool2d(T("X", 1, 5, 14, 14), 2, stride=2)


@case
def global_avg_pool2d():
    return ops.global_avg_pool2d(T("X", 2, 13, 7, 7))


@case
def softmax():
    return ops.softmax(T("X", 7, 101))


@case
def softmax_of_the_middle_axis():
    return ops.softmax(T("X", 3, 11, 17), axis=1)


@case
def log_softmax():
    return ops.log_softmax(T("X", 5, 19))


@case
def layer_norm():
    return ops.layer_norm(T("X", 9, 67), T("gamma", 67), T("beta", 67))


@case
def batch_norm():
    v, variance = T("v", 7), lw.tensor("variance")
    (c,) = lw.indices("c")
    variance[c] = lw.abs(v[c]) + 0.1
    return ops.relu(ops.batch_norm(T("X", 2, 7, 5, 5), T("m", 7), variance, T("g", 7), T("b", 7)))


@case
def attention_with_a_causal_mask():
    return ops.attention(T("Q", 2, 13, 8), T("K", 2, 13, 8), T("V", 2, 13, 8), causal=True)


@case
def gelu_of_a_product():
    return ops.gelu(ops.matmul(T("A", 11, 31), T("B", 31, 37)))


@case
def elementwise_chain_with_broadcasting():
    return ops.mul(ops.sigmoid(ops.add(T("A", 5, 1, 33), T("B", 7, 1))), T("C", 5, 7, 33))


@case
def transposition_with_a_cast():
    A, B = T("A", 19, 37), lw.tensor("B")
    i, j = lw.indices("i j")
    B[j, i] = lw.cast(A[i, j], "float64")
    return B


@case
def einsum_of_three_operands():
    return lw.einsum("abc,cd,bde->ae", T("A", 7, 5, 11), T("B", 11, 3), T("C", 5, 3, 13))


@case
def einsum_of_a_trace():
    return lw.einsum("ii->", T("A", 37, 37))


@case
def einsum_of_a_batched_diagonal():
    return lw.einsum("bii->bi", T("A", 5, 17, 17))


@case
def contraction_of_four_axes():
    return lw.einsum("abef,cdfe->abcd", T("A", 5, 7, 9, 4), T("B", 3, 6, 4, 9))


@case
def contraction_that_transposes():
    return lw.einsum("aebd,ce->dcba", T("A", 17, 6, 3, 13), T("B", 11, 6))


@case
def sum_of_everything():
    A, S = T("A", 67, 1031), lw.tensor("S")
    i, j = lw.indices("i j")
    S[()] = lw.sum(A[i, j])
    return S


@case
def long_dot_product_over_threads():
    A, B, S = T("A", 3, 65536), T("B", 65536), lw.tensor("S")
    i, k = lw.indices("i k")
    S[i] += A[i, k] * B[k]
    return S


@case
def sum_of_products_where_rows_precede():
    x, w, out = T("x", 4, 8, 16), T("w", 4, 16, 32), lw.tensor("out", (4, 8, 32))
    b, i, k, j = lw.indices("b i k j")
    out[b, i, j] += lw.where((b >= 1) & (b + k < 17), x[b - 1, i, k], 0.0) * w[b, k, j]
    return out


@case
def constant_rows_that_are_summed_along_a_row():
    c, x = lw.tensor("c", (4, 16, 32), constant=True), T("x", 8, 4)
    e, s, out = lw.tensor("e"), lw.tensor("s"), lw.tensor("out")
    b, i, j, k = lw.indices("b i j k")
    e[i, j, k] = lw.exp(c[i, j, k])
    s[i, j] += e[i, j, k] * e[i, 15 - j, k]
    out[b, j] += x[b, i] * s[i, j]
    return out


@case
def product_and_minimum_along_rows():
    A, P, M = T("A", 13, 9), lw.tensor("P"), lw.tensor("M")
    i, k = lw.indices("i k")
    P[i] = lw.prod(A[i, k] + 1)
    M[k] = lw.min(A[i, k])
    return P, M


@case
def sliding_window_maximum_of_a_row():
    A, M = T("A", 301), lw.tensor("M")
    i, r = lw.indices("i r", r=7)
    M[i] = lw.max(A[i + r])
    return M


@case
def comparison_to_truth_values():
    A, B, C = T("A", 17, 9), T("B", 9), lw.tensor("C")
    i, j = lw.indices("i j")
    C[i, j] = (A[i, j] < B[j]) | (A[i, j] > 0.5)
    return C


@case
def selection_by_truth_values():
    M, A, C = T("M", 5, 33, dtype="bool"), T("A", 5, 33), lw.tensor("C")
    i, j = lw.indices("i j")
    C[i, j] = lw.where(M[i, j], A[i, j], -A[i, j])
    return C


@case
def triangular_mask_by_index():
    A, C = T("A", 17, 17), lw.tensor("C")
    i, j = lw.indices("i j")
    C[i, j] = lw.where(j <= i, A[i, j], float("-inf"))
    return C


@case
def guarded_stencil():
    A, C = T("A", 11, 19), lw.tensor("C")
    i, j = lw.indices("i j")
    C[i, j] = lw.where((j >= 1) & (j < 18), A[i, j - 1] + A[i, j + 1], A[i, j])
    return C


@case
def index_values_in_the_elements():
    A, C = T("A", 7, 13), lw.tensor("C")
    i, j = lw.indices("i j")
    C[i, j] = A[i, j] * lw.cast(2 * i + j, "float32")
    return C


@case
def reshape_by_division():
    A, C = T("A", 6, 35), lw.tensor("C", (210,))
    (i,) = lw.indices("i")
    C[i] = lw.exp(A[i // 35, i % 35])
    return C


@case
def division_that_does_not_divide():
    A, C = T("A", 5, 7), lw.tensor("C", (31,))
    (i,) = lw.indices("i")
    C[i] = A[i // 7, i % 7]
    return C


@case
def reversed_rows():
    A, C = T("A", 5, 37), lw.tensor("C", (5, 37))
    i, j = lw.indices("i j")
    C[i, j] = A[i, 36 - j]
    return C


@case
def every_elementary_function():
    A, C = T("A", 3, 41), lw.tensor("C")
    i, j = lw.indices("i j")
    x = A[i, j]
    positive = lw.abs(x) + 0.5
    C[i, j] = (
        lw.exp(x)
        + lw.log(positive)
        + lw.sqrt(positive)
        + lw.rsqrt(positive)
        + lw.tanh(x)
        + lw.sigmoid(x)
        + lw.erf(x)
        + lw.floor(4 * x)
        + lw.max(x, 0.25)
        + lw.min(x, -0.25)
    )
    return C


@case
def every_elementary_function_in_float16():
    A, C = T("A", 3, 41, dtype="float16"), lw.tensor("C")
    i, j = lw.indices("i j")
    x = A[i, j]
    C[i, j] = lw.exp(x) + lw.tanh(x) + lw.sigmoid(x) + lw.erf(x)
    return C


@case
def every_elementary_function_in_bfloat16():
    A, C = T("A", 3, 41, dtype="bfloat16"), lw.tensor("C")
    i, j = lw.indices("i j")
    x = A[i, j]
    C[i, j] = lw.exp(x) + lw.tanh(x) + lw.sigmoid(x) * lw.erf(x)
    return C


@case
def elementary_functions_inside_each_other():
    A, C = T("A", 5, 29), lw.tensor("C")
    i, j = lw.indices("i j")
    x = A[i, j]
    C[i, j] = x * lw.tanh(lw.log(1 + lw.exp(x))) + lw.exp(-lw.exp(lw.sigmoid(x)))
    return C


@case
def every_elementary_function_in_float64():
    A, C = T("A", 3, 41, dtype="float64"), lw.tensor("C")
    i, j = lw.indices("i j")
    x = A[i, j]
    positive = lw.abs(x) + 0.5
    C[i, j] = (
        lw.exp(x) + lw.log(positive) + lw.rsqrt(positive) + lw.tanh(x) + lw.sigmoid(x) + lw.erf(x)
    )
    return C


@case
def integer_arithmetic():
    A, B, C = T("A", 9, 23, dtype="int32"), T("B", 23, dtype="int32"), lw.tensor("C")
    i, j = lw.indices("i j")
    C[i, j] = (A[i, j] * 5 + B[j]) // 3 + A[i, j] % 4 - lw.abs(B[j])
    return C


@case
def bytes_widened_and_narrowed():
    A, C = T("A", 5, 57, dtype="uint8"), lw.tensor("C")
    i, j = lw.indices("i j")
    C[i, j] = lw.cast(lw.cast(A[i, j], "int32") * 70 - 100, "uint8")
    return C


@case
def a_scalar_from_a_scalar():
    A, C = T("A", 1), lw.tensor("C")
    (i,) = lw.indices("i")
    C[i] = A[i] + 1
    return C


@case
def weights_computed_from_constants():
    X, W, g = T("X", 13, 31), T("W", 17, 31, constant=True), T("g", 17, constant=True)
    V = lw.tensor("V")
    o, k = lw.indices("o k")
    V[o, k] = lw.exp(W[o, k]) * g[o]
    return ops.dense(X, V)


@case
def dense_with_constant_weights_and_constant_bias():
    W, b = T("W", 50, 40, constant=True), T("b", 50, constant=True)
    return ops.relu(ops.dense(T("X", 37, 40), W, b))


@case
def constant_that_is_packed_and_read_as_it_is():
    X, S, Y = T("X", 24, 24, constant=True), lw.tensor("S"), lw.tensor("Y")
    A = T("A", 33, 24)
    i, j, k = lw.indices("i j k")
    S[i, j] += A[i, k] * X[j, k]
    Y[i, j] = S[i, j] + X[j, 1]
    return Y


@case
def maximum_over_two_reads_of_one_constant():
    X, S = T("X", 2, 2, constant=True), lw.tensor("S")
    i, k = lw.indices("i k")
    S[i] = lw.max(lw.max(X[i, k], X[1, k]))
    return S


@case
def narrowing_to_bytes():
    X, C = T("X", 200), lw.tensor("C")
    (i,) = lw.indices("i")
    C[i] = lw.cast(100 * X[i], "int8")
    return C


@case
def remainder_that_never_holds():
    X, C = T("X", 30), lw.tensor("C")
    (i,) = lw.indices("i")
    C[i] = lw.where(lw.equal(i % 3, 5), X[i], 0.0)
    return C


@case
def guarded_read_past_the_rows_of_a_tensor():
    M, X, C = T("M", 10, 8, dtype="bool"), T("X", 7, 8), lw.tensor("C")
    i, j = lw.indices("i j")
    C[i, j] = lw.where(M[i, j], X[i, j], 0.0)
    return C


@case
def split_reduction_beside_an_index_called_p():
    A, B, S, Y = T("A", 64, 1024), T("B", 11), lw.tensor("S"), lw.tensor("Y")
    i, j, p = lw.indices("i j p")
    S[()] = lw.sum(A[i, j])
    Y[p] = B[p] * S[()]
    return Y


@case
def rows_with_indices_called_row0():
    X, M, Y = T("X", 3, 4, 5), lw.tensor("M"), lw.tensor("Y")
    r, ow0, x = lw.indices("r ow0 x")
    M[x] = lw.max(X[x, r, ow0])
    Y[x, r, ow0] = X[x, r, ow0] - M[x]
    return Y


@case
def reductions_over_indices_with_underscores():
    A, C, D = T("A", 5, 7, 40), lw.tensor("C"), lw.tensor("D")
    i, k, k_ = lw.indices("i k k_")
    C[i] += A[i, k, k_]
    D[k] = lw.relu(C[k])
    return D


@case
def comparisons_of_truth_values():
    A, B, C = T("A", 37, dtype="bool"), T("B", 37, dtype="bool"), lw.tensor("C")
    (i,) = lw.indices("i")
    C[i] = lw.where(lw.equal(A[i], B[i]) | (A[i] < B[i]), 1.0, 2.0)
    return C


@case
def negated_bytes():
    A, C = T("A", 37, dtype="uint8"), lw.tensor("C")
    (i,) = lw.indices("i")
    C[i] = -A[i]
    return C


@case
def constant_that_nothing_reads_in_the_end():
    X, Y, Z = T("X", 2, 5, constant=True), lw.tensor("Y"), lw.tensor("Z")
    A = T("A", 5)
    i, j = lw.indices("i j")
    Y[i, j] = lw.where((i >= 1) & (i < 1), X[i, j], 0.0)
    Z[j] = A[j] * 2
    return Y, Z


@case
def constants_ahead_of_time_that_nothing_needs_in_the_end():
    X, V, Y, A = T("X", 2, 5, constant=True), lw.tensor("V"), lw.tensor("Y"), T("A", 2, 5)
    i, j = lw.indices("i j")
    V[i, j] = lw.exp(X[i, j])
    Y[i, j] = A[i, j] + lw.where((i >= 1) & (i < 1), V[i, j] + V[0, j], 0.0)
    return Y


@case
def contraction_of_a_transposed_operand_whose_other_axes_are_tiled():
    A, B, C = T("A", 4, 32, 16, 16), T("B", 4, 32, 16), lw.tensor("C")
    k, v, b, n, a = lw.indices("k v b n a")
    C[n, a, b, v] += A[k, v, b, n] * B[k, v, a]
    return C


@case
def contraction_of_three_operands_two_of_which_are_read_alike():
    A, S, B, C = T("A", 5, 32, 17), T("S", 5, 32, 17), T("B", 5, 32, 18), lw.tensor("C")
    k, v, n, a = lw.indices("k v n a")
    C[n, a, v] += A[k, v, n] * S[k, v, n] * B[k, v, a]
    return C


@case
def infinities_are_compared_with():
    X, Y, Z = T("X", 19), lw.tensor("Y"), lw.tensor("Z")
    (i,) = lw.indices("i")
    Y[i] = lw.where(lw.equal(X[i], float("-inf")), 0.0, X[i])
    Z[i] = lw.where(X[i] < float("inf"), X[i], 1.0)
    return Y, Z


@case
def fractions_are_compared():
    A, B, C = T("A", 8), lw.tensor("B"), lw.tensor("C")
    (i,) = lw.indices("i", i=8)
    B[i] = 0.25
    C[i] = lw.where(B[i] >= 0.5, A[i], 0.0)
    return C


@case
def transposed_sum_whose_last_phase_is_one_element():
    X, W, S, C, D = T("X", 8, 3), T("W", 8, 3), *map(lw.tensor, "SCD")
    c, u, y, r = lw.indices("c u y r", u=5, y=3, r=3)
    S[c, u] = lw.where(lw.equal(u % 2, 0), X[c, u // 2], 0.0)
    C[c, y] += S[c, y + r] * W[c, r]
    D[c] += C[c, y]
    return D


@case
def spread_convolution_of_one_of_two_images():
    X, W, S, C = T("X", 2, 64, 8), T("W", 64, 16, 4), T("S", 2, 64, 19), lw.tensor("C")
    n, c, u, k, y, r = lw.indices("n c u k y r")
    inside = (u >= 2) & (u < 17) & lw.equal((u - 2) % 2, 0)
    S[n, c, u] = lw.where(inside, X[n, c, (u - 2) // 2], 0.0)
    C[k, y] += S[1, c, y + r] * W[c, k, r]
    return C


@case
def circular_and_hyperbolic_functions():
    A, C = T("A", 5, 41), lw.tensor("C")
    i, j = lw.indices("i j")
    x = A[i, j]
    C[i, j] = (
        (lw.sin(9 * x) + lw.cos(9 * x) + lw.tan(x))
        + (lw.asin(x * 0.9) + lw.acos(x * 0.9) + lw.atan(x) + lw.atan2(x, 0.5))
        + (lw.sinh(x) + lw.cosh(x) + lw.asinh(x) + lw.acosh(lw.abs(x) + 1.5) + lw.atanh(x * 0.9))
    )
    return C


@case
def powers_logarithms_and_remainders():
    A, B, C = T("A", 5, 41), T("B", 41), lw.tensor("C")
    i, j = lw.indices("i j")
    x, y = A[i, j], B[j] + 1.5
    C[i, j] = (
        (lw.pow(y, x) + 2.0**x + y**-0.75 + lw.exp2(x) + lw.expm1(x))
        + (lw.log2(y) + lw.log10(y) + lw.log1p(x * 0.9))
        + (lw.fmod(x * 7, y) + (x * 7) % y + (x * 7) // y)
        + (lw.ceil(x * 3) + lw.trunc(x * 3) + lw.round(x * 3) + lw.sign(x))
    )
    return C


@case
def functions_in_float64_and_float16():
    A, B = T("A", 3, 19, dtype="float64"), T("B", 3, 19, dtype="float16")
    C, D = lw.tensor("C"), lw.tensor("D")
    i, j = lw.indices("i j")
    x, y = A[i, j], B[i, j]
    C[i, j] = lw.sin(x) + lw.atan2(x, 0.5) + lw.pow(2.0, x) + lw.log1p(lw.abs(x)) + lw.round(x)
    D[i, j] = lw.cos(y) + lw.asinh(y) + lw.pow(lw.abs(y) + 1, y)
    return C, D


@case
def divisions_of_integers_by_each_other():
    A, B, C = T("A", 9, 23, dtype="int32"), T("B", 23, dtype="int32"), lw.tensor("C")
    i, j = lw.indices("i j")
    x, y = A[i, j], B[j]
    C[i, j] = x // y + x % y * 3 + lw.trunc_div(x, y) * 5 + lw.fmod(x, y) * 7 + x ** lw.abs(y)
    return C


@case
def bits_of_integers():
    A, B, C = T("A", 9, 23, dtype="int16"), T("B", 23, dtype="int16"), lw.tensor("C")
    i, j = lw.indices("i j")
    x, y = A[i, j], B[j]
    C[i, j] = ((x & y) + (x | 3) ^ ~y) + (x << 2) + (x >> 1) + (x << y)
    return C


@case
def integers_without_a_sign():
    A, B, C = T("A", 7, 13, dtype="uint32"), T("B", 13, 11, dtype="uint32"), lw.tensor("C")
    D, E = T("D", 5, 9, dtype="uint64"), lw.tensor("E")
    i, j, k = lw.indices("i j k")
    C[i, j] += (A[i, k] - 3) * B[k, j]
    E[i, j] = (D[i, j] - 7) * 0xFFFF_FFFF_FFFF_FFF1 ^ D[i, j] >> 1
    return C, E


@case
def rows_of_an_embedding_table():
    X, N, B, Y = T("X", 50, 29), T("N", 13, dtype="int64"), T("B", 29), lw.tensor("Y")
    i, j = lw.indices("i j")
    Y[i, j] = X[N[i], j] * 2.0 + B[j]
    return Y


@case
def elements_along_an_axis():
    X, N, Y = T("X", 7, 19), T("N", 7, 11, dtype="int32"), lw.tensor("Y")
    i, j = lw.indices("i j")
    Y[i, j] = X[i, N[i, j] * 3]
    return Y


@case
def points_of_a_computed_tensor():
    X, W, N, C, Y = (
        T("X", 17, 12),
        T("W", 12, 21),
        T("N", 23, 2, dtype="int8"),
        *map(lw.tensor, "CY"),
    )
    i, j, k, p = lw.indices("i j k p")
    C[i, j] += X[i, k] * W[k, j]
    Y[p] = lw.exp(C[N[p, 0], N[p, 1]])
    return Y


@case
def sum_of_gathered_rows_times_weights():
    X, N, W, Y = T("X", 31, 16), T("N", 5, 4, dtype="int32"), T("W", 16, 9), lw.tensor("Y")
    i, j, k, n = lw.indices("i j k n")
    Y[i, j] += X[N[i, n], k] * W[k, j]
    return Y


@case
def rows_that_are_gathered_by_a_reduction_and_padded():
    X, S, A, P, Y = T("X", 9, 14), T("S", 6, 5, dtype="int32"), *map(lw.tensor, "APY")
    i, j, k = lw.indices("i j k")
    A[i] = lw.max(S[i, k])
    P = lw.pad(X, [(0, 2), (1, 1)])
    Y[i, j] = lw.where(lw.equal(A[i], 3), 0.0, P[A[i], j])
    return Y


@case
def cumulative_sum_of_rows_that_blocks_do_not_divide():
    return ops.cumsum(T("X", 5, 131))


@case
def cumulative_product_of_columns_from_the_end():
    return ops.cumprod(T("X", 70, 9), axis=0, exclusive=True, reverse=True)


@case
def places_of_the_greatest_and_the_least():
    x = T("X", 7, 45)
    return ops.argmax(x), ops.argmin(x, axis=0, select_last=True, dtype="int32")


@case
def table_that_is_made_of_numbers_alone():
    N, S, R, Y = T("N", 11, dtype="int32"), *map(lw.tensor, "SRY")
    i, j, k = lw.indices("i j k", i=13, k=13)
    S[k] = lw.cast(k * 3 % 7, "float32")
    R[i] += lw.where(k <= i, S[k], 0.0)
    Y[j] = R[N[j]]
    return Y


@case
def greatest_elements_of_columns_and_their_places():
    return ops.topk(T("X", 45, 3), 4, axis=0)


@case
def rows_in_descending_order():
    return ops.sort(T("X", 3, 19), descending=True)


@case
def planes_of_a_batch_that_elements_choose():
    X, N, Y = T("X", 5, 3, 7, 11), T("N", 4, dtype="int32"), lw.tensor("Y")
    n, c, i, j = lw.indices("n c i j")
    Y[n, c, i, j] = lw.relu(X[N[n], c, i, j])
    return Y
