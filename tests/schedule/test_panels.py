"""Copies of operands for register tiles that lie across their cache lines."""

import numpy as np
import pytest

import loopwright as lw
from loopwright import ops
from loopwright.dsl.numerics import Numerics
from loopwright.schedule.lowering import lower
from loopwright.schedule.space import default_sketch
from loopwright.schedule.tree.printer import show
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.sketches import random_configs
from tests.targets import HERE, TARGETS, narrow

SHAPES = [(40, 53, 131), (70, 35, 3), (65, 130, 15), (64, 64, 64)]


def product(m, n, k, dtype="float32"):
    """Of the rows of two tensors, so that tiles lie across those of the second."""
    return lw.workload(ops.dense(lw.tensor("x", (m, k), dtype), lw.tensor("w", (n, k), dtype)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_copied_panels_equal_the_oracle(shape, dtype):
    workload = product(*shape, dtype)
    for target in (HERE, narrow(1)):
        found = lw.space(workload, target).sketches
        copied = [s for s in found if any(nest.packed for nest in s.nests)]
        configs = [copied[0].at(copied[0].default), *random_configs(copied, 3)]
        assert_configs_equal_oracle(workload, configs, target)


@pytest.mark.parametrize("name", TARGETS)
def test_panels_are_copied_by_whole_cache_lines(name):
    target = TARGETS[name]
    sketch = default_sketch(product(300, 256, 512), target, Numerics.STANDARD)
    tree = show(lower(sketch, target, sketch.at(sketch.default)))
    lanes = target.lanes(4)
    assert f"vector for w_packed.k.lane < {lanes}:" in tree
    assert f"unrolled for w_packed.k.part < {16 // lanes}:" in tree


def test_sums_of_any_length_along_lines_are_right_at_every_length():
    n, rng = lw.dim("n", 1, 40), np.random.default_rng(0)
    library = lw.build(lw.workload(ops.dense(lw.tensor("x", (70, n)), lw.tensor("w", (60, n)))))
    for length in (1, 3, 4, 8, 15, 16, 17, 40):
        x, w = (rng.standard_normal((rows, length)).astype("float32") for rows in (70, 60))
        np.testing.assert_allclose(library(x, w), x @ w.T, rtol=1e-4, atol=1e-4)
