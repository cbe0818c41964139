"""torch.compile with us as the backend."""

import pytest

from loopwright.graph.backend import backend

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOPWRIGHT_RECORDS", str(tmp_path / "none.db"))
    torch._dynamo.reset()


def _net():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 5, 3), torch.nn.BatchNorm2d(5), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(5 * 5 * 4, 7),
    ).eval()  # fmt: skip


def test_a_compiled_model_computes_what_torch_does_and_notices_new_weights():
    net, x = _net(), torch.randn(1, 3, 7, 6)
    built = []

    def counting(graph, examples):
        built.append(backend(graph, examples))
        return built[-1]

    with torch.no_grad():
        compiled = torch.compile(net, backend=counting)
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
        assert len(built) == 1
        assert built[0].__name__ == "call"
        net[4].weight.mul_(2)
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)


def test_gradients_come_from_torch():
    net, x = _net(), torch.randn(1, 3, 7, 6)
    torch.compile(net, backend=backend)(x).sum().backward()
    assert net[4].weight.grad is not None


def test_what_cannot_be_built_is_left_to_torch_with_a_warning():
    def roll(x):
        return torch.special.bessel_j0(x)

    x = torch.randn(3, 5)
    with pytest.warns(UserWarning, match="leaves a graph to torch"):
        got = torch.compile(roll, backend=backend)(x)
    torch.testing.assert_close(got, roll(x))


def test_torch_knows_the_backend_by_name():
    assert "loopwright" in torch._dynamo.list_backends(None)
