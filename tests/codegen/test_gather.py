"""Elements as subscripts, in compiled code."""

import platform
import re

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl.dtypes import DTYPES, INTEGERS, numpy_dtype

pytestmark = pytest.mark.optimized


def rows(table, at, **options):
    """table[at]"""
    x, n = lw.tensor("X", table.shape, str(table.dtype)), lw.tensor("N", at.shape, str(at.dtype))
    y = lw.tensor("Y")
    i, j = lw.indices("i j")
    y[i, j] = x[n[i], j]
    return np.asarray(lw.build(y, **options)(table, at))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_subscripts_of_all_types_stay_inside(dtype):
    info = np.iinfo(dtype)
    table = np.arange(300 * 9, dtype=np.float32).reshape(300, 9)
    ends = [info.min, info.max, 0, 1, 100, 5] + [-1, -2, -100] * (info.min < 0)
    at = np.array(ends, dtype)
    wide = [min(int(p), 299) for p in at]
    near = [max(p + 300, 0) if p < 0 else p for p in wide]
    np.testing.assert_array_equal(rows(table, at), table[near])
    np.testing.assert_array_equal(rows(table, at, target="c"), table[near])


def test_a_remainder_wraps_subscripts_around():
    table = np.arange(21, dtype=np.float32).reshape(7, 3)
    at = np.array([-50, -8, -7, -1, 0, 6, 7, 49])
    x, n, y = lw.tensor("X", table.shape), lw.tensor("N", at.shape, "int64"), lw.tensor("Y")
    i, j = lw.indices("i j")
    y[i, j] = x[n[i] % 7, j]
    np.testing.assert_array_equal(lw.build(y)(table, at), np.take(table, at, 0, mode="wrap"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tables_of_all_types_are_read(dtype):
    table = np.random.default_rng(0).integers(0, 2, (13, 37)).astype(numpy_dtype(dtype))
    at = np.array([0, -1, 12, 5, -13, 7, 7])
    np.testing.assert_array_equal(rows(table, at), table[at])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64's instructions")
def test_neighbours_in_a_row_are_loaded_as_vectors():
    x, n, y = lw.tensor("X", (30, 64)), lw.tensor("N", (8,), "int64"), lw.tensor("Y")
    i, j = lw.indices("i j")
    y[i, j] = x[n[i], j]
    assembly = lw.build(y, threads=1).source("asm")
    moved = re.findall(r"v?movups\s+\(.*\), %[xyz]mm", assembly)
    assert moved
