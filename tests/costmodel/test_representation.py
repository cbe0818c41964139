"""Every representation, on spaces of real workloads."""

import functools
import itertools

import numpy as np
import pytest

import loopwright as lw
from loopwright.costmodel.features import trace
from loopwright.costmodel.features.representation import (
    ConfigVector,
    ContextRelation,
    FlattenedTree,
    TreeText,
)
from loopwright.costmodel.model import ModelError
from loopwright.dsl import ops
from loopwright.schedule.lowering import lower
from loopwright.schedule.sketch.sketch import Knob, Sketch
from loopwright.schedule.space import Space, space
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Var
from tests.costmodel.trees import buffer, multiply_add, nest, tree
from tests.sketches import direct

pytestmark = pytest.mark.sampled(0.34)

TARGET = Target(threads=2)
REPRESENTATIONS = [ContextRelation, FlattenedTree, TreeText, ConfigVector]


def conv():
    weights = lw.tensor("W", (24, 6, 3, 3), constant=True)
    out = ops.relu(ops.conv2d(lw.tensor("X", (1, 6, 15, 13)), weights, padding=1))
    return lw.workload(out)


def matmul(a="A", b="B", c="C"):
    i, j, k = lw.indices(f"{a}i {b}j {c}k")
    A, B, C = lw.tensor(a, (37, 50)), lw.tensor(b, (50, 29)), lw.tensor(c)
    C[i, j] += A[i, k] * B[k, j]
    return lw.workload(C)


def strided():
    weights = lw.tensor("W", (16, 3, 3, 3))
    return lw.workload(ops.conv2d(lw.tensor("X", (2, 3, 17, 17)), weights, stride=2))


def softmax():
    return lw.workload(ops.softmax(lw.tensor("X", (19, 75))))


def long_dot():
    i = lw.indices("i")
    A, B, S = lw.tensor("A", (65536,)), lw.tensor("B", (65536,)), lw.tensor("S")
    S[()] += A[i] * B[i]
    return lw.workload(S)


def long_rows():
    """Sums that are cut into blocks, whose lengths depend on a knob."""
    weights, bias = (
        lw.tensor(n, s, constant=True) for n, s in (("W", (1960, 2160)), ("B", (1960,)))
    )
    return lw.workload(ops.dense(lw.tensor("X", (1, 2160)), weights, bias))


def transposed():
    i, j = lw.indices("i j")
    A, T = lw.tensor("A", (33, 70)), lw.tensor("T")
    T[j, i] = A[i, j]
    return lw.workload(T)


def one_element():
    A, B = lw.tensor("A", (1,)), lw.tensor("B")
    i = lw.indices("i")
    B[i] = A[i] + 1.0
    return lw.workload(B)


NAMES = ContextRelation.column_names(gpu=False)
ABSOLUTE = [i for i, name in enumerate(NAMES) if not name.endswith(" to default")]
RELATIVE = [NAMES.index(f"{NAMES[i]} to default") for i in ABSOLUTE]
WORKLOADS = [one_element, conv, matmul, strided, softmax, long_dot, long_rows, transposed]


@functools.cache
def space_of(make):
    return space(make(), TARGET)


def drawn(points, sketch, n, seed=0):
    rng = np.random.default_rng(seed)
    knobs = points.sketches[sketch].knobs
    columns = [rng.integers(len(k.choices), size=n) for k in knobs]
    return np.stack(columns, axis=1) if columns else np.zeros((n, 0), np.int64)


@pytest.fixture(params=REPRESENTATIONS, ids=lambda r: r.__name__)
def representation(request):
    return request.param()


@pytest.mark.parametrize("make", WORKLOADS)
def test_features_are_finite_float32_and_named(representation, make):
    points = space_of(make)
    names = representation.names(points)
    assert len(set(names)) == len(names)
    for sketch in range(min(len(points.sketches), 4)):
        got = representation.features(points, sketch, drawn(points, sketch, 5))
        assert got.shape == (5, len(names))
        assert got.dtype == np.float32
        assert isinstance(representation, ConfigVector) or np.isfinite(got).all()


@pytest.mark.parametrize("make", WORKLOADS)
def test_a_config_has_the_same_features_alone_and_in_a_batch(representation, make):
    points = space_of(make)
    for sketch in range(min(len(points.sketches), 4)):
        numbers = drawn(points, sketch, 6, seed=sketch)
        batch = representation.features(points, sketch, numbers)
        alone = [representation.features(points, sketch, row[None]) for row in numbers]
        assert np.allclose(batch, np.concatenate(alone), rtol=1e-4, atol=1e-4, equal_nan=True)


def test_large_batches_are_cut_and_joined_again(representation, monkeypatch):
    points = space_of(matmul)
    numbers = drawn(points, 0, 50)
    whole = representation.features(points, 0, numbers)
    monkeypatch.setattr("loopwright.costmodel.features.trace._CHUNK", 16)
    assert np.array_equal(representation.features(points, 0, numbers), whole)


def test_an_empty_batch_has_no_rows(representation):
    points = space_of(matmul)
    got = representation.features(points, 0, drawn(points, 0, 0))
    assert got.shape == (0, len(representation.names(points)))


def test_names_of_tensors_and_indices_do_not_matter(representation):
    one, other = space(matmul(), TARGET), space(matmul("left", "right", "product"), TARGET)
    numbers = drawn(one, 0, 5)
    a, b = (representation.features(points, 0, numbers) for points in (one, other))
    assert np.array_equal(a, b, equal_nan=True)


