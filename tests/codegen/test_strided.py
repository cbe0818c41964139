"""Loads whose lanes stand a few elements apart: right for every type, and never past the end."""

import contextlib
import ctypes
import mmap

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.dsl.dtypes import DTYPES
from loopwright.dsl.oracle import evaluate, random_inputs
from tests.codegen.test_build import assert_configs_equal_oracle, assert_equals_oracle
from tests.targets import HERE

pytestmark = pytest.mark.sampled(0.34)


def every(step, count, dtype="float32", offset=0):
    """The elements at `offset`, `offset` + step, …; X ends with the last one."""
    X, Y = lw.tensor("X", (step * (count - 1) + 1 + offset,), dtype), lw.tensor("Y", (count,))
    (i,) = lw.indices("i")
    Y[i] = X[step * i + offset]
    return lw.workload(Y)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", [2, 3, 4, 5])
def test_every_type_and_step(step, dtype):
    for count in (3, 67):
        assert_configs_equal_oracle(every(step, count, dtype, 1), [None])


@pytest.mark.parametrize("step", [2, 3, 4, 5])
def test_windows(step):
    x = lw.tensor("X", (1, 3, 29, 71))
    for pool in (ops.max_pool2d, ops.avg_pool2d):
        workload = lw.workload(pool(x, 3, stride=step, padding=1))
        space, rng = lw.space(workload, HERE), np.random.default_rng(0)
        configs = [space.default, *(space.sample(rng) for _ in range(3))]
        assert_configs_equal_oracle(workload, configs)


@pytest.mark.parametrize("padding", [((0, 1), (2, 1)), ((2, 2), (0, 0)), ((1, 0), (2, 2))])
def test_frames_of_padding_that_are_not_even(padding):
    x, w = lw.tensor("X", (1, 3, 13, 21)), lw.tensor("W", (3, 1, 3, 3), constant=True)
    for y in (
        ops.max_pool2d(x, 3, stride=2, padding=padding),
        ops.depthwise_conv2d(x, w, padding=padding),
    ):
        workload = lw.workload(y)
        space, rng = lw.space(workload, HERE), np.random.default_rng(0)
        configs = [space.default, *(space.sample(rng) for _ in range(3))]
        assert_configs_equal_oracle(workload, configs)


def test_contiguous_loads_take_the_place_of_one_for_each_lane():
    source = lw.build(every(2, 64)).source("tir")
    assert "T.Shuffle" in source


@contextlib.contextmanager
def before_an_inaccessible_page(array):
    """A copy of an array that ends where memory ends."""
    libc, page = ctypes.CDLL(None, use_errno=True), mmap.PAGESIZE
    size = -(-array.nbytes // page) * page
    with mmap.mmap(-1, size + page) as memory:
        start = ctypes.addressof(edge := ctypes.c_char.from_buffer(memory, size))
        assert libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(page), 0) == 0
        copy = np.frombuffer(memory, array.dtype, array.size, size - array.nbytes)
        copy[...] = array.ravel()
        try:
            yield copy.reshape(array.shape)
        finally:
            libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(page), mmap.PROT_READ)
            del copy, edge


@pytest.mark.parametrize("step", [2, 3, 4])
def test_nothing_is_read_past_the_last_element(step):
    for count in (8, 67):
        workload = every(step, count)
        inputs = random_inputs(workload, np.random.default_rng(0))
        expected = evaluate(workload, inputs)
        with before_an_inaccessible_page(inputs[0]) as x:
            assert_equals_oracle(workload, lw.build(workload), [x], expected)
            del x
