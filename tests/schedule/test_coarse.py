"""Families that follow a dim in steps alone."""

from loopwright.dsl.size import Dim
from loopwright.schedule.open.coarse import coarse
from loopwright.schedule.open.family import Family
from loopwright.schedule.open.numbers import over
from loopwright.schedule.open.rule import Rule
from loopwright.schedule.tree.formula import Formula
from loopwright.schedule.tree.grammar import Buffer, Tree

N, H, W = Dim("n", 1, 4, 1), Dim("h", 32, 128, 1), Dim("w", 32, 128, 2)
DIMS = (N, H, W)


def family(h, dims=DIMS):
    """Copies of an array of n by some extent."""
    n = Formula.of(N)
    body = ["read", "x", [[[["i", 1]], 0], [[["j", 1]], 0]]]
    out = {"name": "y", "shape": [n, h], "dtype": "float32", "axes": [["i", n], ["j", h]]}
    out |= {"reduce": [], "reducer": None, "body": body}
    given = {"name": "x", "shape": [n, h], "dtype": "float32"}
    return Family(dims, {"schema": 1, "tensors": [given, out], "outputs": ["y"]})


def test_a_family_that_follows_a_dim_in_steps_is_one_over_these():
    whole = family((Formula.of(H) + 31) // 32 * 2)
    made = coarse(whole)
    assert [(d.name, d.low, d.high) for d in made.family.dims] == [
        ("n", 1, 4),
        ("h", 1, 4),
        ("w", 1, 1),  # which it does not follow
    ]
    for h in range(32, 129):
        steps = made.family.at(n=3, h=-(-h // 32), w=1)
        assert steps.key == whole.at(n=3, h=h, w=32).key


def test_quotients_of_quotients_are_counted_by_the_inner_one():
    h = Formula.of(H)
    whole = family((h + 10) // 10 + (h + 30) // 20)
    made = coarse(whole)
    assert [(d.low, d.high) for d in made.family.dims] == [(1, 4), (4, 13), (1, 1)]
    for size in range(32, 129):
        steps = made.family.at(n=3, h=(size + 10) // 10, w=1)
        assert steps.key == whole.at(n=3, h=size, w=32).key


def test_quotients_that_step_at_other_places_keep_the_dim():
    h = Formula.of(H)
    assert coarse(family((h + 10) // 10 + (h + 25) // 20)).family.dims[:2] == (N, H)
    assert coarse(family(h // 10 + h // 15)).family.dims[:2] == (N, H)


def test_steps_that_begin_at_zero_are_counted_from_one():
    whole = family((Formula.of(H) - 32) // 32 * 2 + 5)
    made = coarse(whole)
    assert [(d.low, d.high) for d in made.family.dims] == [(1, 4), (1, 4), (1, 1)]
    for h in (32, 63, 64, 127, 128):
        assert made.family.at(n=3, h=h // 32, w=1).key == whole.at(n=3, h=h, w=32).key
    assert made.rule(Rule(((2, 4), (2, 3), (1, 1)), 5)) == Rule(((2, 4), (64, 127), (32, 128)), 5)


def test_bounds_of_steps_are_those_of_the_dim():
    made = coarse(family((Formula.of(H) + 31) // 32 * 2))
    assert made.rule(Rule(((2, 4), (2, 3), (1, 1)), 5)) == Rule(((2, 4), (33, 96), (32, 128)), 5)


def test_a_family_that_follows_a_dim_and_its_steps_keeps_the_dim():
    h = Formula.of(H)
    assert coarse(family(h + h // 32)).family.dims[:2] == (N, H)


def test_a_quotient_that_leaves_out_numbers_is_no_dim():
    made = coarse(family(Formula.of(W) // 1 * 3 // 2))
    assert made.family.dims[2] == W


def test_formulas_of_trees_are_those_of_the_dim_again():
    rows = Buffer("x", (Formula.of(Dim("h", 1, 4, 1)) * 8,), "float32", "global")
    tree = over(Tree(1, (rows,), (), (), (), (), ()), {"h": (Formula.of(H) + 31) // 32})
    assert tree.inputs[0].shape[0].at({"h": 65}) == 24
