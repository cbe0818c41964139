"""Operators of torch that ONNX has not, at the values that are hard for them."""

import math

import pytest

import loopwright as lw
from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError
from tests.graph.modules import Function

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.torch


def check(function, *inputs):
    built = build_model(Function(function), inputs, threads=1, check=False)
    torch.testing.assert_close(built(*inputs), function(*inputs), equal_nan=True)
    return built


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_inverse_of_the_error_function_is_exact_up_to_its_ends(dtype):
    last = 1 - 2 * torch.finfo(dtype).eps
    hard = torch.tensor([0, 1e-30, 0.5, 0.99, last, 1, 1.5, math.nan], dtype=dtype)
    check(torch.erfinv, torch.cat([-hard, hard]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_logarithm_of_the_gamma_function_has_its_poles_and_zeros(dtype):
    hard = [1e-30, 0.5, 1, 1.5, 2, 3, 100.25, 1e30, math.inf, -0.5, -1, -2.75, -20.5, -math.inf]
    check(torch.lgamma, torch.tensor([*hard, math.nan], dtype=dtype))


@pytest.mark.sampled(0.34, every_value=False)
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_a_cumulative_product_takes_in_all_before_each_element(dim, dtype):
    x = torch.tensor([1, -2, 4])[torch.randint(0, 3, (3, 7))].to(dtype)
    check(lambda x: x.cumprod(dim), x / 2 if dtype.is_floating_point else x)


def test_sums_along_an_axis_have_the_type_that_torch_gives_them():
    check(lambda x: x.cumsum(0), torch.rand(5).half())
    check(lambda x: x.cumsum(0, dtype=torch.float64), torch.rand(5).half())


@pytest.mark.sampled(0.34, every_value=False)
@pytest.mark.parametrize("function", [torch.cummax, torch.cummin, torch.logcumsumexp])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8, torch.bool])
def test_extremes_up_to_each_element_have_the_places_that_torch_gives_them(function, dtype):
    x = torch.randint(0, 9, (3, 40, 2)).to(dtype)
    if dtype.is_floating_point:
        x[0, 7] = math.nan
        x[0, 20] = math.nan
        x[1, :3] = -math.inf
        x[2, 5:7] = math.inf
    elif function is torch.logcumsumexp:
        return
    check(lambda x: function(x, 1), x)
    check(lambda x: function(x, 0), torch.tensor(2, dtype=dtype))


