"""Complex numbers inside of torch models: each is its real and its imaginary part."""

import pytest

import loopwright as lw
from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError
from tests.graph.modules import Function, check

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.torch


class _FourierLayer(torch.nn.Module):
    """A layer of a Fourier neural operator: the least frequencies get weights of their own."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 5, 2, 3, 3, dtype=torch.cfloat))

    def forward(self, x):
        found = torch.fft.rfft2(x)
        result = torch.zeros(x.shape[0], 5, x.shape[-2], x.shape[-1] // 2 + 1, dtype=torch.cfloat)
        for part, rows in enumerate((slice(3), slice(-3, None))):
            weight = self.weight[:, :, part]
            result[:, :, rows, :3] = torch.einsum("bixy,ioxy->boxy", found[:, :, rows, :3], weight)
        return torch.fft.irfft2(result, s=x.shape[-2:])


def test_a_fourier_neural_operator_is_read():
    layer = _FourierLayer().eval()
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(build_model(layer, (x,), threads=1)(x), layer(x))


def test_complex_numbers_may_have_an_open_batch():
    def filtered(x):
        kept = torch.zeros(x.shape[0], 4, dtype=torch.cfloat)
        kept[:, :2] = torch.fft.rfft(x)[:, :2]
        return torch.fft.irfft(kept, 6)

    made = build_model(Function(filtered), (lw.tensor("x", (lw.dim("n", 1, 3), 6)),), threads=1)
    for n in (1, 3):
        x = torch.randn(n, 6)
        torch.testing.assert_close(made(x), filtered(x))


def test_sums_of_products_of_complex_numbers_are_torchs():
    def summed(a, b, c):
        x, y, z = torch.complex(a, -a), torch.complex(b, 2 * b), c.to(torch.cfloat)
        one = torch.einsum("ij->ji", y)
        return [torch.view_as_real(n) for n in (torch.einsum("i,ij,j->ij", x, y, z), one)]

    check(summed, torch.randn(3), torch.randn(3, 4), torch.randn(4))


def test_operators_on_complex_numbers_are_taken_apart():
    def parts(x):
        y = torch.fft.rfft(x)
        wide = F.pad(y, (0, 3), value=2.0)
        kept = torch.where(x[:, :7] > 0, y, torch.zeros((), dtype=torch.cfloat))
        both = y[:, None] * torch.exp(y)[None]
        made = kept + torch.full((7,), 1 + 2j), both, y[:, torch.tensor([3, 0])], y[0], wide
        return [torch.view_as_real(n) for n in made]

    check(parts, torch.randn(2, 12))


def test_functions_and_products_of_complex_numbers_are_torchs():
    def made(a, b):
        z = torch.complex(a, b)
        both = torch.bmm(z[None], z.mT[None]), z @ z.mT, z.cumsum(1), torch.zeros_like(z)
        found = *both, *z.split(2, 1), *z.split([1, 3], 1), z.sqrt(), z.log(), z**2, z**1.5
        return [torch.view_as_real(n) for n in found]

    check(made, torch.randn(3, 4), torch.randn(3, 4))


def test_a_signal_comes_back_from_its_sizes():
    def signal(x):
        spectrum = torch.polar(x.abs(), torch.zeros(9, 5))
        return torch.istft(spectrum, 16, 4, window=torch.hann_window(16))

    check(signal, torch.randn(9, 5), rtol=1e-4, atol=1e-5)


def test_frequencies_are_known():
    check(
        lambda x: (x * torch.fft.fftfreq(8), x[:, :5] * torch.fft.rfftfreq(8, d=0.5)),
        torch.randn(2, 8),
    )


def test_complex_results_are_refused_with_what_to_return():
    with pytest.raises(ModelError, match=r"output 1 .*complex.*view_as_real"):
        build_model(Function(lambda x: (x, torch.fft.fft(x))), (torch.randn(2, 8),), threads=1)


def test_operators_that_depend_on_data_or_have_a_body_are_named():
    def loss(x):
        return F.ctc_loss(x, torch.ones(2, 4).long(), torch.tensor([6, 6]), torch.tensor([3, 3]))

    def mapped(x):
        return torch._higher_order_ops.map(lambda row: row.softmax(0), x)

    for function, told in (
        (loss, "_ctc_loss.*outside of the model"),
        (mapped, "operator map has"),
    ):
        with pytest.raises(ModelError, match=told):
            build_model(Function(function), (torch.randn(6, 2, 5),), threads=1)
