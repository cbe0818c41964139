"""Tensors, definitions, reductions, guards, padding, printing, and what the notation refuses."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import expr as e
from loopwright.dsl.dtypes import FLOATS, INTEGERS
from loopwright.dsl.errors import NotationError
from loopwright.dsl.show import show_definition, show_expr, show_tensor
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import defined
from tests.dsl.compute import compute, draw

i, j, k = lw.indices("i j k")
A = lw.tensor("A", (5, 7))
B = lw.tensor("B", (7, 3))
V = lw.tensor("V", (5,))
N = lw.tensor("N", (5,), "int32")
P = lw.tensor("P", (5,), "bool")
Q = lw.tensor("Q", (5,), "bool")


def shown(t: Tensor) -> str:
    return show_definition(t, defined(t)).split("    ")[0]


def test_a_matrix_product_is_summed_over_the_absent_index() -> None:
    c = lw.tensor("C")
    c[i, j] += A[i, k] * B[k, j]
    assert (c.shape, c.dtype) == ((5, 3), "float32")
    assert show_definition(c, defined(c)) == (
        "C[i, j] += A[i, k] * B[k, j]    i < 5, j < 3, k < 7"
    )
    a, b = draw(A), draw(B)
    np.testing.assert_allclose(compute(c, {A: a, B: b}), a @ b, rtol=1e-6, atol=1e-6)


def test_sums_of_halves_go_through_float32() -> None:
    a, b, c = lw.tensor("A", (5, 7), "float16"), lw.tensor("B", (7, 3), "float16"), lw.tensor("C")
    c[i, j] += a[i, k] * b[k, j]
    total, out = lw.workload(c).stages
    assert (total.dtype, out.dtype, c.dtype) == ("float32", "float16", "float16")
    assert shown(total) == "C_sum[i, j] += float32(A[i, k]) * float32(B[k, j])"
    assert shown(out) == "C[i, j] = float16(C_sum[i, j])"
    most = lw.tensor("most")
    most[i] = lw.max(a[i, k])
    assert len(lw.workload(most).stages) == 1  # exact in its own type


def test_sums_of_gathered_halves_go_through_float32() -> None:
    a, x, n = lw.tensor("A", (3, 7), "float16"), lw.tensor("X", (9,), "float16"), lw.tensor("C")
    places = lw.tensor("N", (7,), "int32")
    n[i] += a[i, k] * x[places[k]]
    total, _ = lw.workload(n).stages
    assert shown(total) == "C_sum[i] += float32(A[i, k]) * float32(X[N[k]])"
    halves, table, at = draw(a), draw(x), np.array([8, 0, -1, 3, 3, -9, 5], "int32")
    expected = (halves.astype("float64") @ table[at].astype("float64")).astype("float16")
    np.testing.assert_array_equal(compute(n, {a: halves, x: table, places: at}), expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint64", "float16"])
def test_signs_and_what_is_no_number_are_told_of_every_type_of_numbers(dtype: str) -> None:
    x = lw.tensor("X", (4,), dtype)
    values = np.array([0, 1, 7, 100], dtype)
    for function, numpys in ((lw.sign, np.sign), (lw.isnan, np.isnan), (lw.isinf, np.isinf)):
        found = lw.tensor("C")
        found[i] = function(x[i])
        result = compute(found, {x: values})
        np.testing.assert_array_equal(result, numpys(values))


def test_a_tensor_with_a_declared_shape_sums_the_same_way() -> None:
    c = lw.tensor("C", (5, 3))
    c[i, j] += A[i, k] * B[k, j]
    assert shown(c) == "C[i, j] += A[i, k] * B[k, j]"
    d = lw.tensor("C", (5, 3), "float32")
    d[i, j] = d[i, j] + A[i, k] * B[k, j]
    assert lw.workload(d) == lw.workload(c)


def test_a_declared_shape_leaves_the_dtype_open() -> None:
    c = lw.tensor("C", (5,))
    c[i] += lw.cast(A[i, k], "int32")
    assert c.dtype == "int32"
    d = lw.tensor("D", (5,))
    d[i] = N[i] * 2
    assert d.dtype == "int32"


def test_an_input_takes_no_other_dtype_by_accumulation() -> None:
    x = A[i, k]
    x += lw.cast(N[i], "int32")
    with pytest.raises(NotationError, match=r"Accumulation.* is not an element expression"):
        assign(undefined(), i, x)


@pytest.mark.parametrize(
    ("reduction", "function"),
    [(lw.sum, np.sum), (lw.max, np.max), (lw.min, np.min), (lw.prod, np.prod)],
)
def test_reductions_reduce_over_the_absent_indices(
    reduction: Callable[..., Any], function: Callable[..., Any]
) -> None:
    t = lw.tensor("T")
    t[k] = reduction(A[i, k])
    a = draw(A)
    np.testing.assert_allclose(compute(t, {A: a}), function(a, axis=0), rtol=1e-6)
    s = lw.tensor("S")
    s[()] = reduction(A[i, k])
    np.testing.assert_allclose(compute(s, {A: a}), function(a), rtol=1e-5)
    assert s.shape == ()


def test_a_reduction_over_nothing_is_the_element() -> None:
    t = lw.tensor("T")
    t[i] += V[i]
    assert defined(t).reducer is None
    assert shown(t) == "T[i] = V[i]"


def test_a_definition_may_transpose_and_take_the_diagonal() -> None:
    square = lw.tensor("X", (5, 5))
    d, t = lw.tensor("D"), lw.tensor("T")
    d[i] = square[i, i]
    t[k, i] = A[i, k]
    x, a = draw(square), draw(A)
    np.testing.assert_array_equal(compute(d, {square: x}), np.diag(x))
    np.testing.assert_array_equal(compute(t, {A: a}), a.T)


ARITHMETIC: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
    (lambda v: 2 - v * 3, lambda v: 2 - v * 3),
    (lambda v: (v + 2) / 4 - 1, lambda v: (v + 2) / 4 - 1),
    (lambda v: 1 / (v + 3), lambda v: 1 / (v + 3)),
    (lambda v: -v + lw.abs(v), lambda v: -v + np.abs(v)),
    (lambda v: v**3, lambda v: v**3),
    (lambda v: lw.exp(v) * lw.tanh(v), lambda v: np.exp(v) * np.tanh(v)),
    (lambda v: lw.sqrt(v + 2) * lw.rsqrt(v + 3), lambda v: np.sqrt((v + 2) / (v + 3))),
    (lambda v: lw.log(v + 2), lambda v: np.log(v + 2)),
    (lambda v: lw.erf(v), lambda v: np.vectorize(math.erf)(v)),
    (lambda v: lw.sigmoid(v), lambda v: 1 / (1 + np.exp(-v))),
    (lambda v: lw.floor(v * 4), lambda v: np.floor(v * 4)),
    (lambda v: lw.relu(v), lambda v: np.maximum(v, 0)),
    (lambda v: lw.max(v, 0.5, -v), lambda v: np.maximum(np.maximum(v, 0.5), -v)),
    (lambda v: lw.min(0.25, v), lambda v: np.minimum(v, 0.25)),
    (lambda v: np.float32(2) * v + np.float64(0.5), lambda v: 2 * v + 0.5),
    (lambda v: lw.where((v > 0) & ~(v >= 0.5), 1.0, 0), lambda v: (v > 0) & (v < 0.5)),
    (lambda v: lw.where((v < -0.5) | (v > 0.5), v, -v), lambda v: np.where(abs(v) > 0.5, v, -v)),
    (lambda v: lw.where(lw.equal(v, v), 0, 1.0), lambda v: 0 * v),
    *[
        (lambda v, name=name: getattr(lw, name)(v), getattr(np, name))
        for name in ("sin", "cos", "tan", "sinh", "cosh", "exp2", "expm1", "sign")
    ],
    *[
        (lambda v, name=name: getattr(lw, f"a{name}")(v), getattr(np, f"arc{name}"))
        for name in ("sin", "cos", "tan", "sinh", "tanh")
    ],
    (lambda v: lw.acosh(v + 3), lambda v: np.arccosh(v + 3)),
    (lambda v: lw.log2(v + 2) + lw.log10(v + 2), lambda v: np.log2(v + 2) + np.log10(v + 2)),
    (lambda v: lw.log1p(v), np.log1p),
    (
        lambda v: lw.ceil(v * 4) + 3 * lw.trunc(v * 4),
        lambda v: np.ceil(v * 4) + 3 * np.trunc(v * 4),
    ),
    (lambda v: lw.round(v * 4), lambda v: np.rint(v * 4)),
    (lambda v: abs(v) ** 0.5 + abs(v) ** v, lambda v: abs(v) ** 0.5 + abs(v) ** v),
    (lambda v: 2**v + v**-1 + (v + 2) ** 9, lambda v: 2**v + v**-1.0 + (v + 2) ** 9),
    (lambda v: lw.pow(v, 2) + v ** np.int64(3), lambda v: v**2 + v**3),
    (lambda v: lw.atan2(v, -v * v), lambda v: np.arctan2(v, -v * v)),
    (lambda v: lw.fmod(v * 9, v + 2), lambda v: np.fmod(v * 9, v + 2)),
    (lambda v: v * 9 % -0.7 + v * 9 // 0.7, lambda v: v * 9 % -0.7 + v * 9 // 0.7),
    (lambda v: 9 % (v + 2) + 9 // (v + 2), lambda v: 9 % (v + 2) + 9 // (v + 2)),
    (lambda v: lw.where(lw.isnan(v / 0 * 0), 2.0, v), lambda v: 0 * v + 2),
    (lambda v: lw.where(lw.isinf(v / 0), 2.0, v), lambda v: 0 * v + 2),
]


@pytest.mark.parametrize(("ours", "numpy"), ARITHMETIC)
def test_element_functions_are_those_of_numpy(
    ours: Callable[[Any], Any], numpy: Callable[[Any], Any]
) -> None:
    t = lw.tensor("T")
    t[i] = ours(V[i])
    v = draw(V)
    np.testing.assert_allclose(
        compute(t, {V: v}), numpy(v.astype(np.float64)), rtol=1e-6, atol=1e-6
    )


def test_bits_of_integers_are_those_of_numpy() -> None:
    t = lw.tensor("T")
    x = lw.tensor("x", (41,), "uint16")
    (j,) = lw.indices("j")
    t[j] = (x[j] & 6 | x[j] << 2) ^ ~x[j] >> 1
    a = draw(x)
    np.testing.assert_array_equal(compute(t, {x: a}), (a & 6 | a << 2) ^ ~a >> 1)


def test_elements_are_subscripts_and_count_from_the_end_where_they_are_negative() -> None:
    x, at = lw.tensor("X", (5, 7)), lw.tensor("At", (11,), "int8")
    rows, points = lw.tensor("R"), lw.tensor("P")
    n, j = lw.indices("n j")
    rows[n, j] = x[at[n], j] * 2
    points[n] = x[at[n] + 1, at[n] * 2]
    assert str(lw.workload(rows)).splitlines()[2].startswith("R[n, j] = X[At[n], j] * 2")
    a, i = draw(x), np.array([0, 4, -1, -5, 3, 1, 2, -2, -3, -4, 0], np.int8)
    np.testing.assert_array_equal(compute(rows, {x: a, at: i}), 2 * a[i])
    far = np.array([5, 100, -6, -128, 4, 0, 0, 0, 0, 0, 0], np.int8)
    near = np.array([4, 4, 0, 0, 4, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(compute(rows, {x: a, at: far}), 2 * a[near])
    inside = i % 3
    np.testing.assert_array_equal(compute(points, {x: a, at: inside}), a[inside + 1, inside * 2])


def test_what_elements_index_shows_the_range_of_the_other_axes_alone() -> None:
    x, at, t = lw.tensor("X", (5, 7)), lw.tensor("At", (11,), "int32"), lw.tensor("T")
    n, j = lw.indices("n j")
    t[n, j] = x[at[n], j]
    assert t.shape == (11, 7)


def test_integers_divide_by_floor() -> None:
    t, u = lw.tensor("T"), lw.tensor("U")
    t[i] = N[i] // 3
    u[i] = N[i] % 3
    n = draw(N)
    np.testing.assert_array_equal(compute(t, {N: n}), n // 3)
    np.testing.assert_array_equal(compute(u, {N: n}), n % 3)


def test_casts_truncate_and_wrap() -> None:
    big = lw.tensor("G", (3,), "int32")
    t, u, b = lw.tensor("T"), lw.tensor("U"), lw.tensor("Z")
    t[i] = lw.cast(V[i] * 8, "int8")
    u[i] = lw.cast(big[i], "int8")
    b[i] = lw.cast(big[i], "bool")
    v, g = draw(V), np.array([300, -129, 0], np.int32)
    np.testing.assert_array_equal(compute(t, {V: v}), np.trunc(v * 8))
    np.testing.assert_array_equal(compute(u, {big: g}), [44, 127, 0])
    np.testing.assert_array_equal(compute(b, {big: g}), [True, True, False])
    assert lw.cast(V[i], "float32") == V[i]


def test_index_values_are_int32_elements() -> None:
    t = lw.tensor("T")
    t[i] = lw.cast(2 * i + 1, "float32") * V[i]
    v = draw(V)
    np.testing.assert_allclose(compute(t, {V: v}), (2 * np.arange(5) + 1) * v, rtol=1e-6)
    assert (N[i] + i).dtype == "int32"
    assert (i - N[i]).dtype == "int32"


def test_where_guards_reads_that_leave_their_tensor() -> None:
    t = lw.tensor("T", (8,))
    t[i] = lw.where((i >= 2) & (i < 7), V[i - 2], 9)
    v = draw(V)
    np.testing.assert_array_equal(compute(t, {V: v}), [9, 9, *v, 9])


def test_tensors_are_joined_by_where() -> None:
    other = lw.tensor("W", (3,))
    (n,) = lw.indices(n=8)
    t = lw.tensor("T")
    t[n] = lw.where(n < 5, V[n], other[n - 5])
    v, w = draw(V), draw(other)
    np.testing.assert_array_equal(compute(t, {V: v, other: w}), [*v, *w])


@pytest.mark.parametrize(("before", "after"), [(0, 0), (2, 0), (0, 3), (1, 4)])
def test_pad_surrounds_with_a_value(before: int, after: int) -> None:
    widths = ((before, after), (after, before))
    t = lw.tensor("T")
    t[i, j] = lw.pad(A, widths, -math.inf)[i, j]
    a = draw(A)
    np.testing.assert_array_equal(compute(t, {A: a}), np.pad(a, widths, constant_values=-np.inf))
    if before == after == 0:
        assert lw.pad(A, widths) is A


def test_truth_values_are_padded_by_false() -> None:
    x = lw.tensor("X", (3,), "bool")
    result = compute(lw.pad(x, [(1, 2)]), {x: np.ones(3, bool)})
    assert result.tolist() == [False, True, True, True, False, False]


def test_a_padded_constant_is_constant() -> None:
    w = lw.tensor("W", (3,), constant=True)
    assert lw.pad(w, [(1, 1)]).constant


def test_reshapes_are_said_by_quotient_and_remainder() -> None:
    (n,) = lw.indices(n=35)
    t = lw.tensor("T")
    t[n] = A[n // 7, n % 7]
    a = draw(A)
    np.testing.assert_array_equal(compute(t, {A: a}), a.reshape(-1))


SHOWN = [
    ((V[i] + 1) * 2 - (V[i] - 3), "(V[i] + 1.0) * 2.0 - (V[i] - 3.0)"),
    (V[i] - V[i] - V[i], "V[i] - V[i] - V[i]"),
    (V[i] / (V[i] / 2), "V[i] / (V[i] / 2.0)"),
    (-(V[i] + 1), "-(V[i] + 1.0)"),
    (lw.max(V[i], -math.inf), "max(V[i], -inf)"),
    (lw.max(V[i]), "max(V[i])"),
    (lw.exp(V[i] + 1), "exp(V[i] + 1.0)"),
    ((V[i] < 1) & (V[i] > 0) | P[i], "(V[i] < 1.0) & (V[i] > 0.0) | P[i]"),
    (P[i] & (P[i] | Q[i]), "P[i] & (P[i] | Q[i])"),
    (lw.equal(V[i] < 1, Q[i]), "(V[i] < 1.0) == Q[i]"),
    (lw.where(~P[i], V[i], 0), "where(~P[i], V[i], 0.0)"),
    (lw.cast(V[i], "int32") * (i + 1), "int32(V[i]) * (i + 1)"),
    (N[i] * (2 * i), "N[i] * (2*i)"),
    (N[i] + i // 2, "N[i] + (i // 2)"),
    (2 * i + 1 < j, "2*i + 1 < j"),
    (lw.equal(i % 2, 0), "i % 2 == 0"),
]


@pytest.mark.parametrize(("expression", "text"), SHOWN)
def test_expressions_print_with_the_parentheses_they_need(expression: e.Expr, text: str) -> None:
    assert show_expr(expression) == text


def test_tensors_and_reductions_print() -> None:
    t = lw.tensor("T")
    t[i] = lw.max(A[i, k])
    assert shown(t) == "T[i] = max(A[i, k])"
    assert show_tensor(lw.tensor("W", (2, 3), "int8", constant=True)) == "W: int8[2, 3] constant"
    assert repr(A) == "Tensor(A: float32[5, 7])"


def undefined() -> Tensor:
    return lw.tensor("U")


def assign(t: Tensor, index: Any, body: Any) -> None:
    t[index] = body


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: lw.tensor("2x", (3,)), "'2x' cannot name a tensor"),
    (lambda: lw.tensor(3, (3,)), "3 cannot name a tensor"),
    (lambda: lw.indices(3), "3 cannot name indices: give names in one string"),
    (lambda: lw.indices(["i", "j"]), "cannot name indices: give names in one string"),
    (lambda: lw.tensor("x", (3, -1)), "extents are integers ≥ 0"),
    (lambda: lw.tensor("x", (True,)), "extents are integers ≥ 0"),
    (lambda: lw.tensor("x", (3,), "float31"), "'float31' is not supported; use one of float64"),
    (lambda: A[i], r"A has 2 axes.* indexed by 1"),
    (lambda: A[i, 1.5], "1.5 is not an index expression"),
    (lambda: list(A), "A is not iterable"),
    (lambda: undefined()[i] + 1, "U is read before"),
    (lambda: V[i] * undefined()[i], "U is read before"),
    (lambda: V[i] + V, r"Tensor of shape \(5,\) is not an element expression: write its"),
    (lambda: V[i] + np.ones(3), "is not an element expression: a definition has no data"),
    (lambda: V[i] + "x", "str 'x' is not an element expression: give a number"),
    (lambda: V[i] + N[i], r"float32 \+ int32: the sides differ"),
    (lambda: V[i] < N[i], "float32 < int32"),
    (lambda: N[i] + 1.5, "the number 1.5 meets an expression of int32"),
    (lambda: lw.cast(N[i], "int8") + 300, "300 is outside of int8, -128 to 127"),
    (lambda: lw.cast(N[i], "uint8") - -1, "-1 is outside of uint8"),
    (lambda: V[i] + 10**9999, "an integer of 33216 bits is too large for float32"),
    (lambda: P[i] + 1, "1 meets a truth value"),
    (lambda: P[i] + Q[i], r"bool \+ bool is not in the notation"),
    (lambda: V[i] & V[i], "float32 & float32 is not in the notation"),
    (lambda: N[i] / 2, "use // for integers"),
    (lambda: V[i] ^ V[i], r"float32 \^ float32 is not in the notation"),
    (lambda: V[i] << 1, "float32 << float32 is not in the notation"),
    (lambda: (V[i] > 0) << (V[i] > 0), "bool << bool is not in the notation"),
    (lambda: N[i] & True, "a side of & is Python's True"),
    (lambda: A[V[i], k], r"A is indexed by an element of float32: .*lw.cast"),
    (lambda: A[N[i]], "A has 2 axes"),
    (lambda: assign(lw.tensor("T"), N[i], V[i]), "an element is no index on the left"),
    (lambda: lw.sin(N[i]), "sin of int32: cast to a floating type first"),
    (lambda: lw.atan2(N[i], 1), "atan2 of int32: cast to a floating type first"),
    (
        lambda: lw.trunc_div(V[i], 2),
        r"trunc_div of float32 is for integers: use lw.trunc\(x / y\)",
    ),
    (lambda: N[i] // 0, "int32 // 0: divide an integer by another number"),
    (lambda: lw.fmod(N[i], 0), "int32 fmod 0: divide"),
    (lambda: N[i] ** 0.5, "the number 0.5 meets an expression of int32"),
    (lambda: ~V[i], "not of float32"),
    (lambda: -P[i], "neg of bool"),
    (lambda: lw.exp(N[i]), "exp of int32: cast"),
    (lambda: lw.sum(P[i]), "sum over truth values"),
    (lambda: lw.cast(V[i], "complex64"), "'complex64' is not supported"),
    (lambda: V[i] and V[i], "no truth value"),
    (lambda: V[i] < 1 < V[i], "no truth value"),
    (lambda: lw.where(i == j, V[i], 0), "Python's False.*lw.equal"),
    (lambda: V[i] * (i == j), "Python's False.*lw.equal"),
    (lambda: lw.max(V[i] == 0, V[i]), "Python's False.*lw.equal"),
    (lambda: lw.where(V[i] > 0, V[i] != 1, V[i]), "Python's True.*lw.equal"),
    (lambda: lw.cast(V[i] != 0, "float32"), "Python's True.*lw.equal"),
    (lambda: (V[i] > 0) & (V[i] != 0), "a side of & is Python's True"),
    (lambda: assign(lw.tensor("T", (5,)), i, V[i] == V[j]), "Python's False.*lw.equal"),
    (lambda: assign(undefined(), i, e.Reduce("sum", A[i, k] > 0)), "sum over truth values: cast"),
    (lambda: lw.where(V[i], V[i], 0), "the condition is float32"),
    (lambda: lw.where(P[i], V[i], N[i]), "the sides are float32 and int32"),
    (lambda: assign(undefined(), 2 * i, V[i]), "not a plain index"),
    (lambda: assign(undefined(), (i, i), A[i, i]), "twice on the left of U"),
    (lambda: assign(undefined(), i, V), r"write the indices of V: V\[i, j\]"),
    (lambda: assign(undefined(), i, A[i, k]), r"k only on the right of =; sum with \+="),
    (
        lambda: assign(undefined(), i, lw.max(lw.sum(A[i, k]))),
        "inside of another one; give the sum",
    ),
    (
        lambda: assign(undefined(), (i, k), A[i, k] / lw.sum(A[i, k])),
        "sum of A.* reduces no index",
    ),
    (lambda: assign(undefined(), i, lw.sum(A[i, k]) * B[k, 0]), r"k only on the right of ="),
    (lambda: lw.tensor("T", (5,))[i * j], r'as an element it is lw.cast\(i, "int32"\) \* j'),
    (lambda: lw.workload([A]), "no output: .* several one by one"),  # type: ignore[arg-type]
    (lambda: assign(lw.tensor("T", (5,)), i, lw.tensor("T", (5,), "int8")[i] + V[i]), "int8"),
    (lambda: assign(lw.tensor("T", (5,), "float16"), i, V[i]), "declared float16"),
    (lambda: lw.pad(A, [(1, 1)]), "one .before, after. for each axis"),
    (lambda: lw.pad(A, [(1, 1), (0, -1)]), r"\(0, -1\) in .*integers ≥ 0"),
    (lambda: lw.pad(A, 1), "one .before, after. for each axis"),
    (lambda: lw.pad(A, [1, 1]), r"1 in \[1, 1\]; give \(before, after\)"),
    (lambda: lw.tensor("x", 5), r"shape 5 of x: give a tuple of extents, \(5,\)"),
]


@pytest.mark.parametrize(("attempt", "message"), REFUSED)
def test_what_the_notation_refuses_is_explained(attempt: Callable[[], Any], message: str) -> None:
    with pytest.raises(NotationError, match=message):
        attempt()


def test_a_tensor_is_defined_once_and_not_by_itself() -> None:
    t = lw.tensor("T", (5,), "float32")
    with pytest.raises(NotationError, match="in terms of itself"):
        t[i] = t[i] * 2
    t[i] = V[i]
    with pytest.raises(NotationError, match="already defined"):
        t[i] += V[i]


def test_a_failed_definition_leaves_the_tensor_undefined() -> None:
    t = lw.tensor("T")
    with pytest.raises(NotationError):
        t[i] = A[i, k]
    t[i] += A[i, k]
    assert t.shape == (5,)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_every_dtype_is_computed_in(dtype: str) -> None:
    x, y = lw.tensor("x", (3, 5), dtype), lw.tensor("y", (5,), dtype)
    t = lw.tensor("T")
    t[i] += x[i, k] * y[k]
    a, b = draw(x), draw(y)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    result = compute(t, {x: a, y: b})
    assert result.dtype == a.dtype
    np.testing.assert_array_equal(result, exact.astype(a.dtype))


def test_numpys_dtypes_name_ours() -> None:
    x: Any = np.float16
    assert lw.tensor("x", (3,), x).dtype == "float16"


def test_positions_that_are_no_int32_are_refused() -> None:
    (n,) = lw.indices(n=100)
    t = lw.tensor("T")
    with pytest.raises(NotationError, match=r"0 to 262789140339, and an index is an int32: cast"):
        t[n] = lw.cast(n * 2_654_435_761, "float64")
    t[n] = lw.cast(n, "float64") * 2_654_435_761
    assert compute(t, {})[99] == 99 * 2_654_435_761


def test_expressions_that_are_too_deep_for_python_are_refused() -> None:
    x, y = lw.tensor("X", (9, 400)), lw.tensor("Y")
    with pytest.raises(
        NotationError, match=r"more than 150 operations stand inside of each other"
    ):
        y[i] = sum((x[i, d] * 2.0 for d in range(1, 400)), x[i, 0])
