"""What the registry derives: by name alone, and as far as numerics allow."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.build import program
from loopwright.dsl import ops
from loopwright.dsl.errors import ConfigError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.oracle import evaluate, random_inputs, tolerance
from loopwright.schedule.lowering import lower
from loopwright.schedule.registry import REWRITES
from loopwright.schedule.sketch.naming import Derivation, SketchName, Step
from loopwright.schedule.space import default_sketch, find_sketch, space
from loopwright.schedule.tree.printer import show
from tests.collection import WORKLOADS
from tests.schedule.test_gpu_lower import CUDA
from tests.sketches import of_each_program
from tests.targets import AVX2_SMALL, AVX512_LARGE, HERE

pytestmark = pytest.mark.sampled(0.34)


def tensor(name, *shape, constant=False):
    return lw.tensor(name, shape, constant=constant)


def square(channels, **options):
    """A convolution of 3×3 that every rewrite for windows meets."""
    x, w = tensor("x", 1, channels, 28, 28), tensor("w", 64, channels, 3, 3, constant=True)
    return lw.workload(ops.relu(ops.conv2d(x, w, padding=1, **options)))


def large_product():
    """A matrix product that is halved, and whose weights no cache holds."""
    x, w = tensor("x", 100, 640), tensor("w", 640, 1024, constant=True)
    return lw.workload(ops.matmul(x, w))


OPERATORS = [
    "matmul_of_odd_extents",
    "matmul_in_int8_accumulated_in_int32",
    "dense_of_batch_1_with_weights_unknown",
    "conv2d_with_constant_weights_bias_and_relu",
    "conv2d_in_groups",
    "depthwise_conv2d",
    "conv2d_transpose",
    "max_pool2d",
    "softmax",
    "layer_norm",
    "contraction_that_transposes",
    "long_dot_product_over_threads",
]
MADE = {name: WORKLOADS[name] for name in OPERATORS} | {
    "square": lambda: square(64),
    "square_by_two": lambda: square(64, stride=2),
    "large_product": large_product,
}
CPUS = pytest.mark.parametrize("target", [AVX2_SMALL, AVX512_LARGE], ids=["AVX2", "AVX-512"])
WORDS = ("strict", "standard", "fast")


def said(sketch):
    """What tells a sketch from others; loops of one are none of another's."""
    known = (sketch.name, sketch.knobs, sketch.default, sketch.knobs_of)
    return (*known, sketch.error_growth, sketch.numerics)


def tree(sketch, target):
    return show(lower(sketch, target, sketch.config()))


SLOW = [pytest.param(n, marks=pytest.mark.slow) if n == "square_by_two" else n for n in MADE]
"""A convolution by two has hundreds of sketches."""


@CPUS
@pytest.mark.parametrize("name", SLOW)
def test_every_sketch_is_found_by_its_name_alone(name, target):
    workload = MADE[name]()
    points = space(workload, target, "fast").whole
    for sketch in points.sketches:
        assert said(find_sketch(workload, target, sketch.name)) == said(sketch)
    for sketch in of_each_program(points.sketches).values():
        found = find_sketch(workload, target, sketch.name)
        assert tree(found, target) == tree(sketch, target)


@pytest.mark.parametrize("name", ["matmul_of_odd_extents", "softmax", "square"])
def test_every_sketch_for_a_gpu_is_found_by_its_name_alone(name):
    workload = MADE[name]()
    for sketch in space(workload, CUDA, "fast").sketches:
        assert said(find_sketch(workload, CUDA, sketch.name)) == said(sketch)


@pytest.mark.parametrize("word", WORDS)
@CPUS
@pytest.mark.parametrize("name", MADE)
def test_the_default_sketch_is_the_first_of_the_space(name, target, word):
    workload = MADE[name]()
    first = space(workload, target, word).sketches[0]
    assert said(default_sketch(workload, target, Numerics.of(word))) == said(first)


@CPUS
@pytest.mark.parametrize("name", MADE)
def test_each_word_allows_what_the_words_before_it_allow(name, target):
    """Strict spaces alone have programs with every zero, where others skip zeros."""
    workload = MADE[name]()
    strict, standard, fast = (space(workload, target, word) for word in WORDS)
    for points in (strict, standard, fast):
        assert {s.numerics for s in points.whole.sketches} <= {*range(points.numerics + 1)}
    dense = {s.name for s in strict.sketches if "explicit_zeros" in s.derivation.names}
    assert {s.name for s in strict.sketches} - dense <= {s.name for s in standard.sketches}
    assert {s.name for s in standard.sketches} <= {s.name for s in fast.sketches}


