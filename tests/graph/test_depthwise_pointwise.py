"""Depthwise convolutions and what reads them as one step of a network."""

import numpy as np
import pytest

from loopwright.graph.build import build_model
from loopwright.graph.compile.build import import_model
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
    torch.manual_seed(0)
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
