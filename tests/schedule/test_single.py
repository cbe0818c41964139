"""Sums over a tensor that is zero but in one place equal the oracle, without loops over taps."""

import math

import pytest

import loopwright as lw
from loopwright.dsl import ops
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.targets import HERE


def tensor(name, *shape, constant=False):
    return lw.tensor(name, shape, constant=constant)


def transposed(size=(1, 1), window=(4, 4), stride=1, padding=0, images=1):
    x = tensor("x", images, 20, *size)
    w = tensor("w", 20, 24, *window, constant=True)
    return ops.conv2d_transpose(x, w, stride=stride, padding=padding)


def padded(size=1, window=3, padding=1, channels=20):
    x = tensor("x", 2, channels, size, size)
    return ops.conv2d(x, tensor("w", 24, channels, window, window, constant=True), padding=padding)


def of_one_column():
    x, w = tensor("x", 1, 20, 6, 1), tensor("w", 24, 20, 3, 3, constant=True)
    return ops.conv2d(x, w, padding=1)


def of_a_window_of_sums():
    """What is padded is computed."""
    x, w = tensor("x", 1, 20, 1, 1), tensor("w", 24, 20, 3, 3, constant=True)
    return ops.conv2d(ops.relu(x), w, padding=1)


CASES = {
    "a generator's first layer": transposed,
    "with some of its results left out": lambda: transposed(padding=1),
    "several images": lambda: transposed(images=3),
    "by steps": lambda: transposed(stride=2),
    "one row": lambda: transposed(size=(1, 5)),
    "a window around a pixel": padded,
    "a window of even size": lambda: padded(window=4, padding=2),
    "one column": of_one_column,
    "of what is computed": of_a_window_of_sums,
}


def steps(workload):
    return max(n.nest.steps for n in lw.space(workload, HERE).sketches[0].nests)


@pytest.mark.parametrize("name", CASES)
def test_a_window_over_one_place_equals_the_oracle(name):
    workload = lw.workload(CASES[name]())
    firsts = {s.rewrite: s for s in reversed(lw.space(workload, HERE).sketches)}
    configs = [s.at(s.default) for s in firsts.values()]
    assert_configs_equal_oracle(workload, configs)


def test_each_result_takes_one_tap():
    for name in ("a generator's first layer", "several images", "of what is computed"):
        workload = lw.workload(CASES[name]())
        (out,) = workload.outputs
        assert steps(workload) == 20 * math.prod(out.shape)


def test_results_that_no_tap_reaches_stay_in_the_sum():
    """A window of 2 around a padding of 2 meets the pixel in the middle alone."""
    x, w = tensor("x", 1, 20, 1, 1), tensor("w", 24, 20, 2, 2, constant=True)
    workload = lw.workload(ops.conv2d(x, w, padding=2))
    sketch = lw.space(workload, HERE).sketches[0]
    assert_configs_equal_oracle(workload, [sketch.at(sketch.default)])
