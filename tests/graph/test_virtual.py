"""Models that need TVM's run-time: they run on Relax's virtual machine, our code inside."""

import numpy as np
import pytest
import tvm
from tvm import relax

from loopwright.dsl.errors import ShapeError
from loopwright.graph.model import build_model
from loopwright.graph.virtual import VirtualModel

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class _Sorted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(13, 7)

    def forward(self, x):
        return torch.sort(torch.relu(self.layer(x)), dim=1)[0]


@pytest.fixture(scope="module")
def made():
    torch.manual_seed(0)
    net, x = _Sorted().eval(), torch.randn(5, 13)
    return net, x, build_model(net, (x,), threads=1)


def test_a_model_that_sorts_runs_on_the_virtual_machine_and_says_why(made):
    net, x, model = made
    assert isinstance(model, VirtualModel)
    assert "virtual machine" in model.notes[0]
    np.testing.assert_allclose(model(x), net(x).detach(), rtol=1e-4, atol=1e-6)


def test_its_export_is_loaded_by_tvm(made, tmp_path):
    net, x, model = made
    loaded = tvm.runtime.load_module(str(model.export(tmp_path / "net.so")))
    machine = relax.VirtualMachine(loaded, tvm.cpu())
    got = machine["main"](tvm.runtime.tensor(x.numpy())).numpy()
    np.testing.assert_allclose(got, net(x).detach(), rtol=1e-4, atol=1e-6)


def test_its_inputs_are_checked(made):
    *_, model = made
    with pytest.raises(ShapeError, match=r"it must be float32\[5, 13\]"):
        model(np.zeros((5, 12), np.float32))
    with pytest.raises(ShapeError, match="2 inputs"):
        model(1, 2)
