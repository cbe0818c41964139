"""Tensors without elements, and without axes."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl.errors import NotationError
from loopwright.dsl.oracle import evaluate
from loopwright.dsl.workload import Workload

T = lw.tensor
i, j = lw.indices("i j")


def drawn(shape):
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("target", ["cpu", "c"])
@pytest.mark.parametrize(
    ("spec", "shapes"),
    [
        ("ij,j->i", [(0, 3), (3,)]),
        ("ij,jk->ik", [(3, 0), (0, 4)]),
        ("ij,jk->ik", [(3, 1), (0, 5)]),
        ("abc,a,b->c", [(1, 1, 0), (1,), (1,)]),
        ("i,j,k->ijk", [(2,), (0,), (4,)]),
        ("ij,jk,kl->il", [(2, 3), (3, 0), (0, 4)]),
        ("ij->", [(0, 3)]),
        ("->", [()]),
        (",ij->ij", [(), (2, 3)]),
        ("ij->", [(2, 3)]),
    ],
)
def test_einsum_gives_what_numpy_gives(spec, shapes, target):
    tensors = [T(f"t{n}", shape) for n, shape in enumerate(shapes)]
    given = [drawn(shape) for shape in shapes]
    work = lw.workload(lw.einsum(spec, *tensors))
    wanted = np.asarray(np.einsum(spec, *given))
    found = lw.build(work, target=target, threads=1)(*given)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    np.testing.assert_allclose(evaluate(work, given)[0], wanted, rtol=1e-5)
    assert Workload.from_json(work.to_json()).key == work.key


@pytest.mark.parametrize(
    "make", [lw.ops.relu, lw.ops.softmax, lw.ops.layer_norm, lambda x: lw.ops.add(x, 1)]
)
def test_operators_of_nothing_give_nothing(make):
    assert lw.build(make(T("x", (0, 5))))(np.zeros((0, 5), "float32")).shape == (0, 5)


def test_truth_values_of_nothing_are_false():
    found = lw.build(lw.einsum("ij,jk->ik", T("a", (2, 0), "bool"), T("b", (0, 3), "bool")))
    np.testing.assert_array_equal(
        found(np.zeros((2, 0), bool), np.zeros((0, 3), bool)), np.zeros((2, 3), bool)
    )


def test_padding_nothing_gives_the_padding():
    out = lw.pad(T("x", (0, 5)), ((1, 1), (0, 0)), 2.0)
    given = np.zeros((0, 5), "float32")
    np.testing.assert_array_equal(lw.build(out)(given), np.full((2, 5), 2.0))
    np.testing.assert_array_equal(evaluate(lw.workload(out), [given])[0], np.full((2, 5), 2.0))


def test_a_layer_of_no_features_is_its_bias_and_of_no_rows_nothing(tmp_path):
    def layer(rows, features):
        w = T("w", (6, features), constant=True)
        return lw.ops.dense(T("x", (rows, features)), w, T("b", (6,)))

    def arrays(rows, features):
        return drawn((rows, features)), drawn((6, features)), drawn(6)

    bias = np.broadcast_to(drawn(6), (2, 6))
    np.testing.assert_array_equal(lw.build(layer(2, 0))(*arrays(2, 0)), bias)
    none = lw.build(layer(0, 4))
    assert none(*arrays(0, 4)).shape == (0, 6)
    assert lw.load(none.export(tmp_path / "none.so"))(*arrays(0, 4)).shape == (0, 6)


def test_some_outputs_may_be_nothing():
    x, y, empty, full = T("x", (3, 0)), T("y", (3,)), T("empty"), T("full")
    empty[i, j] = x[i, j] * y[i]
    full[i] += x[i, j] * y[i]
    library = lw.build(lw.workload(empty, full, inputs=[x, y]))
    one, other = library(np.zeros((3, 0), "float32"), drawn(3))
    assert one.shape == (3, 0)
    np.testing.assert_array_equal(other, np.zeros(3))


def test_the_product_of_nothing_is_one_and_its_maximum_an_error():
    x, out = T("x", (3, 0)), T("out")
    out[i] = lw.prod(x[i, j])
    np.testing.assert_array_equal(lw.build(out)(np.zeros((3, 0), "float32")), np.ones(3))
    with pytest.raises(NotationError, match=r"the max over j, which has extent 0.*has no value"):
        T("most")[i] = lw.max(x[i, j])
    none = T("none")
    none[j] = lw.max(T("y", (3, 0))[i, j])  # of which there is no result
    assert lw.build(none)(np.zeros((3, 0), "float32")).shape == (0,)


def test_there_is_nothing_to_choose_for_nothing():
    work = lw.workload(lw.ops.matmul(T("a", (0, 4)), T("b", (4, 4))))
    with pytest.raises(NotationError, match=r"no elements.*lw\.build"):
        lw.space(work)
