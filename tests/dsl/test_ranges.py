"""Range inference: which evidence decides an extent, and errors that name both places."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.dsl.errors import RangeError
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import defined
from tests.dsl.compute import compute, draw

i, j, k, r, y = lw.indices("i j k r y")


def define(index: Any, body: Any, shape: tuple[int, ...] | None = None) -> Tensor:
    t = lw.tensor("T", shape)
    t[index] = body
    return t


def extents(t: Tensor) -> dict[str, int]:
    return {index.name: extent for index, extent in defined(t).extents.items()}


def test_left_axes_come_first_then_those_reduced_in_order_of_appearance() -> None:
    a, b = lw.tensor("A", (2, 3, 5)), lw.tensor("B", (3, 7))
    t = define((i, j), lw.sum(a[j, k, r] * b[k, i]))
    assert extents(t) == {"i": 7, "j": 2, "k": 3, "r": 5}
    assert list(extents(t)) == ["i", "j", "k", "r"]


def test_a_window_gives_the_largest_range_that_stays_inside() -> None:
    x, w = lw.tensor("X", (13,)), lw.tensor("W", (4,))
    t = define(y, lw.sum(x[3 * y + 2 * r] * w[r]))
    assert extents(t) == {"y": 3, "r": 4}


@given(
    length=st.integers(1, 40),
    stride=st.integers(1, 5),
    dilation=st.integers(1, 4),
    taps=st.integers(1, 6),
    offset=st.integers(0, 3),
)
def test_the_derived_range_is_tight(
    length: int, stride: int, dilation: int, taps: int, offset: int
) -> None:
    reach = dilation * (taps - 1) + offset
    assume(reach < length)
    x, w = lw.tensor("X", (length,)), lw.tensor("W", (taps,))
    count = extents(define(y, lw.sum(x[y * stride + r * dilation + offset] * w[r])))["y"]
    assert (count - 1) * stride + reach < length <= count * stride + reach


@given(length=st.integers(1, 30), divisor=st.integers(1, 5), offset=st.integers(-6, 6))
def test_a_range_is_derived_through_a_quotient(length: int, divisor: int, offset: int) -> None:
    position = (i + offset) // divisor
    fitting = [n for n in range(300) if (n + offset) // divisor < length]
    x = lw.tensor("X", (length,))
    if offset < 0 or not fitting:
        with pytest.raises(RangeError):
            define(i, x[position])
    else:
        assert extents(define(i, x[position])) == {"i": len(fitting)}


def test_an_index_inside_and_outside_of_a_quotient_counts_both() -> None:
    x = lw.tensor("X", (10,))
    assert extents(define(i, x[i + i // 2])) == {"i": 7}


def test_guarded_reads_tell_a_range_only_if_nothing_else_does() -> None:
    x, v = lw.tensor("X", (5,)), lw.tensor("V", (9,))
    assert extents(define(i, lw.where(i < 5, x[i], 0))) == {"i": 5}
    assert extents(define(i, lw.where(i < 5, x[i], 0) * v[i])) == {"i": 9}
    assert extents(define(i, lw.where(i >= 2, x[i // 2 - 1], 0))) == {"i": 12}


def test_the_condition_of_where_is_not_guarded() -> None:
    x = lw.tensor("X", (5,))
    with pytest.raises(RangeError, match=r"T: i - 1 reaches -1 to 4, outside of axis 0 of X"):
        define(i, lw.where(x[i - 1] > 0, x[i], 0), (6,))


def test_declared_ranges_may_be_smaller_than_an_axis_but_not_larger() -> None:
    x = lw.tensor("X", (9,))
    (n,) = lw.indices(n=3)
    assert extents(define(n, x[2 * n])) == {"n": 3}
    assert extents(define(n, x[n])) == {"n": 3}
    (m,) = lw.indices(m=10)
    with pytest.raises(RangeError, match=r"m ranges over 10 by its declaration m=10, but over 9"):
        define(m, x[m])


def test_a_broadcast_axis_takes_its_range_from_the_shape() -> None:
    v = lw.tensor("V", (3,))
    t = define((i, j), v[j], (2, 3))
    array = draw(v)
    np.testing.assert_array_equal(compute(t, {v: array}), np.stack([array, array]))


A, B = lw.tensor("A", (4, 5)), lw.tensor("B", (6, 3))


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (
            lambda: define((i, j), lw.sum(A[i, k] * B[k, j])),
            r"index k ranges over 5 by axis 1 of A\[i, k\], but over 6 by axis 0 of B\[k, j\]",
        ),
        (lambda: define(i, A[i, 0] * 1.0, (7,)), r"over 7 by axis 0 of T, but over 4 by axis 0"),
        (lambda: define((i, j), A[i, 0]), r"the range of index j is not known.*lw.indices"),
        (lambda: define(i, lw.sum(A[i, r + y])), "the range of index r is not known"),
        (lambda: define(i, A[i, 5]), r"T: 5 is outside of axis 1 of A\[i, 5\].*give 0 to 4"),
        (lambda: define(i, A[i, -1]), r"T: -1 is outside of axis 1 of A\[i, -1\].*give 0 to 4"),
        (lambda: define(i, A[i + 1, 0], (4,)), r"i \+ 1 reaches 1 to 4.*i < 4 by axis 0 of T"),
        (lambda: define(i, A[i + 4, 0]), r"i \+ 4 leaves the axis of extent 4 even for i = 0"),
        (lambda: define(i, A[3 - i, 0]), "the range of index i is not known"),
        (lambda: define(i, A[i, 0], (4, 1)), r"T has shape \(4, 1\) but 1 indices"),
    ],
)
def test_ranges_that_disagree_are_explained(attempt: Any, message: str) -> None:
    with pytest.raises(RangeError, match=message):
        attempt()


def test_two_declarations_of_one_name_must_agree() -> None:
    (short,), (long,) = lw.indices(n=3), lw.indices(n=4)
    with pytest.raises(RangeError, match=r"index n ranges over 3 .* but over 4"):
        define(short, A[short, 0] * 0 + A[long, 1])


def test_a_stencil_that_leaves_its_tensor_is_told_the_range_that_suits_all_reads():
    U = lw.tensor("U", (37, 53))

    def stencil(i, j):
        T = lw.tensor("T")
        T[i, j] = U[i + 1, j] + U[i, j] + U[i + 2, j]
        return lw.workload(T)

    with pytest.raises(RangeError, match=r'shorter range: lw.indices\("i", i=35\)$'):
        stencil(*lw.indices("i j"))
    assert stencil(*lw.indices("i j", i=35)).outputs[0].shape == (35, 53)
