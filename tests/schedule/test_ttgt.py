"""Contractions as matrix products over a copied operand equal the oracle."""

import pytest

import loopwright as lw
from loopwright.dsl import ops
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.sketches import derived, random_configs
from tests.targets import HERE
from tests.thin import thinned


def contraction(spec, sizes, constant=False, last=None, dtype="float32"):
    """An einsum of two tensors, whose axes have the sizes of their letters."""
    first, second = spec.split("->")[0].split(",")
    x = lw.tensor("x", [sizes[i] for i in first], dtype)
    y = lw.tensor("y", [sizes[i] for i in second], dtype, constant=constant)
    out = lw.einsum(spec, x, y)
    return lw.workload(out if last is None else last(out))


SIZES = dict(zip("abcdef", (6, 7, 8, 5, 3, 9), strict=True))


def a_stage_of_a_taken_name():
    """The operand is made from another, and the name of its copy is one of an input's."""
    i, j, k, m = lw.indices("i j k m")
    x, made, out = lw.tensor("x", (33, 8)), lw.tensor("made"), lw.tensor("out")
    y, taken = lw.tensor("y", (7, 8, 6)), lw.tensor("made_matrix", (7, 8, 6))
    made[k, j, m] = y[k, j, m] * lw.exp(taken[k, j, m])
    out[i, m, k] += x[i, j] * made[k, j, m]
    return lw.workload(out)


def the_same_tensor_twice():
    x = lw.tensor("x", (6, 8, 6))
    return lw.workload(lw.einsum("iem,kej->imkj", x, x))


CASES = {
    "along vectors": lambda: contraction("aebf,fdec->abcd", SIZES),
    "across vectors": lambda: contraction("fbec,aedf->abcd", {**SIZES, "d": 20}),
    "a batch": lambda: contraction("nij,njlk->nikl", {"n": 3, "i": 33, "j": 8, "k": 7, "l": 6}),
    "a batch of one": lambda: contraction("naebf,fdec->nabcd", {**SIZES, "n": 1}),
    "constants": lambda: contraction(
        "ij,ljk->ikl", {"i": 33, "j": 8, "k": 7, "l": 6}, constant=True
    ),
    "an epilogue": lambda: contraction("aebf,fdec->abcd", SIZES, last=ops.relu),
    "a stage of a taken name": a_stage_of_a_taken_name,
    "the same tensor twice": the_same_tensor_twice,
    "integers": lambda: contraction("aebf,fdec->abcd", SIZES, dtype="int32"),
}


def sketches_of(workload):
    return derived(lw.space(workload, HERE).sketches, "ttgt")


@pytest.mark.parametrize("name", thinned(CASES))
def test_a_copied_operand_equals_the_oracle(name):
    workload = CASES[name]()
    sketches = sketches_of(workload)
    configs = [sketches[0].at(sketches[0].default), *random_configs(sketches, 3)]
    assert_configs_equal_oracle(workload, configs)


def test_the_axes_of_the_copy_merge():
    product = sketches_of(CASES["along vectors"]())[0].nests[-1].nest
    assert max(product.extents.values()) == SIZES["c"] * SIZES["d"]


def biased(out):
    """Plus a bias along one of the axes that would merge."""
    a, b, c, d = lw.indices("a b c d")
    bias, biased = lw.tensor("bias", (SIZES["d"],)), lw.tensor("biased")
    biased[a, b, c, d] = out[a, b, c, d] + bias[d]
    return biased


NONE = {
    "a matrix product": lambda: contraction("ij,jk->ik", {"i": 64, "j": 64, "k": 64}),
    "side by side already": lambda: contraction("abef,efcd->abcd", SIZES),
    "side by side in no result": lambda: contraction("aebf,fdec->acbd", SIZES),
    "a batch that the other has apart": lambda: contraction(
        "bihd,bjhd->bhij", {"b": 2, "i": 40, "h": 3, "j": 40, "d": 8}
    ),
    "few uses": lambda: contraction("aebf,fdec->abcd", dict.fromkeys("abcdef", 5)),
    "a bias along one of two axes": lambda: contraction("abef,fdec->abcd", SIZES, last=biased),
}


@pytest.mark.parametrize("name", NONE)
def test_where_no_axes_would_merge_or_it_does_not_pay_there_is_none(name):
    assert not sketches_of(NONE[name]())
