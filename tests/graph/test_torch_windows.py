"""Pools and convolutions of torch that ONNX counts or orders otherwise."""

import math

import pytest

from tests.graph.modules import check

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.torch


@pytest.mark.parametrize("ceil", [False, True])
def test_a_mean_pool_divides_by_what_it_is_told(ceil):
    def pooled(x):
        return (
            F.avg_pool2d(x, 3, 2, 1, ceil, divisor_override=5),
            F.avg_pool2d(x[0], (3, 2), None, (1, 0), ceil, divisor_override=7),
            F.avg_pool2d(x, 3, 4, 0, ceil, divisor_override=1),
            F.avg_pool3d(x, 2, 3, 1, ceil, divisor_override=2),
        )

    check(pooled, torch.randn(2, 3, 9, 8))


def test_the_place_of_nan_in_a_window_is_that_of_torch():
    x = torch.randn(2, 3, 9, 8)
    x.view(-1)[::7] = math.nan
    x[0, 0, 3:6, 3:6] = -math.inf
    check(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x)
    check(lambda x: F.max_pool1d(x[0], 3, 2, 1, return_indices=True), x)


def test_a_convolution_may_have_times_first():
    x, weight = torch.randn(9, 2, 4), torch.randn(3, 4, 6)
    check(
        lambda x, w, b: (torch.conv_tbc(x, w, b, 1), torch.conv_tbc(x, w, b)),
        x,
        weight,
        x[0, 0, :1].repeat(6),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_slope_that_is_drawn_in_training_is_fixed_in_inference(dtype):
    x = torch.tensor([-2.0, -0.0, 3, -math.inf, math.nan], dtype=dtype)
    check(lambda x: (F.rrelu(x), torch.nn.RReLU(0.1, 0.7).eval()(x)), x)


def test_windows_are_unfolded_and_folded_without_a_batch():
    check(lambda x: F.unfold(x, (2, 3), 1, 1, (1, 2)), torch.randn(3, 4, 5))
    check(lambda x: F.fold(x, (4, 4), 2), torch.randn(12, 9))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_an_axis_that_a_factor_leaves_at_its_size_is_not_resampled(rank):
    mode = ("linear", "bilinear", "trilinear")[rank - 1]
    factors = (1.3, 2.0, 0.7)[:rank]
    check(
        lambda x: F.interpolate(x, scale_factor=factors, mode=mode),
        torch.randn(2, 2, *(3,) * rank),
    )


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_an_image_is_filtered_before_it_shrinks_as_in_torch(mode, corners):
    factors = (0.5, 1.7), (1.1, 0.6)  # 1.1 leaves 6 rows as they are

    def resized(x):
        same = {"mode": mode, "align_corners": corners, "antialias": True}
        by_size = [F.interpolate(x, size, **same) for size in ((7, 11), (3, 2), (1, 5))]
        return by_size + [F.interpolate(x, scale_factor=factor, **same) for factor in factors]

    check(resized, torch.randn(2, 3, 6, 5))


def test_a_cubic_sample_beyond_the_border_is_that_of_torch():
    def sampled(x, grid):
        return [F.grid_sample(x, grid, "bicubic", "border", aligned) for aligned in (False, True)]

    check(sampled, torch.randn(2, 3, 5, 6), torch.randn(2, 4, 3, 2) * 1.5)


def test_distances_of_pairs_of_rows_are_torchs():
    check(lambda x: [F.pdist(x, p) for p in (0.5, 1, 2, math.inf)], torch.randn(7, 5))


def test_a_cross_entropy_may_be_of_one_sample():
    def losses(x, c):
        return [F.cross_entropy(x, c, reduction=reduction) for reduction in ("mean", "none")]

    check(losses, torch.randn(5), torch.tensor(3))


def test_windows_of_signals_are_made_in_a_network():
    def every(x):
        kaiser = torch.kaiser_window(9, periodic=False, beta=5.0)
        return x * kaiser, x * torch.hamming_window(9), x * torch.bartlett_window(9)

    check(every, torch.randn(9))
