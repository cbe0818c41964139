"""Each workload of the collection, by its default config and random ones, equals the oracle."""

import numpy as np
import pytest
from hypothesis import settings

import loopwright as lw
from loopwright.codegen.build import program
from loopwright.codegen.target import resolve
from loopwright.dsl.errors import BuildError, ConfigError, NotationError
from loopwright.dsl.oracle import evaluate, random_inputs, tolerance
from tests.collection import WORKLOADS
from tests.targets import ALONE, HERE
from tests.thin import several

pytestmark = [pytest.mark.optimized, pytest.mark.sampled(0.34)]

RANDOM_CONFIGS = several(settings().max_examples // 8)


def assert_equals_oracle(workload, library, inputs, expected, growth=1.0):
    outputs = library(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    rtol, atol = tolerance(workload, growth)
    for output, reference in zip(outputs, expected, strict=True):
        assert output.dtype == reference.dtype
        np.testing.assert_allclose(
            output.astype(np.float64), reference.astype(np.float64), rtol, atol
        )


def assert_configs_equal_oracle(workload, configs, target=HERE, threads=None):
    target = resolve(target, threads)
    inputs = random_inputs(workload, np.random.default_rng(0))
    expected = evaluate(workload, inputs)
    for config in configs:
        made = program(workload, config, target)
        library = lw.build(workload, config, target)
        try:
            assert_equals_oracle(workload, library, inputs, expected, made.error_growth)
        except AssertionError as error:
            raise AssertionError(f"{config}\n{library.source('tree')}\n{error}") from error


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_default_config_and_random_ones_equal_the_oracle(name):
    workload = WORKLOADS[name]()
    space, rng = lw.space(workload, HERE), np.random.default_rng(1)
    configs = [space.default, *(space.sample(rng) for _ in range(RANDOM_CONFIGS))]
    assert_configs_equal_oracle(workload, configs)


@pytest.mark.parametrize(
    "name", ["conv2d_with_residual", "softmax", "attention_with_a_causal_mask"]
)
def test_one_thread_gives_the_same_as_two(name):
    workload = WORKLOADS[name]()
    inputs = random_inputs(workload, np.random.default_rng(0))
    alone = lw.build(workload, target=ALONE)(*inputs)
    together = lw.build(workload, target=HERE)(*inputs)
    np.testing.assert_allclose(alone, together, rtol=1e-5, atol=1e-5)


def test_bound_constants_give_the_same_as_constants_at_the_call():
    workload = WORKLOADS["conv2d_with_constant_weights_bias_and_relu"]()
    x, w, b = random_inputs(workload, np.random.default_rng(0))
    packing = next(s for s in lw.space(workload, HERE).sketches if "pack" in s.name.structure)
    library = lw.build(workload, packing.at(packing.default), HERE)
    assert library.signature.prepared
    np.testing.assert_array_equal(library.bind(W=w)(x, b), library(x, w, b))


def test_stages_of_constants_alone_run_ahead_of_time():
    workload = WORKLOADS["weights_computed_from_constants"]()
    tree = lw.build(workload, target=HERE).source("tree")
    prepare, main = tree.split("main(")
    assert "exp(" in prepare
    assert "exp(" not in main


def test_a_defined_tensor_builds_like_its_workload():
    X = lw.tensor("X", (19,))
    Y = lw.ops.relu(X)
    x = np.linspace(-1, 1, 19, dtype=np.float32)
    np.testing.assert_array_equal(lw.build(Y)(x), np.maximum(x, 0))
    assert lw.space(Y, HERE) is lw.space(lw.workload(Y), HERE)
    for wanted in (lw.build, lw.space):
        with pytest.raises(NotationError, match="is not defined"):
            wanted(X)
        with pytest.raises(NotationError, match=r"list \[Tensor.* is no workload: .*lw\.workload"):
            wanted([Y])


@pytest.mark.parametrize("door", [lw.workload, lw.build, lw.space, lw.explain, lw.tune])
def test_an_array_in_place_of_a_workload_is_named_by_its_shape(door):
    with pytest.raises(NotationError, match=r"^ndarray of shape \(40, 50\) is no .*lw\.einsum\("):
        door(np.ones((40, 50)))


def test_a_config_of_another_type_is_refused():
    with pytest.raises(ConfigError, match=r"str 'x' is no config: .*a target by target="):
        lw.build(WORKLOADS["conv2d"](), config="x")


def test_building_twice_gives_the_same_numbers_bit_for_bit():
    workload = WORKLOADS["conv2d"]()
    inputs = random_inputs(workload, np.random.default_rng(0))
    first, second = (lw.build(workload)(*inputs) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_tensors_may_have_the_names_that_the_lowering_uses():
    acc, packed = lw.tensor("acc", (19, 23)), lw.tensor("acc_packed", (23, 17))
    W = lw.tensor("W", (23, 17), constant=True)
    W_packed = lw.tensor("W_packed")
    i, j, k = lw.indices("i j k")
    W_packed[i, j] += acc[i, k] * W[k, j]
    out = lw.tensor("main")
    out[i, j] = W_packed[i, j] + packed[i + 2, j]
    assert_configs_equal_oracle(lw.workload(out), [None])


def test_a_long_chain_of_definitions_builds():
    x = lw.tensor("x", (37,))
    (i,) = lw.indices("i")
    for _ in range(300):
        y = lw.tensor("y")
        y[i] = x[i] * 0.99 + 0.01
        x = y
    assert_configs_equal_oracle(lw.workload(x), [None])


def test_a_buffer_that_32_bits_cannot_index_is_an_error():
    X, Y = lw.tensor("X", (1 << 16, 1 << 15), "int8"), lw.tensor("Y")
    i, j = lw.indices("i j")
    Y[i, j] = X[i, j] + 1
    with pytest.raises(BuildError, match="32 bits wide"):
        lw.build(lw.workload(Y))


def test_workloads_that_differ_in_names_only_build_one_after_the_other():
    for x, w, y in (("X", "W", "Y"), ("Q", "V", "Z"), ("W", "X", "Y")):
        A, B, C = lw.tensor(x, (37, 40)), lw.tensor(w, (40, 50), constant=True), lw.tensor(y)
        i, j, k = lw.indices("i j k")
        C[i, j] += A[i, k] * B[k, j]
        assert_configs_equal_oracle(lw.workload(C), [None])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_is_not_equal_to_itself(dtype):
    X, Y = lw.tensor("X", (19,), dtype), lw.tensor("Y")
    (i,) = lw.indices("i")
    same, differs = lw.equal(X[i], X[i]), lw.not_equal(X[i], X[i])
    Y[i] = lw.where(same, 1.0, lw.where(differs, 4.0, 0.0)) + lw.where(~(X[i] < 0.0), 2.0, 0.0)
    x = np.linspace(-1, 1, 19).astype(dtype)
    x[[2, 17]] = np.nan
    workload = lw.workload(Y)
    np.testing.assert_array_equal(lw.build(workload)(x), evaluate(workload, (x,))[0])


def test_integers_wrap():
    X, Y = lw.tensor("X", (19,), "int32"), lw.tensor("Y")
    (i,) = lw.indices("i")
    Y[i] = (X[i] * 3) // 3 + lw.where(X[i] + 1 > X[i], 1, 0)
    x = np.full(19, 2**30 + 5, np.int32)
    x[5] = 2**31 - 1
    workload = lw.workload(Y)
    np.testing.assert_array_equal(lw.build(workload)(x), evaluate(workload, (x,))[0])


def evaluated(made, *inputs, target="cpu"):
    """What a workload of some definitions gives, and what it should."""
    workload = lw.workload(*made)
    found = lw.build(workload, target=target, threads=1)(*inputs)
    return zip(found if isinstance(found, tuple) else (found,), evaluate(workload, inputs))


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_integers_that_have_wrapped_are_divided_with_the_floor(target):
    U, Y, Z, W = lw.tensor("U", (256,), "uint8"), *map(lw.tensor, "YZW")
    (i,) = lw.indices("i")
    Y[i] = lw.cast(U[i], "int8") // 3
    Z[i] = (lw.cast(U[i], "int32") * 20_000_000) % 7
    W[i] = lw.cast(U[i] // 7, "int32") - (lw.cast(U[i], "int32") * 20_000_000) // -16
    for found, expected in evaluated((Y, Z, W), np.arange(256, dtype=np.uint8), target=target):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_index_arithmetic_may_exceed_32_bits(target):
    X, Y, Z = lw.tensor("X", (441_000,)), lw.tensor("Y"), lw.tensor("Z")
    n, m = lw.indices(n=480_000, m=100_000)
    Y[n] = X[(n * 44_100) // 48_000]
    Z[m] = X[(-m) % 100_000] + X[(m * 44_100 + 7) % 99_991]
    x = np.arange(441_000, dtype=np.float32)
    for found, expected in evaluated((Y, Z), x, target=target):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_floats_are_not_taken_for_reals(target):
    X, *made = lw.tensor("X", (19,)), *map(lw.tensor, "ABCDE")
    (i,) = lw.indices("i")
    x = X[i]
    bodies = (x * 0.0, 0.0 / x, x + 0.0, x / 0.0, 0.0 - x)
    for tensor, body in zip(made, bodies):
        tensor[i] = body
    values = np.linspace(-3, 3, 19).astype(np.float32)
    values[[1, 5, 9, 13, 17]] = [np.nan, np.inf, 0.0, -0.0, -np.inf]
    with np.errstate(all="ignore"):
        for found, body in zip(
            lw.build(lw.workload(*made), target=target, threads=1)(values),
            (values * 0, 0 / values, values + 0, values / 0, 0 - values),
        ):
            np.testing.assert_array_equal(found, body)
            np.testing.assert_array_equal(np.signbit(found)[2:], np.signbit(body)[2:])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_constants_of_c_source_are_exact(dtype):
    X, Y, Z = lw.tensor("X", (7,), dtype), lw.tensor("Y"), lw.tensor("Z")
    (i,) = lw.indices("i")
    Y[i] = X[i] * 3.141592653589793 + 1.0000001
    Z[i] = lw.where(X[i] < 3, X[i], float("nan")) * 1e30
    x = np.arange(7).astype(dtype)
    for found, expected in evaluated((Y, Z), x, target="c"):
        np.testing.assert_allclose(found, expected, rtol=2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("target", ["cpu", "c"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integer_arithmetic_with_zero_and_negation(dtype, target):
    X, Y, Z = lw.tensor("X", (23,), dtype), lw.tensor("Y"), lw.tensor("Z")
    (i,) = lw.indices("i")
    x = X[i]
    Y[i] = lw.where(0 - x < x, -x, x * 0 + x) - (3 - x) * (x - 7) // 5
    Z[i] = lw.max(x, -x) + x * (0 - lw.cast(i, dtype))
    assert_configs_equal_oracle(lw.workload(Y, Z), [None], target=target, threads=1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_c_source_reduces_in_half_precision(dtype):
    X, S, M = lw.tensor("X", (7, 9), dtype), lw.tensor("S"), lw.tensor("M")
    i, j = lw.indices("i j")
    S[i] += X[i, j]
    M[i] = lw.min(X[i, j])
    assert_configs_equal_oracle(lw.workload(S, M), [None], target="c", threads=1)


def test_a_library_of_c_source_with_temporaries_exports(tmp_path):
    A, B, C, D = lw.tensor("A", (64, 64)), lw.tensor("B", (64, 64)), lw.tensor("C"), lw.tensor("D")
    i, j, k = lw.indices("i j k")
    C[i, j] += A[i, k] * B[k, j]
    D[i] = lw.max(C[i, j])
    workload = lw.workload(D)
    inputs = random_inputs(workload, np.random.default_rng(0))
    loaded = lw.load(lw.build(workload, target="c", threads=2).export(tmp_path / "k.so"))
    assert_equals_oracle(workload, loaded, inputs, evaluate(workload, inputs))
