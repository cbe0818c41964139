"""The oracle against NumPy said directly, slab by slab and at once."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.dsl import oracle
from loopwright.dsl.errors import NotationError, ShapeError
from loopwright.dsl.oracle import evaluate, evaluation, random_inputs, tolerance
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import defined, workload
from tests.dsl.compute import compute, draw

i, j, k, r = lw.indices("i j k r")


def correlation() -> tuple[Tensor, Tensor, Tensor]:
    x, w, t = lw.tensor("x", (3, 17)), lw.tensor("w", (4,)), lw.tensor("T")
    t[i, j] += x[i, 2 * j + r] * w[r]
    return x, w, t


@pytest.mark.parametrize("chunk", [1, 7, 60, 1 << 22])
def test_slabs_give_what_the_whole_gives(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_CHUNK", chunk)
    x, w, t = correlation()
    a, b = draw(x), draw(w)
    windows = np.lib.stride_tricks.sliding_window_view(a, 4, axis=1)[:, ::2]
    np.testing.assert_allclose(compute(t, {x: a, w: b}), windows @ b, rtol=1e-5, atol=1e-6)
    most = lw.tensor("M")
    most[i, j] = lw.max(x[i, 2 * j + r] + w[r])
    np.testing.assert_array_equal(compute(most, {x: a, w: b}), (windows + b).max(-1))
    total = lw.tensor("S")
    total[()] = lw.min(x[i, j])
    assert compute(total, {x: a}) == a.min()


@given(chunk=st.integers(1, 50), m=st.integers(1, 9), n=st.integers(1, 9), product=st.booleans())
def test_slabs_cover_a_result_once(chunk: int, m: int, n: int, product: bool) -> None:
    x, y, t = lw.tensor("x", (m, 3)), lw.tensor("y", (3, n)), lw.tensor("T")
    t[i, j] += x[i, k] * y[k, j] if product else x[i, k] + y[k, j]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "_CHUNK", chunk)
        count = np.zeros((m, n), int)
        for rows, columns in evaluation._slabs(defined(t)):
            count[rows, columns] += 1
            wide, high = count[rows, columns].shape
            held = max(wide, high) if product else wide * high
            assert 3 * held <= max(chunk, 3)
    assert (count == 1).all()


def test_places_are_read_one_by_one_or_as_a_box() -> None:
    x = np.arange(6 * 7 * 8).reshape(6, 7, 8)
    a, b, c = np.ix_(np.arange(1, 4), np.arange(6), np.arange(2))
    at = np.asarray(3)
    every = [(a, b, c), (c, a, b), (b, at, a), (at, at, at), (a, a, c), (a, 5 - b, c)]
    every += [(a, b + c, b), (a % 2, b, c), (a[:0], b, c), (a, b[..., 0], a), (0 * a, b, 2 + c)]
    for where in every:
        np.testing.assert_array_equal(evaluation._elements(x, where), x[where], strict=True)


@given(
    extents=st.lists(st.integers(1, 3), min_size=4, max_size=4),
    left=st.sets(st.sampled_from("ijkr")),
    right=st.sets(st.sampled_from("ijkr")),
    kept=st.sets(st.sampled_from("ijkr")),
)
def test_sums_of_products_are_those_of_einsum(
    extents: list[int], left: set[str], right: set[str], kept: set[str]
) -> None:
    """The result may have axes that neither factor has."""
    sizes = dict(zip("ijkr", extents, strict=True))
    index = {index.name: index for index in lw.indices(**sizes)}
    parts = {"x": sorted(left), "y": sorted(right), "T": sorted(kept)}
    x, y, t = (lw.tensor(name, [sizes[n] for n in axes]) for name, axes in parts.items())
    at = {name: tuple(index[n] for n in axes) for name, axes in parts.items()}
    t[at["T"]] += x[at["x"]] * y[at["y"]]
    a, b = draw(x), draw(y)
    spec = ",".join("".join(axes) for axes in parts.values()) + "->" + "".join(sorted(kept))
    expected = np.einsum(spec, a, b, np.ones([sizes[n] for n in sorted(kept)]))
    np.testing.assert_allclose(compute(t, {x: a, y: b}), expected, rtol=1e-5, atol=1e-5)


def test_integers_wrap_as_their_type_does() -> None:
    x, t = lw.tensor("x", (300,), "int8"), lw.tensor("T")
    t[()] = lw.sum(x[i])
    assert compute(t, {x: np.ones(300, np.int8)}) == 44
    u, y = lw.tensor("U"), lw.tensor("y", (2,), "uint8")
    u[i] = y[i] - 1
    np.testing.assert_array_equal(compute(u, {y: np.array([0, 2], np.uint8)}), [255, 1])


def test_stages_round_once_to_their_type() -> None:
    x, t, u = lw.tensor("x", (1,), "float16"), lw.tensor("T"), lw.tensor("U")
    t[i] = x[i] + 0.0001
    u[i] = lw.cast(lw.cast(x[i], "float32") + 0.0001, "float16") - x[i]
    one = np.ones(1, np.float16)
    assert compute(t, {x: one}) == np.float16(1.0001)
    assert compute(u, {x: one}) == np.float16(1.0001) - 1


def test_several_outputs_come_in_the_order_asked_for() -> None:
    x = lw.tensor("x", (5,))
    a, b = lw.tensor("a"), lw.tensor("b")
    a[i] = x[i] + 1
    b[i] = a[i] * 2
    array = draw(x)
    second, first = evaluate(workload(b, a), [array])
    np.testing.assert_allclose(first, array + 1, rtol=1e-6)
    np.testing.assert_allclose(second, (array + 1) * 2, rtol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([np.ones((3, 17), np.float32)], r"2 inputs \(x, w\), got 1"),
        ({"x": np.ones((3, 17), np.float32)}, "the inputs are x, w; got x"),
        (
            [np.ones((3, 16), np.float32), np.ones(4, np.float32)],
            r"x is float32\[3, 17\], got float32\[3, 16\]",
        ),
        ([np.ones((3, 17)), np.ones(4, np.float32)], r"x is float32.*got float64"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        evaluate(workload(correlation()[2]), inputs)


def test_random_inputs_fit_the_workload_and_follow_the_generator() -> None:
    x, n, p = lw.tensor("x", (7,)), lw.tensor("n", (7,), "uint8"), lw.tensor("p", (7,), "bool")
    t = lw.tensor("T")
    t[i] = lw.where(p[i], x[i], lw.cast(n[i], "float32"))
    made = workload(t)
    first = random_inputs(made, np.random.default_rng(3))
    again = random_inputs(made, np.random.default_rng(3))
    assert [a.dtype.name for a in first] == [t.dtype for t in made.inputs]
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    evaluate(made, first)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_tolerance_covers_honest_rounding_and_no_real_error(dtype: str) -> None:
    x, w = lw.tensor("x", (31, 97), dtype), lw.tensor("w", (97, 29), dtype)
    made = workload(lw.einsum("ik,kj", x, w))
    a, b = random_inputs(made, np.random.default_rng(0))
    (exact,) = evaluate(made, (a, b))
    rtol, atol = tolerance(made)

    def plain_loop(kept: Any) -> Any:
        """The sum rounded to a type at every step, and to its own at the end."""
        total = np.zeros((31, 29), kept)
        for step in range(97):
            total = total + a[:, step, None].astype(kept) * b[None, step].astype(kept)
        return total.astype(a.dtype).astype(np.float64)

    one, two = plain_loop(np.float32), exact.astype(np.float64)
    np.testing.assert_allclose(one, two, rtol=rtol, atol=atol)
    if dtype != "float32":  # a sum in half precision is wrong
        assert not np.allclose(plain_loop(a.dtype), two, rtol=rtol, atol=atol)
    dropped = two - a[:, :1].astype(np.float64) * b[:1].astype(np.float64)
    assert not np.allclose(dropped, two, rtol=rtol, atol=atol)


def test_exact_types_have_no_tolerance() -> None:
    x = lw.tensor("x", (3, 5), "int32")
    assert tolerance(workload(lw.einsum("ij->i", x))) == (0.0, 0.0)


def test_slack_is_where_a_quotient_or_an_exponential_makes_much_of_rounding() -> None:
    x, total, quotient = lw.tensor("X", (4096, 64)), lw.tensor("S"), lw.tensor("Q")
    total[i] += x[i, k]
    quotient[i, k] = x[i, k] / total[i]
    w = workload(quotient)
    (drawn,) = random_inputs(w, np.random.default_rng(0))
    (exact,) = evaluate(w, [drawn])
    (slack,) = oracle.slack(w, [drawn], [exact])
    rtol, atol = tolerance(w)
    summed = np.add.accumulate(drawn, axis=1, dtype=np.float32)[:, -1:]
    off = np.abs(drawn / summed - exact) - atol - rtol * np.abs(exact)
    assert (off > 0).any()  # the tolerance alone would call NumPy's own float32 wrong
    assert (off <= slack).all()
    assert np.median(slack) == 0.0


def test_sums_of_products_and_exact_types_have_no_slack() -> None:
    x, w, t = correlation()
    drawn = (draw(x), draw(w))
    assert oracle.slack(workload(t), drawn, evaluate(workload(t), drawn)) == ()
    n, m = lw.tensor("N", (9,), "int32"), lw.tensor("M")
    m[i] = n[i] * 2
    given = (np.arange(9, dtype=np.int32),)
    assert oracle.slack(workload(m), given, evaluate(workload(m), given)) == ()


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(
    ("bits", "dtype"), [(1, "uint8"), (2, "int8"), (4, "uint8"), (8, "uint32")]
)
def test_numbers_of_a_few_bits_are_unpacked_from_the_lowest(
    bits: int, dtype: str, signed: bool
) -> None:
    each = 8 * np.dtype(dtype).itemsize // bits
    low = -(1 << (bits - 1)) if signed else 0
    numbers = np.random.default_rng(0).integers(low, low + (1 << bits), (each * 3, 5))
    fields = numbers.reshape(3, each, 5) & ((1 << bits) - 1)
    words = (
        (fields << bits * np.arange(each)[None, :, None]).sum(1).astype(f"u{dtype.lstrip('u')}")
    )
    P, y = lw.tensor("P", (3, 5), dtype), lw.tensor("y", (each * 3, 5))
    y[i, j] = lw.unpack(P[i // each, j], bits, i % each, signed)
    np.testing.assert_array_equal(compute(y, {P: words.view(dtype)}), numbers)


@pytest.mark.parametrize(
    ("bits", "dtype"), [(3, "uint8"), (16, "int8"), (4, "int64"), (4, "float32")]
)
def test_unpacking_what_has_no_such_numbers_is_refused(bits: int, dtype: str) -> None:
    P = lw.tensor("P", (3,), dtype)
    with pytest.raises(NotationError, match=f"unpack: {bits} bits of {dtype}; give 1, 2"):
        lw.unpack(P[i], bits, 0)
