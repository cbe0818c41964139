"""A window over each plane and the sum behind it, in blocks of rows."""

import itertools
import math
from dataclasses import replace

import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.dsl.workload import tensor_shape
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.boundary_peeling import peel_boundaries
from loopwright.schedule.rewrites.producer_at_blocks import fuse_at_blocks, fused_row_choices
from loopwright.schedule.space import space
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.sketches import derived, random_configs
from tests.targets import narrow
from tests.thin import thinned

pytestmark = pytest.mark.sampled(0.34)


def separable(h=12, w=11, channels=24, filters=40, images=1, then=lambda y: y, **options):
    """A depthwise convolution and one of 1×1 behind it, as MobileNet has them."""
    x = lw.tensor("x", (images, h, w, channels))
    taps = lw.tensor("taps", (3, 3, 1, channels), constant=True)
    weights = lw.tensor("weights", (1, 1, channels, filters), constant=True)
    bias = lw.tensor("bias", (filters,), constant=True)
    planes = then(ops.depthwise_conv2d(x, taps, layout="NHWC", **{"padding": 1, **options}))
    return then(ops.conv2d(planes, weights, layout="NHWC", bias=bias))


def with_residual():
    y = separable()
    return ops.add(y, lw.tensor("before", (1, 12, 11, 40)))


def two_that_meet():
    """The sum of two windows, of which one could go through the other's nest."""
    one, other = (lw.tensor(name, (1, 12, 11, 24)) for name in ("one", "other"))
    taps = lw.tensor("taps", (3, 3, 1, 24), constant=True)
    windows = [ops.depthwise_conv2d(x, taps, padding=1, layout="NHWC") for x in (one, other)]
    weights = lw.tensor("weights", (1, 1, 24, 40), constant=True)
    return ops.conv2d(ops.add(*windows), weights, layout="NHWC")


def a_product_of_two():
    one, other = (lw.tensor(name, (1, 12, 11, 24)) for name in ("one", "other"))
    taps = lw.tensor("taps", (3, 3, 1, 24), constant=True)
    a, b = (ops.depthwise_conv2d(x, taps, padding=1, layout="NHWC") for x in (one, other))
    weights, out = lw.tensor("weights", (24, 40), constant=True), lw.tensor("out")
    y, x, d, c = lw.indices("y x d c")
    out[y, x, d] += a[0, y, x, c] * b[0, y, x, c] * weights[c, d]
    return out


CASES = {
    "plain": separable,
    "with epilogues": lambda: separable(then=lambda y: ops.clip(y, 0.0, 6.0)),
    "stride 2": lambda: separable(h=16, w=13, stride=2, then=ops.relu),
    "three images": lambda: separable(h=6, w=7, images=3),
    "padding of one end": lambda: separable(h=13, w=8, padding=((0, 0), (1, 0))),
    "few channels": lambda: separable(channels=8, filters=3),
    "with a residual": with_residual,
    "two that meet": two_that_meet,
    "a product of two": a_product_of_two,
}


@pytest.mark.parametrize("name", thinned(CASES))
def test_blocks_of_rows_equal_the_oracle(name):
    workload = lw.workload(CASES[name]())
    target = narrow(2)
    found = derived(space(workload, target).sketches, "producer_at_blocks")
    if name == "padding of one end":  # rows without padding have no conditions to be tested
        assert not found
        return
    configs = [found[0].at(found[0].default), *random_configs(found, 3)]
    assert_configs_equal_oracle(workload, configs, target)


def test_what_lies_between_is_one_block_of_rows():
    workload = lw.workload(separable())
    (group,) = fuse_at_blocks(Source.of(workload), narrow(2), 3)
    assert [axis.extent for axis in group.outer] == [4]
    (local,) = group.scratch
    assert local.shape == (1, 3, 11, 24)
    assert len(group.nests) == len(peel_boundaries(Source.of(workload), narrow(2))[0].nests) + 1


def test_all_threads_have_blocks_that_fit_their_caches():
    workload = lw.workload(separable(h=64, w=64, channels=64))
    few = replace(narrow(2), l2_bytes=1 << 19)
    assert fused_row_choices(Source.of(workload), few) == (2, 8)
    assert fused_row_choices(Source.of(workload), replace(few, threads=16)) == (2, 4)


def test_results_that_others_read_are_written_whole():
    planes = ops.depthwise_conv2d(
        lw.tensor("x", (1, 12, 11, 24)), lw.tensor("taps", (3, 3, 1, 24)), padding=1, layout="NHWC"
    )
    result = ops.conv2d(planes, lw.tensor("w", (1, 1, 24, 40)), layout="NHWC")
    for outputs in ((result, planes), (result, ops.relu(planes))):
        assert fused_row_choices(Source.of(lw.workload(*outputs)), narrow(2)) == ()


def test_a_window_behind_the_planes_keeps_them_whole():
    planes = ops.depthwise_conv2d(
        lw.tensor("x", (1, 12, 11, 24)), lw.tensor("taps", (3, 3, 1, 24)), padding=1, layout="NHWC"
    )
    result = ops.conv2d(planes, lw.tensor("w", (3, 3, 24, 40)), layout="NHWC")
    assert fused_row_choices(Source.of(lw.workload(result)), narrow(2)) == ()


def small_caches(threads=2):
    """A target whose caches hold no image, so that the rows of the next block are asked for."""
    return replace(narrow(threads), l2_bytes=5000)


@pytest.mark.parametrize("case", ["plain", "stride 2", "three images"])
def test_rows_that_are_asked_for_are_those_of_the_next_block(case):
    workload, target = lw.workload(CASES[case]()), small_caches()
    (group,) = fuse_at_blocks(Source.of(workload), target, 2)
    (ahead,) = group.prefetch
    image = workload.inputs[0]
    stride = 2 if case == "stride 2" else 1
    rows, elements = tensor_shape(image)[1], math.prod(tensor_shape(image)[2:])
    assert ahead.tensor.name == image.name
    assert ahead.size == 2 * stride * elements
    *images, block = group.outer
    for n, b in itertools.product(range(images[0].extent if images else 1), range(block.extent)):
        at = {block: b, **({images[0]: n} if images else {})}
        first = sum(c * at[i] for i, c in ahead.number.terms) * ahead.size
        assert first == (n * rows + b * 2 * stride) * elements


def test_asking_for_rows_ahead_changes_no_result():
    for case in ("plain", "stride 2", "three images"):
        workload, target = lw.workload(CASES[case]()), small_caches()
        sketches = derived(space(workload, target).sketches, "producer_at_blocks")
        assert all(group.prefetch for group in sketches[0].groups)
        configs = [s.at(s.default) for s in sketches]
        assert "prefetch" in lw.build(workload, configs[0], target).source("tree")
        assert_configs_equal_oracle(workload, configs, target)


def test_what_caches_hold_or_no_block_follows_is_not_asked_for():
    workload = lw.workload(separable())
    assert fuse_at_blocks(Source.of(workload), narrow(2), 3)[0].prefetch == ()
    assert fuse_at_blocks(Source.of(workload), small_caches(), 3)[0].prefetch != ()
    assert fuse_at_blocks(Source.of(workload), small_caches(threads=4), 3)[0].prefetch == ()
