"""Context vectors, on loop nests whose values can be checked by hand."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.costmodel.features.batch_arithmetic import rows
from loopwright.costmodel.features.context import LoopContext, loops, names, vector
from loopwright.costmodel.features.trace import contexts
from loopwright.schedule.lowering import lower
from loopwright.schedule.tree.grammar import Let, Linear, Loop, Quotient, Remainder, Var
from tests.costmodel.trees import TARGET, at, buffer, copy, fill, matmul, nest, tree
from tests.targets import HERE

WRITTEN, REGISTER, VECTOR, BROADCAST = range(4)


def of(t) -> list[LoopContext]:
    return list(loops(contexts(t, TARGET)))


def columns(loop, threads=1):
    return dict(zip(names(), vector(loop, threads), strict=True))


def test_a_loop_knows_its_extent_its_kind_and_what_stands_around_it():
    i, k, j = of(matmul(rows=4, inner=16, columns=32))
    assert [loop.extent for loop in (i, k, j)] == [4, 16, 32]
    assert [loop.kind for loop in (i, k, j)] == ["serial", "serial", "vectorized"]
    assert [loop.depth for loop in (i, k, j)] == [0, 1, 2]
    assert [loop.outside for loop in (i, k, j)] == [1, 4, 64]
    assert [loop.inside for loop in (i, k, j)] == [2048, 512, 32]


def test_touched_elements_grow_from_the_innermost_loop_outwards():
    i, k, j = of(matmul(rows=4, inner=16, columns=32))
    assert [loop.touch[VECTOR].elements for loop in (i, k, j)] == [16 * 32, 16 * 32, 32]
    assert [loop.touch[BROADCAST].elements for loop in (i, k, j)] == [4 * 16, 16, 1]
    assert [loop.touch[WRITTEN].elements for loop in (i, k, j)] == [4 * 32, 32, 32]
    assert all(loop.touch[REGISTER].elements == 0 for loop in (i, k, j))


def test_reuse_is_accesses_for_each_element():
    i, k, j = of(matmul(rows=4, inner=16, columns=32))
    assert [loop.touch[VECTOR].reuse for loop in (i, k, j)] == [4, 1, 1]
    assert [loop.touch[BROADCAST].reuse for loop in (i, k, j)] == [32, 32, 32]
    assert [loop.touch[WRITTEN].reuse for loop in (i, k, j)] == [16, 16, 1]


def test_strides_are_those_of_the_loop_in_the_buffer():
    i, k, j = of(matmul(rows=4, inner=16, columns=32))
    assert [loop.touch[VECTOR].stride for loop in (i, k, j)] == [0, 32, 1]
    assert [loop.touch[BROADCAST].stride for loop in (i, k, j)] == [16, 1, 0]
    assert [loop.touch[WRITTEN].stride for loop in (i, k, j)] == [32, 0, 1]


def test_lines_count_runs_of_contiguous_elements():
    """16 float32 to a line of 64 bytes: r neighbours lie on 1 + (r - 1) / 16 on average."""
    i, _, j = of(matmul(rows=4, inner=16, columns=32))
    assert j.touch[VECTOR].lines == 1 + 31 / 16
    assert i.touch[VECTOR].lines == 1 + (16 * 32 - 1) / 16  # rows touched whole: one run
    x, y = Var("x"), Var("y")
    (_, x_loop) = of(tree(nest((y, 5), (x, 8), body=copy(
        buffer("T", 5, 8), (y, x), buffer("S", 5, 100), (y, x)))))  # fmt: skip
    (y_loop, _) = of(tree(nest((y, 5), (x, 8), body=copy(
        buffer("T", 5, 8), (y, x), buffer("S", 5, 100), (y, x)))))  # fmt: skip
    assert x_loop.touch[VECTOR].lines == 1 + 7 / 16
    assert y_loop.touch[VECTOR].lines == 5 * (1 + 7 / 16)


def test_an_element_never_lies_on_more_than_one_line():
    y = Var("y")
    column = copy(buffer("T", 10), (y,), buffer("S", 10, 64), (y, 0))
    (loop,) = of(tree(nest((y, 10), body=column)))
    assert loop.touch[VECTOR].lines == 10


def test_vector_operations_are_elements_by_width():
    """Eight float32 to a vector of 32 bytes."""
    *_, j = of(matmul(columns=32))
    assert j.touch[VECTOR].vectors == 4
    assert j.touch[BROADCAST].vectors == 1
    assert j.touch[WRITTEN].vectors == 4
    assert j.touch[VECTOR].gathers == 0


def test_a_vector_of_elements_that_are_not_neighbours_is_gathered():
    x = Var("x")
    body = copy(buffer("T", 8), (x,), buffer("S", 8, 64), (x, 0))
    (loop,) = of(tree(nest((x, 8, "vectorized"), body=body)))
    assert (loop.touch[VECTOR].vectors, loop.touch[VECTOR].gathers) == (8, 8)
    assert (loop.touch[WRITTEN].vectors, loop.touch[WRITTEN].gathers) == (1, 0)


def test_a_window_that_slides_touches_its_halo_once():
    x, r = Var("x"), Var("r")
    body = copy(buffer("T", 10), (x,), buffer("S", 12), ([(x, 1), (r, 1)],))
    (x_loop, r_loop) = of(tree(nest((x, 10), (r, 3), body=body)))
    assert x_loop.touch[VECTOR].elements == 12
    assert r_loop.touch[VECTOR].elements == 3


def test_a_stride_leaves_gaps_that_are_not_touched():
    x = Var("x")
    (loop,) = of(tree(nest((x, 5), body=copy(buffer("T", 5), (x,), buffer("S", 9), ([(x, 2)],)))))
    assert loop.touch[VECTOR].elements == 5
    assert loop.touch[VECTOR].stride == 2


def test_a_let_stands_for_its_linear_expression():
    o, i, base = Var("o"), Var("i"), Var("base")
    let = Let(base, Linear(((o, 4),)), 6)
    body = (let, nest((i, 4), body=fill(buffer("T", 10), ([(base, 1), (i, 1)],))))
    (o_loop, i_loop) = of(tree(nest((o, 3), body=body)))
    assert o_loop.touch[WRITTEN].stride == 4
    assert i_loop.touch[WRITTEN].elements == 4
    assert o_loop.touch[WRITTEN].elements == 10  # 3 tiles of 4 reach 12, but the buffer ends


def test_quotients_move_slower_and_remainders_as_fast():
    x = Var("x")
    position = Linear(((x, 1),))
    index = at(Linear(((Quotient(position, 4), 1),)), Linear(((Remainder(position, 4), 1),)))
    (loop,) = of(tree(nest((x, 20), body=fill(buffer("T", 5, 4), index))))
    assert loop.touch[WRITTEN].elements == pytest.approx((1 + 19 / 4) * 4, rel=0.2)


def test_a_ragged_loop_counts_its_mean_iterations():
    """13 tiles in blocks of 5: two full ones, and one of 3."""
    block, inner = Var("block"), Var("inner")
    ragged = Linear(((block, -5),), 13)
    body = Loop(inner, 5, "serial", (fill(buffer("T", 13), ([(block, 5), (inner, 1)],)),), ragged)
    (outer, loop) = of(tree(nest((block, 3), body=body)))
    assert loop.extent == pytest.approx(13 / 3)
    assert outer.inside == pytest.approx(13)


def test_a_store_to_registers_and_two_buffers_of_a_role_add_up():
    x = Var("x")
    acc = buffer("acc", 8, scope="register")
    (loop,) = of(tree(nest((x, 8), body=(
        copy(acc, (x,), buffer("S", 8), (x,)), copy(buffer("T", 8), (x,), buffer("U", 8), (x,))
    ))))  # fmt: skip
    assert loop.touch[REGISTER].elements == 8
    assert loop.touch[VECTOR].elements == 16
    assert loop.inside == 16


def test_two_accesses_to_one_buffer_count_once():
    x = Var("x")
    S, T = buffer("S", 8), buffer("T", 8)
    twice = (copy(T, (x,), S, (x,)), copy(T, (x,), S, (x,)))
    (loop,) = of(tree(nest((x, 8), body=twice)))
    assert loop.touch[VECTOR].elements == 8
    assert loop.touch[VECTOR].uses == 16


def test_loops_without_iterations_are_as_if_they_were_absent():
    x, y, z = Var("x"), Var("y"), Var("z")
    S, T, U = buffer("S", 8), buffer("T", 8), buffer("U", 8)
    extent = np.array([0, 4])
    batch = tree(nest((x, 3), body=(
        nest((y, 8), body=fill(T, (y,))), nest((z, extent), body=copy(U, (z,), S, (z,)))
    )), n=2)  # fmt: skip
    outer, _, dead = of(batch)
    assert outer.inside.tolist() == [24, 36]
    assert np.asarray(outer.touch[VECTOR].elements).tolist() == [0, 4]
    assert not rows(vector(dead, 1), 2)[:, 0].any()
    assert rows(vector(dead, 1), 2)[:, 1].any()
    assert len(of(batch.row(0))) == 2
    alone = of(batch.row(0))[0]
    assert np.allclose(rows(vector(outer, 1), 2)[:, 0], vector(alone, 1))


def test_the_vector_has_the_documented_transforms():
    _, k, j = of(matmul(rows=4, inner=16, columns=32))
    got = columns(k)
    assert got["extent"] == pytest.approx(np.log2(17))
    assert (got["serial"], got["vectorized"], columns(j)["vectorized"]) == (1, 0, 1)
    assert got["depth"] == 1
    assert got["outside"] == pytest.approx(np.log2(5))
    assert got["inside"] == pytest.approx(np.log2(513))
    assert got["vector.elements"] == pytest.approx(np.log2(513))
    assert got["broadcast.reuse"] == pytest.approx(np.log2(33))
    assert got["vector.stride"] == pytest.approx(np.log2(33))


@pytest.mark.parametrize("ends", [lambda b: b >= 1, lambda b: b < 3])
def test_a_guard_counts_as_one_iteration_at_most_and_never_as_none(ends):
    x, w, out = (lw.tensor("x", (4, 8, 16)), lw.tensor("w", (4, 16, 32)), lw.tensor("out"))
    b, i, k, j = lw.indices("b i k j")
    out[b, i, j] += lw.where(ends(b), x[b, i, k], 0.0) * w[b, k, j]
    points = lw.space(lw.workload(out), HERE)
    for sketch in points.sketches:
        found = of(lower(sketch, points.target, sketch.at(sketch.default)))
        guards = [loop for loop in found if loop.extent <= 1 and loop.kind == "serial"]
        assert guards
        assert all(loop.extent > 0 for loop in found)