def test_different_configs_have_different_features(representation):
    points = space_of(conv)
    numbers = np.unique(drawn(points, 0, 64), axis=0)
    got = representation.features(points, 0, numbers)
    assert len(np.unique(got, axis=0)) > 0.9 * len(numbers)


@pytest.mark.parametrize("make", [conv, matmul, strided])
def test_the_batch_agrees_with_the_tree_of_one_config(make):
    """`Tree.row` leaves out what has no iterations; the features must not see a difference."""
    points = space_of(make)
    for number in (0, len(points.sketches) - 1):
        tree = lower(points.sketches[number], TARGET, drawn(points, number, 4))
        batch = ContextRelation().of_tree(tree, TARGET, 1000)
        rows = [ContextRelation().of_tree(tree.row(i), TARGET, 1000) for i in range(4)]
        assert np.allclose(batch, np.concatenate(rows), rtol=1e-4, atol=1e-4)


KINDS = ("parallel", "serial", "unrolled", "vectorized")


@pytest.mark.parametrize("kinds", [*itertools.product(KINDS, repeat=2)], ids="-".join)
def test_loops_that_run_once_count_alike_alone_and_beside_others(kinds):
    """Alone they are known to do what the loop inside does."""
    x, y, z, k = map(Var, "xyzk")
    A, B, C = buffer("A", 9, 8, 7), buffer("B", 7), buffer("C", 9, 8)
    update = multiply_add(C, (x, y), A, (x, y, k), B, (k,))
    extents = np.array([1, 1, 3, 3]), np.array([1, 2, 1, 2])
    loops = zip((x, y), extents, kinds, strict=True)
    batch = tree(nest((z, 1), *loops, (k, 7), body=update), n=4)
    found = ContextRelation().of_tree(batch, TARGET, 1000)
    alone = [ContextRelation().of_tree(batch.row(i), TARGET, 1000) for i in range(4)]
    assert np.allclose(found, np.concatenate(alone), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("limit", [1, 100, trace.LIMIT])
@pytest.mark.parametrize("make", WORKLOADS)
def test_a_feature_program_agrees_with_the_batch(make, limit, monkeypatch):
    """Whatever is looked up in tables, and whatever is computed for the batch."""
    monkeypatch.setattr(trace, "LIMIT", limit)
    points = space_of(make)
    for number, sketch in enumerate(points.sketches[:6]):
        numbers = drawn(points, number, 200)
        tree = lower(sketch, TARGET, numbers)
        expected = ContextRelation().of_tree(tree, TARGET, points.workload.flops)
        got = ContextRelation().features(points, number, numbers)
        assert np.allclose(got[:, ABSOLUTE], expected, rtol=1e-4, atol=1e-4)
        directly = ContextRelation().directly(points, number, numbers)
        assert np.allclose(got, directly, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", [conv, softmax])
@pytest.mark.parametrize("kind", [ContextRelation, FlattenedTree])
def test_what_sketches_share_changes_no_feature(kind, make):
    """Traced columns and nests of earlier sketches are taken over, bit for bit."""
    points, together = space_of(make), kind()
    for number in range(min(len(points.sketches), 6)):
        numbers = drawn(points, number, 40)
        alone = kind().features(points, number, numbers)
        assert np.array_equal(together.features(points, number, numbers), alone)


def test_every_column_comes_again_relative_to_the_default():
    points = space_of(conv)
    numbers = np.concatenate([[points.sketches[0].default], drawn(points, 0, 8)])
    found = ContextRelation().features(points, 0, numbers)
    absolute, relative = found[:, ABSOLUTE], found[:, RELATIVE]
    assert not relative[0].any()
    assert np.allclose(relative, absolute - absolute[0], atol=1e-4)


def test_context_relations_mean_the_same_in_every_space():
    names = {ContextRelation().names(space_of(make)) for make in WORKLOADS}
    assert len(names) == 1


def test_one_object_serves_several_spaces(representation):
    lengths = [len(representation.names(space_of(make))) for make in (conv, matmul, conv)]
    assert lengths[0] == lengths[2]


def test_the_config_vector_holds_the_values_of_the_knobs():
    points = space_of(matmul)
    sketch = points.sketches[1]
    got = ConfigVector().features(points, 1, np.array([sketch.default]))[0]
    named = dict(zip(ConfigVector().names(points), got))
    assert named["sketch"] == 1
    for name, choice in sketch.at(sketch.default).values:
        assert [named[f"{name}[{d}]"] for d in range(len(choice))] == list(choice)


def table():
    knobs = (Knob("x", ((1,), (2,), (4,))), Knob("y", ((0,), (1,))))
    sketch = Sketch(direct("table"), matmul(), (), (), knobs, (0, 0))
    return Space(sketch.workload, TARGET, (sketch,))


def test_a_table_of_known_costs_has_config_vectors():
    got = ConfigVector().features(table(), 0, np.array([[2, 1], [0, 0]]))
    assert got.tolist() == [[0, 4, 1], [0, 1, 0]]


@pytest.mark.parametrize("kind", [ContextRelation, FlattenedTree])
def test_a_table_of_known_costs_has_no_loops_and_the_error_says_so(kind):
    with pytest.raises(ModelError, match="use ConfigVector"):
        kind().features(table(), 0, np.array([[0, 0]]))
