"""Rewrites of nests: what each makes, printed, and when it refuses."""

import loopwright as lw
from loopwright.dsl.show import show_expr
from loopwright.schedule.program.canonical import drop_units, merge_axes, split_divisions
from loopwright.schedule.program.fusion import can_inline, fuse_epilogue, inline
from loopwright.schedule.program.nest import nests
from loopwright.schedule.program.padding import split_fill
from loopwright.schedule.program.plan import grouped, has_reuse
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.rfactor import split_reduction
from tests.collection import WORKLOADS, T


def plan(workload):
    """The groups of a workload's own program."""
    source = Source.of(workload)
    return grouped(source.program, source.program, source.outputs)


def text(nest):
    """`C[i, j] sum over k < 3 of A[i, k], for i < 2, j < 4`, and the epilogue if there is one."""
    left = f"{nest.out.name}[{', '.join(map(str, nest.index))}]"
    value = show_expr(nest.body)
    if nest.reducer:
        loops = ", ".join(f"{k} < {k.extent}" for k in nest.reduce)
        value = f"{nest.reducer} over {loops} of {value}"
    if nest.epilogue is not None:
        value += f" then {show_expr(nest.epilogue)}"
    return f"{left} = {value}, for {', '.join(f'{i} < {i.extent}' for i in nest.axes)}"


def defined(*outputs):
    return nests(lw.workload(*outputs))


def test_loops_that_run_once_go():
    A, C = T("A", 1, 8), lw.tensor("C")
    n, i = lw.indices("n i")
    C[n, i] = A[n, i] * 2
    assert text(drop_units(defined(C)[0])) == "C[0, i] = A[0, i] * 2.0, for i < 8"


