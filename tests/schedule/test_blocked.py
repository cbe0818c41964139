"""Sums over padded images in blocks of rows, each with its own padding."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.target import resolve
from loopwright.dsl import ops
from loopwright.schedule.blocked import blocked, rows_of_blocks
from tests.codegen.test_build import assert_configs_equal_oracle


def tensor(name, *shape, constant=False):
    return lw.tensor(name, shape, constant=constant)


def conv(h=17, w=13, channels=4, filters=24, window=3, batch=1, groups=1, **options):
    x = tensor("x", batch, channels, h, w)
    weights = tensor("w", filters, channels // groups, window, window, constant=True)
    return ops.conv2d(x, weights, groups=groups, **options)


def conv_last(h=17, w=13, channels=3, filters=24, window=3, batch=1, **options):
    x = tensor("x", batch, h, w, channels)
    weights = tensor("w", window, window, channels, filters, constant=True)
    return ops.conv2d(x, weights, layout="NHWC", **options)


def two_layers():
    first = ops.relu(conv(padding=1, bias=tensor("b", 24, constant=True)))
    return ops.conv2d(first, tensor("v", 8, 24, 3, 3, constant=True), padding=1, stride=2)


CASES = {
    "channels first": lambda: conv(padding=1),
    "stride 2, a large window": lambda: conv(window=7, stride=2, padding=3),
    "channels last, few channels": lambda: conv_last(window=5, stride=2, padding=2),
    "channels last, many channels": lambda: conv_last(channels=16, padding=1),
    "several images": lambda: conv(batch=3, padding=1),
    "several images, channels last": lambda: conv_last(batch=3, stride=2, padding=1),
    "dilated": lambda: conv(padding=2, dilation=2),
    "padding before alone": lambda: conv(padding=((1, 0), (2, 0))),
    "padding of rows alone": lambda: conv(padding=((1, 1), (0, 0))),
    "groups": lambda: conv(groups=2, padding=1),
    "bias and ReLU, twice": two_layers,
    "one dimension": lambda: ops.conv1d(
        tensor("x", 2, 4, 70), tensor("w", 16, 4, 5, constant=True), padding=2
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_sums_in_blocks_equal_the_oracle(name):
    workload, rng = lw.workload(CASES[name]()), np.random.default_rng(0)
    target = resolve("cpu", 2)
    sketches = [s for s in lw.space(workload, target).sketches if s.rewrite.startswith("rows=")]
    configs = [sketches[0].at(sketches[0].default), sketches[-1].at(sketches[-1].default)]
    for _ in range(3):
        sketch = sketches[rng.integers(len(sketches))]
        configs.append(sketch.at([int(rng.integers(len(k.choices))) for k in sketch.knobs]))
    assert_configs_equal_oracle(workload, configs, target)


def test_a_block_has_the_rows_that_it_reads():
    workload = lw.workload(conv(h=56, w=56, window=3, stride=2, padding=1))
    (group,) = blocked(workload, 4)
    assert [axis.extent for axis in group.shared] == [7]
    assert [t.shape for t in group.local] == [(1, 4, 9, 58)]


def test_blocks_keep_all_threads_as_busy_as_single_rows():
    workload = lw.workload(conv(h=28, w=28, padding=1))
    for threads in (1, 2, 3, 4, 8):
        target = resolve("cpu", threads)
        for rows in rows_of_blocks(workload, target):
            blocks = -(-28 // rows)
            assert -(-blocks // threads) * rows == -(-28 // threads)


def test_a_padded_tensor_that_others_read_is_not_put_into_blocks():
    c, u, v, k, y, x, r, q = lw.indices("c u v k y x r q")
    image, weights = tensor("image", 4, 9, 9), tensor("weights", 8, 4, 3, 3, constant=True)
    padded, out, doubled = tensor("padded", 4, 11, 11), lw.tensor("out"), lw.tensor("doubled")
    inside = (u >= 1) & (u < 10) & (v >= 1) & (v < 10)
    padded[c, u, v] = lw.where(inside, image[c, u - 1, v - 1], 0.0)
    out[k, y, x] += padded[c, y + r, x + q] * weights[k, c, r, q]
    assert rows_of_blocks(lw.workload(out), resolve("cpu", 2))
    doubled[c, u, v] = padded[c, u, v] * 2.0
    assert blocked(lw.workload(out, doubled), 1) is None


@pytest.mark.parametrize("shape", [(12, 12), (5, 12)], ids=["square", "no room"])
def test_no_blocks_without_padding(shape):
    workload = lw.workload(conv(*shape))
    assert rows_of_blocks(workload, resolve("cpu", 2)) == ()
    assert blocked(workload, 1) is None
