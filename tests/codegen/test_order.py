"""Rows in order by the run-time, beside a stable sort of NumPy's."""

import ctypes
import subprocess

import ml_dtypes
import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen import order
from loopwright.codegen.library import linker
from loopwright.dsl.dtypes import numpy_dtype
from loopwright.dsl.errors import BuildError, NotationError

SOURCE = """#include "base.c"
int in_order(void *places, int step, int wanted, const void *row, int row_step, int extent,
             int kind, int greatest, void *items) {
  return lw_order(places, step, wanted, row, row_step, extent, kind, greatest, items);
}
"""


@pytest.fixture(scope="module")
def in_order(tmp_path_factory):
    """The first places of a row, by the run-time's C; a wrong shift or index ends the process."""
    folder = tmp_path_factory.mktemp("order")
    (folder / "order.c").write_text(SOURCE)
    flags = ["-std=c11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-pthread"]
    trap = ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
    command = ["cc", *flags, *trap, f"-I{linker.RUNTIME}", "order.c", "-o", "order.so"]
    subprocess.run(command, cwd=folder, check=True)
    function = ctypes.CDLL(str(folder / "order.so")).in_order

    def call(row, k, greatest, apart=1):
        kind = order.KINDS.index(row.dtype.name)
        spread = np.zeros((len(row), apart), row.dtype)
        spread[:, 0] = row
        places = np.full((k + 1, 2), -1, np.int32)
        items = np.zeros(len(row) * order.words(row.dtype.name) + 1, np.uint64)
        given = (np.ctypeslib.as_ctypes(a.view(np.uint8).ravel()) for a in (places, spread, items))
        at, elements, kept = given
        assert function(at, 2, k, elements, apart, len(row), kind, int(greatest), kept) == 0
        assert items[-1] == 0
        assert np.all(places[:, 1] == -1)
        assert places[k, 0] == -1
        return places[:k, 0]

    return call


def drawn(dtype, n, rng):
    """All values of a type, many of them twice: NaN and zeros of both signs, denormals, limits."""
    kind = numpy_dtype(dtype)
    row = rng.integers(0, 256, (n, kind.itemsize), np.uint8).view(kind).ravel()
    row[rng.integers(0, n, n // 4)] = row[rng.integers(0, n, n // 4)]
    if kind.kind not in "iu":
        special = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 2.0]
        row[rng.integers(0, n, n // 2)] = np.array(special, kind)[rng.integers(0, 8, n // 2)]
    return row


def expected(row, greatest):
    key = row.astype(np.float32) if row.dtype == ml_dtypes.bfloat16 else row
    if greatest:
        return (len(row) - 1 - np.argsort(key[::-1], kind="stable"))[::-1]
    return np.argsort(key, kind="stable")


@pytest.mark.parametrize("greatest", [True, False])
@pytest.mark.parametrize("dtype", order.KINDS)
def test_places_are_those_of_a_stable_sort(in_order, dtype, greatest):
    rng = np.random.default_rng(0)
    for n in (1, 2, 63, 64, 65, 257, 3001):
        row = drawn(dtype, n, rng)
        places = expected(row, greatest)
        for k in {1, min(n, 5), max(1, n // 16), n}:
            for apart in (1, 3):
                np.testing.assert_array_equal(in_order(row, k, greatest, apart), places[:k])


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_rows_that_are_in_the_opposite_order_are_no_worse(in_order, dtype):
    row = np.arange(5000).astype(dtype)
    np.testing.assert_array_equal(in_order(row, 100, True), np.arange(4999, 4899, -1))
    np.testing.assert_array_equal(in_order(row, 100, False), np.arange(100))


@pytest.mark.parametrize("target", ["cpu", "c"])
@pytest.mark.parametrize("shape", [(70, 90), (2, 3, 40, 5)])
def test_libraries_order_along_any_axis(shape, target):
    x = lw.tensor("X", shape)
    a = np.round(np.random.default_rng(0).standard_normal(shape) * 9).astype(np.float32)
    w = lw.workload(*lw.ops.topk(x, 30, -2), lw.ops.sort(x, -2))
    values, places, whole = lw.build(w, target=target)(a)
    order = np.argsort(-a, -2, kind="stable")[..., :30, :]
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(a, order, -2))
    np.testing.assert_array_equal(whole, np.sort(a, -2))


@pytest.mark.parametrize("n", [9, 100])
def test_what_is_computed_is_put_in_order_as_it_is(n):
    x, i, j = lw.tensor("X", (4, n)), *lw.indices("i j")
    y = lw.tensor("Y", (4, n))
    y[i, j] = x[i, n - 1 - j] * x[i, j]
    library = lw.build(lw.workload(*lw.ops.topk(y, 6), lw.ops.argsort(x, descending=True)))
    a = np.random.default_rng(0).standard_normal((4, n)).astype(np.float32)
    product = a[:, ::-1] * a
    values, places, order = library(a)
    np.testing.assert_array_equal(places, np.argsort(-product, kind="stable")[:, :6])
    np.testing.assert_array_equal(values, np.take_along_axis(product, places, 1))
    np.testing.assert_array_equal(order, np.argsort(-a, kind="stable"))


def test_an_axis_of_open_size_is_put_in_order(tmp_path):
    n = lw.dim("n", 9, 80)
    x = lw.tensor("X", (3, n))
    lw.build(lw.workload(lw.ops.sort(x), lw.ops.topk(x, 9)[1])).export(tmp_path / "rows.so")
    library = lw.load(tmp_path / "rows.so")
    for size in (9, 16, 17, 79, 80):
        a = np.random.default_rng(size).integers(-99, 99, (3, size)).astype(np.float32)
        ordered, places = library(a)
        np.testing.assert_array_equal(ordered, np.sort(a))
        np.testing.assert_array_equal(places, np.argsort(-a, kind="stable")[:, :9])


def test_more_elements_than_an_open_axis_may_have_are_an_error():
    x = lw.tensor("X", (3, lw.dim("n", 5, 2000)))
    with pytest.raises(NotationError, match="k is 6; it is an integer from 0 to 5"):
        lw.ops.topk(x, 6)


def test_an_axis_without_elements_is_put_in_order():
    values, places = lw.build(lw.workload(*lw.ops.topk(lw.tensor("X", (3, 0)), 0)))(
        np.zeros((3, 0), np.float32)
    )
    assert values.shape == places.shape == (3, 0)
    x = lw.tensor("X", (3, lw.dim("n", 5, 20)))
    with pytest.raises(NotationError, match="no elements at any size"):
        lw.build(lw.workload(lw.ops.sort(x), lw.ops.topk(x, 0)[0]))


def test_a_row_that_is_too_long_is_refused_by_its_size():
    with pytest.raises(BuildError, match="items has 2147483648 elements"):
        lw.build(lw.ops.sort(lw.tensor("X", (1 << 30,))))


def test_c_source_calls_the_run_time():
    library = lw.build(lw.ops.argsort(lw.tensor("X", (4, 100))), target="c")
    assert "lw_order(" in library.source("c")
