"""Index expressions: their normal form, bounds, printing and errors."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.dsl.errors import NotationError
from loopwright.dsl.index import Affine, Index, IndexExpr, Quotient, as_affine

i, j, k = (Index(name) for name in "ijk")
EXTENTS = {i: 5, j: 3, k: 7}


def value(x: IndexExpr | int, at: dict[Index, int]) -> int:
    """An index expression evaluated by Python's own integers."""
    form = as_affine(x)
    total = form.const
    for atom, coefficient in form.terms:
        if isinstance(atom, Index):
            total += coefficient * at[atom]
        elif isinstance(atom, Quotient):
            total += coefficient * (value(atom.value, at) // atom.divisor)
        else:
            total += coefficient * (value(atom.value, at) % atom.divisor)
    return total


def points() -> list[dict[Index, int]]:
    return [dict(zip(EXTENTS, spot, strict=True)) for spot in np.ndindex(*EXTENTS.values())]


# An expression is drawn together with a function that computes it without the library.
Drawn = tuple[IndexExpr, Callable[[dict[Index, int]], int]]


def leaf(index: Index) -> Drawn:
    return index, lambda at: at[index]


def sum_of(x: Drawn, y: Drawn, a: int, b: int, c: int) -> Drawn:
    return a * x[0] + y[0] * b + c, lambda at: a * x[1](at) + b * y[1](at) + c


def difference(x: Drawn, y: Drawn, c: int) -> Drawn:
    return c - (x[0] - y[0]), lambda at: c - (x[1](at) - y[1](at))


def divided(x: Drawn, divisor: int) -> Drawn:
    return x[0] // divisor, lambda at: x[1](at) // divisor


def remainder(x: Drawn, divisor: int) -> Drawn:
    return x[0] % divisor, lambda at: x[1](at) % divisor


SMALL = st.integers(-6, 6)
DIVISORS = st.integers(1, 6)
EXPRESSIONS: st.SearchStrategy[Drawn] = st.recursive(
    st.sampled_from([i, j, k]).map(leaf),
    lambda inner: st.one_of(
        st.builds(sum_of, inner, inner, SMALL, SMALL, SMALL),
        st.builds(difference, inner, inner, SMALL),
        st.builds(divided, inner, DIVISORS),
        st.builds(remainder, inner, DIVISORS),
    ),
    max_leaves=6,
)


@given(EXPRESSIONS)
def test_the_normal_form_has_the_value_of_what_was_written(drawn: Drawn) -> None:
    expression, function = drawn
    assert [value(expression, at) for at in points()] == [function(at) for at in points()]


@given(EXPRESSIONS)
def test_bounds_hold_every_value(drawn: Drawn) -> None:
    low, high = drawn[0].affine().bounds(EXTENTS)
    values = [value(drawn[0], at) for at in points()]
    assert low <= min(values)
    assert max(values) <= high


@given(EXPRESSIONS)
def test_replacing_an_index_is_substitution(drawn: Drawn) -> None:
    form = drawn[0].affine()
    new = {i: j + 2 * k, j: as_affine(1), k: i % 3 + 4}
    replaced = form.replace(new.__getitem__)
    for at in points():
        assert value(replaced, at) == value(form, {i: value(e, at) for i, e in new.items()})


@given(EXPRESSIONS)
def test_what_is_printed_is_python_for_the_same_value(drawn: Drawn) -> None:
    for at in points()[::17]:
        names = {index.name: number for index, number in at.items()}
        assert eval(str(drawn[0]), names) == value(drawn[0], at)


@given(EXPRESSIONS)
def test_the_normal_form_is_stable(drawn: Drawn) -> None:
    form = drawn[0].affine()
    assert form.replace(lambda index: index) == form


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (2 * i + j, "2*i + j"),
        (i + j - i, "j"),
        (i - j - 1, "i - j - 1"),
        (4 - i, "4 - i"),
        (-i, "-i"),
        (-i - 2, "-i - 2"),
        (3 - 2 * i + j, "3 - 2*i + j"),
        (i * 0, "0"),
        (i + 3 - 5, "i - 2"),
        (i // 2, "i // 2"),
        ((i + 1) % 4, "(i + 1) % 4"),
        (3 * (i // 4) + j, "3*(i // 4) + j"),
        (i // 2 // 3, "(i // 2) // 3"),
    ],
)
def test_expressions_print_as_they_are_written(expression: Affine, text: str) -> None:
    assert str(expression) == text


def test_multiples_leave_the_quotient_and_the_remainder() -> None:
    assert (4 * i + j) // 4 == i + j // 4
    assert (4 * i + j) % 4 == j % 4
    assert (8 * i + 6) // 2 == 4 * i + 3
    assert as_affine(0) == (8 * i + 6) % 2
    assert i.affine() == i // 1


def test_an_expression_is_plain_only_if_it_is_one_index() -> None:
    assert (i + 0).plain() == i
    assert (2 * i).plain() is None
    assert (i + 1).plain() is None
    assert (i // 2).plain() is None
    assert as_affine(0).plain() is None


def test_integers_of_numpy_are_integers() -> None:
    two = np.int64(2)
    assert two * i + two == i * 2 + 2
    assert i * two - two == 2 * i - 2
    assert (i + 1) // two == (i + 1) // 2
    assert i % two == i % 2
    assert str(two <= i) == str(i >= 2)
    assert lw.indices("a", b=np.int64(3))[1].extent == 3


@pytest.mark.parametrize("operation", [operator.mul, operator.truediv])
def test_what_is_not_affine_is_refused(operation: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(NotationError, match=r"\bi\b.*\bj\b"):
        operation(i, j)


@pytest.mark.parametrize("divisor", [0, -2, 1.5, True])
def test_a_divisor_is_a_positive_integer(divisor: Any) -> None:
    with pytest.raises(NotationError, match="positive integer"):
        i // divisor
    with pytest.raises(NotationError, match="positive integer"):
        i % divisor


@pytest.mark.parametrize("wrong", [1.0, "i", None, True])
def test_only_integers_and_indices_make_an_index_expression(wrong: Any) -> None:
    with pytest.raises(NotationError, match="not an index expression"):
        as_affine(wrong)
    with pytest.raises(NotationError, match="is no index"):
        i + (wrong if wrong is not True else 1.0)
    with pytest.raises(TypeError):
        i + [1]


def test_indices_are_made_from_names_and_extents() -> None:
    assert [i.name for i in lw.indices("i, j k")] == ["i", "j", "k"]
    assert [(i.name, i.extent) for i in lw.indices("y r", r=3, s=2)] == [
        ("y", None),
        ("r", 3),
        ("s", 2),
    ]
    assert lw.indices(names=4)[0] == Index("names")


@pytest.mark.parametrize(
    ("names", "extents", "message"),
    [
        ("i i", {}, "twice"),
        ("2i", {}, "'2i' cannot name an index"),
        ("i", {"r": -1}, "extent of index r is -1"),
        ("i", {"r": 2.0}, "extent of index r is 2.0"),
        ("i", {"r": True}, "extent of index r is True"),
    ],
)
def test_bad_names_and_extents_are_refused(
    names: str, extents: dict[str, Any], message: str
) -> None:
    with pytest.raises(NotationError, match=message):
        lw.indices(names, **extents)
