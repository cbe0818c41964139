"""Channels last between the steps of a network, where that is nobody's business but ours."""

import numpy as np
import pytest

from loopwright.codegen.target import resolve
from loopwright.dsl.workload import Workload, tensor_shape
from loopwright.graph.build import build_model
from loopwright.graph.compile.build import import_model
from loopwright.graph.errors import ModelError
from loopwright.graph.importers import tir_values
from loopwright.schedule.space import space
from tests.relax import relax_of
from tests.targets import HERE

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.torch


class Sine(nn.Module):
    """What the notation has no word for, in a test that takes it away."""

    def forward(self, x):
        return torch.sin(x)


def _work(net, *inputs):
    return import_model(net.eval(), inputs, resolve("cpu", 1))


def _shapes(work):
    """The shape of what each step of ours writes."""
    return [tensor_shape(said.workload.outputs[0]) for said in work.imported]


def test_images_lie_channels_last_between_steps_and_as_given_at_the_ends():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.MaxPool2d(2))
    assert _shapes(_work(net, torch.zeros(1, 3, 9, 11))) == [
        (1, 7, 9, 8),
        (1, 7, 9, 4),
        (1, 4, 3, 4),
    ]


def test_configs_mean_the_same_in_the_processes_that_build_them():
    net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1))
    for said in _work(net, torch.zeros(1, 3, 12, 12)).imported:
        again = Workload.from_json(said.workload.to_json())
        target = HERE
        assert again.key == said.workload.key
        names = [s.name for s in space(said.workload, target).sketches]
        assert [s.name for s in space(again, target).sketches] == names


def test_arrays_that_no_window_slides_over_stay_as_they_are():
    class Heads(nn.Module):
        def forward(self, x):
            return torch.softmax(x @ x.transpose(2, 3), -1) @ torch.relu(x)

    made = _shapes(_work(Heads(), torch.zeros(1, 2, 5, 3)))
    assert {shape[-3:] for shape in made} <= {(2, 3, 5), (2, 5, 5), (2, 5, 3)}


def test_depthwise_convolutions_over_half_a_vector_outvote_the_others():
    half = nn.Conv2d(8, 8, 3, groups=8)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), half, nn.Conv2d(8, 4, 1))
    assert _shapes(_work(net, torch.zeros(1, 3, 9, 11)))[0] == (1, 8, 7, 9)


def test_depthwise_convolutions_over_whole_vectors_want_channels_last():
    net = nn.Sequential(nn.Conv2d(3, 32, 1), nn.Conv2d(32, 32, 3, groups=32), nn.Conv2d(32, 4, 1))
    assert _shapes(_work(net, torch.zeros(1, 3, 9, 11)))[1] == (1, 7, 9, 32)


def test_transposed_convolutions_want_channels_last():
    net = nn.Sequential(nn.ConvTranspose2d(3, 8, 4, 2, 1), nn.ConvTranspose2d(8, 4, 4, 2, 1))
    assert _shapes(_work(net, torch.zeros(1, 3, 9, 11)))[0] == (1, 18, 22, 8)


def test_what_tvm_computes_stays_as_it_is(monkeypatch):
    monkeypatch.delitem(tir_values._UNARY, "sin")  # as an operator that the notation lacks
    net = nn.Sequential(nn.Conv2d(3, 8, 3), Sine(), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 4, 3))
    work = import_model(relax_of(net, torch.zeros(1, 3, 9, 11)), None, resolve("cpu", 1))
    assert len(work.fallback) == 1
    last = [s for s in work.imported if not isinstance(s, str)][-2:]
    assert [tensor_shape(s.workload.inputs[0]) for s in last] == [(1, 8, 7, 9), (1, 5, 7, 8)]


def test_a_flattening_stays_free():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(280, 3))
    shapes = _shapes(_work(net, torch.zeros(1, 3, 9, 11)))
    assert shapes[:2] == [(1, 7, 9, 8), (1, 8, 5, 7)]


def test_a_network_with_residuals_joins_and_a_flattening_computes_the_same():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
            self.c, self.norm = nn.Conv2d(8, 5, 1), nn.BatchNorm2d(8)
            self.up = nn.ConvTranspose2d(13, 4, 4, 2, 1)
            self.head = nn.Linear(4 * 10 * 14, 6)

        def forward(self, x):
            x = torch.relu(self.a(x))
            x = self.norm(self.b(x)) + x
            x = torch.cat([self.c(x), nn.functional.avg_pool2d(x, 3, 1, 1)], 1)
            return self.head(torch.flatten(self.up(x), 1))

    net, x = Net().eval(), torch.randn(1, 3, 5, 7)
    np.testing.assert_allclose(
        build_model(net, (x,), threads=1)(x.numpy()), net(x).detach(), rtol=1e-4, atol=1e-5
    )


def test_the_model_s_own_layout_can_be_asked_for():
    net, x = nn.Conv2d(3, 8, 3), torch.zeros(1, 3, 9, 11)
    both = nn.Sequential(net, nn.Conv2d(8, 4, 3)).eval()
    work = import_model(both, (x,), resolve("cpu", 1), layout="given")
    assert _shapes(work)[0] == (1, 8, 7, 9)
    with pytest.raises(ModelError, match="layout is 'NHWC'; it must be one of auto, given"):
        import_model(both, (x,), resolve("cpu", 1), layout="NHWC")


def test_images_are_read_at_known_places_of_their_own_axes_wherever_they_lie():
    """Bicubic taps are rows and columns that a table of constants names."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 4, 4)

        def forward(self, x):
            x = self.first(x)
            return self.last(nn.functional.interpolate(x, size=(16, 16), mode="bicubic"))

    net, x = Net().eval(), torch.randn(1, 3, 20, 20)
    assert _shapes(_work(net, x))[1] == (1, 16, 16, 16)
    assert _shapes(_work(net, x))[0] == (1, 20, 20, 16)
    made = build_model(net, (x,), threads=1, check=False)(x)
    torch.testing.assert_close(made, net(x).detach(), rtol=1e-4, atol=1e-5)


class PoolBetweenNorms(nn.Module):
    """A pool and a residual between convolutions, next to a group norm, which reshapes."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)
        self.norm, self.pool = nn.GroupNorm(1, 32), nn.AvgPool2d(3, 1, 1, count_include_pad=False)

    def forward(self, x):
        x = self.first(x)
        y = self.norm(x)
        return self.last(self.last(x + self.pool(y) - y))


def test_a_step_between_convolutions_reads_its_images_in_one_layout():
    net, x = PoolBetweenNorms().eval(), torch.randn(1, 3, 14, 14)
    work = _work(net, x)
    pool = next(n for n, s in enumerate(work.network.steps) if "pool" in s.function)
    said = work.imported[pool].workload
    shapes = {tensor_shape(t) for t in said.inputs if len(tensor_shape(t)) == 4}
    assert shapes == {(1, 32, 14, 14)}
    assert _shapes(work)[-2] == (1, 14, 14, 32)  # convolutions have theirs
    made = build_model(net, (x,), threads=1)(x)
    torch.testing.assert_close(made, net(x).detach(), rtol=1e-4, atol=1e-5)
