"""Libraries of open sizes at few rows."""

from dataclasses import replace

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.open.build import default_configs
from loopwright.dsl.errors import ConfigError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.oracle import evaluate, random_inputs, tolerance
from loopwright.schedule.open.program import open_program
from tests.targets import ALONE, AVX512_LARGE


def test_softmax_of_rows_shorter_than_a_vector_is_right_where_weights_are_shared():
    x, w = lw.tensor("X", (2, lw.dim("n", 2, 64), 16)), lw.tensor("W", (16, 16), constant=True)
    q = lw.ops.dense(x, w)
    workload = lw.workload(lw.ops.attention(q, q, q))
    library = lw.build(workload, target=ALONE)
    for n in range(2, 11):
        fixed = workload.at(n=n)
        inputs = random_inputs(fixed, np.random.default_rng(n))
        rtol, atol = tolerance(fixed, 4)
        (wanted,) = evaluate(fixed, inputs)
        np.testing.assert_allclose(library(*inputs), wanted, rtol, atol, err_msg=f"{n} rows")


def test_lanes_whose_partial_results_do_not_halve_are_refused():
    workload = lw.workload(lw.ops.softmax(lw.tensor("X", (5, lw.dim("n", 2, 64)))))
    config = next(default_configs(workload, AVX512_LARGE, Numerics.STANDARD, {"n": 3}))
    values = dict(config.values) | {"tile2": (3,)}  # the lanes of the sum
    with pytest.raises(ConfigError, match="do not halve"):
        open_program(
            workload, AVX512_LARGE, replace(config, values=tuple(values.items())), {"n": 3}
        )
