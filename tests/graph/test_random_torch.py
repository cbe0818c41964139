"""Random small networks of torch, by `build_model` and `torch.compile`, against torch itself."""

import pytest

import loopwright as lw

torch = pytest.importorskip("torch")
from tests.graph.random_torch import Net  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:loopwright leaves")]
CLOSE = {16: 4e-2, 32: 5e-4, 64: 1e-8}
"""The largest error beside the largest result, by the bits of the narrowest floating type."""


def check_near(got, wanted, close):
    """Check results against wanted ones, shapes and dtypes too."""
    got, wanted = ([x] if isinstance(x, torch.Tensor) else list(x) for x in (got, wanted))
    for a, b in zip(got, wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if not b.is_floating_point():
            assert torch.equal(a, b)
            continue
        most = max(1.0, float(b.abs().nan_to_num().max()))
        torch.testing.assert_close(
            a.double() / most, b.double() / most, rtol=close, atol=close, equal_nan=True
        )


def check_net(seed, most=12):
    """Check a network on two sets of inputs, which no call may write to."""
    net = Net(seed, most)
    calls = [net.inputs, net.again()]
    before = [[x.clone() for x in inputs] for inputs in calls]
    with torch.no_grad():
        if seed % 4 == 3:
            torch._dynamo.reset()
            made = torch.compile(net, backend="loopwright", options={"check": False})
        else:
            made = lw.build_model(net, tuple(net.inputs), threads=1 + seed % 2, check=False)
        results = [made(*inputs) for inputs in calls]
        for got, inputs, given in zip(results, calls, before, strict=True):
            assert all(map(torch.equal, inputs, given))
            check_near(got, net(*inputs), CLOSE[net.bits])


@pytest.mark.sampled(0.5, every_value=False)
@pytest.mark.parametrize("seed", range(4))
def test_a_random_network_computes_what_torch_does(seed):
    check_net(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_a_longer_random_network_computes_what_torch_does(seed):
    check_net(seed, most=20)
