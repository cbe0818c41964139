"""What an element is made of: reductions inside of it, and indices as numbers."""

import numpy as np

import loopwright as lw
from loopwright.dsl.show import show_definition
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import defined
from tests.dsl.compute import compute, draw

i, j, k = lw.indices("i j k")
A = lw.tensor("A", (5, 7))
B = lw.tensor("B", (7, 3))
V = lw.tensor("V", (5,))


def shown(t: Tensor) -> str:
    return show_definition(t, defined(t)).split("    ")[0]


def test_reductions_inside_of_an_element_are_tensors_of_their_own() -> None:
    t = lw.tensor("T")
    t[i, j] = (A[i, j] - lw.sum(A[i, k]) / 7) * lw.rsqrt(lw.sum(A[i, k] ** 2)) + lw.max(
        B[k, j % 3]
    )
    assert [shown(s) for s in lw.workload(t).stages] == [
        "T_sum[i] += A[i, k]",
        "T_sum_1[i] += A[i, k] * A[i, k]",
        "T_max[j] = max(B[k, j % 3])",
        "T[i, j] = (A[i, j] - T_sum[i] / 7.0) * rsqrt(T_sum_1[i]) + T_max[j]",
    ]
    a, b = draw(A), draw(B)
    expected = (a - a.mean(1, keepdims=True)) / np.linalg.norm(a, axis=1, keepdims=True)
    expected = expected + b.max(0)[np.arange(7) % 3]
    np.testing.assert_allclose(compute(t, {A: a, B: b}), expected, rtol=1e-4, atol=1e-5)


def test_equal_reductions_are_worked_out_once() -> None:
    t = lw.tensor("T")
    t[i] = lw.sum(A[i, k]) ** 2
    assert [shown(s) for s in lw.workload(t).stages] == [
        "T_sum[i] += A[i, k]",
        "T[i] = T_sum[i] * T_sum[i]",
    ]


def test_an_input_keeps_its_name_beside_a_part_that_would_have_it() -> None:
    x, t = lw.tensor("T_sum", (5,)), lw.tensor("T")
    t[i] = lw.sum(A[i, k]) + x[i]
    workload = lw.workload(t)
    assert [shown(s) for s in workload.stages] == [
        "T_sum_1[i] += A[i, k]",
        "T[i] = T_sum_1[i] + T_sum[i]",
    ]
    assert [x.name for x in workload.inputs] == ["A", "T_sum"]


def test_an_index_is_an_int64_beside_one() -> None:
    places, t = lw.tensor("places", (4,), "int64"), lw.tensor("T", (4, 3))
    t[i, j] = lw.cast(lw.equal(places[i], j), "float32")
    given = np.array([2, 0, 1, 7])
    np.testing.assert_array_equal(compute(t, {places: given}), given[:, None] == np.arange(3))


def test_the_magnitude_of_an_index_is_an_element() -> None:
    t = lw.tensor("T", (9,))
    t[i] = V[4 - abs(4 - abs(i - 2))]
    v = draw(V)
    np.testing.assert_array_equal(compute(t, {V: v}), np.pad(v, 2, mode="reflect"))
