"""Products that leave zeros of their data out equal the oracle, whatever the data are."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.dsl.oracle import evaluate
from loopwright.schedule.lowering import lower
from loopwright.schedule.space import find_sketch
from loopwright.schedule.space import space as space_on
from loopwright.schedule.target import Target
from loopwright.schedule.tree.verifier import verify
from tests.codegen.test_build import assert_equals_oracle, random_inputs
from tests.collection import T
from tests.targets import ALONE, AVX2_SMALL, HERE
from tests.thin import thinned

pytestmark = pytest.mark.sampled(0.34)

AVX2 = Target(vector_bytes=32, threads=2)
runs = pytest.mark.skipif(HERE.vector_bytes < 32, reason="these programs need AVX2")


def pointwise(size=8, channels=64, filters=64):
    x = T("x", 1, size, size, channels)
    w = T("w", 1, 1, channels, filters, constant=True)
    return ops.conv2d(x, w, layout="NHWC")


def with_bias_relu_and_residual(channels, filters):
    y = ops.add(pointwise(8, channels, filters), T("b", filters, constant=True))
    return ops.relu(ops.add(y, T("r", 1, 8, 8, filters)))


def behind_a_window(stride=1):
    """A depthwise convolution, a ReLU, and a pointwise convolution."""
    x = T("x", 1, 14, 14, 64)
    w = T("w", 3, 3, 1, 64, constant=True)
    y = ops.depthwise_conv2d(x, w, stride=stride, padding=1, layout="NHWC")
    y = ops.relu(ops.add(y, T("b", 64, constant=True)))
    return ops.conv2d(y, T("v", 1, 1, 64, 128, constant=True), layout="NHWC")


def product(m, n, k, constant=True):
    return ops.matmul(T("x", m, k), T("y", k, n, constant=constant))


DEFINITIONS = {
    "one_block": lambda: product(24, 64, 32),
    "two_blocks": lambda: product(24, 64, 64),
    "many_blocks": lambda: product(17, 192, 160),
    "a_depth_that_is_no_power_of_two": lambda: product(33, 64, 72),
    "one_row_more_than_a_block": lambda: product(99, 128, 96),
    "one_row": lambda: product(1, 192, 6400),
    "one_row_of_an_odd_depth": lambda: product(1, 320, 4104),
    "pointwise": pointwise,
    "bias_relu_and_residual": lambda: with_bias_relu_and_residual(96, 128),
    "behind_a_window": behind_a_window,
    "behind_a_window_by_two": lambda: behind_a_window(2),
}


def inputs_with_zeros(workload, share):
    """Random inputs, all but the weights with so many zeros."""
    rng = np.random.default_rng(0)
    made = random_inputs(workload, rng)
    for x, t in zip(made, workload.inputs, strict=True):
        if not t.constant:
            x[rng.random(x.shape) < share] = 0
    return made


def assert_equal(workload, configs, share, target=HERE):
    inputs = inputs_with_zeros(workload, share)
    expected = evaluate(workload, inputs)
    for config in configs:
        library = lw.build(workload, config, target)
        try:
            assert_equals_oracle(workload, library, inputs, expected)
        except AssertionError as error:
            raise AssertionError(f"{config}\n{library.source('tree')}\n{error}") from error


@runs
@pytest.mark.parametrize("share", thinned([0.0, 0.5, 0.97, 1.0]))
@pytest.mark.parametrize("name", DEFINITIONS)
def test_results_equal_the_oracle_for_any_share_of_zeros(name, share):
    workload = lw.workload(DEFINITIONS[name]())
    found = lw.space(workload, HERE).data_dependent
    assert found
    assert_equal(workload, [s.at(s.default) for s in found], share)


@runs
@pytest.mark.parametrize(
    "name", thinned(["many_blocks", "behind_a_window", "bias_relu_and_residual"])
)
def test_every_tile_equals_the_oracle(name):
    workload = lw.workload(DEFINITIONS[name]())
    for sketch in lw.space(workload, HERE).data_dependent[::2]:
        knob = max(
            (k for k in sketch.knobs if k.name.startswith("tile")), key=lambda k: int(k.name[4:])
        )
        for tile in knob.choices[:: max(1, len(knob.choices) // 6)]:
            assert_equal(workload, [sketch.config(**{knob.name: tile})], 0.5)


@runs
def test_code_for_avx2_equals_the_oracle():
    workload = lw.workload(with_bias_relu_and_residual(96, 128))
    found = space_on(workload, AVX2).data_dependent
    assert found
    narrow = replace(AVX2_SMALL, triple=HERE.triple, mcpu="haswell")
    for s in space_on(workload, narrow).data_dependent:
        assert_equal(workload, [s.at(s.default)], 0.5, narrow)


@runs
def test_one_thread_gives_the_same_as_two():
    workload = lw.workload(pointwise(channels=96))
    inputs = inputs_with_zeros(workload, 0.5)
    one, two = (
        lw.build(workload, s.at(s.default), target)(*inputs)
        for target in (ALONE, HERE)
        for s in lw.space(workload, target).data_dependent[:1]
    )
    np.testing.assert_array_equal(one, two)


@runs
def test_what_is_no_number_or_infinite_in_the_data_shows():
    workload = lw.workload(product(16, 64, 64))
    x, y = inputs_with_zeros(workload, 0.5)
    x[3, 5], x[4, 40] = np.nan, np.inf
    for s in lw.space(workload, HERE).data_dependent:
        with np.errstate(invalid="ignore"):
            made = lw.build(workload, s.at(s.default), target=HERE)(x, y)
        assert np.isnan(made[3]).all()
        assert np.isinf(made[4]).all()
        assert np.isfinite(np.delete(made, (3, 4), axis=0)).all()


@runs
def test_a_negative_zero_is_a_zero():
    workload = lw.workload(product(16, 64, 32))
    x, y = inputs_with_zeros(workload, 0.0)
    x[...] = -0.0
    for s in lw.space(workload, HERE).data_dependent:
        assert not lw.build(workload, s.at(s.default), target=HERE)(x, y).any()


@pytest.mark.parametrize(
    "definition",
    [
        lambda: product(24, 64, 64, constant=False),
        lambda: product(24, 64, 63),
        lambda: product(24, 72, 64),
        lambda: product(4, 64, 64),
        lambda: product(1, 64, 64),
        lambda: ops.conv2d(T("x", 1, 64, 8, 8), T("w", 64, 64, 1, 1, constant=True)),
    ],
    ids=[
        "other_weights",
        "odd_depth",
        "odd_columns",
        "few_rows",
        "one_row_of_few",
        "channels_first",
    ],
)
def test_other_products_have_no_such_program(definition):
    assert not space_on(
        lw.workload(definition()), Target(vector_bytes=64, threads=2)
    ).data_dependent


def test_processors_without_the_instruction_have_no_such_program():
    arm = Target(triple="aarch64-linux-gnu", vector_bytes=16, vector_registers=32, threads=2)
    assert not space_on(lw.workload(pointwise()), arm).data_dependent


def test_no_search_draws_them_and_records_may_name_them():
    space = lw.space(lw.workload(pointwise()), AVX2_SMALL)
    config = space.data_dependent[0].at(space.data_dependent[0].default)
    assert config in space.whole
    assert find_sketch(space.workload, AVX2_SMALL, config.sketch).config() == config
    assert not any("activation_sparsity" in s.derivation.names for s in space.sketches)


def test_trees_satisfy_the_verifier_for_all_tiles():
    for target, name in itertools.product((AVX2, Target(vector_bytes=64, threads=2)), DEFINITIONS):
        for sketch in space_on(lw.workload(DEFINITIONS[name]()), target).data_dependent:
            most = max(len(k.choices) for k in sketch.knobs)
            rows = [[n % len(k.choices) for k in sketch.knobs] for n in range(most)]
            verify(lower(sketch, target, np.array(rows)))
