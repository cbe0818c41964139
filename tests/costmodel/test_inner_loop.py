"""The inner loops of the heaviest nest, by hand."""

import numpy as np
import pytest

from loopwright.costmodel.features.batch_arithmetic import rows
from loopwright.costmodel.features.inner_loop import InnerLoop, inner_loop, inner_loop_names
from loopwright.costmodel.features.summary import totals
from loopwright.costmodel.features.trace import contexts
from loopwright.schedule.tree.grammar import Var
from tests.costmodel.trees import TARGET, buffer, copy, multiply_add, nest, tree


def of(t):
    """The columns by name, the logarithms undone."""
    nodes = contexts(t, TARGET)
    found = rows(inner_loop([InnerLoop.of(node, totals(node, TARGET)) for node in nodes]), t.n)
    assert found.shape == (len(inner_loop_names()), t.n)
    return {name: 2.0**row - 1 for name, row in zip(inner_loop_names(), found)}


def tiled(rows=3, steps=10, taps=2, width=16, outer=5):
    """`outer` blocks of a register tile of `rows` by 16, updated `steps · taps` times; rows of B
    are `width` long."""
    block, k, t, i, lane = map(Var, ("block", "k", "t", "i", "lane"))
    acc = buffer("acc", rows, 16, scope="register")
    A, B = buffer("A", outer * rows, steps * taps), buffer("B", steps * taps, width)
    step = [(k, taps), (t, 1)]
    update = multiply_add(acc, (i, lane), A, ([(block, rows), (i, 1)], step), B, (step, lane))
    return nest(
        (block, outer), (k, steps), (t, taps, "unrolled"), (i, rows, "unrolled"),
        (lane, 16, "vectorized"), body=update,
    )  # fmt: skip


def test_the_register_tile_is_vectors_by_rows_and_taps_are_what_else_is_unrolled():
    got = of(tree(tiled(rows=3, taps=4)))
    assert got["vectors"] == pytest.approx(2, rel=1e-5)
    assert got["rows"] == pytest.approx(3, rel=1e-5)
    assert got["taps"] == pytest.approx(4, rel=1e-5)
    assert got["row stride"] == pytest.approx(10 * 4, rel=1e-5)


def test_loops_that_are_not_unrolled_count_from_the_innermost_one_outwards():
    got = of(tree(tiled(rows=3, steps=10, taps=2, outer=5)))
    assert got["1.extent"] == pytest.approx(10, rel=1e-5)
    assert got["1.vector"] == pytest.approx(2 * 16, rel=1e-5)
    assert got["1.broadcast"] == pytest.approx(2, rel=1e-5)
    assert got["2.extent"] == pytest.approx(5, rel=1e-5)
    assert got["2.broadcast"] == pytest.approx(3 * 20, rel=1e-5)
    assert got["2.footprint"] > got["1.footprint"] > 0
    assert got["3.extent"] == pytest.approx(0)


def test_a_loop_that_runs_once_is_none():
    extents = np.array([1, 10])
    got = of(tree(tiled(steps=extents), n=2))
    assert got["1.extent"] == pytest.approx([5, 10], rel=1e-5)
    assert got["2.extent"] == pytest.approx([0, 5], abs=1e-5)


@pytest.mark.parametrize(("width", "loose"), [(16, 0), (24, 0), (20, 1)])
def test_vectors_are_loose_unless_all_other_loops_move_them_by_whole_ones(width, loose):
    got = of(tree(tiled(steps=10, taps=2, width=width, outer=1)))
    assert got["loose"] == pytest.approx(loose * 10 * 2 * 2 * 8 * 4 / 64, abs=1e-4)


def test_the_heaviest_nest_counts():
    x = Var("x")
    light = nest((x, 64, "vectorized"), body=copy(buffer("T", 64), (x,), buffer("S", 64), (x,)))
    alone, both = of(tree(tiled())), of(tree(light, tiled()))
    assert both == {name: pytest.approx(alone[name], abs=1e-4) for name in alone}


def test_a_single_store_has_no_loops():
    got = of(tree(copy(buffer("T", 1), (0,), buffer("S", 1), (0,))))
    assert got["1.extent"] == pytest.approx(0)
    assert (got["vectors"], got["rows"], got["taps"]) == (pytest.approx(1),) * 3
