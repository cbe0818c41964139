"""Convolutions as matrix products over copied windows equal the oracle."""

import pytest

import loopwright as lw
from loopwright.dsl import ops
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.sketches import derived, random_configs
from tests.targets import HERE


def tensor(name, *shape, constant=False):
    return lw.tensor(name, shape, constant=constant)


def with_bias_and_relu():
    x, w = tensor("x", 2, 7, 9, 11), tensor("w", 33, 7, 3, 3, constant=True)
    return ops.relu(ops.conv2d(x, w, stride=2, padding=1, bias=tensor("b", 33, constant=True)))


CASES = {
    "stride 2, padding, bias, ReLU, batch 2": with_bias_and_relu,
    "a stride without a window": lambda: ops.conv2d(
        tensor("x", 1, 16, 13, 13), tensor("w", 40, 16, 1, 1), stride=2
    ),
    "channels last, dilated": lambda: ops.conv2d(
        tensor("x", 1, 10, 9, 6), tensor("w", 3, 3, 6, 32), dilation=2, layout="NHWC"
    ),
    "one dimension": lambda: ops.conv1d(tensor("x", 1, 5, 37), tensor("w", 34, 5, 5), stride=3),
}


@pytest.mark.parametrize("name", CASES)
def test_im2col_equals_the_oracle(name):
    workload = lw.workload(CASES[name]())
    sketches = derived(lw.space(workload, HERE).sketches, "im2col")
    configs = [sketches[0].at(sketches[0].default), *random_configs(sketches, 3)]
    assert_configs_equal_oracle(workload, configs)


@pytest.mark.parametrize(
    "out",
    [
        ops.conv2d(tensor("x", 1, 8, 9, 9), tensor("w", 32, 8, 1, 1)),
        ops.conv2d(tensor("x", 1, 8, 9, 9), tensor("w", 4, 8, 3, 3)),
        ops.max_pool2d(tensor("x", 1, 8, 9, 9), 3),
    ],
    ids=["no window", "few uses", "no product"],
)
def test_where_it_does_not_pay_there_is_none(out):
    space = lw.space(lw.workload(out), HERE)
    assert not derived(space.sketches, "im2col")