def test_scans_go_along_an_open_axis():
    def scans(x):
        return x.cumsum(1), x.cumprod(1), *x.cummax(1), *x.flip(1).cummin(1)

    x = lw.tensor("x", (3, lw.dim("n", 2, 200)))
    built = build_model(Function(scans), [x])
    for n in (2, 65, 200):
        given = torch.rand(3, n) + 0.5
        given[0, n // 2] = math.nan
        for made, wanted in zip(built(given), scans(given), strict=True):
            torch.testing.assert_close(torch.as_tensor(made), wanted, equal_nan=True)
    with pytest.raises(ModelError, match="logcumsumexp goes along an axis of open size"):
        build_model(Function(lambda x: x.logcumsumexp(1)), [x])


def test_an_integer_tensor_that_is_taken_from_a_float_is_promoted():
    check(lambda x, y: (2.5 - x, 2 - x, torch.rsub(y, 3, alpha=2)), torch.arange(5), torch.rand(3))


@pytest.mark.parametrize("padding", [None, 2])
def test_bags_of_embeddings_leave_out_padding(padding):
    table = torch.randn(10, 4)
    rows = torch.randint(0, 10, (3, 5))
    rows[1] = 2  # a bag that is padding alone

    def bags(*of):
        return [
            F.embedding_bag(*of, mode=mode, padding_idx=padding) for mode in ("sum", "mean", "max")
        ]

    def even(rows):
        return bags(rows, table)

    def uneven(rows, starts):
        return bags(rows, table, starts)

    check(even, rows)
    starts = torch.tensor([0, 4, 4, 9])  # the second bag is empty
    built = check(uneven, rows.flatten(), starts)
    starts = torch.tensor([0, 1, 9, 15])
    torch.testing.assert_close(built(rows.flatten(), starts), uneven(rows.flatten(), starts))


def test_bags_may_weigh_their_rows_and_say_where_the_last_one_ends():
    table, rows, weights = torch.randn(10, 4), torch.randint(0, 10, (3, 5)), torch.rand(3, 5)
    check(lambda i, w: F.embedding_bag(i, table, per_sample_weights=w, mode="sum"), rows, weights)

    def ended(i, ends):
        return F.embedding_bag(i, table, ends, mode="sum", include_last_offset=True)

    check(ended, rows.flatten(), torch.tensor([0, 4, 9]))


@pytest.mark.parametrize(
    "function",
    [torch.nonzero, torch.unique, lambda x: x[x > 0], lambda x: torch.masked_select(x, x > 0)],
)
def test_a_shape_that_depends_on_data_is_refused_with_a_remedy(function):
    said = "(NonZero|Unique) .*: the shape of its result depends on data, .* by a mask of fixed"
    with pytest.raises(ModelError, match=said):
        build_model(Function(function), (torch.rand(4),), threads=1)


def test_elements_of_a_known_mask_are_chosen():
    mask = torch.tensor([True, False, True, True])
    check(lambda x: torch.masked_select(x, mask), torch.rand(3, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_quotient_that_is_nearly_whole_is_rounded_down_as_torch_does(dtype):
    def quotients(x, y):
        return (
            x // y,
            torch.div(x, y, rounding_mode="floor"),
            torch.div(x, y, rounding_mode="trunc"),
            torch.remainder(x, y),
            torch.fmod(x, y),
            x // 0.1,
            0.9 // y,
            torch.remainder(x, -0.3),
            torch.remainder(0.9, y),
            torch.div(x, -0.3, rounding_mode="floor"),
        )

    ends = [0, 1, -2, 0.3, -0.6, 0.9, 7, 1e30, math.inf, -math.inf, math.nan]
    steps = [n / 10 for n in range(-60, 60)]
    divisors = [0.1, -0.1, 0.3, 1, -1, 7, 0, math.inf, -math.inf, math.nan]
    x = torch.tensor([*ends, *steps], dtype=dtype)
    y = torch.tensor(divisors, dtype=dtype)
    built = build_model(Function(quotients), (x[:, None], y), threads=1, check=False)
    found, wanted = built(x[:, None], y), quotients(x[:, None], y)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def test_a_rounded_quotient_of_integers_is_exact():
    def quotients(x, y):
        modes = ("floor", "trunc")
        of_two = [torch.div(x, y, rounding_mode=mode) for mode in modes]
        return (*of_two, *(torch.div(x, 3, rounding_mode=mode) for mode in modes), x // y, 7 // y)

    large = [2**31 - 1, -(2**31 - 1), 2**24 + 1, -7, 7]
    x, y = torch.tensor(large, dtype=torch.int32), torch.tensor([2, 3, -1, 2, -3]).int()
    check(quotients, x, y)
    check(quotients, x.long() * 2**20, y.long())
    check(lambda x: (x // 0.5, torch.remainder(x, 0.3), torch.remainder(0.9, x)), y)


def test_a_cross_entropy_may_have_smooth_labels():
    x, target, weight = torch.randn(4, 6), torch.tensor([0, 5, 2, -100]), torch.rand(6)

    def losses(x):
        return [
            F.cross_entropy(x, *of, reduction=reduction, label_smoothing=smoothing)
            for of in ((target, weight), (x.softmax(1),))
            for reduction in ("mean", "sum", "none")
            for smoothing in (0.0, 0.1)
        ]

    check(losses, x)


def test_numbers_near_zero_and_one_are_kept():
    x = torch.tensor([0.0, 1.0, 2.0])
    check(lambda x: (x + 1e-9).log(), x)
    check(lambda x: x / (x.sum() * 0 + 1e-12), x)
    check(lambda x: x * 1.000005 - 1.000005, x)


def test_elements_in_order_and_those_of_a_rank_are_torchs():
    x = torch.randint(-9, 9, (3, 40, 2)).float()
    x[0, 7] = math.nan

    def ordered(x):
        back = torch.sort(x, dim=0, stable=True, descending=True)
        some = torch.kthvalue(x, 5, dim=1, keepdim=True)[0], torch.kthvalue(x, 40, dim=1)[0]
        places = torch.argsort(x, stable=True, dim=1)
        return *torch.sort(x, dim=1, stable=True), *back, places, *some

    check(ordered, x)
    check(lambda x: torch.kthvalue(x, 1), torch.tensor(2.0))


def test_greatest_elements_in_any_order_are_given_in_order():
    x = torch.randn(4, 300)
    function = Function(lambda x: torch.topk(x, 50, sorted=False)[0])
    made = build_model(function, (x,), threads=1)(x)
    torch.testing.assert_close(torch.as_tensor(made), torch.topk(x, 50)[0])


def test_a_snake_block_of_a_vocoder_is_all_ours():
    class Snake(torch.nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.alpha = torch.nn.Parameter(torch.rand(1, channels, 1) + 0.5)
            self.wide = torch.nn.Conv1d(channels, channels, 7, padding=9, dilation=3)
            self.one = torch.nn.Conv1d(channels, channels, 1)

        def turned(self, x):
            return x + torch.sin(self.alpha * x) ** 2 / self.alpha

        def forward(self, x):
            return x + self.one(self.turned(self.wide(self.turned(x))))

    net, x = Snake(8).eval(), torch.randn(1, 8, 50)
    made = build_model(net, (x,), threads=1)
    assert not made.notes  # a step of TVM's would be one
    torch.testing.assert_close(made(x), net(x).detach(), rtol=1e-4, atol=1e-5)


def test_pools_to_any_number_of_windows_and_axes_that_stay_are_torchs():
    def pooled(x):
        wide = F.adaptive_max_pool3d(x, (2, 3, None))
        return F.adaptive_max_pool2d(x, 3), F.adaptive_avg_pool3d(x, (2, 3, 2)), wide

    check(pooled, torch.randn(2, 3, 8, 7))
    check(lambda x: x.relu().squeeze(0).squeeze((1, 2)), torch.randn(2, 1, 3))


_NORMS = {
    "every order": lambda x: [torch.linalg.vector_norm(x, p, 1) for p in _ORDERS],
    "all elements": lambda x: [torch.linalg.vector_norm(x, 3, None, keep) for keep in _EITHER],
    "another type": lambda x: torch.linalg.vector_norm(x, 3, 0, dtype=torch.float64),
    "of a matrix": lambda x: [torch.norm(x, 3), torch.linalg.matrix_norm(x)],
    "to length 1": lambda x: [F.normalize(x, p) for p in (2, 3)],
    "of rows": lambda x: torch.renorm(x, 3, 0, 500.0),
    "of differences": lambda x: [F.pairwise_distance(x, x / 2, 3), torch.dist(x, x / 2, 3)],
}
_EITHER = (False, True)
_ORDERS = (0, 0.5, 1, 2, 2.5, 3, 4, -1, -math.inf, math.inf)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_norms_sum_powers_of_halves_in_float32(dtype):
    x = torch.rand(8, 64).to(dtype) * 100 + 100  # cubes are beyond 65504
    x[0, 3] = 0
    check(lambda x: {name: norms(x) for name, norms in _NORMS.items()}, x)


@pytest.mark.sampled(0.5)
@pytest.mark.parametrize("size", [1, 300])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_attention_of_halves_keeps_scores_in_float32(dtype, size):
    # Whole numbers, for float32 rounds scores of a million by a percent of their exponentials.
    q, k = torch.randint(-3, 4, (2, 2, 4, 7, 16)) * size
    v, added = torch.randn(2, 4, 7, 16), torch.randint(-3, 4, (7, 7))
    hidden = torch.rand(7, 7) > 0.4
    hidden[2] = False
    inputs = [x.to(dtype) for x in (q, k, v, added)]

    def attended(q, k, v, added):
        return [
            F.scaled_dot_product_attention(q, k, v),
            F.scaled_dot_product_attention(q, k, v, hidden),
            F.scaled_dot_product_attention(q, k, v, added),
            F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], is_causal=True, enable_gqa=True),
        ]

    found = build_model(Function(attended), inputs, threads=1, check=False)(*inputs)
    for one, exact in zip(found, attended(*(x.double() for x in inputs)), strict=True):
        close = {"rtol": 4 * torch.finfo(dtype).eps, "atol": torch.finfo(dtype).eps}
        torch.testing.assert_close(one.double(), exact, **close)


def test_layers_are_normalized_by_wider_weights_under_autocast():
    weight, bias = torch.rand(64), torch.randn(64)

    def normalized(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.T
            return [
                F.layer_norm(y, (64,), w, b).float() for w, b in ((weight, bias), (None, None))
            ]

    x = torch.randn(64, 8)
    found = build_model(Function(normalized), (x,), check=False)(x)
    for one, wanted in zip(found, normalized(x), strict=True):
        torch.testing.assert_close(one, wanted, rtol=1e-2, atol=2e-2)


def test_distances_of_rows_are_torchs():
    x, y, orders = torch.randn(2, 7, 5), torch.randn(2, 4, 5), (0, 0.5, 1, 2, 3, math.inf)
    check(lambda x, y: [torch.cdist(x, y, p) for p in orders], x, y)


def test_functions_that_are_exact_near_zero_have_all_digits_there():
    x = torch.tensor([1e-30, -1e-9, 1e-7, -3e-5, 1e-3, 0.9, 1e9])
    functions = (torch.log1p, torch.expm1, torch.asinh, torch.tanh, F.elu, F.selu, F.celu)
    found = build_model(Function(lambda x: [f(x) for f in functions]), (x,), check=False)(x)
    for function, one in zip(functions, found, strict=True):
        torch.testing.assert_close(one, function(x), rtol=1e-6, atol=0)


def test_a_softplus_falls_as_an_exponential_does():
    x = torch.tensor([-80.0, -30, -17, -1, 0, 1, 50])
    functions = (F.softplus, F.mish, F.logsigmoid)
    found = build_model(Function(lambda x: [f(x) for f in functions]), (x,), check=False)(x)
    for function, one in zip(functions, found, strict=True):
        torch.testing.assert_close(one, function(x), rtol=2e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_functions_of_several_steps_are_rounded_once_and_do_not_overflow(dtype):
    functions = {
        torch.expm1: 1, torch.log1p: 1, torch.sinc: 1, F.silu: 1, F.mish: 1, F.glu: 1,
        lambda x: F.gelu(x[:-2]): 1,  # torch's of infinity is NaN on processors with AVX-512
        torch.logaddexp: 2, torch.logaddexp2: 2, torch.hypot: 2, torch.addcmul: 3,
        torch.addcdiv: 3,
    }  # fmt: skip

    def every(*x):
        return [function(*x[:count]) for function, count in functions.items()]

    most = torch.finfo(dtype).max / 2
    x = torch.tensor([1e-4, 1e-3, -1e-3, 0.25, 3, -3, 90, -90, most, 0, math.inf, math.nan])
    y = torch.tensor([1e-4, -2e-3, 5, 3, 3, 4, 80, -91, most, 0, math.inf, 1])
    check(every, x.to(dtype), y.to(dtype), torch.linspace(1, 3, 12).to(dtype))


def _fixed_numbers(x):
    """Numbers beside elements, that stand for elements, and that fill tensors."""
    y = ((0.1 - x) / 0.3 + 0.7).clamp(min=0.2).masked_fill(x > 1, 0.9)
    y = torch.where(x > 0, y, 0.1) * 1e-3 + torch.full((7,), 1.1, dtype=x.dtype)
    y = y + torch.full_like(x, 2.3) * x.new_full((7,), 0.6)
    return y + F.scaled_dot_product_attention(y[None], x[None], y[None], scale=0.3)[0]


@pytest.mark.parametrize("open_rows", [False, True])
def test_numbers_of_a_network_in_float64_have_all_of_their_digits(open_rows):
    x = torch.randn(5, 7, dtype=torch.float64)
    rows = lw.dim("rows", 2, 9) if open_rows else 5
    given = (lw.tensor("x", (rows, 7), "float64"),)
    built = build_model(Function(_fixed_numbers), given, threads=1, check=False)
    torch.testing.assert_close(built(x), _fixed_numbers(x), rtol=1e-12, atol=1e-12)


def test_a_number_that_fills_a_tensor_of_no_stated_type_is_a_float32():
    check(lambda x: x + torch.full((3, 3), -math.inf).triu(1), torch.randn(3, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_angles_have_the_quadrant_that_signed_zeros_and_infinities_give(dtype):
    hard = torch.tensor([0.0, -0.0, 1, -2.5, 3e38, math.inf, -math.inf, math.nan], dtype=dtype)
    y, x = hard.repeat(len(hard)), hard.repeat_interleave(len(hard))
    check(torch.atan2, y, x)


def test_zeros_infinities_and_nan_meet_as_in_torch():
    def met(x, y):
        return torch.hypot(x, y), torch.xlogy(x, y), torch.signbit(y) ^ (x > 1)

    hard = torch.tensor([0.0, -0.0, 1, -2.5, math.inf, -math.inf, math.nan])
    check(met, hard.repeat(len(hard)).abs(), hard.repeat_interleave(len(hard)))


def test_log_odds_of_nan_are_nan():
    x = torch.tensor([math.nan, 0.3, 0, 1, -5, math.inf])
    check(lambda x: (torch.logit(x), torch.logit(x, 1e-3)), x)


def test_a_diagonal_is_taken_out_of_infinities():
    x = torch.full((2, 4, 3), -math.inf)
    x[:, range(3), range(3)] = 1.0
    x[0, 1, 1] = math.nan

    def diagonals(x):
        return torch.cat([x.diagonal(1, 2, 1), x.diagonal(-1, 1, 2), x.diagonal(0, -1, 1)])

    check(diagonals, x)
    check(torch.trace, x[1])


def test_signs_of_zeros_and_of_nan_are_those_of_torch():
    def signs(x, y):
        return torch.copysign(x, y), torch.sign(x) + torch.sgn(x), torch.heaviside(x, y)

    hard = torch.tensor([0.0, -0.0, 1, -2.5, math.inf, -math.inf, math.nan])
    check(signs, hard.repeat(len(hard)), hard.repeat_interleave(len(hard)))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_bits_are_shifted_as_in_torch(dtype):
    ends = torch.iinfo(dtype)
    x = torch.tensor([ends.min, ends.max, 0, 1, 77, ends.max // 3, ends.min // 3]).to(dtype)
    counts = torch.tensor([0, 1, 4, 7, ends.bits - 1, ends.bits]).to(dtype)

    def shifted(x, y):
        by_number = x << 2, torch.bitwise_right_shift(x, 3), torch.bitwise_left_shift(5, y)
        return x << y, x >> y, *by_number

    check(shifted, x.repeat(len(counts)), counts.repeat_interleave(len(x)))


def test_weights_of_four_bits_are_unpacked_by_shifts():
    packed = torch.randint(0, 256, (6, 5)).to(torch.uint8)
    shifts = torch.tensor([0, 4], dtype=torch.uint8)
    check(lambda x, y: ((x.unsqueeze(-1) >> y) & 15).flatten(1).float(), packed, shifts)


@pytest.mark.sampled(0.5, every_value=False)
@pytest.mark.parametrize("count", [1, 6, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32])
def test_medians_are_the_lower_of_two_and_mind_nan(count, dtype):
    x = torch.stack([torch.randperm(count) for _ in range(12)]).view(3, 4, count).to(dtype)
    if dtype.is_floating_point:
        x[0, 1, : count // 2] = math.nan
        x[2, 3] = math.nan

    def medians(x):
        all_of = x.nanmedian(-1)[0], x.median(), x.nanmedian(), x.median(0)[0]
        return *x.median(-1), *x.median(2, keepdim=True), *all_of

    check(medians, x)


def test_a_median_along_an_open_axis():
    given = (lw.tensor("x", (lw.dim("n", 1, 20), 3)),)
    built = build_model(Function(lambda x: x.median(0)[0]), given, threads=1, check=False)
    for n in (1, 2, 9, 20):
        x = torch.randn(n, 3)
        torch.testing.assert_close(built(x), x.median(0)[0])


def test_places_among_sorted_elements_are_those_of_torch():
    rows = torch.randint(0, 9, (4, 11)).float().sort(1)[0]
    x = torch.tensor([-1.0, 0, 3, 3.5, 8, math.inf, -math.inf, math.nan]).repeat(4, 1)
    check(lambda a, b: (torch.searchsorted(a, b), torch.searchsorted(a, b, right=True)), rows, x)
    check(lambda a, b: torch.searchsorted(a[0], b, side="right", out_int32=True), rows, x)
    check(lambda a: torch.searchsorted(a[1], 3.0), rows)
    order = torch.stack([torch.randperm(11) for _ in range(4)])
    mixed = torch.empty_like(rows).scatter(1, order, rows)
    check(lambda a, b, c: torch.searchsorted(a, b, sorter=c), mixed, x, order)
