"""Lowering: batches, printed trees, and the verifier."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.dsl.errors import ConfigError
from loopwright.dsl.expr import Const
from loopwright.schedule.lowering import lower
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import space
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import (
    Allocate,
    Buffer,
    Let,
    Linear,
    Load,
    Loop,
    Prefetch,
    Store,
    Tree,
    Var,
)
from loopwright.schedule.tree.printer import show
from loopwright.schedule.tree.verifier import legal, verify
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.collection import WORKLOADS
from tests.targets import HERE

pytestmark = pytest.mark.sampled(0.34)

AVX2 = Target(vector_bytes=32, vector_registers=16, threads=2)
AVX512 = Target(vector_bytes=64, vector_registers=32, threads=2)


def draw(sketch, count, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(len(k.choices), size=count) for k in sketch.knobs], axis=1)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("target", [AVX2, AVX512], ids=["avx2", "avx512"])
def test_every_config_of_every_sketch_is_legal(name, target):
    for sketch in space(WORKLOADS[name](), target).sketches[:6]:
        if sketch.knobs:
            verify(lower(sketch, target, draw(sketch, 200)))


@pytest.mark.parametrize(
    "name", ["conv2d_with_residual", "softmax", "dense_of_batch_1_with_weights_unknown"]
)
def test_a_row_of_a_batch_is_the_tree_of_that_config(name):
    points = space(WORKLOADS[name](), AVX2)
    for sketch in points.sketches[:4]:
        numbers = draw(sketch, 16)
        batch = lower(sketch, AVX2, numbers)
        for i in range(16):
            assert show(batch.row(i)) == show(lower(sketch, AVX2, sketch.at(numbers[i])))


@pytest.mark.parametrize(
    "name",
    [
        "matmul_of_odd_extents",
        "conv2d_with_constant_weights_bias_and_relu",
        "conv2d_in_groups",
        "dense_of_batch_1_with_weights_unknown",
        "softmax",
        "global_avg_pool2d",
        "max_pool2d",
        "transposition_with_a_cast",
        "contraction_that_transposes",
    ],
)
def test_the_default_tree_reads_as_expected(name, golden):
    points = space(WORKLOADS[name](), AVX2, "fast")
    config = points.default
    golden(name, f"{config}\n{show(lower(points.sketches[0], AVX2, config))}")


def test_a_batch_prints_the_range_of_numbers_that_differ(golden):
    sketch = space(WORKLOADS["matmul_of_odd_extents"](), AVX2).sketches[0]
    golden("batch_of_matmuls", show(lower(sketch, AVX2, draw(sketch, 50))))


def test_workloads_that_differ_in_names_only_have_the_same_space():
    def product(a, b, i, j, k):
        A, B, C = lw.tensor(a, (37, 53)), lw.tensor(b, (53, 29)), lw.tensor("out")
        row, column, inner = lw.indices(f"{i} {j} {k}")
        C[row, column] += A[row, inner] * B[inner, column]
        return space(lw.workload(C), AVX2)

    first, second = product("A", "B", "i", "j", "k"), product("x", "w", "m", "n", "c")
    assert [s.name for s in first.sketches] == [s.name for s in second.sketches]
    assert [s.knobs for s in first.sketches] == [s.knobs for s in second.sketches]
    assert first.default == second.default


def test_a_config_survives_json():
    points = space(WORKLOADS["conv2d"](), AVX2)
    config = points.sample(np.random.default_rng(3))
    assert Config.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tile0": (5, 7)}, r"tile0 = \(5, 7\) is not allowed; use one of \("),
        ({"tiles": 3}, "no knob 'tiles'; this sketch has tile0"),
        ({"block0_0": 1000}, "block0_0 = 1000 is not allowed; use one of 1, 2, 3"),
    ],
)
def test_an_illegal_config_is_an_error_that_says_what_is_allowed(change, message):
    with pytest.raises(ConfigError, match=message):
        space(WORKLOADS["matmul_of_odd_extents"](), AVX2).config(**change)


def test_a_config_of_another_workload_is_an_error():
    config = space(WORKLOADS["softmax"](), AVX2).default
    with pytest.raises(ConfigError, match="no sketch"):
        lw.build(WORKLOADS["conv2d"](), config)


def test_a_config_that_lacks_a_knob_is_an_error():
    workload = WORKLOADS["matmul_of_odd_extents"]()
    whole = lw.space(workload).default
    with pytest.raises(ConfigError, match="lacks unroll0"):
        lw.build(workload, Config(whole.sketch, whole.values[:-1]))


@pytest.mark.parametrize("data", [{}, {"sketch": "x"}, {"sketch": "x", "values": 3}, [], None])
def test_a_damaged_config_is_an_error(data):
    with pytest.raises(ConfigError, match="damaged config"):
        Config.from_json(data)


def tree_of(*body, n=1):
    """A tree with a last loop that writes all of the result, and the result."""
    out, last = Buffer("C", (8,), "float32", "argument"), Var("last")
    whole = Loop(last, 8, "serial", (one_store(out, Linear(((last, 1),))),))
    return Tree(n, (), (), (out,), (), (), (*body, whole)), out


def one_store(out, at):
    return Store(out, (at,), Const(0.0, "float32"))


def test_the_verifier_rejects_a_store_outside_of_a_buffer_and_names_it():
    i = Var("i")
    _, out = tree_of()
    tree, _ = tree_of(Loop(i, 8, "serial", (one_store(out, Linear(((i, 1),), 1)),)))
    with pytest.raises(ConfigError, match="axis 0 of C, extent 8, is read or written at 1 to 8"):
        verify(tree)


def test_the_verifier_tells_which_configs_of_a_batch_are_legal():
    i, extents = Var("i"), np.array([7, 8, 9, 100])
    _, out = tree_of()
    tree, _ = tree_of(Loop(i, extents, "serial", (one_store(out, Linear(((i, 1),))),)), n=4)
    assert legal(tree).tolist() == [True, True, False, False]
    with pytest.raises(ConfigError, match="config 2 of 4"):
        verify(tree)


def test_the_verifier_accepts_what_a_let_keeps_inside():
    i, base = Var("i"), Var("base")
    _, out = tree_of()
    store = one_store(out, Linear(((base, 1),)))
    tree, _ = tree_of(Loop(i, 3, "serial", (Let(base, Linear(((i, 4),)), 7), store)))
    verify(tree)


def broken_trees():
    i, j = Var("i"), Var("j")
    _, out = tree_of()
    store = one_store(out, Linear(((i, 1),)))
    acc = Buffer("acc", (4,), "float32", "register")
    huge = Buffer("huge", (1 << 20,), "float32", "register")
    inner = Loop(j, 2, "serial", (store,))
    yield "not bound", (store,)
    yield "bound twice", (Loop(i, 2, "serial", (Loop(i, 2, "serial", (store,)),)),)
    yield "inside of a serial one", (Loop(j, 2, "serial", (Loop(i, 2, "parallel", (store,)),)),)
    base = Let(Var("base"), Linear(((j, 1),)), 1)
    apart = Loop(j, 2, "parallel", (base, Loop(i, 2, "parallel", (store,))))
    yield "j holds a parallel loop and something beside it", (apart,)
    yield "other than one store", (Loop(i, 2, "vectorized", (inner,)),)
    yield "other than one store", (Loop(i, 2, "vectorized", (store, store)),)
    yield "no known kind", (Loop(i, 2, "magic", (store,)),)
    yield "negative extent", (Loop(i, -2, "serial", (store,)),)
    yield "before it is allocated", (Store(out, (Linear(),), Load(acc, (Linear(),))),)
    yield "allocated twice", (Allocate(acc), Allocate(acc))
    yield "too large", (Allocate(huge),)
    yield "2 subscripts", (Store(out, (Linear(), Linear()), Const(0.0, "float32")),)


def part_of(low, step, count, size=25, lanes=1):
    """A tree that writes `count` elements from `low` on, each `step` after the last."""
    i, lane, out = Var("i"), Var("lane"), Buffer("C", (size,), "float32", "argument")
    inner = Loop(lane, lanes, "vectorized", (one_store(out, Linear(((i, step), (lane, 1)), low)),))
    return Tree(1, (), (), (out,), (), (), (Loop(i, count, "serial", (inner,)),))


@pytest.mark.parametrize(
    "tree",
    [
        part_of(1, 1, 24),
        part_of(0, 1, 24),
        part_of(0, 2, 13),
        part_of(0, 16, 1, lanes=16),
        part_of(0, 15, 2, lanes=10),
        part_of(0, 1, 0),
    ],
    ids=["first", "last", "every other", "no whole vectors", "between vectors", "all"],
)
def test_the_verifier_rejects_a_tree_that_leaves_elements_of_its_result_out(tree):
    with pytest.raises(ConfigError, match="elements of C are not written"):
        verify(tree)


@pytest.mark.parametrize(
    "tree", [part_of(0, 1, 25), part_of(0, 5, 5, lanes=5), part_of(0, 9, 2, 18, 9)]
)
def test_the_verifier_accepts_a_tree_that_writes_its_result_whole(tree):
    verify(tree)


@pytest.mark.parametrize(("message", "body"), list(broken_trees()))
def test_the_verifier_rejects_a_broken_tree(message, body):
    tree, _ = tree_of(*body)
    with pytest.raises(ConfigError, match=message):
        verify(tree)


def hints(stmts):
    for stmt in stmts:
        if isinstance(stmt, Prefetch):
            yield stmt
        elif isinstance(stmt, Loop):
            yield from hints(stmt.body)


@pytest.mark.parametrize(("filters", "prefetched"), [(512, True), (8, False)])
def test_the_next_panel_of_weights_that_no_cache_holds_is_prefetched(filters, prefetched):
    x = lw.tensor("x", (1, 10, 9, 64))
    w = lw.tensor("w", (3, 3, 64, filters), constant=True)
    workload = lw.workload(ops.conv2d(x, w, layout="NHWC"))
    sketch = next(s for s in space(workload, HERE).sketches if not s.derivation)
    config = sketch.at(sketch.default)
    tree = lower(sketch, HERE, config)
    assert bool(list(hints(tree.body))) == prefetched
    assert_configs_equal_oracle(workload, [config])
