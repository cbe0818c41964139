"""Which algorithm a search begins with, and a default program is made by."""

import math

import pytest

import loopwright as lw
from loopwright.schedule.cpu.cost_prior import estimate
from loopwright.schedule.space import space
from loopwright.schedule.target import Target
from tests.collection import WORKLOADS

TARGET = Target(threads=2)


def _conv(channels, out, size, taps, stride=1, numerics="fast"):
    x = lw.tensor("x", (1, channels, size, size))
    w = lw.tensor("w", (out, channels, taps, taps), constant=True)
    workload = lw.workload(lw.ops.conv2d(x, w, stride=stride, padding=taps // 2))
    return space(workload, TARGET, numerics)


@pytest.mark.parametrize(
    ("shape", "algorithm"),
    [
        ((64, 64, 56, 3), "winograd(results=4)"),  # four times fewer products, small weights
        (
            (512, 512, 7, 3),
            "winograd(results=2)",
        ),  # larger tiles' weights would be read for too long
        ((64, 64, 56, 1), "direct"),
        (
            (3, 64, 224, 7, 2),
            "winograd(results=4)",
        ),  # with the phases of the window they are 12 channels
        ((3, 8, 224, 7, 2), "padding_at_blocks"),  # too few channels to repay the sums
    ],
)
def test_the_algorithm_that_measurements_prefer_is_the_default(shape, algorithm):
    assert str(_conv(*shape).sketches[0].algorithm) == algorithm


def test_small_images_by_two_are_computed_by_phase():
    """A quarter of the products is saved."""
    x, w = lw.tensor("x", (1, 256, 14, 14)), lw.tensor("w", (512, 256, 3, 3), constant=True)
    workload = lw.workload(lw.ops.conv2d(x, w, stride=2, padding=1))
    first = space(workload, AVX512, "fast").sketches[0]
    assert str(first.derivation) == "winograd_by_phase(results=2)"


def test_the_definition_s_own_sums_are_kept_and_can_be_asked_for():
    convolution, own = (_conv(64, 64, 56, 3, numerics=word) for word in ("fast", "strict"))
    assert {s.error_growth for s in own.sketches} == {1}
    assert own.default.sketch == own.sketches[0].name
    assert estimate(convolution.sketches[0], TARGET) < estimate(own.sketches[0], TARGET)


def test_weights_of_a_matrix_vector_product_are_packed_along_its_result():
    x, w = lw.tensor("x", (1, 640)), lw.tensor("w", (640, 512), constant=True)
    parts = {}
    for sketch in space(lw.workload(lw.ops.matmul(x, w)), TARGET, "fast").sketches:
        *_, product = sketch.nests
        assert product.vector in product.nest.axes
        parts[str(sketch.derivation)] = len(product.packed)
    assert parts == {"int24_weights": 3, "direct": 1}


def test_a_long_sum_with_few_results_is_split_among_the_threads():
    first = space(WORKLOADS["long_dot_product_over_threads"](), TARGET).sketches[0]
    assert first.derivation.names == ("rfactor",)


AVX512 = Target(
    vector_bytes=64, vector_registers=32, threads=2, l1_bytes=48 << 10, l2_bytes=2 << 20
)


def _default_tile(*shape):
    channels, out, size, taps, stride = shape
    x = lw.tensor("x", (1, channels, size, size))
    w = lw.tensor("w", (out, channels, taps, taps), constant=True)
    convolution = lw.ops.conv2d(x, w, stride=stride, padding=taps // 2)
    sketch = next(s for s in space(lw.workload(convolution), AVX512).sketches if not s.derivation)
    return sketch.at(sketch.default).to_json()["values"]


def test_weights_that_do_not_stay_near_meet_many_places_at_a_time():
    values = _default_tile(128, 256, 28, 1, 2)  # 32 KB of weights for 64 channels of results
    *places, width = values["tile0"]
    assert width == 32
    assert places == [1, 14]


def _product(rows, columns, deep, target):
    a, b = lw.tensor("a", (rows, deep)), lw.tensor("b", (deep, columns))
    return space(lw.workload(lw.ops.matmul(a, b)), target).sketches[0]


@pytest.mark.parametrize(
    ("size", "target", "packed"),
    [(256, AVX512, 0), (768, AVX512, 1), (250, AVX512, 1), (256, TARGET, 1)],
    ids=["small", "large", "rows that are no whole lines", "vectors of half a line"],
)
def test_small_operands_are_read_where_they_lie_if_vectors_are_whole_lines(size, target, packed):
    (nest,) = _product(size, size, size, target).nests
    assert len(nest.packed) == packed


@pytest.mark.parametrize(("columns", "width"), [(80, 80), (112, 112), (128, 64)])
def test_with_many_registers_a_tile_may_be_five_or_seven_vectors_wide(columns, width):
    sketch = _product(192, columns, 80, AVX512)
    (nest,) = sketch.nests
    assert nest.vector == nest.nest.axes[1]  # and no operand is transposed for its sake
    assert sketch.at(sketch.default).to_json()["values"]["tile0"][-1] == width


def test_a_tile_leaves_registers_for_what_neighbouring_taps_share():
    for shape in [(64, 128, 56, 3, 2), (128, 256, 28, 3, 2), (256, 512, 14, 3, 2)]:
        values = _default_tile(*shape)
        *places, width = values["tile2"]
        vectors = -(-width // 16)
        assert math.prod(places) * (vectors + 1) + vectors <= 32


def upsampled():
    k, y, x, c, r, s = lw.indices("k y x c r s")
    data, w, out = lw.tensor("x", (16, 9, 9)), lw.tensor("w", (8, 16, 3, 3)), lw.tensor("o")
    out[k, y, x] += data[c, (y + r) // 2, (x + s) // 2] * w[k, c, r, s]
    return out


def halves_of_a_window():
    k, y, c, r = lw.indices("k y c r")
    data, w, out = lw.tensor("x", (16, 12)), lw.tensor("w", (16, 5, 8)), lw.tensor("o")
    out[y, k] += data[c, y + r // 2] * w[c, r, k]
    return out


@pytest.mark.parametrize("define", [upsampled, halves_of_a_window])
def test_windows_over_parts_of_an_index_have_programs(define):
    for target in (TARGET, AVX512):
        assert space(lw.workload(define()), target).sketches
