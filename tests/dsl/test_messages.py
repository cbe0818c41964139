"""Notation that looks right and is not: each error names the remedy."""

from __future__ import annotations

import math

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl.errors import NotationError
from loopwright.dsl.oracle import evaluate

i, j, k = lw.indices("i j k")
A, B = lw.tensor("A", (8, 8)), lw.tensor("B", (8, 8))
LONG = lw.tensor("LONG", (9, 9))


def subtracted():
    C = lw.tensor("C")
    C[i, j] -= A[i, j]


def multiplied():
    C = lw.tensor("C")
    C[i, j] *= A[i, j]


def multiplied_as_matrices():
    C = lw.tensor("C")
    C[i, j] @= A[i, j]


def multiplied_where_a_shape_is():
    C = lw.tensor("C", (8, 8))
    C[i, j] *= A[i, j]


def unknown_range():
    C = lw.tensor("C")
    C[i] = A[i + j, 0]


def defined_twice():
    C = lw.tensor("C")
    C[i, j] = A[i, j]
    C[i, j] -= B[i, j]


def ranges():
    C = lw.tensor("C")
    C[i, j] = A[i, j] + LONG[i, j]


CASES = [
    (subtracted, r"C\[…\] \+= -\(…\)"),
    (multiplied, r"lw\.prod"),
    (multiplied_as_matrices, r"lw\.prod"),
    (multiplied_where_a_shape_is, r"\+= alone"),
    (unknown_range, r'lw\.indices\("i", i=3\), or give C its shape'),
    (defined_twice, "already defined; .* name of its own"),
    (ranges, r'lw\.indices\("i", i=8\)'),
    (lambda: A @ B, r"lw\.ops\.matmul\(A, B\)"),
    (lambda: A @ np.ones((8, 8)), r"lw\.ops\.matmul"),
    (lambda: np.ones((8, 8)) @ A, r"lw\.ops\.matmul"),
    (lambda: A[i, k] @ B[k, j], r"A\[i, k\] \* B\[k, j\]"),
    (lambda: A + B, r"write its indices, A\[i, j\]"),
    (lambda: 2 * A, r"write its indices, A\[i, j\]"),
    (lambda: abs(A), r"write its indices, A\[i, j\]"),
    (lambda: np.exp(A), r"write its indices, A\[i, j\]"),
    (lambda: A[i, B[i, j]], r"lw\.cast"),
    (lambda: A[i, j] * np.ones((8, 8)), r'lw\.tensor\("T", \(8, 8\)\)'),
    (lambda: np.ones((8, 8)) * A[i, j], r'lw\.tensor\("T", \(8, 8\)\)'),
    (lambda: np.cbrt(A[i, j]), "np.cbrt .* no such function"),
    (lambda: np.add.reduce(A[i, j]), "np.add .* no such function"),
    (lambda: np.sinc(A[i, j]), "np.sinc .* no such function"),
    (lambda: np.where(A[i, j] > 0, A[i, j], 0), r"write lw\.where"),
    (lambda: np.sum(A[i, j]), r"write lw\.sum"),
    (lambda: math.exp(A[i, j]), r"lw\.exp\(x\), not math"),
    (lambda: int(A[i, j]), r"lw\.cast in place of float and int"),
    (lambda: np.ones((8, 8))[i, j + 1], r'lw\.tensor\("T", array\.shape\)'),
    (lambda: A.T, r"no \.T: define .* T\[j, i\] = A\[i, j\]"),
    (lambda: A.sum(), r"no \.sum: define"),
    (lambda: A[i, j].astype("int32"), r"no \.astype: .*lw\.cast"),
    (lambda: sum(A[i, j]), r"lw\.sum\(x\)"),
    (lambda: max(A[i, j]), r"lw\.max\(x, y\)"),
    (lambda: A[:, j], r"name each of them, A\[i, j\]"),
    (lambda: A[..., j], r"name each of them, A\[i, j\]"),
]


@pytest.mark.parametrize(("write", "remedy"), CASES)
def test_an_error_of_the_notation_names_the_remedy(write, remedy):
    with pytest.raises(NotationError, match=remedy) as caught:
        write()
    assert len(str(caught.value)) < 400


def test_a_declared_range_reads_the_beginning_as_the_message_says():
    short, j8 = lw.indices("i j", i=8, j=8)
    C = lw.tensor("C")
    C[short, j8] = A[short, j8] + LONG[short, j8]
    assert C.shape == (8, 8)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda x: lw.exp(x), lambda x: np.exp(x)),
        (lambda x: lw.max(x, 0), lambda x: np.maximum(x, 0)),
        (lambda x: x * 2, lambda x: np.float32(2) * x),
        (lambda x: 2 - x, lambda x: np.float32(2) - x),
        (lambda x: x > 1, lambda x: np.float32(1) < x),
        (lambda x: x**0.5, lambda x: np.sqrt(x)),
    ],
)
def test_functions_of_numpy_are_those_of_the_notation(ours, theirs):
    def built(f):
        C = lw.tensor("C")
        C[i, j] = lw.cast(f(A[i, j]), "float32")
        X = np.linspace(0.5, 2, 64, dtype=np.float32).reshape(8, 8)
        return evaluate(lw.workload(C), {"A": X})[0]

    np.testing.assert_array_equal(built(ours), built(theirs))


def test_expressions_are_shown_as_they_are_written():
    i, k = lw.indices("i k")
    a = lw.tensor("A", (3, 4))
    assert repr(lw.exp(a[i, k] - 1) * 2) == "exp(A[i, k] - 1.0) * 2.0"
    assert repr(lw.where(i < k, a[i, k], 0)) == "where(i < k, A[i, k], 0.0)"
