"""The summary of a whole program, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from loopwright.costmodel.features.batch_arithmetic import rows
from loopwright.costmodel.features.summary import summary, summary_names, totals
from loopwright.costmodel.features.trace import contexts
from loopwright.dsl.expr import Unary
from loopwright.schedule.tree.grammar import Allocate, Load, Store, Var
from tests.costmodel.trees import TARGET, at, buffer, copy, fill, matmul, multiply_add, nest, tree


def of(t, flops=1, target=TARGET):
    """The summary by name, the logarithms undone."""
    nests = [totals(node, target) for node in contexts(t, target)]
    found = rows(summary(nests, t, target, flops), t.n)
    assert found.shape == (len(summary_names()), t.n)
    return {name: 2.0**row - 1 for name, row in zip(summary_names(), found)}


def tiled(rows=3, vectors=2, steps=10, kind="serial"):
    """A register tile of `rows` by `vectors` of 8 lanes, updated `steps` times."""
    k, i, j, lane = Var("k"), Var("i"), Var("j"), Var("lane")
    acc = buffer("acc", rows, 8 * vectors, scope="register")
    A, B = buffer("A", rows, steps), buffer("B", steps, 8 * vectors)
    column = [(j, 8), (lane, 1)]
    update = multiply_add(acc, (i, column), A, (i, k), B, (k, column))
    return nest(
        (k, steps, kind), (i, rows, "unrolled"), (j, vectors, "unrolled"), (lane, 8, "vectorized"),
        body=update,
    )  # fmt: skip


def test_operations_are_counted_in_vectors():
    got = of(tree(tiled(rows=3, vectors=2, steps=10)))
    assert got["arithmetic"] == pytest.approx(10 * 3 * 2 * 2, rel=1e-5)
    assert got["flops"] == pytest.approx(8 * 10 * 3 * 2 * 2, rel=1e-5)
    assert got["lanes used"] == pytest.approx(8, rel=1e-5)
    assert got["iterations"] == pytest.approx(10, rel=1e-5)
    assert got["code"] == pytest.approx(3 * 2, rel=1e-5)


def test_an_unrolled_body_loads_each_element_once():
    got = of(tree(tiled(rows=3, vectors=2, steps=10)))
    assert got["vector"] == pytest.approx(10 * 2, rel=1e-5)
    assert got["broadcast"] == pytest.approx(10 * 3, rel=1e-5)
    assert got["per vector"] == pytest.approx(2 * 3, rel=1e-5)
    assert got["per broadcast"] == pytest.approx(2 * 2, rel=1e-5)


def test_a_loop_that_is_not_unrolled_loads_again_each_time():
    got = of(matmul(rows=4, inner=16, columns=32))
    assert got["vector"] == pytest.approx(4 * 16 * 32 / 8, rel=1e-5)
    assert got["broadcast"] == pytest.approx(4 * 16, rel=1e-5)


def test_the_register_tile_is_measured_in_vector_registers():
    got = of(tree(tiled(rows=3, vectors=2)))
    assert got["tile"] == pytest.approx(6, rel=1e-5)
    assert got["pressure"] == pytest.approx(6 / 16, rel=1e-5)
    assert got["chain"] == pytest.approx(10 * 2, rel=1e-5)


def test_waste_is_arithmetic_beyond_what_the_workload_needs():
    t = matmul(rows=4, inner=16, columns=32)
    assert of(t, flops=2 * 4 * 16 * 32)["waste"] == pytest.approx(1, rel=1e-5)
    assert of(t, flops=4 * 16 * 32)["waste"] == pytest.approx(2, rel=1e-5)


@pytest.mark.parametrize(("blocks", "threads", "share"), [(4, 2, 1 / 2), (5, 2, 3 / 5), (1, 2, 1)])
def test_counts_are_those_of_the_busiest_thread(blocks, threads, share):
    p = Var("p")
    t = tree(nest((p, blocks, "parallel"), body=tiled()))
    target = replace(TARGET, threads=threads)
    got = of(t, target=target)
    assert got["arithmetic"] == pytest.approx(blocks * share * 120, rel=1e-5)
    assert got["flops"] == pytest.approx(blocks * 960, rel=1e-5)
    assert got["parallel"] == pytest.approx(blocks, rel=1e-5)
    assert got["idle"] == pytest.approx(threads * share, rel=1e-5)


def test_nests_add_up_and_are_counted():
    x = Var("x")
    T, S = buffer("T", 64), buffer("S", 64)
    t = tree(nest((x, 64), body=fill(T, (x,))), nest((Var("y"), 64), body=copy(S, (0,), T, (0,))))
    got = of(t)
    assert got["written"] == pytest.approx(128, rel=1e-5)
    assert (got["nests"], got["stores"]) == (pytest.approx(2), pytest.approx(2))


def test_heap_buffers_count_in_bytes_wherever_they_are_allocated():
    x, T = Var("x"), buffer("T", 4, 25, scope="heap")
    size = np.array([10, 20])
    t = tree(
        Allocate(T),
        nest((x, 2), body=(Allocate(buffer("U", size, scope="heap", dtype="float64")),
                           Allocate(buffer("acc", 8, scope="register")),
                           fill(T, (0, x)))),
        n=2,
    )  # fmt: skip
    assert of(t)["heap"] == pytest.approx([400 + 80, 400 + 160], rel=1e-5)


def test_gathers_and_elementary_functions_cost_extra():
    x = Var("x")
    S, T = buffer("S", 8, 64), buffer("T", 8)
    plain = tree(nest((x, 8, "vectorized"), body=copy(T, (x,), S, (0, x))))
    value = Unary("exp", Load(S, at(x, 0)))
    costly = tree(nest((x, 8, "vectorized"), body=Store(T, at(x), value)))
    assert of(plain)["gathers"] == pytest.approx(0)
    assert of(costly)["gathers"] == pytest.approx(8, rel=1e-5)
    assert of(costly)["functions"] == pytest.approx(1, rel=1e-5)
    assert of(costly)["issue"] > of(plain)["issue"] + 8


def test_a_single_store_is_a_program():
    got = of(tree(fill(buffer("T", 1), (0,))))
    assert got["written"] == pytest.approx(1)
    assert got["parallel"] == pytest.approx(1)
