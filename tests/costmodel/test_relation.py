"""Context relation features and traffic, by hand."""

import numpy as np
import pytest

from loopwright.costmodel.features.batch_arithmetic import rows
from loopwright.costmodel.features.relation import (
    BETAS,
    COLUMNS,
    relation_names,
    relations,
    traffic,
)
from loopwright.costmodel.features.trace import contexts
from loopwright.schedule.tree.grammar import Var
from tests.costmodel.trees import TARGET, buffer, fill, matmul, nest, tree


def curves(t):
    """Each relation as a list over the thresholds."""
    found = relations(contexts(t, TARGET))
    return {name: rows([column], t.n) for name, column in zip(COLUMNS, found, strict=True)}


def below(beta):
    """The place of the last threshold that is no greater."""
    return max(t for t, b in enumerate(BETAS) if b <= beta)


def test_every_relation_has_a_name():
    found = rows(relations(contexts(matmul(), TARGET)), 1)
    assert found.shape == (len(relation_names()), 1)
    assert len(set(relation_names())) == len(relation_names())


def test_a_loop_counts_from_the_first_threshold_above_its_footprint():
    """One run of loop j touches one line of A, and 2.9375 of each of B and C: 440 bytes.
    One run of k: 1.9375 of A, 2.9375 of C, all 2 KB of B: 2420 bytes; one of i: all three."""
    got = curves(matmul(rows=4, inner=16, columns=32))["inside"][:, 0]
    assert got[below(439)] == 0
    assert got[below(1100)] == np.float32(32)
    assert got[below(2900)] == np.float32(512)
    assert got[below(8200)] == np.float32(2048)
    assert got[-1] == np.float32(2048)


def test_reuse_is_the_greatest_among_the_loops_that_fit():
    got = curves(matmul(rows=4, inner=16, columns=32))
    one_run = 32 / (1 + 31 / 16)
    assert got["vector.reuse"][below(1100), 0] == pytest.approx(one_run)
    whole = 2048 / (1 + (16 * 32 - 1) / 16)
    assert got["vector.reuse"][-1, 0] == pytest.approx(whole)
    assert got["broadcast.reuse"][below(1100), 0] == pytest.approx(32)


def test_relations_never_fall_as_the_threshold_rises():
    assert all((np.diff(curve, axis=0) >= 0).all() for curve in curves(matmul()).values())


def test_dead_loops_and_what_is_inside_do_not_count():
    x, y, z = Var("x"), Var("y"), Var("z")
    extent = np.array([0, 2])
    body = nest((y, extent), (z, 1000), body=fill(buffer("T", 10), (x,)))
    batch = tree(nest((x, 10), body=(body, fill(buffer("U", 10), (x,)))), n=2)
    got = curves(batch)["inside"]
    assert got[-1].tolist() == [10, 10 + 20_000]
    assert got[-1, 0] == curves(batch.row(0))["inside"][-1, 0]


def test_a_program_without_loops_has_no_relations():
    found = rows(relations(()), 3)
    assert not found.any()
    assert found.shape == (len(relation_names()), 3)


def test_traffic_is_what_is_touched_where_that_fits_and_repeats_where_it_does_not():
    (node,) = contexts(matmul(rows=4, inner=16, columns=32), TARGET)
    betas = np.array([64.0, 1000.0, 2700.0, 10_000.0])[:, None]
    run = 1 + 31 / 16  # lines of 32 neighbours
    b = 1 + 511 / 16  # lines of B
    row = 1 + 15 / 16  # lines of a row of A
    expected = [
        4 * 16 * 32 * 3,  # nothing fits: every access fetches
        4 * 16 * (1 + 2 * run),  # one run of j fits
        4 * (row + run + b),  # one of k
        (1 + 63 / 16) + (1 + 127 / 16) + b,  # all
    ]
    assert traffic(node, betas).ravel() == pytest.approx(expected)
