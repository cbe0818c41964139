"""Operators and functions of two elements in compiled code, beside NumPy's own, where it is hard:
zeros, infinities, NaN, the ends of integers."""

import itertools

import numpy as np
import pytest

import loopwright as lw

pytestmark = pytest.mark.sampled(0.34)

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
HARD = np.array(
    [0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38]
    + [-3.4e38, 1e10, 2**24 + 2, 7.3, -7.3, 1.5, -1.5],
    np.float32,
)


def compiled(function, *arrays, target="cpu"):
    """A function of elements, of whole arrays by a library."""
    (i,) = lw.indices("i")
    tensors = [lw.tensor(f"A{n}", a.shape, str(a.dtype)) for n, a in enumerate(arrays)]
    out = lw.tensor("out")
    out[i] = function(*(t[i] for t in tensors))
    return np.asarray(lw.build(out, target=target)(*arrays))


def pairs_of_floats():
    """All pairs of hard numbers, and usual ones of all sizes, the largest and the least too."""
    rng = np.random.default_rng(0)
    hard = np.array(list(itertools.product(HARD, HARD)), np.float32).T
    usual = rng.uniform((-20, -8), (50, 8), (20_011, 2)).astype(np.float32).T
    sizes = np.exp(rng.uniform(-80, 80, (2, 20_011))).astype(np.float32)
    unit = rng.uniform(-1, 1, (2, 2_003)).astype(np.float32)
    most, least = unit * np.finfo("float32").max, unit * np.finfo("float32").tiny
    return [np.concatenate(parts) for parts in zip(hard, usual, sizes, most, least)]


