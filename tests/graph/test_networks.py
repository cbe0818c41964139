"""The networks of examples/models.py, by default schedules: they compute what torch does."""

import importlib.util
from pathlib import Path

import pytest

from loopwright.graph.build import build_model

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]


def _examples():
    path = Path(__file__).parents[2] / "examples" / "models.py"
    spec = importlib.util.spec_from_file_location("models", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["resnet18", "mobilenet", "dqn", "dcgan", "lstm", "bert"])
def test_a_network_computes_what_torch_does(name):
    network, inputs = _examples().model(name)
    made = build_model(network, inputs)
    assert made.notes == ()
    with torch.inference_mode():
        wanted = network(*inputs)
    torch.testing.assert_close(made(*inputs), wanted, rtol=1e-3, atol=1e-4)
