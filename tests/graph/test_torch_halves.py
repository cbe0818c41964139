"""What torch modules compute of float16 and bfloat16: rounded as seldom as torch rounds."""

import pytest

import loopwright as lw
from tests.graph.modules import Function, drawn_again

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
F = torch.nn.functional
pytestmark = [pytest.mark.torch, pytest.mark.onnx]


def drawn(*shape, dtype=torch.float16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def assert_rounded_once(net, *inputs):
    """Compare results with those of float64, which a half is half a unit of its own from."""
    built = lw.build_model(net, inputs, threads=1)
    expected = net.double()(*(x.double() if x.is_floating_point() else x for x in inputs))
    for found, exact in zip(results(built(*inputs)), results(expected), strict=True):
        half = 0.51 * torch.finfo(found.dtype).eps
        near = 1e-5 * exact.abs().max().item()
        torch.testing.assert_close(found.double(), exact, rtol=half, atol=near)


def results(made):
    return [made] if torch.is_tensor(made) else list(made)


@pytest.mark.sampled(0.5)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (torch.nn.Conv1d(6, 8, 3, groups=2), (2, 6, 9)),
        (torch.nn.Conv2d(6, 8, 3, padding=1, groups=2), (2, 6, 5, 7)),
        (torch.nn.Conv3d(4, 6, 2), (1, 4, 3, 4, 5)),
        (torch.nn.ConvTranspose1d(6, 8, 5, stride=3), (2, 6, 4)),
        (torch.nn.ConvTranspose2d(6, 8, 4, stride=2, padding=1), (2, 6, 4, 5)),
        (torch.nn.ConvTranspose2d(6, 8, 3, stride=2, groups=2), (2, 6, 4, 5)),
    ],
    ids=str,
)
def test_a_convolution_is_rounded_with_its_bias(layer, shape, dtype):
    assert_rounded_once(drawn_again(layer).to(dtype), drawn(*shape, dtype=dtype))


@pytest.mark.sampled(0.5)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(6,), (5, 6), (2, 5, 6), (2, 3, 5, 6)], ids=str)
def test_a_linear_layer_is_rounded_with_its_bias_at_any_number_of_axes(shape, dtype):
    layer = torch.nn.Linear(6, 8).to(dtype)
    torch.nn.init.normal_(layer.bias)
    assert_rounded_once(layer, drawn(*shape, dtype=dtype))


@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.LayerNorm(9),
        torch.nn.GroupNorm(2, 6),
        torch.nn.InstanceNorm1d(6, affine=True),
        torch.nn.BatchNorm1d(6).eval(),
    ],
    ids=str,
)
def test_a_norm_of_halves_is_rounded_with_its_scale_and_shift(layer):
    layer = drawn_again(layer)
    for number, weights in enumerate(layer.parameters()):
        weights.data = drawn(*weights.shape, dtype=torch.float32) * (1 - 3 * number)
    assert_rounded_once(layer.half(), drawn(2, 6, 9))


def test_factors_of_a_product_of_halves_are_not_rounded_into_its_weights():
    weights, shift = drawn(90, 9) * 1, drawn(9) * 1

    def product(x):
        return torch.addmm(shift.to(x.dtype), x, weights.to(x.dtype), beta=0.3, alpha=0.7)

    assert_rounded_once(Function(product), drawn(5, 90))


def test_halves_that_are_written_to_one_place_are_summed_in_float32():
    places = torch.arange(120).reshape(40, 3) % 4

    def sums(x, i, u):
        first = i[:, 0]
        return (
            x.scatter_add(0, i, u),
            x.index_add(0, first, u),
            x.index_put((first,), u, accumulate=True),
            x.scatter_reduce(0, i, u, "sum"),
        )

    assert_rounded_once(Function(sums), drawn(4, 3), places, drawn(40, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64])
def test_written_elements_are_averaged(dtype):
    def mean(x, i, u):
        return [x.scatter_reduce(0, i, u, "mean", include_self=own) for own in (True, False)]

    x, u = (drawn(n, 3, dtype=torch.float32).mul(9).to(dtype) for n in (6, 40))
    i = torch.arange(120).reshape(40, 3) ** 2 % 5
    built = lw.build_model(Function(mean), (x, i, u), threads=1)
    torch.testing.assert_close(built(x, i, u), mean(x, i, u))