def ulps(result, exact):
    """Errors in units of the last place of float32; infinities and NaN must be the same."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        unit = np.ldexp(1.0, np.maximum(np.frexp(exact)[1] - 24, -149))
        same = (result == rounded) | (np.isnan(result) & np.isnan(rounded))
        finite = np.isfinite(result) & np.isfinite(rounded)
        return np.where(finite, np.abs(result - exact) / unit, np.where(same, 0, np.inf))


@pytest.mark.parametrize(
    ("ours", "numpys", "most"), [(lw.pow, np.power, 1.5), (lw.atan2, np.arctan2, 3.5)]
)
def test_functions_of_two_floats_are_accurate_everywhere(ours, numpys, most):
    x, y = pairs_of_floats()
    result = compiled(ours, x, y)
    with np.errstate(all="ignore"):
        exact = numpys(x.astype(np.float64), y.astype(np.float64))
    errors = ulps(result, exact)
    worst = np.argmax(errors)
    assert errors[worst] <= most, (x[worst], y[worst], result[worst], exact[worst])
    zero = exact == 0
    np.testing.assert_array_equal(np.signbit(result[zero]), np.signbit(exact[zero]))


@pytest.mark.parametrize("target", ["cpu", "c"])
@pytest.mark.parametrize("ours", [lw.fmod, lambda x, y: x % y, lambda x, y: x // y])
def test_remainders_of_floats_are_those_of_numpy(ours, target):
    x, y = pairs_of_floats()
    with np.errstate(all="ignore"):
        remainder = {lw.fmod: np.fmod}.get(ours, lambda a, b: ours(a, b))
        exact = remainder(x, y)
        quotient = x / y
    near = ~(np.abs(quotient) >= 2**23) | np.isinf(quotient)  # beyond, none is a whole number
    np.testing.assert_array_equal(compiled(ours, x, y, target=target)[near], exact[near])


def pairs_of_integers(dtype):
    """Numbers of the whole type by small ones and by the hard ones."""
    rng, info = np.random.default_rng(0), np.iinfo(dtype)
    usual = rng.integers(info.min, info.max, 5003, dtype, endpoint=True)
    small = rng.integers(max(info.min, -5), 6, 5003).astype(dtype)
    ends = [info.min, info.max, 0, 1, 2, 3] + [-1, -2] * (info.min < 0)
    hard = np.array(list(itertools.product(ends, ends)), dtype).T
    return np.concatenate([usual, hard[0]]), np.concatenate([small, hard[1]])


def cut_off(x, y):
    quotient = np.floor_divide(x, y)
    return np.where((quotient < 0) & (np.fmod(x, y) != 0), quotient + 1, quotient).astype(x.dtype)


DIVISIONS = {
    "//": (lambda x, y: x // y, np.floor_divide),
    "%": (lambda x, y: x % y, np.mod),
    "trunc_div": (lw.trunc_div, cut_off),
    "fmod": (lw.fmod, np.fmod),
}


@pytest.mark.parametrize("target", ["cpu", "c"])
@pytest.mark.parametrize("op", DIVISIONS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_divide_as_in_numpy_at_their_ends_too(dtype, op, target):
    x, y = pairs_of_integers(dtype)
    ours, numpys = DIVISIONS[op]
    with np.errstate(all="ignore"):
        exact = numpys(x, y)
    np.testing.assert_array_equal(compiled(ours, x, y, target=target), exact)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_powers_of_integers_wrap_and_negative_ones_are_cut_off(dtype):
    x, y = pairs_of_integers(dtype)
    result = compiled(lw.pow, x, y)
    natural = y >= 0
    np.testing.assert_array_equal(result[natural], x[natural] ** y[natural])
    inverse = np.array([{1: 1, -1: -1 if b % 2 else 1}.get(int(a), 0) for a, b in zip(x, y)])
    np.testing.assert_array_equal(result[~natural], inverse[~natural])


WRAPPING = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "negated": lambda x, y: -x ^ y,
    "&": lambda x, y: x & y,
    "|": lambda x, y: x | y,
    "^": lambda x, y: x ^ y,
    "~": lambda x, y: ~x & y,
    "<<": lambda x, y: x << y,
    ">>": lambda x, y: x >> y,
    "<< 3": lambda x, y: x << 3 ^ y,
    "mixed": lambda x, y: ((x + y) * (x - y) << 1) ^ (x * 3 & y),
}


@pytest.mark.parametrize("target", ["cpu", "c"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_and_their_bits_are_those_of_numpy(dtype, target):
    x, y = pairs_of_integers(dtype)
    (i,) = lw.indices("i")
    a, b = (lw.tensor(name, x.shape, dtype) for name in "ab")
    outs = [lw.tensor(f"out{n}") for n in range(len(WRAPPING))]
    for out, op in zip(outs, WRAPPING.values()):
        out[i] = op(a[i], b[i])
    made = lw.build(lw.workload(*outs, inputs=[a, b]), target=target)(x, y)
    for name, op, result in zip(WRAPPING, WRAPPING.values(), made, strict=True):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(result, op(x, y), err_msg=name)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("source", [*INTEGERS, "float32", "float64", "bool"])
def test_casts_between_all_types_are_those_of_numpy(source, dtype):
    rng = np.random.default_rng(0)
    if source in INTEGERS:
        x = pairs_of_integers(source)[0]
    else:  # what is outside of a type is C's to say
        low, high = (0, 2) if source == "bool" else (0, 100)
        x = rng.uniform(low, high, 1003).astype(source)
    np.testing.assert_array_equal(compiled(lambda e: lw.cast(e, dtype), x), x.astype(dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_the_largest_constant_of_a_type_keeps_its_value(dtype):
    most = int(np.iinfo(dtype).max)
    x = np.array([0, 1, most - 1, most], dtype)
    np.testing.assert_array_equal(compiled(lambda e: e ^ most, x), x ^ np.array(most, dtype))
    np.testing.assert_array_equal(
        compiled(lambda e: lw.max(e, most - 1), x), [most - 1] * 3 + [most]
    )


def test_truth_values_differ_by_xor():
    x, y = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    np.testing.assert_array_equal(compiled(lambda a, b: a ^ b, x, y), x ^ y)


@pytest.mark.parametrize("target", ["cpu", "c"])
@pytest.mark.parametrize("numpys", [np.argmax, np.argmin])
def test_places_of_nan_and_of_ties_are_those_of_numpy(numpys, target):
    rng = np.random.default_rng(0)
    rows = np.round(rng.uniform(-2, 2, (41, 37))).astype(np.float32)
    rows[rng.integers(0, 41, 30), rng.integers(0, 37, 30)] = np.nan
    out = getattr(lw.ops, numpys.__name__)(lw.tensor("X", rows.shape))
    np.testing.assert_array_equal(lw.build(out, target=target)(rows), numpys(rows, 1))


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_long_rows_give_their_greatest_elements(target):
    rows = np.random.default_rng(0).permuted(np.tile(np.arange(1100), (3, 1)), axis=1)
    rows = rows.astype(np.float32)
    found = lw.workload(*lw.ops.topk(lw.tensor("X", rows.shape), 5))
    values, places = lw.build(found, target=target)(rows)
    np.testing.assert_array_equal(values, np.tile(np.arange(1099, 1094, -1), (3, 1)))
    np.testing.assert_array_equal(np.take_along_axis(rows, places, 1), values)
