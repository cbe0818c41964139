"""Matrix products against NumPy."""

from typing import Any

import pytest

import loopwright as lw
from tests.dsl.compute import check, draw

ops = lw.ops
T = lw.tensor


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7)])
def test_dense_multiplies_the_last_axis_by_rows_of_w(shape: tuple[int, ...]) -> None:
    x, w, b = T("x", shape), T("w", (5, 7)), T("b", (5,))
    expected = draw(x) @ draw(w).T
    check(ops.dense(x, w), expected, x, w)
    check(ops.dense(x, w, b), expected + draw(b), x, w, b)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(
    ("lead_a", "lead_b"), [((), ()), ((3,), (3,)), ((2, 1), (5,)), ((), (2, 3)), ((1,), (1,))]
)
def test_matrix_products_transpose_and_broadcast(
    transpose_a: bool, transpose_b: bool, lead_a: Any, lead_b: Any
) -> None:
    a = T("a", (*lead_a, *((5, 3) if transpose_a else (3, 5))))
    b = T("b", (*lead_b, *((7, 5) if transpose_b else (5, 7))))
    x = draw(a).swapaxes(-1, -2) if transpose_a else draw(a)
    y = draw(b).swapaxes(-1, -2) if transpose_b else draw(b)
    check(ops.batch_matmul(a, b, transpose_a, transpose_b), x @ y, a, b)
    if not lead_a and not lead_b:
        check(ops.matmul(a, b, transpose_a, transpose_b), x @ y, a, b)
