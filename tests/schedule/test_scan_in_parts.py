"""Scans in parts: few long rows, of which each thread takes some."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.dsl.oracle import evaluate
from loopwright.schedule.space import space
from tests.targets import HERE, narrow


def in_parts(workload, target=HERE):
    return [
        sketch
        for sketch in space(workload, target).sketches
        if sketch.derivation.names == ("scan_in_parts",)
    ]


@pytest.mark.parametrize(
    ("name", "shape", "axis", "how"),
    [
        ("cumsum", (1 << 14,), 0, {}),
        ("cumsum", (2, 1 << 14), 1, {"reverse": True}),
        ("cumprod", (3, 1 << 14), 1, {"exclusive": True, "reverse": True}),
        ("cummax", (1, 1 << 14), 1, {}),
        ("cummin", (1 << 14,), 0, {"reverse": True}),
    ],
)
def test_a_scan_in_parts_is_that_of_the_row(name, shape, axis, how):
    x, y = lw.tensor("X", shape), lw.tensor("Y")
    indices = tuple(lw.indices("i j"))[: len(shape)]
    scan = getattr(ops, name)(x, axis, **how)
    y[indices] = scan[indices] + x[indices]
    workload = lw.workload(y)
    sketches = in_parts(workload)
    assert sketches
    a = np.random.default_rng(0).uniform(0.9999, 1.0001, shape).astype(np.float32)
    (wanted,) = evaluate(workload, [a])
    for sketch in sketches:
        library = lw.build(workload, sketch.config(), threads=2)
        np.testing.assert_allclose(library(a), wanted, rtol=1e-4)


@pytest.mark.parametrize("shape", [(1, (1 << 14) - 1), (64, 1 << 14), (1, 1000)])
def test_rows_that_parts_do_not_divide_and_many_and_short_ones_stay_whole(shape):
    workload = lw.workload(ops.cumsum(lw.tensor("X", shape)))
    assert not in_parts(workload, narrow(2))


def test_a_lone_long_row_is_in_parts_by_default():
    workload = lw.workload(ops.cumsum(lw.tensor("X", (1 << 16,))))
    for threads in (1, 2):
        (first, *_) = space(workload, narrow(threads)).sketches
        assert first.derivation.names == ("scan_in_parts",)
