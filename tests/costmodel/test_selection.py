"""The 28 numbers that choose a device, on trees whose counts can be checked by hand."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.build import program
from loopwright.costmodel.features.selection import SELECTION_FEATURES, selection_features
from loopwright.dsl.expr import Binary, Cast, Const, Gather, Select, Unary
from loopwright.schedule.tree.grammar import (
    Let,
    Linear,
    Load,
    Loop,
    Quotient,
    Remainder,
    Store,
    Tree,
    Var,
)
from tests.costmodel import gpu_trees
from tests.costmodel.trees import TARGET, at, buffer, copy, fill, matmul, nest, tree
from tests.targets import HERE

KINDS = ("coalesced", "offset", "strided", "other")


def counts(made, target=TARGET):
    """What is not 0, by name."""
    found = zip(SELECTION_FEATURES, selection_features(made, target), strict=True)
    return {name: value for name, value in found if value}


def on_gpu(made):
    return counts(made, gpu_trees.TARGET)


def test_there_are_28():
    assert len(set(SELECTION_FEATURES)) == 28


def test_a_product_has_its_operations_and_accesses():
    found = counts(matmul(rows=4, inner=16, columns=32))
    runs = 4 * 16 * 32
    assert found == {
        "range": 1,
        "memory": 4 * runs,
        "arithmetic": 2 * runs,
        "branches": 4 + 4 * 16,
        "coalesced": 3 * runs,  # C twice, and B; the next j is the neighbour
        "other": runs,  # A is one element for all j
    }


def test_accesses_are_judged_by_the_next_thread():
    assert on_gpu(gpu_trees.row_copy()) == {"range": 512, "memory": 1024, "coalesced": 1024}
    strided = on_gpu(gpu_trees.row_copy(stride=8))
    assert (strided["strided"], strided["coalesced"]) == (512, 512)
    same = on_gpu(gpu_trees.row_copy(broadcast=True))
    assert (same["other"], same["coalesced"]) == (512, 512)


def test_neighbouring_vectors_are_coalesced():
    found = on_gpu(gpu_trees.vector_copy(4))
    assert found == {"range": 1024, "memory": 2 * 4096, "coalesced": 2 * 4096}


def test_an_access_that_begins_elsewhere_is_offset():
    i = Var("i")
    x, y = buffer("x", 99), buffer("y", 90)
    found = (
        counts(tree(nest((i, 90), body=copy(y, (i,), x, (((i, 1),),))))),
        counts(tree(nest((i, 90), body=copy(y, (i,), x, (Linear(((i, 1),), 9),))))),
    )
    assert [f.get("offset", 0) for f in found] == [0, 90]


def test_a_quotient_is_one_element_for_many_and_a_remainder_moves():
    b, t = Var("b"), Var("t")
    x, y = buffer("x", 8), buffer("y", 64)
    for term, kind in ((Quotient, "other"), (Remainder, "coalesced")):
        place = Linear(((term(Linear(((t, 1),)), 8), 1),))
        chain = (b, 1, "block"), (t, 64, "thread")
        found = on_gpu(tree(gpu_trees.kernel(*chain, body=(copy(y, (t,), x, (place,)),))))
        assert found[kind] >= 64, term


def test_a_let_stands_for_its_value():
    t, u = Var("t"), Var("u")
    x, y = buffer("x", 128), buffer("y", 64)
    body = (Let(u, Linear(((t, 2),)), 126), copy(y, (t,), x, (u,)))
    found = on_gpu(tree(gpu_trees.kernel((t, 64, "thread"), body=body)))
    assert (found["strided"], found["coalesced"]) == (64, 64)


def test_loops_with_bounds_count_the_iterations_that_run():
    block, i = Var("block"), Var("i")
    y = buffer("y", 10)
    inner = Loop(i, 4, "serial", (fill(y, (i,)),), Linear(((block, -4),), 10))
    found = counts(tree(nest((block, 3, "parallel"), body=inner)))
    assert found["memory"] == 10
    assert found["range"] == 3
    assert found["branches"] == 3 + 10


def test_operations_have_kinds():
    i = Var("i")
    x, y, z = buffer("x", 5), buffer("y", 5, dtype="int32"), buffer("z", 5)
    load = Load(x, at(i))
    value = Select(
        Binary("lt", load, Const(0.0, "float32")), Unary("exp", load), Cast(load, "float32")
    )
    named = Gather(Load(z, at(0)), (Load(y, at(i)),), (5,))
    found = counts(tree(nest((i, 5), body=Store(x, at(i), Binary("add", value, named)))))
    assert found["functions"] == 5
    assert found["arithmetic"] == 5
    assert found["others"] == 5  # the cast
    assert found["branches"] == 5 + 5  # the loop's, and the selection
    assert found["other"] == 5  # the table, at places that y names


def test_arrays_beyond_the_ninth_are_added_to_it():
    inputs = tuple(buffer(f"x{n}", n + 1) for n in range(11))
    made = Tree(1, inputs, (), (buffer("y", 3),), (), (), ())
    found = counts(made)
    assert [found[f"input {n}"] for n in range(9)] == [*range(4, 36, 4), 4 * (9 + 10 + 11)]
    assert found["output 0"] == 12


def test_tiles_of_matrices_are_the_work_of_a_warp():
    found = on_gpu(gpu_trees.products())
    assert found["arithmetic"] == pytest.approx(2 * 64 * 16 * 64)


@pytest.mark.parametrize("target", [HERE, gpu_trees.TARGET], ids=["cpu", "gpu"])
def test_kinds_of_accesses_sum_to_all_and_work_is_all_done(target):
    A, B = lw.tensor("A", (37, 19)), lw.tensor("B", (19, 23))
    made = program(lw.workload(lw.einsum("ij,jk->ik", A, B)), None, target)
    found = counts(made.tree, target)
    assert sum(found.get(kind, 0) for kind in KINDS) == found["memory"]
    assert found["arithmetic"] >= 2 * 37 * 19 * 23 * 0.5  # a fused product counts as one or two
    assert (found["input 0"], found["output 0"]) == (4 * 37 * 19, 4 * 37 * 23)
    np.testing.assert_array_equal(
        selection_features(made.tree, target), selection_features(made.tree, target)
    )
