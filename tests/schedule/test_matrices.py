"""The matrices of bilinear algorithms compute convolutions, exactly."""

from fractions import Fraction
from itertools import product
from random import Random

import pytest

from loopwright.schedule.rewrites.bilinear.matrices import bilinear


def times(matrix, vector):
    return [sum(a * x for a, x in zip(row, vector, strict=True)) for row in matrix]


@pytest.mark.parametrize(
    ("results", "taps"), [case for case in product(range(1, 6), range(1, 6)) if sum(case) <= 9]
)
def test_an_algorithm_computes_the_convolution_exactly(results, taps):
    found, rng = bilinear(results, taps), Random(0)
    g = [Fraction(rng.randint(-9, 9)) for _ in range(taps)]
    d = [Fraction(rng.randint(-9, 9)) for _ in range(results + taps - 1)]
    products = [a * b for a, b in zip(times(found.inner, g), times(found.data, d), strict=True)]
    expected = [sum(d[j + q] * g[q] for q in range(taps)) for j in range(results)]
    assert times(found.outer, products) == expected


def test_multiplications_are_those_of_winograd():
    assert bilinear(2, 3).products == 4
    assert bilinear(4, 3).products == 6
    assert bilinear(2, 1).products == 2


def test_errors_grow_with_the_tile():
    assert (
        1 < bilinear(2, 3).error_growth < bilinear(4, 3).error_growth < bilinear(5, 3).error_growth
    )
