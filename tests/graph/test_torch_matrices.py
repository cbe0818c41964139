"""Inverses, equations of matrices and determinants, as torch has them."""

import pytest

from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError
from tests.graph.modules import Function, check

torch = pytest.importorskip("torch")
linalg = torch.linalg
pytestmark = pytest.mark.torch


def square(*shape):
    return torch.randn(*shape, shape[-1]) + 3 * torch.eye(shape[-1])


def test_equations_are_solved_for_every_kind_of_right_side():
    def solved(a, b, v, w):
        return (
            linalg.solve(a, b),
            linalg.solve(a, v),
            linalg.solve(a[0], w),
            linalg.solve(a, b.mT, left=False),
            linalg.solve(a[:1], b),
            linalg.solve_triangular(a, b, upper=True),
            linalg.solve_triangular(a, b, upper=False, unitriangular=True),
            linalg.solve_triangular(a, b.mT, upper=False, left=False),
        )

    check(solved, square(2, 5), torch.randn(2, 5, 3), torch.randn(2, 5), torch.randn(5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_inverse_may_need_its_rows_in_another_order(dtype):
    rows = torch.tensor([[0, 1, 0], [0, 0, 2], [3, 0, 1]], dtype=dtype)
    check(lambda x, one: (x.inverse(), linalg.inv_ex(x), linalg.inv(one)), rows, rows[2:, :1])


def test_the_logarithm_of_a_determinant_is_beyond_no_type():
    x = square(2, 6)
    check(lambda *xs: [linalg.slogdet(x) for x in xs], x, x[0] * 1e30, -x, torch.ones(3, 3))


def test_a_known_matrix_of_any_size_has_an_inverse():
    weight = torch.nn.Parameter(square(48))

    def layer(x):
        return x @ weight.inverse(), linalg.slogdet(weight)[1] * x, linalg.solve(weight, x)

    check(layer, torch.randn(48, 48), rtol=1e-4, atol=1e-4)
    with pytest.raises(ModelError, match="it has 48 rows; 32 may be"):
        build_model(Function(linalg.inv), (square(48),), threads=1)
    weight.data.zero_()
    with pytest.raises(ModelError, match="singular"):
        build_model(Function(layer), (square(48),), threads=1)
