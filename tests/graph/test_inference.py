"""Torch modules that train, or write to what they are given, are refused; none is changed."""

import pytest

from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError
from tests.graph.modules import Function, drawn_again

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
pytestmark = pytest.mark.torch


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x):
        self.calls.add_(1)
        return x + self.calls.sum()


class Growing(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x):
        self.scale.mul_(2)
        return x * self.scale


@pytest.mark.parametrize(
    ("module", "what"),
    [
        (Counting(), "buffer calls"),
        (Growing(), "parameter scale"),
        (Function(lambda x: x.add_(1) * 2), "input"),
        (Function(lambda x: x[0].mul_(3)), "input"),
    ],
)
def test_a_module_that_writes_to_what_it_is_given_is_refused(module, what):
    with pytest.raises(ModelError, match=f"writes to its {what}"):
        build_model(module, (torch.ones(2, 3),))


@pytest.mark.parametrize(
    "function",
    [
        F.dropout,
        lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.1),
        lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3), training=True),
    ],
)
def test_what_computes_as_in_training_whatever_the_mode_is_refused(function):
    with pytest.raises(ModelError, match="as in training"):
        build_model(Function(function), (torch.ones(1, 3, 5),))


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: x + torch.randn_like(x), "randn_like"),
        (lambda x: x + torch.rand(5), "rand"),
        (lambda x: x + torch.empty_like(x).normal_(), "normal_"),
        (torch.bernoulli, "bernoulli"),
    ],
)
def test_what_draws_random_numbers_is_refused_by_name(function, name):
    with pytest.raises(ModelError, match=rf"aten\.{name}\.default draws random.* as an input"):
        build_model(Function(function), (torch.ones(2, 5),), check=False)


@pytest.mark.sampled(0.4, every_value=False)
@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(5, 7), nn.ReLU(inplace=True), nn.Dropout(inplace=True)),
        Function(lambda x: torch.zeros(2, 3, 5).add_(x) * 2),
        nn.BatchNorm1d(3, track_running_stats=False),
        nn.InstanceNorm1d(3),
        Function(lambda x: F.scaled_dot_product_attention(x, x, x)),
    ],
)
def test_writing_to_results_and_statistics_of_the_input_are_not_training(module):
    module, x = drawn_again(module), torch.randn(2, 3, 5)
    torch.testing.assert_close(
        build_model(module, (x,))(x), module.eval()(x).detach(), rtol=1e-4, atol=1e-5
    )


def test_every_part_of_a_module_stays_in_its_mode():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout()).train()
    net[1].eval()
    build_model(net, (torch.randn(1, 3, 7, 6),))
    assert [part.training for part in net] == [True, False, True]
    with pytest.raises(ModelError, match="cannot export"):
        build_model(net, (torch.randn(1, 2, 7, 6),))
    assert [part.training for part in net] == [True, False, True]
