"""Operands whose types differ, and results of other types, as torch has them."""

import pytest

from tests.graph.modules import check

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.torch


def test_integers_become_the_floats_that_a_function_gives():
    functions = (
        torch.erf, torch.erfc, torch.expm1, torch.sinc, torch.angle, torch.exp2, torch.digamma,
        torch.special.erf, torch.special.ndtr, torch.special.sinc, torch.special.log_ndtr,
    )  # fmt: skip

    def every(x, y):
        return [*(f(x) for f in functions), torch.xlogy(x, y), torch.erf(x > 1), x.square()]

    check(every, torch.tensor([0, 1, 2, -5]), torch.tensor([3, 0, 1, 7], dtype=torch.int32))


def test_powers_and_differences_have_the_wider_type():
    whole, half, single = torch.arange(1, 5), torch.rand(4).bfloat16(), torch.rand(4)
    pairs = [
        lambda i, h, x, d: (i**x, x**i, x**d, i.int() ** i, (i > 2).square()),
        lambda i, h, x, d: (torch.rsub(i, x), torch.rsub(x, d), torch.rsub(i.int(), i)),
        lambda i, h, x, d: (torch.fmax(i, i.int()), torch.fmin(x, d), torch.ldexp(x, d)),
    ]
    for each in pairs:
        check(each, whole, half, single, torch.rand(4, dtype=torch.float64))
    check(lambda h, x: (h**x, torch.rsub(h, x)), half, single, rtol=1e-5, atol=1e-5)


def test_integers_are_whole_and_are_no_infinities():
    def every(x):
        rounded = (x.ceil(), x.floor(), x.round(), x.trunc())
        return *rounded, x.isnan(), x.isinf(), x.isfinite(), torch.copysign(x, -2.5)

    check(every, torch.tensor([0, 2**40, -7]))


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax, torch.special.softmax])
def test_a_softmax_is_computed_in_the_type_that_is_asked_for(function):
    def every(x, i):
        double = function(x, 1, dtype=torch.float64)
        return double, function(i, 0, dtype=torch.float32), function(x[0, 0], 0)

    check(every, torch.randn(3, 4), torch.arange(4), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
def test_a_softmax_of_halves_in_float32_is_not_rounded_to_halves(function):
    check(lambda x: function(x, -1, dtype=torch.float32), torch.randn(3, 9).bfloat16())


def test_complex_numbers_are_not_promoted():
    window = torch.hann_window(8)

    def spectrum(x):
        return torch.stft(x, 8, 4, window=window, return_complex=True).abs()

    check(spectrum, torch.randn(2, 32))


def test_a_single_integer_beside_halves_is_not_rounded_to_a_half():
    check(lambda x, n: (x / n, x * n), torch.randn(9).bfloat16() * 500, torch.tensor(1001))
