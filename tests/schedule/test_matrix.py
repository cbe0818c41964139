"""Contractions as matrix products over a copied operand equal the oracle."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from tests.codegen.test_build import assert_configs_equal_oracle


def contraction(spec, sizes, constant=False, last=None):
    """An einsum of two tensors, whose axes have the sizes of their letters."""
    first, second = spec.split("->")[0].split(",")
    x = lw.tensor("x", [sizes[i] for i in first])
    y = lw.tensor("y", [sizes[i] for i in second], constant=constant)
    out = lw.einsum(spec, x, y)
    return lw.workload(out if last is None else last(out))


SIZES = dict(zip("abcdef", (6, 7, 8, 5, 3, 9), strict=True))
CASES = {
    "along vectors": lambda: contraction("aebf,fdec->abcd", SIZES),
    "across vectors": lambda: contraction("fbec,aedf->abcd", {**SIZES, "d": 20}),
    "a batch": lambda: contraction("nij,njlk->nikl", {"n": 3, "i": 33, "j": 8, "k": 7, "l": 6}),
    "constants": lambda: contraction(
        "ij,ljk->ikl", {"i": 33, "j": 8, "k": 7, "l": 6}, constant=True
    ),
    "an epilogue": lambda: contraction("aebf,fdec->abcd", SIZES, last=ops.relu),
}


def sketches_of(workload):
    sketches = lw.space(workload, threads=2).sketches
    return [s for s in sketches if s.rewrite == "matrix"]


@pytest.mark.parametrize("name", CASES)
def test_a_copied_operand_equals_the_oracle(name):
    workload, rng = CASES[name](), np.random.default_rng(0)
    sketches = sketches_of(workload)
    configs = [sketches[0].at(sketches[0].default)]
    for _ in range(4):
        sketch = sketches[rng.integers(len(sketches))]
        configs.append(sketch.at([int(rng.integers(len(k.choices))) for k in sketch.knobs]))
    assert_configs_equal_oracle(workload, configs, threads=2)


def test_the_axes_of_the_copy_merge():
    product = sketches_of(CASES["along vectors"]())[0].nests[-1].nest
    assert max(product.extents.values()) == SIZES["c"] * SIZES["d"]


@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        ("ij,jk->ik", {"i": 64, "j": 64, "k": 64}),
        ("aebf,efcd->abcd", {**SIZES, "b": 1}),
        ("aebf,fdec->acbd", SIZES),
        ("aebf,fdec->abcd", {**SIZES, "a": 2, "b": 2, "c": 2, "d": 2}),
    ],
    ids=["a matrix product", "side by side already", "not in the result", "few uses"],
)
def test_where_no_axes_would_merge_or_it_does_not_pay_there_is_none(spec, sizes):
    assert not sketches_of(contraction(spec, sizes))
