"""Sums over padded images in blocks of rows, each with its own padding."""

import math

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.schedule.program.plan import even_blocks
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.padding_at_blocks import block_row_choices, pad_at_blocks
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.sketches import derived, random_configs
from tests.targets import HERE, narrow
from tests.thin import thinned

pytestmark = pytest.mark.sampled(0.34)


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


def read_before_its_rows():
    """A guard over the sum's own reads, which leave the padded tensor."""
    c, u, v, k, y, x, r, q = lw.indices("c u v k y x r q")
    data, weights = tensor("data", 3, 8, 6), tensor("w", 9, 3, 3, 3, constant=True)
    padded, out = tensor("padded", 3, 8, 8), tensor("out", 9, 7, 6)
    padded[c, u, v] = lw.where((v >= 1) & (v < 7), data[c, u, v - 1], 0.0)
    inside = (y + r >= 1) & (y + r < 8)
    out[k, y, x] += lw.where(inside, padded[c, y + r - 1, x + q], 0.0) * weights[k, c, r, q]
    return out


def loops_of_the_same_names():
    """The padding's second axis is called as the sum's first one."""
    a, u, n, c, y, x, k, r, q = lw.indices("a u n c y x k r q")
    data, weights = tensor("data", 2, 7, 8, 3), tensor("w", 3, 3, 3, 8, constant=True)
    padded, out = tensor("padded", 2, 9, 8, 3), tensor("out", 2, 7, 6, 8)
    padded[a, u, n, c] = lw.where((u >= 1) & (u < 8), data[a, u - 1, n, c], 0.0)
    out[n, y, x, k] += padded[n, y + r, x + q, c] * weights[r, q, c, k]
    return out


def padded_by(constant):
    c, u, k, y, r = lw.indices("c u k y r")
    data, weights = tensor("data", 4, 20), tensor("w", 8, 4, 3, constant=True)
    padded, out = tensor("padded", 4, 22), tensor("out", 8, 20)
    padded[c, u] = lw.where((u >= 1) & (u < 21), data[c, u - 1], constant)
    out[k, y] += padded[c, y + r] * weights[k, c, r]
    return out


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
    "another constant": lambda: padded_by(1.5),
    "a window along the second axis alone, both padded": lambda: ops.conv2d(
        tensor("x", 1, 2, 4, 8), tensor("w", 3, 2, 1, 3, constant=True), padding=1
    ),
    "loops of the same names": loops_of_the_same_names,
}

OTHERS = {
    "zeros between the elements": lambda: ops.conv2d_transpose(
        tensor("x", 1, 2, 3, 3), tensor("w", 2, 2, 6, 6, constant=True), stride=5
    ),
    "one phase of several": lambda: ops.conv2d_transpose(
        tensor("x", 1, 2, 3, 6), tensor("w", 2, 2, 1, 3, constant=True), stride=(2, 1)
    ),
    "rows before the first": read_before_its_rows,
}
"""What blocks are made of in part, or not at all."""


@pytest.mark.parametrize("name", thinned(CASES))
def test_sums_in_blocks_equal_the_oracle(name):
    workload = lw.workload(CASES[name]())
    sketches = derived(lw.space(workload, HERE).sketches, "padding_at_blocks")
    first, last = sketches[0], sketches[-1]
    configs = [first.at(first.default), last.at(last.default), *random_configs(sketches, 2)]
    assert_configs_equal_oracle(workload, configs)


@pytest.mark.parametrize("name", OTHERS)
def test_what_only_looks_like_padding_is_left_as_it_is(name):
    workload = lw.workload(OTHERS[name]())
    configs = [s.at(s.default) for s in lw.space(workload, HERE).sketches[:6]]
    assert_configs_equal_oracle(workload, configs)


@pytest.mark.parametrize("seed", thinned(range(12), keep=3))
def test_drawn_convolutions_in_blocks_equal_the_oracle(seed):
    rng = np.random.default_rng(seed)
    h, w = rng.integers(5, 20, 2).tolist()
    windows = rng.integers(1, 5, 2).tolist()
    pads = [tuple(rng.integers(0, 4, 2).tolist()) for _ in windows]
    options = {"stride": rng.integers(1, 4, 2).tolist(), "padding": tuple(pads)}
    x = tensor("x", int(rng.integers(1, 3)), 4, h, w)
    weights = tensor("w", 6, 4, *windows, constant=True)
    workload = lw.workload(ops.conv2d(x, weights, **options))
    configs = [
        s.at(s.default) for s in derived(lw.space(workload, HERE).sketches, "padding_at_blocks")
    ]
    assert_configs_equal_oracle(workload, configs[:1] + configs[-1:])


def test_a_block_has_the_rows_that_it_reads():
    workload = lw.workload(conv(h=56, w=56, window=3, stride=2, padding=1))
    (group,) = pad_at_blocks(Source.of(workload), 4)
    assert [axis.extent for axis in group.outer] == [7]
    assert [t.shape for t in group.scratch] == [(1, 4, 9, 58)]


def test_blocks_keep_all_threads_as_busy_as_single_rows():
    workload = lw.workload(conv(h=28, w=28, padding=1))
    for threads in (1, 2, 3, 4, 8):
        for rows in block_row_choices(Source.of(workload), narrow(threads)):
            blocks = -(-28 // rows)
            assert -(-blocks // threads) * rows == -(-28 // threads)


def test_a_padded_tensor_that_others_read_is_not_put_into_blocks():
    c, u, v, k, y, x, r, q = lw.indices("c u v k y x r q")
    image, weights = tensor("image", 4, 9, 9), tensor("weights", 8, 4, 3, 3, constant=True)
    padded, out, doubled = tensor("padded", 4, 11, 11), lw.tensor("out"), lw.tensor("doubled")
    inside = (u >= 1) & (u < 10) & (v >= 1) & (v < 10)
    padded[c, u, v] = lw.where(inside, image[c, u - 1, v - 1], 0.0)
    out[k, y, x] += padded[c, y + r, x + q] * weights[k, c, r, q]
    assert block_row_choices(Source.of(lw.workload(out)), HERE)
    doubled[c, u, v] = padded[c, u, v] * 2.0
    assert pad_at_blocks(Source.of(lw.workload(out, doubled)), 1) is None


@pytest.mark.parametrize("shape", [(12, 12), (5, 12)], ids=["square", "no room"])
def test_no_blocks_without_padding(shape):
    workload = lw.workload(conv(*shape))
    assert block_row_choices(Source.of(workload), HERE) == ()
    assert pad_at_blocks(Source.of(workload), 1) is None


@pytest.mark.parametrize("images", [1, 2, 5])
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_even_blocks_keep_all_threads_as_busy_as_single_rows_do(images, threads):
    def rows_of_the_busiest(block, count):
        blocks = images * math.ceil(count / block)
        return math.ceil(blocks / threads) * block

    for count in (1, 2, 7, 28, 30, 97, 112):
        least = rows_of_the_busiest(1, count)
        even = [b for b in range(1, count) if rows_of_the_busiest(b, count) == least]
        found = list(even_blocks(images, count, threads))
        assert [b for b in found if b < count] == even
        assert count not in found or images > 1
