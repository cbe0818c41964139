"""Special functions of torch far from zero, and near it, where plain formulas have no digits."""

import math

import pytest

from tests.graph.modules import check

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


TAILS = (torch.erfc, torch.special.erfcx, torch.special.log_ndtr)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tails_of_the_normal_distribution_have_their_digits(dtype):
    near, far = [0.0, -0.0, 1e-30, -1e-3], [-1e4, -500.0, 1e3, 1e30]
    ends = torch.tensor([*near, *far, math.inf, -math.inf, math.nan], dtype=dtype)
    x = torch.cat([torch.linspace(-12, 9, 99, dtype=dtype), ends])
    close = {"rtol": 1e-5 if dtype == torch.float32 else 1e-12, "atol": 1e-37}
    check(lambda x: [f(x) for f in TAILS], x, **close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_digamma_function_has_its_poles(dtype):
    hard = [0, -0.0, 1e-30, -1e-30, -1, -7, 1.5, -0.5, 1e30, math.inf, -math.inf, math.nan]
    x = torch.cat([torch.tensor(hard), torch.linspace(-9.3, 40, 60)]).to(dtype)
    check(torch.digamma, x, rtol=1e-5, atol=1e-5)


def test_the_logarithm_of_the_gamma_function_rises_at_both_sides_of_zero():
    check(torch.lgamma, torch.tensor([1e-30, -1e-30, -1e-9, -1.0000001]))
