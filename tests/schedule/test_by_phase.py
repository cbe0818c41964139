"""Convolutions that move by more than one element, phase by phase, equal the oracle."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.schedule.rewrites.bilinear.whole_axis import Axis, axis_algorithm
from loopwright.schedule.target import Target
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.collection import T
from tests.sketches import default_configs, derived, random_configs
from tests.targets import HERE, narrow
from tests.thin import thinned

pytestmark = pytest.mark.sampled(0.34)


def weights(*shape, dtype="float32"):
    return T("w", *shape, constant=True, dtype=dtype)


def by_phase(workload, target=HERE):
    return derived(lw.space(workload, target, numerics="fast").sketches, "winograd_by_phase")


def by_two(workload, target):
    return [
        s
        for s in by_phase(workload, target)
        if dict(s.derivation.steps[0].parameters) == {"results": 2}
    ]


@pytest.mark.parametrize(
    ("taps", "step"), [(3, 2), (4, 2), (2, 2), (5, 3), (3, 1), (5, 2), (3, 4)]
)
@pytest.mark.parametrize("size", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_the_algorithm_of_an_axis_is_the_sum_exactly_whatever_is_padding(taps, step, size):
    made = 0
    for count in range(size, 2 * size + 2):
        reached = step * (count - 1) + taps
        for start, stop in itertools.combinations(range(reached + 1), 2):
            axis = Axis(count, taps, step, range(start, stop))
            algorithm = axis_algorithm(axis, size)
            if algorithm is not None:
                made += 1
                rng = np.random.default_rng(count)
                assert computed(algorithm, axis, rng) == directly(
                    axis, np.random.default_rng(count)
                )
    assert made


def drawn(axis, rng):
    data = {p: Fraction(int(rng.integers(-9, 9))) for p in axis.filled}
    return data, [Fraction(int(x)) for x in rng.integers(-9, 9, axis.taps)]


def directly(axis, rng):
    data, taps = drawn(axis, rng)
    return [
        sum(data.get(axis.step * i + q, Fraction(0)) * w for q, w in enumerate(taps))
        for i in range(axis.count)
    ]


def computed(algorithm, axis, rng):
    data, taps = drawn(axis, rng)
    rows = stepped(algorithm.data, lambda place: data.get(place, Fraction(0)))
    assert sorted(rows) == list(range(algorithm.rows))
    transformed = [sum(g * w for g, w in zip(row, taps, strict=True)) for row in algorithm.weights]
    products = {}
    for part in algorithm.parts:
        for number, row in itertools.product(range(part.weights), range(part.rows)):
            at = part.row + number * part.rows + row
            products[at] = rows[at] * transformed[part.weight + number]
    results = stepped(algorithm.results, products.__getitem__)
    return [results[i] for i in range(axis.count)]


def stepped(steps, element):
    made = {}
    for step in steps:
        for tile, (line, terms) in itertools.product(range(step.tiles), step.sums):
            place = line.first + line.step * tile
            assert place not in made
            made[place] = sum(c * element(of.first + of.step * tile) for c, of in terms)
    return made


def test_a_result_that_meets_the_padding_takes_one_product_for_each_of_its_taps():
    axis = Axis(7, 3, 2, range(1, 15))
    algorithm = axis_algorithm(axis, 2)
    assert (axis.needed, algorithm.rows, len(algorithm.weights)) == (20, 7 + 3 * 3 + 1, 4)
    assert algorithm.span == range(1, 15)


def with_bias_relu_and_residual():
    x = T("x", 1, 16, 14, 14)
    y = ops.conv2d(x, weights(32, 16, 3, 3), 2, 1, bias=T("b", 32, constant=True))
    return ops.relu(ops.add(y, T("r", 1, 32, 7, 7)))


def last(*shape, filters, padding=1, window=3, stride=2, dtype="float32"):
    taps = weights(window, window, shape[-1], filters, dtype=dtype)
    return ops.conv2d(T("x", *shape, dtype=dtype), taps, stride, padding, layout="NHWC")


def of_groups():
    g, k, y, x, c, r, s = lw.indices("g k y x c r s")
    data, w = T("x", 2, 16, 15, 13), T("w", 2, 32, 16, 3, 3, constant=True)
    out = lw.tensor("o")
    out[g, k, y, x] += data[g, c, 2 * y + r, 2 * x + s] * w[g, k, c, r, s]
    return out


def one_dimension():
    n, k, c, x, r = lw.indices("n k c x r")
    data, w = T("d", 3, 31, 40), weights(4, 40, 32)
    out = lw.tensor("out")
    out[n, x, k] += data[n, 2 * x + r, c] * w[r, c, k]
    return out


def padded_with_a_half():
    u, v, c, k, y, x, r, q = lw.indices("u v c k y x r q")
    data, padded = T("data", 12, 12, 32), T("padded", 14, 14, 32)
    inside = (u >= 1) & (u < 13) & (v >= 1) & (v < 13)
    padded[u, v, c] = lw.where(inside, data[u - 1, v - 1, c], 0.5)
    out, taps = T("out", 6, 6, 32), weights(3, 3, 32, 32)
    out[y, x, k] += padded[2 * y + r, 2 * x + q, c] * taps[r, q, c, k]
    return out


def two_axes_of_filters():
    j, k, y, x, c, r, q = lw.indices("j k y x c r q")
    data, taps, out = T("data", 17, 17, 24), weights(3, 3, 24, 3, 32), lw.tensor("out")
    out[y, x, j, k] += data[2 * y + r, 2 * x + q, c] * taps[r, q, c, j, k]
    return out


def an_input_that_two_read():
    x = T("x", 1, 14, 14, 32)
    return ops.conv2d(x, weights(3, 3, 32, 32), 2, 1, layout="NHWC"), ops.relu(x)


CASES = {
    "channels last, seven results": lambda: last(1, 14, 14, 32, filters=32),
    "padding at both ends": lambda: last(1, 13, 13, 32, filters=32),
    "no padding": lambda: last(1, 15, 17, 32, filters=64, padding=0),
    "padding of two": lambda: last(1, 12, 12, 16, filters=32, padding=2),
    "an even number of results": lambda: last(1, 16, 16, 32, filters=32),
    "few and small": lambda: last(1, 9, 9, 8, filters=32),
    "several images": lambda: last(2, 14, 14, 16, filters=32),
    "windows of four": lambda: last(1, 14, 18, 32, filters=64, padding=0, window=4),
    "windows of five by three": lambda: last(
        1, 14, 20, 16, filters=32, padding=0, window=5, stride=3
    ),
    "by two one way alone": lambda: last(1, 12, 14, 16, filters=32, stride=(2, 1)),
    "channels that are no multiple of a vector": lambda: last(1, 14, 14, 19, filters=96),
    "64 bits": lambda: last(1, 14, 14, 16, filters=32, dtype="float64"),
    "channels first, with bias, ReLU and residual": with_bias_relu_and_residual,
    "groups": of_groups,
    "one dimension": one_dimension,
    "padded with a half": padded_with_a_half,
    "two axes of filters": two_axes_of_filters,
    "an input that something else reads too": an_input_that_two_read,
}


@pytest.mark.parametrize("name", thinned(CASES, keep=6))
def test_phases_equal_the_oracle(name):
    made = CASES[name]()
    workload = lw.workload(*made) if isinstance(made, tuple) else lw.workload(made)
    sketches = by_phase(workload)
    assert sketches
    configs = [*default_configs(sketches), *random_configs(sketches, 1)]
    assert_configs_equal_oracle(workload, configs)


def test_products_with_padding_are_left_out():
    (sketch, *_) = by_phase(lw.workload(last(1, 14, 14, 32, filters=32)), narrow(1))
    products = [n.nest for n in sketch.nests if n.nest.reducer == "sum"]
    assert sum(n.steps for n in products) == 17 * 17 * 32 * 32
    assert 1 < sketch.error_growth < 2


def test_filters_are_shared_among_threads_and_what_they_make_fits_a_cache():
    workload = lw.workload(last(1, 14, 14, 64, filters=384))

    def blocks(threads, l2_bytes):
        target = Target(threads=threads, l2_bytes=l2_bytes, vector_bytes=64)
        return {s.groups[-1].outer[-1].extent for s in by_two(workload, target)}

    assert blocks(2, 1 << 20) == {4}  # of 96 filters: of 128, one thread would have two of three
    assert blocks(2, 150 << 10) == {6}
    assert blocks(2, 1 << 16) == set()


def test_every_thread_has_filters():
    workload = lw.workload(last(1, 14, 14, 64, filters=48))

    def offered(threads):
        target = Target(threads=threads, l2_bytes=1 << 20, vector_bytes=64)
        return by_two(workload, target)

    assert offered(1)
    assert offered(3)
    assert not offered(2)  # of 3 × 16, one would have two
    assert not offered(16)


def test_windows_that_move_by_one_are_left_to_the_other_rewrite():
    assert not by_phase(lw.workload(last(1, 14, 14, 32, filters=32, stride=1)))
