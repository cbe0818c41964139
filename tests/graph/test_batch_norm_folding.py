"""Batch norms and other factors of channels, in the weights before them."""

import numpy as np
import pytest

from loopwright.codegen.target import resolve
from loopwright.graph.build import build_model
from loopwright.graph.compile.build import import_model
from tests.graph.modules import drawn_again
from tests.relax import relax_of
from tests.thin import thinned

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.torch


class Net(nn.Module):
    """A computation, with modules that it needs; batch norms are as after training."""

    def __init__(self, compute, *modules):
        super().__init__()
        self.compute, self.parts = compute, drawn_again(nn.ModuleList(modules))
        for norm in self.parts:
            if isinstance(norm, (nn.BatchNorm1d, nn.BatchNorm2d)):
                norm.running_mean.uniform_(-1, 1)
                norm.running_var.uniform_(0.5, 2)
                if norm.affine:
                    nn.init.uniform_(norm.weight, 0.5, 2)
                    nn.init.uniform_(norm.bias, -1, 1)

    def forward(self, x):
        return self.compute(x, *self.parts)


def chain(x, *parts):
    for part in parts:
        x = part(x)
    return x


def normed_by_its_input(x, conv):
    mean, variance = torch.zeros(6), torch.ones(6)
    return nn.functional.batch_norm(conv(x), mean, variance, x[0, 0, :6, 0])


def both(x, norm):
    return norm(x), x


FOLDED = {
    "convolution": (chain, nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)),
    "convolution without a bias": (chain, nn.Conv2d(4, 6, 3, bias=False), nn.BatchNorm2d(6)),
    "grouped transposed convolution": (
        chain, nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6),
    ),
    "grouped convolution": (chain, nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6)),
    "transposed convolution": (chain, nn.ConvTranspose2d(4, 6, 4, 2, 1), nn.BatchNorm2d(6)),
    "norm that has learned nothing": (
        chain, nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6, affine=False),
    ),
    "linear layer": (chain, nn.Flatten(), nn.Linear(324, 6), nn.BatchNorm1d(6)),
    "one factor for all": (lambda x, conv: 0.5 * conv(x), nn.Conv2d(4, 6, 3)),
}  # fmt: skip

KEPT = {
    "norm before the convolution": (chain, nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 3)),
    "convolution that others read": (
        lambda x, conv, norm: both(conv(x), norm), nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6),
    ),
    "norm by something computed": (normed_by_its_input, nn.Conv2d(4, 6, 3)),
    "factors along rows": (
        lambda x, conv: conv(x) * torch.arange(7.0).reshape(7, 1), nn.Conv2d(4, 6, 3),
    ),
    "a factor that is computed": (lambda x, conv: conv(x) * x[:, :1, :1, :1], nn.Conv2d(4, 6, 3)),
}  # fmt: skip


def operators(model, inputs):
    """The names of the steps' functions, which have those of their operators."""
    steps = import_model(model, inputs, resolve("cpu", 1)).network.steps
    return [step.function for step in steps]


FACTORS = ("multiply", "divide", "add_add", "mul", "batchnormalization")
COMPUTED = {("one factor for all", "torch"), ("grouped transposed convolution", "Relax")}
"""What costs a multiplication in the step of the convolution."""
DOORS = {"torch": lambda net, x: (net, (x,)), "Relax": lambda net, x: (relax_of(net, x), None)}


@pytest.mark.sampled(0.4, every_value=False)
@pytest.mark.parametrize(
    ("name", "door"),
    thinned([(n, d) for n in FOLDED for d in DOORS if (n, d) not in COMPUTED], keep=3),
)
def test_factors_behind_weights_cost_nothing(name, door):
    net, x = Net(*FOLDED[name]).eval(), torch.randn(2, 4, 9, 9)
    model, inputs = DOORS[door](net, x)
    last = operators(model, inputs)[-1]
    assert not any(word in last.replace("matmul", "") for word in FACTORS)
    np.testing.assert_allclose(
        build_model(model, inputs, threads=1)(x.numpy()), net(x).detach(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.sampled(0.4, every_value=False)
@pytest.mark.parametrize("made", KEPT.values(), ids=KEPT)
def test_factors_that_no_weights_can_take_are_computed(made):
    net, x = Net(*made).eval(), torch.randn(2, 4, 9, 9)
    assert any(word in name for name in operators(net, (x,)) for word in FACTORS)
    made, wanted = build_model(net, (x,), threads=1)(x.numpy()), net(x)
    for ours, theirs in zip(*(r if isinstance(r, tuple) else (r,) for r in (made, wanted))):
        np.testing.assert_allclose(ours, theirs.detach(), rtol=1e-4, atol=1e-5)