@pytest.mark.parametrize("target", [AVX2_SMALL, CUDA], ids=["processor", "GPU"])
def test_the_definition_s_own_zeros_are_multiplied_where_numerics_are_strict(target):
    workload = WORKLOADS["conv2d_transpose"]()
    names = {
        word: {s.derivation.names for s in space(workload, target, word).sketches}
        for word in ("strict", "standard")
    }
    assert ("explicit_zeros",) in names["strict"]
    assert () not in names["strict"]
    assert () in names["standard"]
    assert ("explicit_zeros",) not in names["standard"]


@pytest.mark.parametrize("name", ["conv2d_transpose", "square", "depthwise_conv2d"])
def test_strict_programs_have_infinities_and_nan_where_the_definition_has_them(name):
    workload = square(8) if name == "square" else WORKLOADS[name]()
    inputs = random_inputs(workload, np.random.default_rng(0))
    inputs[1].flat[::7] = np.inf
    (expected,) = evaluate(workload, inputs)
    assert np.isnan(expected).any()
    rtol, atol = tolerance(workload)
    for sketch in of_each_program(space(workload, HERE, "strict").sketches).values():
        found = lw.build(workload, sketch.config(), HERE)(*inputs)
        np.testing.assert_allclose(found, expected, rtol, atol, err_msg=str(sketch.name))


def test_a_config_that_numerics_do_not_allow_is_refused_with_both_words():
    workload = square(64)
    by = {s.numerics: s.config() for s in space(workload, HERE, "fast").sketches}
    assert set(by) == set(Numerics)
    for needed, allowed in (("fast", "standard"), ("fast", "strict"), ("standard", "strict")):
        message = rf'has {needed} numerics, and numerics="{allowed}" is asked for'
        with pytest.raises(ConfigError, match=message):
            lw.build(workload, by[Numerics.of(needed)], HERE, numerics=allowed)


def test_a_config_without_numerics_is_of_its_own_program():
    workload = square(16)
    fast = next(s for s in space(workload, HERE, "fast").sketches if s.numerics == Numerics.FAST)
    assert program(workload, fast.config(), HERE).numerics == Numerics.FAST
    lw.build(workload, fast.config(), HERE)


@pytest.mark.parametrize("word", ["exact", "", None, 1])
def test_an_unknown_word_is_refused_with_those_that_there_are(word):
    message = r'use one of "strict", "standard", "fast"'
    with pytest.raises(ConfigError, match=message):
        lw.space(square(16), HERE, numerics=word)
    if word is not None:  # which is the default
        with pytest.raises(ConfigError, match=message):
            lw.build(square(16), target=HERE, numerics=word)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Step("unpadded"), "'unpadded' is no rewrite of this version; there are rfactor"),
        (Step("padding_at_blocks"), "parameters that it does not take"),
        (Step("ttgt"), "has no program by ttgt on this target"),
        (Step("winograd", (("results", 0),)), "winograd"),
        (Step("rfactor", (("stage", 99), ("parts", 2))), "rfactor"),
        (Step("padding_at_blocks", (("rows", 0),)), "padding_at_blocks"),
        (Step("activation_sparsity", (("depth", 0),)), "activation_sparsity"),
    ],
)
def test_a_derivation_that_makes_no_program_is_an_error_that_names_it(step, message):
    workload = square(16)
    name = SketchName(Derivation((step,)), "vector=1")
    with pytest.raises(ConfigError, match=message):
        find_sketch(workload, HERE, name)


def test_a_structure_that_a_program_has_not_is_an_error_that_shows_one():
    name = SketchName(Derivation(), "vector=99")
    with pytest.raises(ConfigError, match=r"no sketch 'vector=99' of the program direct.*such as"):
        find_sketch(square(16), HERE, name)


def test_rewrites_have_different_names_and_stand_behind_those_on_whose_programs_they_work():
    names = [rewrite.name for rewrite in REWRITES]
    assert len(set(names)) == len(names)
    for number, rewrite in enumerate(REWRITES):
        assert {*rewrite.of} <= {"direct", *names[:number]}
