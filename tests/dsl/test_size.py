"""Sizes known only at the call: their arithmetic, ranges, workloads and the oracle."""

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.dsl.errors import NotationError, RangeError, ShapeError
from loopwright.dsl.oracle import evaluate, random_inputs
from loopwright.dsl.size import Size
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload, workload

N = lw.dim("n", 1, 64)


def product(n: int | Size) -> Workload:
    i, j, k = lw.indices("i j k")
    a, b, c = lw.tensor("A", (n, 7)), lw.tensor("B", (7, 5)), lw.tensor("C")
    c[i, j] += a[i, k] * b[k, j]
    return workload(c)


def window(n: int | Size, stride: int = 2) -> Workload:
    y, r = lw.indices("y r")
    x, w, c = lw.tensor("X", (n,)), lw.tensor("W", (3,)), lw.tensor("C")
    c[y] += x[stride * y + r] * w[r]
    return workload(c)


def softmax(n: int | Size) -> Workload:
    return workload(lw.ops.softmax(lw.tensor("X", (3, n))))


def dense(n: int | Size) -> Workload:
    return workload(lw.ops.dense(lw.tensor("X", (n, 8)), lw.tensor("W", (6, 8))))


def attention(n: int | Size) -> Workload:
    q, k, v = (lw.tensor(name, (2, n, 8)) for name in "QKV")
    return workload(lw.ops.attention(q, k, v))


def convolution(n: int | Size) -> Workload:
    x, w = lw.tensor("X", (1, 3, 6, n)), lw.tensor("W", (4, 3, 3, 3))
    return workload(lw.ops.conv2d(x, w, stride=2))


def pooling(n: int | Size) -> Workload:
    return workload(lw.ops.max_pool2d(lw.tensor("X", (1, 3, n, 8)), 2))


