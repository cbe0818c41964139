"""Arrays on the stack that are larger than the vector registers."""

import re

import pytest

import loopwright as lw
from loopwright.codegen.open.build import default_configs
from loopwright.codegen.tir.emit import emit
from loopwright.dsl import ops
from loopwright.dsl.numerics import Numerics
from loopwright.schedule.lowering import lower
from loopwright.schedule.open.program import open_program
from loopwright.schedule.tree.formula import Formula, greatest
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.collection import T
from tests.targets import narrow

SMALL_ROW, LARGE_ROW = 100, 1000  # of 4 bytes, beside 16 registers of 32


def program(out, threads=2, **options):
    workload, target = lw.workload(out), narrow(threads)
    sketch = lw.space(workload, target).sketches[0]
    tree = lower(sketch, target, sketch.at(sketch.default))
    return emit(
        "main", (*tree.inputs, *tree.prepared, *tree.outputs), tree.body, target, **options
    )


def softmax_of_sums(columns):
    x, bias = T("x", 64, columns), T("b", columns)
    return ops.softmax(ops.add(x, bias))


@pytest.mark.parametrize(
    ("columns", "options", "begins"),
    [(LARGE_ROW, {}, True), (SMALL_ROW, {}, False), (LARGE_ROW, {"own": False}, False)],
    ids=["large", "small", "TVM's run-time"],
)
def test_arrays_that_are_no_registers_begin_at_a_cache_line(columns, options, begins):
    text = program(softmax_of_sums(columns), **options).script()
    assert ("lw_to_line" in text) == begins


@pytest.mark.parametrize("threads", [1, 2])
def test_the_line_is_found_outside_of_the_loops_over_rows(threads):
    x, w = T("x", 1, 14, 14, 32), T("w", 3, 3, 32, 16, constant=True)
    workload, target = lw.workload(ops.conv2d(x, w, padding=1, layout="NHWC")), narrow(threads)
    sketches = lw.space(workload, target, numerics="fast").sketches
    sketch = next(s for s in sketches if str(s.algorithm) == "winograd(results=4)")
    config = sketch.at(sketch.default)
    tree = lower(sketch, target, config)
    arguments = (*tree.inputs, *tree.prepared, *tree.outputs)
    lines = emit("main", arguments, tree.body, target).script().splitlines()
    depth = {len(line) - len(line.lstrip()) for line in lines if "lw_to_line" in line}
    loops = [len(line) - len(line.lstrip()) for line in lines if " for " in line]
    assert depth
    assert max(depth) <= sorted(set(loops))[2 * (threads > 1)]
    assert_configs_equal_oracle(workload, [config], target)


@pytest.mark.parametrize("most", [40_000, pytest.param(2_000_000, marks=pytest.mark.slow)])
def test_blocks_of_rows_of_any_number_fit_the_stack(most):
    n, target = lw.dim("n", 1, most), narrow(2)
    scores = ops.batch_matmul(T("q", 2, n, 16), T("k", 2, 16, 16))
    work = lw.workload(ops.batch_matmul(ops.softmax(scores), T("v", 2, 16, 16)))
    config = next(default_configs(work, target, Numerics.STANDARD, {"n": 15_625}))
    assert config.sketch.derivation.names == ("chain_at_blocks",)
    made = open_program(work, target, config, {"n": 15_625})
    arguments = (*made.tree.inputs, *made.tree.prepared, *made.tree.outputs)
    text = emit("main", arguments, made.tree.body, target, dims=made.dims).script()
    arrays = re.findall(r"alloc_buffer\(\((\d+),.*disable_lower_builtin", text)
    assert arrays
    assert max(map(int, arrays)) < 1 << 18


def test_the_greatest_value_of_a_quotient_is_found_at_its_sizes():
    (n,) = lw.dim("n", 1, 40_000).dims
    rows = (Formula.of(n) - 1) // ((Formula.of(n) - 1) // 112 + 1) + 1
    assert greatest(rows, [n]) == max((m - 1) // ((m - 1) // 112 + 1) + 1 for m in n.values)
    assert greatest(7, [n]) == 7
