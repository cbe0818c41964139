"""Numbers beside tensors of float64: none is rounded to a float32."""

import math

import pytest

import loopwright as lw
from loopwright.graph.build import build_model
from tests.graph.modules import Function

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.torch
ELEMENTWISE = (
    lambda x: 0.1**x,
    lambda x: F.celu(x, 0.3),
    lambda x: F.elu(x, 0.3),
    lambda x: F.gelu(x, approximate="tanh"),
    F.gelu,
    lambda x: F.hardshrink(x, 0.3),
    F.hardsigmoid,
    F.hardswish,
    lambda x: F.hardtanh(x, -0.3, 0.7),
    lambda x: F.leaky_relu(x, 0.1),
    F.selu,
    lambda x: F.softplus(x, 0.3, 1.1),
    lambda x: F.softshrink(x, 0.3),
    lambda x: F.threshold(x, 0.1, 0.3),
    torch.deg2rad,
    lambda x: torch.log2(x.abs()),
    lambda x: torch.log10(x.abs()),
    torch.rad2deg,
    lambda x: torch.add(x, x.exp(), alpha=0.1),
    lambda x: torch.add(x, 0.3, alpha=0.1),
    lambda x: torch.sub(x, x.exp(), alpha=0.1),
    lambda x: torch.rsub(x, x.exp(), alpha=0.1),
    lambda x: torch.rsub(x, 0.3, alpha=0.1),
    lambda x: x * torch.linspace(0.1, 0.7, 6, dtype=x.dtype),
    lambda x: x * torch.logspace(0.1, 0.7, 6, dtype=x.dtype),
    lambda x: x * torch.arange(0.1, 0.7, 0.1, dtype=x.dtype),
    lambda x: x * torch.arange(0.1, 6, dtype=x.dtype),
    lambda x: F.layer_norm(x, (6,), eps=1e-3),
    lambda x: F.layer_norm(x, (6,), x[0], x[1], eps=1e-3),
    lambda x: F.rms_norm(x, (6,), eps=1e-3),
)


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def check(function, *inputs, given=None, **close):
    """Compare a function with torch, to 1e-14 unless it is said otherwise."""
    built = build_model(Function(function), given or inputs, threads=1, check=False)
    close = close or {"rtol": 1e-14, "atol": 1e-14}
    torch.testing.assert_close(built(*inputs), function(*inputs), **close)


def test_numbers_of_float64_beyond_float32_are_no_infinities():
    def every(x):
        return x.isinf(), x.isposinf(), x.isneginf(), x.isfinite(), x.nan_to_num()

    check(every, torch.tensor([1e300, -1e300, math.inf, -math.inf, math.nan], dtype=torch.float64))


@pytest.mark.parametrize("rows", [5, lw.dim("rows", 2, 5)], ids=["fixed", "open"])
def test_functions_of_float64_have_all_digits_of_the_numbers_beside_it(rows):
    def every(x):
        return tuple(function(x) for function in ELEMENTWISE)

    check(every, double(5, 6), given=(lw.tensor("x", (rows, 6), "float64"),))


def test_factors_of_sums_with_products_have_all_digits():
    def sums(x, a, b):
        by = {"beta": 0.3, "alpha": 0.7}
        return (
            torch.addmm(x[0], a[0], b[0], **by),
            torch.addmm(x[0, 0], a[0], b[0], alpha=0.7),
            torch.addmv(x[0, :, 0], a[0], b[0, :, 0], **by),
            torch.addr(x[0], a[0, :, 0], b[0, 0], **by),
            torch.baddbmm(x, a, b, **by),
            torch.addbmm(x[0], a, b, **by),
        )

    check(sums, double(2, 4, 6), double(2, 4, 5), double(2, 5, 6))


@pytest.mark.parametrize("batch", [2, lw.dim("batch", 1, 4)], ids=["fixed", "open"])
def test_norms_of_float64_have_all_digits_of_what_they_add_to_variances(batch):
    weight, bias, mean, variance = double(4), double(4), double(4), double(4).abs()

    def norms(x):
        return (
            F.batch_norm(x, mean, variance, weight, bias, eps=1e-3),
            F.batch_norm(x, None, None, training=True, eps=1e-3),
            F.group_norm(x, 2, weight, bias, eps=1e-3),
            F.group_norm(x, 2, eps=1e-3),
            F.instance_norm(x, eps=1e-3),
            F.instance_norm(x, mean, variance, weight, bias, False, eps=1e-3),
            F.layer_norm(x, (5, 5), eps=1e-3),
        )

    check(norms, double(2, 4, 5, 5), given=(lw.tensor("x", (batch, 4, 5, 5), "float64"),))


def test_places_in_images_of_float64_have_all_digits():
    def images(x, grid):
        return (
            F.interpolate(x, scale_factor=1.7, mode="bilinear"),
            F.interpolate(x, scale_factor=1.7, mode="bicubic"),
            F.affine_grid(x[:, 0, :2, :3], (2, 4, 3, 5), align_corners=False),
            F.grid_sample(x, grid, mode="bicubic", padding_mode="reflection", align_corners=False),
        )

    check(images, double(2, 4, 6, 6), double(2, 3, 3, 2).tanh())


def test_a_layer_between_a_convolution_and_its_activation_has_all_digits():
    convolution = torch.nn.Conv2d(4, 3, 3).double()
    norm = torch.nn.BatchNorm2d(3, eps=1e-3).double()
    norm.running_var.uniform_(0.5, 1.5)
    network = torch.nn.Sequential(convolution, norm, torch.nn.LeakyReLU(0.1)).eval()
    x = double(2, 4, 6, 6)
    built = build_model(network, (x,), threads=1, check=False)
    torch.testing.assert_close(built(x), network(x), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_summand_whose_factor_is_zero_is_not_looked_at(dtype):
    def sums(x, a, b):
        return (
            torch.addmm(x[0], a[0], b[0], beta=0),
            torch.addmv(x[0, :, 0], a[0], b[0, :, 0], beta=0),
            torch.addr(x[0], a[0, :, 0], b[0, 0], beta=0),
            torch.baddbmm(x, a, b, beta=0),
            torch.addbmm(x[0], a, b, beta=0),
        )

    x = torch.full((2, 4, 6), math.nan, dtype=dtype)
    a, b = double(2, 4, 5).to(dtype), double(2, 5, 6).to(dtype)
    check(sums, x, a, b, rtol=1e-5, atol=1e-5)


def test_numbers_in_equal_steps_are_torchs_at_every_kind_of_end():
    def ranges(x):
        n = x.shape[0]
        return (
            torch.arange(1, n),
            torch.arange(n, dtype=torch.float32),
            torch.arange(0, n, 2),
            torch.arange(1, n, dtype=torch.float64),
            torch.arange(1, 5) + torch.arange(2.5, 6.5) + torch.arange(4.0) + n,
            torch.arange(0.1, 0.7, 0.1) + torch.arange(0, 12, 2),
            torch.arange(0.5, 7.5, dtype=torch.int64) + x.sum(),
        )

    check(ranges, torch.randn(7), rtol=1e-6, atol=1e-6)
    given = (lw.tensor("x", (lw.dim("n", 2, 9),)),)
    check(ranges, torch.randn(7), given=given, rtol=1e-6, atol=1e-6)
