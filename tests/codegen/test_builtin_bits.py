"""Built-in code rounds as LLVM's does: results are equal to the last bit."""

import numpy as np
import pytest

import loopwright as lw
from tests.codegen.test_builtin import MACHINES, t

pytestmark = pytest.mark.optimized  # which products go into sums is LLVM's choice

SUMS = {
    "two products": lambda a, b, c: a * 0.3 + b * 0.7,
    "three products": lambda a, b, c: a * 0.3 + b * 0.7 + c * 0.1,
    "a difference of products": lambda a, b, c: a * 0.3 - b * 0.7,
    "a negative factor": lambda a, b, c: a * -0.3 - b * 0.7 - c * 0.1,
    "a product first": lambda a, b, c: a * b + c,
    "a product last": lambda a, b, c: c - a * b,
    "squares": lambda a, b, c: a * a + b * b,
    "a sum of differences": lambda a, b, c: (a * b - c * 0.1) + (b * c - a * 0.3),
}
FUNCTIONS = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sigmoid",
    "erf",
    "floor",
    "ceil",
    "trunc",
    "round",
    "abs",
]


def assert_equal_bits(definition, inputs, target):
    library = lw.build(definition, target=target, codegen="builtin")
    assert library.codegen == "builtin"
    np.testing.assert_array_equal(library(*inputs), lw.build(definition, target=target)(*inputs))


@pytest.mark.parametrize("vectors", MACHINES)
@pytest.mark.parametrize("name", SUMS)
def test_a_sum_of_products_fuses_the_one_that_llvm_fuses(name, vectors):
    (i,) = lw.indices("i")
    tensors, y = [t(letter, 307) for letter in "abc"], lw.tensor("y")
    y[i] = SUMS[name](*(tensor[i] for tensor in tensors))
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(307).astype("f4") for _ in lw.workload(y).inputs]
    assert_equal_bits(y, inputs, MACHINES[vectors](1))


@pytest.mark.parametrize("vectors", MACHINES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_elementary_function_rounds_as_in_llvms_code(name, vectors):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal(500) * 3, np.exp(rng.standard_normal(500) * 20)])
    (i,) = lw.indices("i")
    a, y = t("a", 1000), lw.tensor("y")
    y[i] = getattr(lw, name)(a[i])
    assert_equal_bits(y, [x.astype("f4")], MACHINES[vectors](1))
