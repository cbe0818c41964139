"""Steps of a network that are joined: windows with the sums behind them, and attention."""

from dataclasses import replace

import numpy as np
import pytest

import loopwright as lw
from loopwright.graph.build import build_model
from loopwright.graph.compile.build import compiled, import_model
from loopwright.schedule.space import space
from tests.sketches import derived
from tests.targets import HERE

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class _Block(torch.nn.Module):
    """As MobileNet has them: a window over each channel, then a sum over channels."""

    def __init__(self, channels=32, filters=32, stride=1):
        super().__init__()
        self.planes = torch.nn.Conv2d(channels, channels, 3, stride, 1, groups=channels)
        self.sums = torch.nn.Conv2d(channels, filters, 1)

    def forward(self, x):
        return torch.relu(self.sums(torch.relu(self.planes(x))))


class _Twice(torch.nn.Module):
    """Something else reads what the window computes."""

    def __init__(self):
        super().__init__()
        self.block = _Block()
        self.first, self.last = torch.nn.Conv2d(3, 32, 3), torch.nn.Conv2d(32, 3, 3)

    def forward(self, x):
        y = torch.relu(self.block.planes(self.first(x)))
        return self.last(self.block.sums(y) + y)


class _Net(torch.nn.Module):
    """Full convolutions around some blocks, so that images lie channels last."""

    def __init__(self, *blocks):
        super().__init__()
        self.first, self.last = torch.nn.Conv2d(3, 32, 3), torch.nn.Conv2d(32, 3, 3)
        self.blocks = torch.nn.Sequential(*blocks)

    def forward(self, x):
        return self.last(self.blocks(torch.relu(self.first(x))))


X = torch.linspace(-1, 1, 3 * 18 * 18).reshape(1, 3, 18, 18)


def names(work):
    return [step.function for step in work.network.steps if " + " in step.function]


def made(net, **options):
    return import_model(net.eval(), (X,), HERE, **options)


def test_a_window_over_channels_and_the_sum_over_them_are_one_step():
    net = _Net(_Block(stride=2)).eval()
    work = made(net)
    assert len(names(work)) == 1
    (task,) = (t for t in work.tasks if " + " in t.name)
    sketches = space(task.workload, HERE).sketches
    assert derived(sketches, "producer_at_blocks")
    with torch.no_grad():
        wanted = net(X)
    np.testing.assert_allclose(build_model(net, (X,), threads=2)(X), wanted, rtol=1e-4, atol=1e-5)


def test_equal_blocks_are_one_task():
    work = made(_Net(_Block(), _Block(), _Block()))
    assert len(names(work)) == 3
    assert [t.count for t in work.tasks if " + " in t.name] == [3]


def test_steps_stay_apart_where_something_else_reads_what_is_between():
    assert not names(made(_Twice()))


def test_the_steps_of_a_given_layout_are_those_of_a_pipeline_of_tvm():
    assert not names(made(_Net(_Block()), layout="given"))


SMALL = replace(HERE, l2_bytes=8 << 10)
"""A machine whose cache does not hold the scores of a few places."""


class _Attention(torch.nn.Module):
    """Two heads between dense layers; what is between its products is as asked for."""

    def __init__(self, mask=False, shown=False, weights=False):
        super().__init__()
        self.mask, self.shown = mask, shown
        self.given = torch.nn.Linear(16, 48)
        self.out = torch.nn.Linear(16, 16)
        self.keys = torch.nn.Parameter(torch.randn(2, 8, 40)) if weights else None

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (2, 8)).transpose(1, 2) for y in self.given(x).chunk(3, -1))
        if self.keys is None:
            scores = q @ k.transpose(-1, -2) / 8**0.5
        else:
            scores = q @ self.keys / 8**0.5
        if self.mask:
            places = torch.arange(x.shape[1])
            scores = scores.masked_fill(places[None] > places[:, None], -torch.inf)
        shares = scores.softmax(-1)
        y = self.out((shares @ v).transpose(1, 2).flatten(2))
        return (y, scores) if self.shown else y


def places(n):
    return torch.linspace(-1, 1, n * 16).reshape(1, n, 16)


def attending(x=None, target=SMALL, **options):
    torch.manual_seed(0)
    net = _Attention(**options).eval()
    return net, import_model(net, (places(40) if x is None else x,), target)


@pytest.mark.parametrize("mask", [False, True])
def test_attention_is_one_step_where_a_cache_does_not_hold_its_scores(mask):
    net, work = attending(mask=mask)
    assert len(names(work)) == 1
    (task,) = (t for t in work.tasks if " + " in t.name)
    assert derived(space(task.workload, SMALL).sketches, "chain_at_blocks")
    with torch.no_grad():
        wanted = net(places(40))
    got = compiled(work, SMALL, {})(places(40))
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_attention_that_a_cache_holds_is_three_steps():
    assert not names(attending(target=HERE)[1])


def test_scores_that_the_network_returns_too_stay_a_step_of_their_own():
    assert not names(attending(shown=True)[1])


def test_products_by_weights_are_not_joined():
    assert not names(attending(weights=True)[1])


def test_attention_of_any_length_is_one_step_at_all_lengths():
    n = lw.dim("n", 1, 40)
    net = attending()[0]
    model = build_model(net, (lw.tensor("x", (1, n, 16)),), target=SMALL)
    longer = [frame for frame in model.frames if frame.dims[0].high > 1]
    assert [len(names(frame.work)) for frame in longer] == [1]
    for size in (1, 2, 7, 40):
        with torch.no_grad():
            wanted = net(places(size))
        np.testing.assert_allclose(model(places(size)), wanted, rtol=1e-4, atol=1e-5)


BETWEEN = {
    "rows in another order": lambda scores: scores.flip(1),
    "keys in another order": lambda scores: scores.flip(2),
    "shares of heads": lambda scores: scores.softmax(0),
    "shares of queries": lambda scores: scores.softmax(1),
    "a key of no value": lambda s: torch.nn.functional.pad(s, (0, 1)).softmax(-1)[..., :-1],
}


class _Between(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.between = BETWEEN[name]

    def forward(self, q, k, v):
        return self.between(q @ k.transpose(-1, -2)) @ v


@pytest.mark.sampled(0.34)
@pytest.mark.parametrize("name", BETWEEN)
def test_joined_products_are_right_whatever_is_between(name):
    given = torch.randn(3, 2, 37, 8).unbind()
    net = _Between(name)
    work = import_model(net, given, SMALL, choices={})
    assert len(names(work)) == 1
    np.testing.assert_allclose(
        compiled(work, SMALL, {})(*given), net(*given), rtol=1e-3, atol=1e-4
    )
