"""Programs that together are right for all sizes of a workload."""

from dataclasses import replace
from functools import partial

import pytest

import loopwright as lw
from loopwright.codegen.open.build import default_configs
from loopwright.dsl import ops
from loopwright.dsl.numerics import Numerics
from loopwright.schedule.open.cover import MOST_PROGRAMS, covered
from loopwright.schedule.open.program import open_program
from loopwright.schedule.open.short_tiles import default_for_smaller
from loopwright.schedule.open.work import inputs, operations
from loopwright.schedule.tree.grammar import Allocate
from tests.targets import AVX2_SMALL, AVX512_LARGE


def tensor(name, *shape, constant=False):
    return lw.tensor(name, shape, constant=constant)


def test_programs_of_more_than_one_row_are_made_for_more_columns_than_are_left():
    n, t = lw.dim("n", 1, 3), lw.dim("t", 30, 400)
    x, w = tensor("x", n, 8, (t - 10) // 10), tensor("w", 8, 8, 2, constant=True)
    workload = lw.workload(ops.conv1d(x, w, stride=2))

    def choosing(given):
        return partial(default_configs, given, AVX512_LARGE, Numerics.STANDARD)

    made = covered(workload, AVX512_LARGE, choosing)
    assert len(made.programs) < MOST_PROGRAMS


def test_blocks_that_images_of_one_row_alone_have_are_not_chosen_for_larger_ones():
    x, w = tensor("x", 1, 8, lw.dim("h", 1, 12), 12), tensor("w", 8, 8, 3, 3, constant=True)
    workload = lw.workload(ops.conv2d(x, w, padding=1))
    for size in (1, 2, 3, 12):
        sketch = default_for_smaller(workload, AVX2_SMALL, Numerics.STANDARD, {"h": size})
        assert sketch.workload.key == workload.at(h=size).key


def test_a_tile_that_a_rewrite_has_fixed_stays_at_smaller_sizes():
    """Winograd's form of stride 2 adds up in results whose tile all of its sums share."""
    target = replace(AVX512_LARGE, threads=1, l1_bytes=32 << 10, l2_bytes=1 << 20)
    x, w = tensor("x", lw.dim("n", 1, 8), 28, 28, 128), tensor("w", 3, 3, 128, 256, constant=True)
    workload = lw.workload(ops.conv2d(x, w, stride=2, padding=1, layout="NHWC"))
    sketch = default_for_smaller(workload, target, Numerics.STANDARD, {"n": 2})
    assert sketch.derivation.names == ("winograd",)
    tiles = dict(sketch.at(sketch.default).values)
    assert tiles["tile5"] == tiles["tile6"] == tiles["tile7"]


def test_windows_that_step_by_two_have_programs_for_even_and_odd_widths():
    """An even width needs no padding behind it, so no rewrite of it serves an odd one."""
    x, w = tensor("x", 1, 8, lw.dim("n", 16, 128), 32), tensor("w", 3, 3, 1, 32, constant=True)
    point = tensor("point", 1, 1, 32, 32, constant=True)
    row = ops.depthwise_conv2d(x, w, stride=2, padding=1, layout="NHWC")
    workload = lw.workload(ops.conv2d(row, point, layout="NHWC"))

    def choosing(given):
        return partial(default_configs, given, AVX512_LARGE, Numerics.STANDARD)

    made = covered(workload, AVX512_LARGE, choosing)
    assert len(made.programs) < MOST_PROGRAMS // 2


def test_scratch_that_the_stack_has_no_place_for_at_some_sizes_needs_no_program_of_its_own():
    h, w = lw.dim("h", 16, 256), lw.dim("w", 16, 256)
    x, k = tensor("x", 1, 3, h, w), tensor("k", 3, 1, 3, 3, constant=True)
    workload = lw.workload(ops.depthwise_conv2d(x, k, stride=2, padding=1))
    target = replace(AVX512_LARGE, threads=1)

    def choosing(given):
        return partial(default_configs, given, target, Numerics.STANDARD)

    assert len(covered(workload, target, choosing).programs) <= 8


def test_edges_of_a_pool_with_one_choice_of_tiles_keep_it():
    x = tensor("x", 1, 22, lw.dim("n", 6, 58, 2), 64)
    workload = lw.workload(ops.max_pool2d(x, 4, 1, padding=2, dilation=3, layout="NHWC"))
    sketch = default_for_smaller(workload, AVX512_LARGE, Numerics.STANDARD, {"n": 38})
    assert len(sketch.nests) == 9
    assert len(sketch.default) == len(sketch.knobs)


def dense_of_any_rows(threads):
    target = replace(AVX512_LARGE, threads=threads)
    x, w = tensor("x", lw.dim("n", 1, 4096), 768), tensor("w", 768, 768, constant=True)
    workload = lw.workload(ops.dense(x, w))
    return covered(
        workload, target, lambda given: partial(default_configs, given, target, Numerics.STANDARD)
    )


def test_programs_that_lay_out_weights_alike_have_blocks_for_all_threads():
    made = dense_of_any_rows(2)
    for program in made.programs:
        numbers = [operations(program.tree, threads) for threads in (1, 2)]
        for own in program.made_for:
            alone, shared = (inputs(own, number)[-1] for number in numbers)
            assert shared <= 0.53 * alone, own  # a launch counts, too


def test_a_size_runs_a_program_whose_tiles_it_fits():
    made = dense_of_any_rows(1)
    rows = [dict(p.config.values)["tile0"][0] for p in made.programs]
    for n in (2, 3, 4, 5, 6, 9, 12, 16, 24, 60, 64):
        chosen = next(rule.program for rule in made.rules if rule.holds([n]))
        computed = {
            k: -(-n // r) * r for k, r in enumerate(rows) if made.programs[k].takes({"n": n})
        }
        larger = [c for k, c in computed.items() if made.programs[k].made_for[0]["n"] >= n]
        assert computed[chosen] <= 1.05 * min(larger), n


def test_few_rows_go_over_weights_once():
    x, w = tensor("x", lw.dim("n", 1, 512), 256), tensor("w", 256, 1024, constant=True)
    workload = lw.workload(ops.matmul(x, w))

    def choosing(given):
        return partial(default_configs, given, AVX512_LARGE, Numerics.STANDARD)

    made = covered(workload, AVX512_LARGE, choosing)
    for n in range(2, 7):
        chosen = next(rule.program for rule in made.rules if rule.holds([n]))
        assert dict(made.programs[chosen].config.values)["tile0"][0] == n


def opened(workload, **sizes):
    """The default program made for some sizes."""
    config = next(default_configs(workload, AVX512_LARGE, Numerics.STANDARD, sizes))
    return open_program(workload, AVX512_LARGE, config, sizes)


def one_after_the_other(n, m):
    """Rows of which one result is made, and as many or other rows that are scaled by that."""
    i, j, k = lw.indices("i j k")
    a, b, c, d = map(lw.tensor, "abcd")
    w = tensor("w", 5, 5)
    a[i, j] = lw.max(tensor("x", n, 5)[i, k] * w[k, j])
    b[j] = lw.sum(a[k, j])
    c[i, j] = lw.max(tensor("y", m, 5)[i, k] * w[k, j] * b[j])
    d[j] = lw.sum(c[k, j])
    return lw.workload(d)


@pytest.mark.parametrize("other", [64, lw.dim("m", 1, 64)], ids=["a number", "a dim"])
def test_a_size_that_equals_another_by_chance_has_the_program_of_others(other):
    workload = one_after_the_other(lw.dim("n", 1, 64), other)
    made = opened(workload, **{d.name: d.high for d in workload.dims})
    assert all(d.low < d.high == 64 for d in made.dims)


def test_a_tensor_takes_the_place_of_one_that_is_as_large_at_all_sizes():
    n = lw.dim("n", 1, 64)
    body = opened(one_after_the_other(n, n), n=64).tree.body
    assert [s.buffer.name for s in body if isinstance(s, Allocate)] == ["a", "b"]


def test_elements_of_a_square_whose_side_is_a_sum_have_one_program():
    i, j, k = lw.indices("i j k")
    n = lw.dim("n", 1, 40)
    x, t, o = tensor("x", n + 1, n + 1), lw.tensor("t"), lw.tensor("o")
    t[i, j] = lw.max(x[i, j], 2 * x[i, j])
    o[i, j] = lw.sum(t[i, k] * t[j, k])
    (made,) = opened(lw.workload(o), n=40).dims
    assert made.low < made.high == 40