def test_axes_split_where_the_divisor_divides():
    X, C = T("X", 2, 3), lw.tensor("C", (6,))
    (o,) = lw.indices("o")
    C[o] = X[o // 3, o % 3]
    nest = split_divisions(defined(C)[0])
    assert text(nest) == "C[3*o_hi + o_lo] = X[o_hi, o_lo], for o_hi < 2, o_lo < 3"


def test_axes_stay_where_the_divisor_does_not_divide():
    nest = nests(WORKLOADS["division_that_does_not_divide"]())[0]
    assert split_divisions(nest) == nest


def test_neighbouring_axes_merge_where_every_access_walks_them_contiguously():
    A, b, C = T("A", 3, 4, 5), T("b", 3), lw.tensor("C")
    i, j, k = lw.indices("i j k")
    C[i, j, k] = A[i, j, k] + b[i]
    assert text(merge_axes(defined(C)[0])) == "C[i, jk] = A[i, jk] + b[i], for i < 3, jk < 20"


def test_axes_that_begin_within_a_tensor_merge_where_the_second_spans_its_axis():
    A, C = T("A", 9, 5), lw.tensor("C", (6, 5))
    i, j = lw.indices("i j")
    C[i, j] = A[i + 3, j] + A[i + 1, j]
    assert text(merge_axes(defined(C)[0])) == "C[ij] = A[ij + 15] + A[ij + 5], for ij < 30"


def test_axes_that_leave_a_tensor_do_not_merge():
    A, C = T("A", 4, 5), lw.tensor("C", (6, 5))
    i, j = lw.indices("i j")
    C[i, j] = lw.where((i >= 1) & (i < 5), A[i - 1, j], 0.0)
    (nest,) = defined(C)
    assert merge_axes(nest) == nest


def test_axes_of_a_part_of_a_tensor_do_not_merge():
    A, C = T("A", 4, 5), lw.tensor("C", (4, 3))
    i, j = lw.indices("i j")
    C[i, j] = A[i, j + 1]
    nest = defined(C)[0]
    assert merge_axes(nest) == nest


def test_a_producer_is_computed_where_it_is_read():
    A, B, C = T("A", 9), lw.tensor("B"), lw.tensor("C", (5,))
    (i,) = lw.indices("i")
    B[i] = lw.exp(A[i])
    C[i] = B[i + 2] + 1
    program = defined(C)
    assert can_inline(program, program[0])
    (nest,) = inline(program, program[0])
    assert text(nest) == "C[i] = exp(A[i + 2]) + 1.0, for i < 5"


def test_a_producer_is_not_inlined_under_a_guard_that_lets_readers_leave_it():
    A, B, C = T("A", 9), lw.tensor("B"), lw.tensor("C", (9,))
    (i,) = lw.indices("i")
    B[i] = lw.exp(A[i])
    C[i] = lw.where(i >= 1, B[i - 1], 0)
    program = defined(C)
    assert not can_inline(program, program[0])


def test_an_element_wise_consumer_moves_into_the_write_back():
    product, relu = nests(lw.workload(lw.ops.relu(lw.ops.matmul(T("A", 3, 4), T("B", 4, 5)))))
    assert text(fuse_epilogue(product, relu)) == (
        f"relu[{', '.join(map(str, relu.index))}] = sum over k < 4 of A[i0, k] * B[k, i1] "
        "then max(matmul[i0, i1], 0.0), for i0 < 3, i1 < 5"
    )


def test_a_consumer_that_reads_other_elements_too_does_not_move():
    A, S, C = T("A", 6, 4), lw.tensor("S"), lw.tensor("C", (4,))
    i, k = lw.indices("i k")
    S[i] += A[i, k]
    C[i] = S[i + 1] + S[i + 2]
    assert fuse_epilogue(*defined(C)) is None


def test_padding_becomes_a_fill_and_a_copy():
    fill, copy = split_fill(defined(lw.pad(T("X", 7), [(2, 1)], value=5))[0])
    assert text(fill) == "X_pad[i0] = 5.0, for i0 < 10"
    assert text(copy) == "X_pad[i0 + 2] = X[i0], for i0 < 7"


def test_spreading_by_a_stride_becomes_a_fill_and_a_strided_copy():
    X, D = T("X", 4), lw.tensor("D", (9,))
    (i,) = lw.indices("i")
    D[i] = lw.where(lw.equal((i - 1) % 2, 0) & (i >= 1) & (i < 8), X[(i - 1) // 2], 0)
    fill, copy = split_fill(defined(D)[0])
    assert text(copy) == "D[2*i + 1] = X[i], for i < 4"
    assert text(fill) == "D[i] = 0.0, for i < 9"


def test_a_guard_between_two_axes_stays_a_guard():
    nest = nests(WORKLOADS["triangular_mask_by_index"]())[0]
    assert split_fill(nest) == (nest,)


def test_split_reductions_compute_partial_results_first():
    workload = WORKLOADS["long_dot_product_over_threads"]()
    split = split_reduction(workload, 0, 4)
    partial, whole = nests(split)
    assert text(partial) == (
        "S_part[p, i] = sum over k < 16384 of A[i, 16384*p + k] * B[16384*p + k], for p < 4, i < 3"
    )
    assert text(whole) == "S[i] = sum over p < 4 of S_part[p, i], for i < 3"


def test_a_reduction_that_does_not_divide_is_not_split():
    assert split_reduction(WORKLOADS["long_dot_product_over_threads"](), 0, 3) is None


def test_softmax_runs_row_by_row_with_local_rows():
    (group,) = plan(WORKLOADS["softmax"]())
    assert [axis.extent for axis in group.outer] == [7]
    assert len(group.nests) == 4
    assert len(group.scratch) == 3


def test_layer_norm_runs_row_by_row():
    (group,) = plan(lw.workload(lw.ops.layer_norm(T("x", 7, 40), T("g", 40), T("b", 40))))
    assert [axis.extent for axis in group.outer] == [7]
    assert len(group.nests) == 3


def test_a_shared_row_that_stands_in_a_division_stays_whole():
    n, i = lw.indices("n i")
    x, y, total = T("x", 2, 8), lw.tensor("y", (4, 8)), lw.tensor("total")
    y[n, i] = lw.exp(x[n // 2, i])
    total[n] += y[n, i]
    (group,) = plan(lw.workload(total, y))
    assert [axis.extent for axis in group.outer] == [4]
    assert text(group.nests[0]) == "y[row0, i] = exp(x[row0 // 2, i]), for i < 8"


def test_a_product_is_never_run_by_rows():
    groups = plan(WORKLOADS["attention_with_a_causal_mask"]())
    assert [bool(g.outer) for g in groups] == [False, True, False]
    assert all(not has_reuse(n) for g in groups if g.outer for n in g.nests)


def test_rows_stay_contiguous_when_the_reduction_runs_across_them():
    (group,) = plan(WORKLOADS["softmax_of_the_middle_axis"]())
    assert [axis.extent for axis in group.outer] == [3]
