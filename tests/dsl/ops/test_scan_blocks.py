"""Scans in blocks, beside those of the oracle."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.dsl.ops.scan_blocks import in_blocks
from loopwright.dsl.oracle import evaluate
from tests.dsl.compute import draw

SHAPES = [((5, 65), -1), ((3, 131, 2), 1), ((2113,), 0)]


@pytest.mark.parametrize("how", [{}, {"reverse": True}, {"exclusive": True}])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_blocks_of_blocks_give_the_same(shape, axis, how):
    x = lw.tensor("X", shape)
    scans = [ops.cumsum(x, axis, **how), ops.cumprod(x, axis, **how)]
    if "exclusive" not in how:
        scans += [ops.cummax(x, axis, **how), ops.cummin(x, axis, **how)]
    whole = lw.workload(*scans)
    made = in_blocks(whole)
    assert max(k.extent for stage in made.stages for k in stage.definition.reduce) <= 64
    a = draw(x)
    for one, other in zip(evaluate(whole, [a]), evaluate(made, [a]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("names", ["b j k", "k b i0"])
def test_rows_may_be_named_as_blocks_name_what_is_theirs(names):
    row, at, along = lw.indices(names)
    x, y = lw.tensor("X", (3, 70)), lw.tensor("Y", (3, 70))
    y[row, at] = lw.sum(lw.where(along <= at, x[row, along], 0))
    a = draw(x)
    np.testing.assert_allclose(
        evaluate(in_blocks(lw.workload(y)), [a])[0], np.cumsum(a, 1), rtol=1e-4, atol=1e-5
    )


def test_a_workload_without_a_long_scan_is_as_it_was():
    workload = lw.workload(ops.cumsum(lw.tensor("X", (3, 64))))
    assert in_blocks(workload) is workload
