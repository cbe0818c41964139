"""Sums over channels of padded images without the padding: what is made, and that it is right."""

import pytest

import loopwright as lw
from loopwright.codegen.tir.emit import emit_tree
from loopwright.dsl import ops
from loopwright.schedule.lowering import lower
from loopwright.schedule.program.plan import plan
from loopwright.schedule.program.predicates import share
from loopwright.schedule.rewrites.boundary_peeling import unpadded
from loopwright.schedule.tree.printer import show
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.configs import random_configs
from tests.schedule.test_edges import narrow, tensor


def convolution(channels=16, size=(9, 9), filters=24, window=(3, 3), layout="NHWC", **options):
    shape, kernel = (1, *size, channels), (*window, channels, filters)
    if layout == "NCHW":
        shape, kernel = (1, channels, *size), (filters, channels, *window)
    x, w = tensor("x", *shape), tensor("w", *kernel, constant=True)
    return ops.conv2d(x, w, layout=layout, **options)


def volume():
    x, w = tensor("x", 4, 5, 6, 16), tensor("w", 3, 3, 3, 16, 8, constant=True)
    padded, total = lw.tensor("padded", (6, 7, 8, 16)), lw.tensor("total")
    d, i, j, c, o, q, r, s = lw.indices("d i j c o q r s")
    inside = (d >= 1) & (d < 5) & (i >= 1) & (i < 6) & (j >= 1) & (j < 7)
    padded[d, i, j, c] = lw.where(inside, x[d - 1, i - 1, j - 1, c], 0.0)
    total[d, i, j, o] += padded[d + q, i + r, j + s, c] * w[q, r, s, c, o]
    return total


CASES = {
    "stride 1": lambda: convolution(padding=1),
    "stride 2, bias, ReLU": lambda: ops.relu(
        convolution(stride=2, padding=1, bias=tensor("b", 24, constant=True))
    ),
    "stride 2, an even size": lambda: convolution(size=(14, 10), stride=2, padding=1),
    "channels first": lambda: convolution(padding=1, layout="NCHW"),
    "channels first, stride 2": lambda: convolution(
        channels=21, size=(13, 15), stride=2, padding=1, layout="NCHW"
    ),
    "several tiles to a row": lambda: convolution(size=(5, 47), padding=1),
    "no whole tiles": lambda: convolution(size=(5, 53), filters=21, stride=2, padding=1),
    "dilated": lambda: convolution(padding=2, dilation=2),
    "padding before alone": lambda: convolution(padding=((1, 0), (2, 0))),
    "padding of rows alone": lambda: convolution(padding=((1, 1), (0, 0))),
    "padding of columns alone": lambda: convolution(padding=((0, 0), (1, 2))),
    "wide padding": lambda: convolution(size=(4, 4), window=(5, 5), padding=2),
    "a window too wide to be written out": lambda: convolution(window=(3, 11), padding=(1, 5)),
    "several images": lambda: ops.conv2d(
        tensor("x", 3, 7, 7, 16), tensor("w", 3, 3, 16, 8), padding=1, layout="NHWC"
    ),
    "groups": lambda: ops.conv2d(
        tensor("x", 1, 32, 7, 7), tensor("w", 24, 16, 3, 3, constant=True), padding=1, groups=2
    ),
    "one dimension": lambda: ops.conv1d(
        tensor("x", 1, 16, 40), tensor("w", 24, 16, 5, constant=True), padding=2
    ),
    "three dimensions": volume,
    "small integers, summed in wider ones": lambda: ops.conv2d(
        tensor("x", 1, 9, 9, 16, dtype="int8"),
        tensor("w", 3, 3, 16, 24, dtype="int8", constant=True),
        padding=1,
        layout="NHWC",
        accumulate="int32",
    ),
}


def sketches_of(workload, target):
    return [s for s in lw.space(workload, target).sketches if s.rewrite == "unpadded"]