def test_what_torch_computes_of_halves_in_one_step_is_rounded_once():
    def steps(x, y):
        logarithms = x.log2(), x.log10(), x.log1p()
        return (
            *logarithms,
            x.rsqrt(),
            x**3,
            torch.atan2(x, y),
            torch.lerp(x, y, 0.3),
            F.leaky_relu(-x),
        )

    assert_rounded_once(Function(steps), drawn(20, 9).abs() + 0.125, drawn(9))


def test_products_of_stacked_matrices_are_rounded_with_what_is_added():
    def product(z, x, y):
        return torch.baddbmm(z, x, y, beta=0.3, alpha=0.7)

    assert_rounded_once(Function(product), drawn(2, 5, 9), drawn(2, 5, 90), drawn(2, 90, 9))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_number_that_is_no_half_multiplies_halves_as_it_is(dtype):
    def products(x):
        return x * 1.1, x / 0.3, x * x.shape[0], x * 70001

    assert_rounded_once(Function(products), drawn(2051, 3, dtype=dtype) / 64)


def test_an_open_size_that_is_no_half_multiplies_halves_as_it_is():
    def products(x):
        return x * x.shape[0], x.sum(0) / x.shape[0]

    n = lw.dim("n", 2, 3000)
    built = lw.build_model(Function(products), (lw.tensor("x", (n, 3), "float16"),), threads=1)
    for size in (2, 2049, 2051, 2999):
        x = drawn(size, 3) / 64
        for found, expected in zip(built(x), products(x), strict=True):
            torch.testing.assert_close(found, expected, rtol=0.001, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_remainder_is_exact(dtype):
    def left(x, y):
        return torch.remainder(x, y), x % 0.3, x % -2

    x = torch.arange(-200, 200).to(dtype) * 0.1
    y = torch.tensor([0.1, 0.3, -0.7, 5.0]).to(dtype).repeat(100)
    built = lw.build_model(Function(left), (x, y), threads=1)
    for found, expected in zip(built(x, y), left(x, y), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_quotient_is_rounded_to_a_half_before_it_is_rounded_to_zero_as_in_torch(dtype):
    def quotients(x, y, one):
        return [torch.div(x, by, rounding_mode="trunc") for by in (y, one, 0.3, y.int())]

    x, y = 9 * torch.rand(400, 50), 2 + 2 * torch.rand(400, 50)
    inputs = x.to(dtype), y.to(dtype), torch.tensor([0.7]).to(dtype)
    built = lw.build_model(Function(quotients), inputs, threads=1)
    for found, expected in zip(built(*inputs), quotients(*inputs), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_results_of_float32_may_come_of_halves_at_open_sizes_too():
    class Autocast(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = self.linear(x)
                y = y + self.norm(self.linear(y))
                return y.softmax(-1) @ y.mT, y.mean(1)

    net, n = Autocast().eval(), lw.dim("n", 1, 5)
    built = lw.build_model(net, (lw.tensor("x", (2, n, 8)),), threads=1)
    for size in (1, 2, 4, 5):
        x = drawn(2, size, 8, dtype=torch.float32)
        for found, expected in zip(built(x), net(x), strict=True):
            assert found.dtype == expected.dtype
            torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


class Autocast(torch.nn.Module):
    """A module under autocast."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner(x)


@pytest.mark.parametrize("gradients", [True, False])
def test_an_encoder_layer_under_autocast_may_have_an_open_length(gradients):
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    net = Autocast(layer)
    x = drawn(2, 5, 16, dtype=torch.float32)
    given = lw.tensor("x", (2, lw.dim("n", 2, 6), 16))
    with torch.set_grad_enabled(gradients):
        built = lw.build_model(net, (given,), threads=1)
    made, wanted = torch.as_tensor(built(x)), net(x).detach()  # without them torch gives halves
    assert made.dtype == wanted.dtype
    torch.testing.assert_close(made, wanted, rtol=0.03, atol=0.03)
