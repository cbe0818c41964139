"""Sums of many terms: their errors, and the tolerance that judges them."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.build import program
from loopwright.codegen.target import resolve
from loopwright.dsl.oracle import evaluate, random_inputs, tolerance
from loopwright.schedule.tree.printer import show

pytestmark = [pytest.mark.optimized, pytest.mark.sampled(0.34)]

T = lw.tensor


def off(out, threads=1):
    """The largest error of the default program, and the largest part of what is allowed."""
    work = lw.workload(out)
    given = random_inputs(work, np.random.default_rng(0))
    (exact,) = evaluate(work, given)
    found = lw.build(work, threads=threads)(*given)
    wrong = np.abs(found.astype("float64") - exact)
    rtol, atol = tolerance(work)
    return wrong.max(), (wrong / (atol + rtol * np.abs(exact))).max()


@pytest.mark.parametrize("size", [64, 256, 512])
def test_products_are_well_within_the_tolerance(size):
    assert off(lw.ops.matmul(T("A", (size, size)), T("B", (size, size))))[1] < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("size", [1024, 2048])
def test_large_products_are_well_within_the_tolerance(size):
    assert off(lw.ops.matmul(T("A", (size, size)), T("B", (size, size))), threads=2)[1] < 0.5


@pytest.mark.parametrize("count", [1024, 3000, 4096, 4099, 9000])
def test_sums_over_rows_are_made_of_blocks(count):
    x = T("x", (count, 37))
    out = lw.einsum("ij->j", x)
    target = resolve("cpu", 1)
    blocked = "_sum" in show(program(lw.workload(out), None, target).tree)
    assert blocked
    error, _ = off(out)
    if count != 4099:  # a prime number is one block
        assert error < 3e-5 * (count / 1024) ** 0.5
    work = lw.workload(out)
    given = random_inputs(work, np.random.default_rng(1))
    (exact,) = evaluate(work, given)
    for sketch in lw.space(work, threads=1).sketches:
        found = lw.build(work, sketch.at(sketch.default), threads=1)(*given)
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=5e-4)


def test_two_axes_are_summed_in_blocks():
    x = T("x", (1, 61, 53, 24))
    error, share = off(lw.ops.global_avg_pool2d(x, layout="NHWC"))
    assert error < 1e-6
    assert share < 0.5