@pytest.mark.parametrize("name", CASES)
def test_sums_that_leave_out_the_padding_equal_the_oracle(name):
    workload = lw.workload(CASES[name]())
    target = narrow(2)
    sketches = sketches_of(workload, target)
    configs = [sketches[0].at(sketches[0].default), *random_configs(sketches, 3)]
    assert_configs_equal_oracle(workload, configs, target)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_nothing_is_copied_and_the_products_with_padding_are_left_out(layout):
    workload = lw.workload(
        convolution(64, (14, 14), 128, stride=2, padding=1, layout=layout),
    )
    ((nest,),) = [group.nests for group in unpadded(workload)]
    sketch = sketches_of(workload, narrow(2))[0]
    guards = sketch.nests[0].guards
    assert len(guards.whole) == len(guards.places) == 2
    assert share(nest, (*guards.whole, *guards.places)) == pytest.approx((20 / 21) ** 2)


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        (lambda i, c: [i - 1], 0.75),  # i >= 2
        (lambda i, c: [c - 15, 32 - c], 0.25),
        (lambda i, c: [i - 1, c - 15], 0.75 * 0.75),
        (lambda i, c: [i + c], 1 - 1 / (8 * 64)),
        (lambda i, c: [i + c // 8], 1.0),
    ],
    ids=["rows", "a span", "two axes", "together", "divisions are not counted"],
)
def test_the_share_of_steps_in_which_guards_hold_is_counted(tests, expected):
    workload = lw.workload(ops.matmul(tensor("x", 8, 64), tensor("w", 64, 16)))
    nest = plan(workload)[-1].nests[-1]
    (i, _), (c,) = nest.axes, nest.reduce
    assert share(nest, tuple(tests(i, c))) == pytest.approx(expected)


def test_guards_without_axes_have_a_share_too():
    x, w, out = tensor("x", 1, 4096), tensor("w", 4096, 16), lw.tensor("out")
    t, o, c = lw.indices("t o c")
    out[t, o] += lw.where(t < 3, x[t, c], 0.0) * w[c, o]
    target = narrow(2)
    default = lw.space(lw.workload(out), target).default
    assert_configs_equal_oracle(lw.workload(out), [default], target)


def updates(workload, target):
    """How the default register tile adds products: what is written out, and what is tested."""
    sketch = sketches_of(workload, target)[0]
    config = sketch.at(sketch.default)
    main = str(emit_tree(lower(sketch, target, config), target)["main"])
    return main.count(" * w_packed"), main.count(" if ")


def test_a_tile_as_wide_as_the_image_tests_no_columns():
    target = narrow(2)
    workload = lw.workload(convolution(64, (14, 14), 8, stride=2, padding=1))
    assert sketches_of(workload, target)[0].config().values[0][1] == (7, 8)
    products, tests = updates(workload, target)
    assert products > 0
    assert products % (7 * 3 - 1) == 0  # as many times as the channels are unrolled
    assert tests == 1  # of rows: the one above the image


def test_rows_are_tested_outside_of_the_sum_over_channels():
    workload, target = lw.workload(convolution(64, (14, 14), 8, padding=1)), narrow(2)
    sketch = sketches_of(workload, target)[0]
    lines = show(lower(sketch, target, sketch.at(sketch.default))).splitlines()
    tests = [n for n, line in enumerate(lines) if "for guard" in line and "y.tile" in line]
    (channels,) = (n for n, line in enumerate(lines) if "for c <" in line)
    assert len(tests) == 2
    assert max(tests) < channels


@pytest.mark.parametrize(
    "out",
    [
        convolution(),
        convolution(channels=3, padding=1),
        ops.depthwise_conv2d(tensor("x", 1, 64, 9, 9), tensor("w", 64, 1, 3, 3), padding=1),
        ops.max_pool2d(tensor("x", 1, 64, 9, 9), 3, padding=1),
    ],
    ids=["no padding", "a shallow sum", "no filters", "a maximum"],
)
def test_where_it_does_not_pay_there_is_none(out):
    assert unpadded(lw.workload(out)) is None
