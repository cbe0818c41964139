"""Convolutions as one product for all taps: what is made, and that it is right."""

import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.kn2row import kn2row
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.collection import T
from tests.sketches import derived, random_configs
from tests.targets import HERE
from tests.thin import thinned

pytestmark = pytest.mark.sampled(0.34)


def transposed(c=33, h=5, w=7, o=3, **options):
    x, taps = T("x", 2, c, h, w), T("w", c, o, 4, 4, constant=True)
    return ops.conv2d_transpose(x, taps, **options)


def with_bias_and_tanh():
    bias = T("b", 3, constant=True)
    return ops.tanh(ops.bias_add(transposed(stride=2, padding=1), bias))


CASES = {
    "transposed, stride 2, bias, tanh, batch 2": with_bias_and_tanh,
    "transposed, stride 3": lambda: transposed(stride=3, output_padding=1),
    "transposed, stride 1": lambda: transposed(padding=1),
    "of integers": lambda: ops.conv2d(
        T("x", 1, 40, 6, 6, dtype="int32"),
        T("w", 50, 40, 3, 3, dtype="int32"),
        padding=1,
    ),
    "padded": lambda: ops.conv2d(
        T("x", 1, 40, 5, 6), T("w", 50, 40, 3, 3, constant=True), padding=1
    ),
    "dilated": lambda: ops.conv2d(T("x", 1, 64, 9, 9), T("w", 2, 64, 3, 3), padding=2, dilation=2),
    "channels last": lambda: ops.conv2d(
        T("x", 1, 6, 7, 64), T("w", 3, 3, 64, 3), padding=1, layout="NHWC"
    ),
    "one dimension": lambda: ops.conv1d(T("x", 1, 64, 37), T("w", 4, 64, 5), padding=2),
}


@pytest.mark.parametrize("name", thinned(CASES))
def test_products_for_all_taps_equal_the_oracle(name):
    workload = lw.workload(CASES[name]())
    sketches = derived(lw.space(workload, HERE).sketches, "kn2row")
    configs = [sketches[0].at(sketches[0].default), *random_configs(sketches, 2)]
    assert_configs_equal_oracle(workload, configs)


def test_the_product_is_one_of_two_matrices():
    product = kn2row(Source.of(lw.workload(transposed(stride=2, padding=1))))[0].nests[0]
    assert [k.extent for k in product.reduce] == [33]
    assert [a.extent for a in product.axes] == [3 * 4 * 4, 2, 5 * 7]


@pytest.mark.parametrize(
    "out",
    [
        ops.conv2d(T("x", 1, 64, 9, 9), T("w", 4, 64, 1, 1)),
        ops.conv2d(T("x", 1, 8, 9, 9), T("w", 4, 8, 3, 3)),
        ops.conv2d(T("x", 1, 64, 40, 40), T("w", 64, 64, 3, 3)),
        ops.conv2d(T("x", 1, 64, 9, 9), T("w", 2, 64, 3, 3), padding=1, stride=2),
        ops.conv2d(T("x", 1, 64, 9, 9), T("w", 2, 64, 3, 3)),
        ops.depthwise_conv2d(T("x", 1, 64, 9, 9), T("w", 64, 1, 3, 3)),
        ops.conv2d(T("x", 1, 128, 9, 9), T("w", 4, 64, 3, 3), groups=2),
        ops.dense(T("x", 64, 64), T("w", 64, 64)),
    ],
    ids=[
        "no window",
        "shallow",
        "large",
        "stride",
        "not padded",
        "depthwise",
        "groups",
        "no taps",
    ],
)
def test_where_it_does_not_pay_there_is_none(out):
    assert kn2row(Source.of(lw.workload(out))) is None
