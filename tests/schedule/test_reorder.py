"""Copies with short rows lie like what they copy, and equal the oracle."""

import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.schedule.program.plan import combined
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.targets import HERE


def tensor(name, *shape, constant=False):
    return lw.tensor(name, shape, constant=constant)


def padded(channels=3, images=1, order="nchw", size=(10, 13)):
    """A copy with channels last, in a frame of zeros, of an image with other ones."""
    n, y, x, c = lw.indices("n y x c")
    (h, w), place = size, {"n": n, "c": c, "h": y - 1, "w": x - 1}
    image = tensor("image", *({"n": images, "c": channels, "h": h, "w": w}[a] for a in order))
    copy = lw.tensor("copy", (images, h + 2, w + 2, channels))
    inside = (y >= 1) & (y <= h) & (x >= 1) & (x <= w)
    copy[n, y, x, c] = lw.where(inside, image[tuple(place[a] for a in order)], 0.0)
    return copy


def convolution(copy, filters=20, stride=1):
    weights = tensor("weights", 3, 3, copy.shape[-1], filters, constant=True)
    return ops.relu(ops.conv2d(copy, weights, stride=stride, layout="NHWC"))


def two_that_read():
    copy = padded()
    return convolution(copy), ops.conv2d(
        copy, tensor("others", 1, 1, 3, 8, constant=True), layout="NHWC"
    )


TURNED = {
    "an image": lambda: convolution(padded()),
    "stride 2": lambda: convolution(padded(), stride=2),
    "one channel": lambda: convolution(padded(channels=1)),
    "three images": lambda: convolution(padded(images=3)),
    "columns before rows": lambda: convolution(padded(order="ncwh")),
    "channels between": lambda: convolution(padded(order="nhcw")),
    "two that read": two_that_read,
}


def copy_of(workload):
    """The shape of the copy in the program, without axes of one element."""
    (copy,) = (n.out for n in combined(workload) if n.out.name == "copy")
    return tuple(n for n in copy.shape if n > 1)


@pytest.mark.parametrize("name", TURNED)
def test_reordered_copies_equal_the_oracle(name):
    made = TURNED[name]()
    workload = lw.workload(*made) if isinstance(made, tuple) else lw.workload(made)
    firsts = {s.rewrite: s for s in reversed(lw.space(workload, HERE).sketches)}
    configs = [s.at(s.default) for s in firsts.values()]
    assert_configs_equal_oracle(workload, configs)


def test_rows_of_the_image_are_rows_of_its_copy():
    assert copy_of(lw.workload(convolution(padded()))) == (3, 12, 15)
    assert copy_of(lw.workload(convolution(padded(images=3)))) == (3, 3, 12, 15)
    assert copy_of(lw.workload(convolution(padded(order="ncwh")))) == (3, 15, 12)
    assert copy_of(lw.workload(convolution(padded(order="nhcw")))) == (12, 3, 15)


def test_copies_that_gain_nothing_stay_as_they_are():
    assert copy_of(lw.workload(convolution(padded(order="nhwc")))) == (12, 15, 3)
    assert copy_of(lw.workload(convolution(padded(channels=16)))) == (12, 15, 16)
    assert copy_of(lw.workload(convolution(padded(size=(4, 5))))) == (6, 7, 3)
    pooled = ops.max_pool2d(padded(), 2, layout="NHWC")  # each channel by itself
    assert copy_of(lw.workload(pooled)) == (12, 15, 3)


def test_a_copy_that_is_a_result_stays_as_it_is():
    copy = padded()
    workload = lw.workload(convolution(copy), copy)
    assert copy_of(workload) == (12, 15, 3)
    config = lw.space(workload, HERE).default
    assert_configs_equal_oracle(workload, [config])
