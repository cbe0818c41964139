"""A concatenation is copies of its parts, without a choice for each element."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl.oracle import evaluate, random_inputs


@pytest.mark.parametrize("sizes", [(64, 64, 48), (5, 1, 3)])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_concatenation_has_a_nest_for_each_part(axis, sizes):
    shapes = [(n, 7) if axis == 0 else (7, n) for n in sizes]
    parts = [lw.tensor(f"t{n}", shape) for n, shape in enumerate(shapes)]
    i = lw.indices("i j")
    first, second, _ = sizes
    at = [i[axis], i[axis] - first, i[axis] - first - second]
    reads = [
        part[(p, i[1]) if axis == 0 else (i[0], p)] for part, p in zip(parts, at, strict=True)
    ]
    joined = lw.tensor("joined", (sum(sizes), 7) if axis == 0 else (7, sum(sizes)))
    rest = lw.where(i[axis] < first + second, reads[1], reads[2])
    joined[tuple(i)] = lw.where(i[axis] < first, reads[0], rest)
    workload = lw.workload(joined)
    assert len(lw.space(workload, threads=1).sketches[0].nests) == 3
    inputs = random_inputs(workload, np.random.default_rng(0))
    (expected,) = evaluate(workload, inputs)
    np.testing.assert_array_equal(lw.build(workload, threads=1)(*inputs), expected)
