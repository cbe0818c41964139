"""Which copies are none: their elements lie in the input as they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.dsl.index import Affine, Index, position
from loopwright.graph.transforms.reshape import only_reshapes, view_offset, without_remainders

AXES = tuple(map(Index, "ijk"))


def forms():
    """Index expressions over three axes, with quotients and remainders in each other."""
    plain = st.builds(
        lambda c, const: sum((a * n for a, n in zip(AXES, c, strict=True)), Affine((), const)),
        st.tuples(*[st.sampled_from((0, 1, 2, 3, 4, 6, 16, -1))] * 3),
        st.integers(-3, 7),
    )
    divisors = st.sampled_from((1, 2, 3, 4, 6, 8, 12, 64))
    return st.recursive(
        plain,
        lambda inner: (
            st.builds(lambda x, d: x // d, inner, divisors)
            | st.builds(lambda x, d: x % d, inner, divisors)
            | st.builds(lambda x, y, c: x * c + y, inner, inner, st.integers(-2, 4))
        ),
        max_leaves=4,
    )


@given(forms(), st.tuples(*[st.integers(1, 9)] * 3))
def test_an_expression_without_remainders_has_the_same_values(form, shape):
    extents = dict(zip(AXES, shape, strict=True))
    grid = dict(zip(AXES, np.indices(shape, sparse=True), strict=True))
    made = position(without_remainders(form, extents), grid)
    np.testing.assert_array_equal(
        np.broadcast_to(made, shape), np.broadcast_to(position(form, grid), shape)
    )


def copy(source, shape, places):
    i = tuple(Index(f"i{n}", extent) for n, extent in enumerate(shape))
    X, Y = lw.tensor("X", source), lw.tensor("Y", shape)
    Y[i] = X[tuple(places(*i))]
    return lw.workload(Y)


@pytest.mark.parametrize("rows", [2, 1 << 20])  # however many elements there are
@pytest.mark.parametrize(
    ("source", "shape", "places", "offset"),
    [
        ((1, 64), (4, 16), lambda i, j: (0 * i, 16 * i + j), 0),
        ((4, 16), (1, 64), lambda i, j: (j // 16, j % 16), 0),
        ((10, 21), (14, 15), lambda i, j: ((15 * i + j) // 21, (15 * i + j) % 21), 0),
        ((2, 7, 5), (3, 1, 5), lambda i, j, k: (1 + j, i + 2, k), 45),
        ((2, 7, 5), (2, 3, 5), lambda i, j, k: (i, j, k), None),  # has gaps
        ((4, 16), (16, 4), lambda i, j: (j, i), None),
        ((4, 16), (4, 16), lambda i, j: (i, 15 - j), None),
        ((4, 16), (4, 16), lambda i, j: (i, j // 2), None),
    ],
)
def test_a_view_is_found_by_its_indices(rows, source, shape, places, offset):
    size = int(np.prod(source[1:]))
    whole = copy(
        (rows, *source), (rows, *shape), lambda n, *i: (n, *places(*i))
    )  # of which the first axis is kept
    part = copy(source, shape, places)
    assert view_offset(part) == offset
    everything = offset == 0 and int(np.prod(shape)) == size * source[0]
    assert view_offset(whole) == (0 if everything else None)
    assert only_reshapes(whole) is everything