def halves(n: int | Size) -> Workload:
    i, j = lw.indices("i j")
    x, y = lw.tensor("X", (n,)), lw.tensor("Y", (n // 2 + 1,))
    out = lw.tensor("T")
    out[i, j] = x[i] + y[j]
    return workload(out)


def relu(n: int | Size) -> Workload:
    return workload(lw.ops.relu(lw.tensor("X", (n, 3))))


def padded(n: int | Size) -> Workload:
    x, w = lw.tensor("X", (1, 3, 6, n)), lw.tensor("W", (4, 3, 3, 3))
    return workload(lw.ops.conv2d(x, w, padding=1))


def mean(n: int | Size) -> Workload:
    return workload(lw.ops.layer_norm(lw.tensor("X", (3, n))))


CASES: dict[str, tuple[Callable[[int | Size], Workload], int]] = {
    "product": (product, 1),
    "window": (window, 3),
    "softmax": (softmax, 1),
    "dense": (dense, 1),
    "attention": (attention, 1),
    "convolution": (convolution, 3),
    "pooling": (pooling, 2),
    "halves": (halves, 1),
    "relu": (relu, 1),
    "padded": (padded, 1),
    "mean": (mean, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_a_workload_at_a_size_is_the_one_written_with_that_size(name: str) -> None:
    make, low = CASES[name]
    whole = make(lw.dim("n", low, 64))
    for n in (low, low + 1, 7, 13, 64):
        assert whole.at(n=n).key == make(n).key
        assert str(whole.at(n=n)) == str(make(n))


@given(
    low=st.integers(1, 20),
    count=st.integers(0, 20),
    step=st.integers(1, 4),
    at=st.integers(0, 20),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 3),
    taps=st.integers(1, 4),
    shrink=st.integers(1, 3),
)
def test_windows_of_any_kind_have_the_ranges_of_every_size(
    low: int, count: int, step: int, at: int, stride: int, dilation: int, taps: int, shrink: int
) -> None:
    def make(n: int | Size) -> Workload:
        y, r = lw.indices("y", r=taps)
        x, t, u = lw.tensor("X", (n // shrink + 1,)), lw.tensor("T"), lw.tensor("U")
        t[y] += x[stride * y + dilation * r]
        u[y] = t[y] * 2.0
        return workload(u)

    reach = dilation * (taps - 1)
    assume(low * step // shrink + 1 > reach)
    n = min(at, count) * step + low * step
    whole = make(lw.dim("n", low * step, (low + count) * step, multiple=step))
    assert whole.at(n=n).key == make(n).key


@pytest.mark.parametrize("name", CASES)
def test_json_keeps_dims(name: str) -> None:
    make, low = CASES[name]
    whole = make(lw.dim("n", low, 64))
    again = Workload.from_json(json.loads(json.dumps(whole.to_json())))
    assert again.key == whole.key
    assert str(again) == str(whole)
    assert again.at(n=9).key == make(9).key


@pytest.mark.parametrize("name", CASES)
def test_the_oracle_takes_dims_from_the_shapes_of_its_inputs(name: str) -> None:
    rng = np.random.default_rng(0)
    make, low = CASES[name]
    whole = make(lw.dim("n", low, 64))
    inputs = random_inputs(make(11), rng)
    for got, expected in zip(evaluate(whole, inputs), evaluate(make(11), inputs), strict=True):
        np.testing.assert_array_equal(got, expected)


@given(
    low=st.integers(1, 9),
    count=st.integers(0, 12),
    step=st.integers(1, 4),
    factor=st.sampled_from((-3, -2, -1, 1, 2, 3)),
    offset=st.integers(-9, 9),
    divisor=st.integers(1, 5),
    bound=st.integers(-9, 30),
)
def test_an_order_of_sizes_holds_for_all_values_or_none(
    low: int, count: int, step: int, factor: int, offset: int, divisor: int, bound: int
) -> None:
    n = lw.dim("n", low * step, (low + count) * step, multiple=step)
    size = (n * factor + offset) // divisor
    values = [
        (v * factor + offset) // divisor for v in range(low * step, (low + count) * step + 1, step)
    ]
    assert size.span() == (min(values), max(values))
    answers = {v < bound for v in values}
    if len(answers) == 1:
        assert (size < bound) is (bound > values[0])
    else:
        with pytest.raises(RangeError, match="holds for some sizes and not for others"):
            assert size < bound
    assert (size == bound) is (set(values) == {bound})


def test_the_key_does_not_depend_on_the_names_of_dims_but_on_their_bounds() -> None:
    key = product(N).key
    assert product(lw.dim("m", 1, 64)).key == key
    assert product(lw.dim("n", 1, 63)).key != key
    assert product(lw.dim("n", 8, 64, multiple=8)).key != product(lw.dim("n", 8, 64)).key
    assert product(64).key != key


def test_a_workload_prints_its_dims() -> None:
    text = str(window(lw.dim("n", 4, 64, multiple=4)))
    assert text.splitlines()[:2] == ["n: multiples of 4 from 4 to 64", "X: float32[n]"]
    assert "y < ((n + 1) // 2) - 1, r < 3" in text


def test_ranges_that_disagree_name_both_sides() -> None:
    i, k = lw.indices("i k")
    a, b, c = lw.tensor("A", (4, N)), lw.tensor("B", (lw.dim("m", 1, 64),)), lw.tensor("C")
    with pytest.raises(RangeError, match=r"k ranges over n by axis 1 of A.* but over m by axis 0"):
        c[i] += a[i, k] * b[k]


def test_a_window_that_is_too_long_for_some_sizes_is_an_error() -> None:
    with pytest.raises(RangeError, match=r"axis 0 of X\[2\*y \+ r\]: n <= 2 holds for some sizes"):
        window(N)


def test_an_index_declared_longer_than_an_axis_of_some_sizes_is_an_error() -> None:
    (i,) = lw.indices(i=3)
    t = lw.tensor("T")
    with pytest.raises(RangeError, match=r"axis 0 of X\[i\]: n > 3 holds for some sizes"):
        t[i] = lw.tensor("X", (N,))[i] * 2.0


def test_a_dim_means_one_thing() -> None:
    i, j = lw.indices("i j")
    x, y, t = lw.tensor("X", (N,)), lw.tensor("Y", (lw.dim("n", 1, 9),)), lw.tensor("T")
    t[i, j] = x[i] * y[j]
    with pytest.raises(RangeError, match="dim n takes 1 to 64 in one place and 1 to 9 in another"):
        assert workload(t).dims


@pytest.mark.parametrize(
    ("operator", "one", "other"),
    [
        (lw.ops.add, lambda n: (n,), lambda n: (n,)),
        (lw.ops.matmul, lambda n: (4, n), lambda n: (n, 4)),
        (lw.ops.batch_matmul, lambda n: (n, 4, 4), lambda n: (n, 4, 4)),
    ],
)
def test_operators_say_where_a_name_stands_for_two_dims(operator, one, other) -> None:
    x, y = lw.tensor("X", one(N)), lw.tensor("Y", other(lw.dim("n", 1, 9)))
    with pytest.raises(RangeError, match="dim n takes 1 to 64 in one place and 1 to 9 in another"):
        operator(x, y)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({}, "got nothing; give one value for each of: n: multiples of 4 from 4 to 64"),
        ({"n": 8, "m": 1}, "got n=8, m=1; give one"),
        ({"n": 6}, r"n is 6 by at\(…\); it takes multiples of 4 from 4 to 64"),
        ({"n": 68}, "n is 68 by at"),
        ({"n": 4.0}, "n is 4.0; give an integer"),
    ],
)
def test_a_size_that_a_dim_does_not_take_is_refused(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(RangeError, match=message):
        product(lw.dim("n", 4, 64, multiple=4)).at(**sizes)


def pair(first: int | Size, second: int | Size) -> Tensor:
    i, j = lw.indices("i j")
    t = lw.tensor("T")
    t[i, j] = lw.tensor("X", (first,))[i] * lw.tensor("Y", (second,))[j]
    return t


def test_dims_that_cancel_out_are_gone() -> None:
    m = lw.dim("m", 1, 64)
    assert workload(pair(m + N - m, 3)).sizes([(11,), (3,)]) == {"n": 11}
    assert isinstance(N - N + 3, int)
    assert isinstance(0 * N, int)
    assert workload(pair(N - N + 3, 5)).key == workload(pair(3, 5)).key


def test_equal_sizes_have_equal_hashes() -> None:
    five = lw.dim("k", 5, 5)
    even = lw.dim("m", 2, 64, multiple=2)
    for one, other in ((five, 5), (even // 2 * 2, even), (N + 1 - 1, N)):
        assert one == other
        assert hash(one) == hash(other)


def test_integers_of_numpy_are_integers() -> None:
    assert np.int64(2) * N + np.int64(1) == 2 * N + 1


def test_sizes_are_solved_from_shapes() -> None:
    assert workload(pair(2 * N + 1, N // 2)).sizes([(23,), (5,)]) == {"n": 11}


def test_a_sum_of_dims_tells_the_one_that_no_other_axis_does() -> None:
    m = lw.dim("m", 1, 20)
    work = workload(pair(2 * m + N, N + 1))
    assert work.sizes([(13,), (4,)]) == {"n": 3, "m": 5}
    with pytest.raises(
        ShapeError, match=r"X, whose extent is 12, is no 2\*m \+ n for an integer m"
    ):
        work.sizes([(12,), (4,)])
    with pytest.raises(RangeError, match=r"m is 21 by axis 0 of X, .*; it takes 1 to 20$"):
        work.sizes([(45,), (4,)])


def test_a_dim_and_an_input_may_be_called_self() -> None:
    rows = lw.dim("self", 1, 4)
    x, w = lw.tensor("X", (rows, 3)), lw.tensor("self", (2, 3), constant=True)
    work = lw.workload(lw.ops.dense(x, w))
    assert work.at(self=2).inputs[0].shape == (2, 3)
    library = lw.build(work)
    assert "self=2" in str(library.explain(self=2))
    a, b = np.ones((2, 3), "float32"), np.ones((2, 3), "float32")
    np.testing.assert_array_equal(library.bind(self=b)(a), library(X=a, self=b))


def test_a_library_finds_a_dim_in_a_sum() -> None:
    rows, more = lw.dim("rows", 1, 4), lw.dim("more", 1, 5)
    x, y, out = lw.tensor("X", (rows + more, 3)), lw.tensor("Y", (rows,)), lw.tensor("out")
    i, j = lw.indices("i j")
    out[i] += x[i, j] * y[0]
    library = lw.build(lw.workload(out))
    for first, second in ((1, 1), (4, 5), (2, 3)):
        a, b = np.ones((first + second, 3), "float32"), np.full(first, 2, "float32")
        np.testing.assert_array_equal(library(a, b), np.full(first + second, 6))


@pytest.mark.parametrize(
    ("first", "second", "shapes", "message"),
    [
        (N, N, [(7,), (9,)], "n is 7 by axis 0 of X, whose extent is 7, but 9 by axis 0 of Y"),
        (2 * N, 3, [(7,), (3,)], r"axis 0 of X, whose extent is 7, is no 2\*n for an integer n"),
        (N, N // 2, [(7,), (4,)], r"axis 0 of Y has extent n // 2 = 3, got 4, and n is 7 by axis"),
        (N, 3, [(7,), (4,)], "axis 0 of Y has extent 3, got 4"),
        (N, 3, [(7, 1), (3,)], r"X has shape \[n\], got \[7, 1\]"),
        (N, 3, [(7,)], r"2 inputs \(X, Y\), got 1"),
        (3, N // 2 + 1, [(3,), (4,)], "the inputs do not tell n"),
    ],
)
def test_shapes_that_no_size_gives_are_refused(
    first: int | Size, second: int | Size, shapes: list[tuple[int, ...]], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        workload(pair(first, second)).sizes(shapes)


def test_an_error_of_a_size_names_all_axes_that_it_binds() -> None:
    both = r"; n is in axis 0 of X, axis 0 of Y$"
    with pytest.raises(RangeError, match=f"n is 65 by axis 0 of X, .*; it takes 1 to 64{both}"):
        workload(pair(N, N)).sizes([(65,), (65,)])


def test_shapes_beyond_the_bounds_are_refused() -> None:
    with pytest.raises(RangeError, match=r"n is 65 by axis 0 of A, .*; it takes 1 to 64"):
        product(N).sizes([(65, 7), (7, 5)])


def test_a_maximum_over_what_is_nothing_at_some_size_is_refused_where_it_is_defined() -> None:
    x, t, (i, k) = lw.tensor("X", (3, N - 1)), lw.tensor("T"), lw.indices("i k")
    with pytest.raises(NotationError, match="max over k, which has extent n - 1, 0 at some size"):
        t[i] = lw.max(x[i, k])


def test_more_elements_before_an_axis_are_an_integer() -> None:
    with pytest.raises(NotationError, match="pad: n elements before an axis: only those after"):
        lw.pad(lw.tensor("X", (5, 3)), [(N, 0), (0, 0)])


def test_the_greatest_k_are_at_most_the_least_size() -> None:
    with pytest.raises(
        NotationError, match=r"k is 3; it is an integer from 0 to 2, the least 2\*n"
    ):
        lw.ops.topk(lw.tensor("X", (4, 2 * N)), 3)


@pytest.mark.parametrize("use", [lw.build, lw.tune])
def test_sizes_that_no_input_tells_are_refused_before_anything_runs(
    use: Callable[[Workload], object],
) -> None:
    x = lw.tensor("X", (N + lw.dim("m", 1, 4), 8))
    with pytest.raises(ShapeError, match=r"do not tell n, m: .* workload.at\(n=…\)"):
        use(workload(lw.ops.relu(x)))


def test_what_takes_fixed_shapes_says_so() -> None:
    for use in (lw.space, lw.explain, lambda w: w.flops, lambda w: w.min_bytes):
        with pytest.raises(NotationError, match=r"has dims \(n: 1 to 64\).*workload.at\(n=64\)"):
            use(product(N))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("n", -1, 4), "low is -1; give an integer ≥ 0"),
        (("n", 0, 0), "high is 0"),
        (("n", 4, 2), "4 to 2 in steps of 1"),
        (("n", 1, 8, 4), "1 to 8 in steps of 4"),
        (("n", 1, True), "high is True"),
        (("2", 1, 4), "cannot name a dim"),
    ],
)
def test_bad_dims_are_refused(arguments: tuple[str, int, int], message: str) -> None:
    with pytest.raises(NotationError, match=message):
        lw.dim(*arguments)


def test_sizes_in_index_expressions_are_refused() -> None:
    with pytest.raises(NotationError, match="a size is an extent, and no part of an index"):
        lw.tensor("X", (N,))[N - 1 - lw.indices("i")[0]]  # type: ignore[operator]


def test_an_open_size_as_the_extent_of_an_index_or_its_divisor_is_refused_with_advice() -> None:
    with pytest.raises(NotationError, match="in the shape of the tensor on the left"):
        lw.indices(i=N)  # type: ignore[arg-type]
    with pytest.raises(NotationError, match=r'as lw.cast\(i, "int32"\) % n'):
        lw.tensor("X", (N,))[(lw.indices("i")[0] + 1) % N]  # type: ignore[operator]


def test_elements_of_indices_and_sizes_are_subscripts() -> None:
    (i,), x = lw.indices("i"), lw.tensor("X", (N,))
    place = lw.cast(i, "int32")
    reads = {
        "R": (lambda a: a[::-1], N - 1 - place),
        "S": (lambda a: np.roll(a, -2), (place + 2) % N),
        "M": (lambda a: np.pad(a, 2, mode="reflect")[: len(a)], abs(place - 2)),
        "L": (lambda a: a[::-1], lw.max(N - place - 1, 0)),
    }
    for name, (expected, where) in reads.items():
        t = lw.tensor(name, (N,))
        t[i] = x[where]
        for n in (3, 7, 64):
            data = np.arange(n, dtype="float32")
            (found,) = evaluate(workload(t).at(n=n), [data])
            np.testing.assert_array_equal(found, expected(data))


def test_indices_and_elements_are_compared_and_computed_with_sizes() -> None:
    (i,) = lw.indices("i")
    x, out = lw.tensor("X", (N,)), lw.tensor("T")
    out[i] = lw.where(i < N - 1, x[i] / N, lw.cast(N // 2, "float32"))
    made = workload(out)
    assert "X[i] / n" in str(made)
    assert Workload.from_json(made.to_json()).key == made.key
    data = np.arange(5, dtype="float32")
    np.testing.assert_allclose(evaluate(made, (data,))[0], [*(data[:4] / 5), 2])


def test_the_order_of_products_is_chosen_for_the_largest_sizes() -> None:
    def chain(n: int | Size) -> Workload:
        x, y, z = lw.tensor("X", (n, 8)), lw.tensor("Y", (8, n)), lw.tensor("Z", (n, 8))
        return workload(lw.einsum("ij,jk,kl->il", x, y, z))

    assert chain(N).at(n=64).key == chain(64).key


def test_products_and_quotients_of_sizes_are_refused() -> None:
    with pytest.raises(NotationError, match="multiply a size by an integer"):
        N * N  # type: ignore[operator]
    with pytest.raises(NotationError, match="divide by an integer"):
        N // N  # type: ignore[operator]
