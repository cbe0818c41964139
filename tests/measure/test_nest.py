"""Schedules by hand: legal by construction, right for all steps, and stored as configs."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loopwright as lw
from loopwright.codegen.build import build
from loopwright.codegen.target import resolve
from loopwright.dsl.errors import ConfigError, LoopwrightError, TargetError
from loopwright.dsl.oracle import evaluate
from loopwright.measure.nest import HandSchedule
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.tree.parts import nested
from loopwright.schedule.tree.printer import show
from loopwright.schedule.tree.verifier import verify
from tests.targets import ALONE, narrow

TARGET = narrow(2)


def matmul(m=13, n=11, k=7):
    i, j, r = lw.indices("i j k")
    A, B, C = lw.tensor("A", (m, k)), lw.tensor("B", (k, n), constant=True), lw.tensor("C")
    C[i, j] += A[i, r] * B[r, j]
    return lw.workload(C)


def two_stages():
    i, j, k, m = lw.indices("i j k m")
    A, B, D = lw.tensor("A", (5, 7)), lw.tensor("B", (7, 9)), lw.tensor("D", (9, 6))
    C, E = lw.tensor("C"), lw.tensor("E")
    C[i, j] += A[i, k] * B[k, j]
    E[i, m] += lw.relu(C[i, j]) * D[j, m]
    return lw.workload(E)


def elementwise():
    i, j = lw.indices("i j")
    X, Y = lw.tensor("X", (7, 10)), lw.tensor("Y")
    Y[j, i] = lw.exp(X[i, j]) + lw.cast(i, "float32")
    return lw.workload(Y)


WORKLOADS = {
    "matrix product": matmul,
    "two stages": two_stages,
    "element-wise": elementwise,
    "convolution": lambda: lw.workload(
        lw.ops.conv2d(lw.tensor("X", (1, 3, 7, 9)), lw.tensor("W", (5, 3, 3, 3)), padding=1)
    ),
    "pooling": lambda: lw.workload(lw.ops.max_pool2d(lw.tensor("X", (2, 3, 7, 7)), 3, 2)),
    "softmax": lambda: lw.workload(lw.ops.softmax(lw.tensor("X", (5, 11)))),
}


def data_of(workload):
    rng = np.random.default_rng(0)
    shapes = ((t.shape, t.dtype) for t in workload.inputs)
    return [rng.standard_normal(shape).astype(dtype) for shape, dtype in shapes]


def oracle(workload, data):
    return evaluate(workload, {t.name: x for t, x in zip(workload.inputs, data, strict=True)})[0]


def check(nest, target=None):
    verify(nest.tree)
    data = data_of(nest.workload)
    made = build(nest.workload, nest.config, nest.target if target is None else target)
    expected = oracle(nest.workload, data)
    np.testing.assert_allclose(made(*data), expected, rtol=1e-4, atol=1e-4)


STEPS = ["split", "swap", "reorder", "fuse", "vectorize", "unroll", "parallel", "pack"]
STEPS += ["stage", "undo", "finish"]


def draw_step(nest, draw):
    """Ask for one step, legal or not."""
    loops = st.sampled_from(nest.loops)
    step = draw(st.sampled_from(STEPS))
    if step == "stage":
        nest.stage(draw(st.sampled_from(nest.stages)))
    elif step == "split":
        nest.split(draw(loops), draw(st.integers(1, 8)))
    elif step == "swap":
        nest.swap(draw(loops), draw(loops))
    elif step == "reorder":
        nest.reorder(*draw(st.permutations(nest.loops)))
    elif step == "fuse":
        at = draw(st.integers(0, len(nest.loops) - 1))
        nest.fuse(nest.loops[at], nest.loops[min(at + 1, len(nest.loops) - 1)])
    elif step == "pack":
        place = draw(st.none() | loops)
        nest.pack(draw(st.sampled_from([t.name for t in nest.workload.inputs])), place)
    elif step in ("undo", "finish"):
        getattr(nest, step)()
    else:
        favourite = {"vectorize": nest.loops[-1], "parallel": nest.loops[0]}
        getattr(nest, step)(draw(st.just(favourite.get(step, nest.loops[-1])) | loops))


@pytest.mark.parametrize("name", WORKLOADS)
@given(data=st.data())
@settings(max_examples=6)
def test_any_steps_that_are_taken_compute_what_the_oracle_does(name, data):
    nest = HandSchedule(WORKLOADS[name](), TARGET)
    for _ in range(data.draw(st.integers(1, 14))):
        before = show(nest.tree)
        try:
            draw_step(nest, data.draw)
        except ConfigError as error:
            refused = str(error)
        else:
            continue
        assert "illegal loop tree" not in refused
        assert show(nest.tree) == before
    check(nest)


def tiled(workload, target=TARGET):
    nest = HandSchedule(workload, target)
    nest.split("i", 4).split("j", 8).split("k", 3)
    nest.reorder("i.outer", "j.outer", "k.outer", "k.inner", "i.inner", "j.inner")
    return nest.parallel("i.outer").unroll("i.inner").vectorize("j.inner")


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_a_tiled_product_of_odd_sizes_is_right_for_every_kind_of_target(target):
    check(tiled(matmul()).pack("B").pack("A", at="j.outer"), target)


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_parallel_loops_of_a_split_that_does_not_divide_stand_in_any_order(target):
    nest = HandSchedule(elementwise(), TARGET).split("j", 4).reorder("j.outer", "i", "j.inner")
    nest.parallel("j.outer").parallel("i")
    check(nest, target)
    check(nest.swap("i", "j.outer"), target)
    assert len(nested(nest.tree.body[0])) == 2


def test_unrolled_tiles_of_a_reduction_that_do_not_divide_are_right():
    nest = HandSchedule(matmul(), TARGET).split("k", 4).unroll("k.inner")
    check(nest)
    check(
        HandSchedule(matmul(), TARGET).split("k", 4).split("k.inner", 3).swap("i", "k.inner.inner")
    )


def test_inner_loops_are_chosen_by_rule():
    nest = HandSchedule(matmul(13, 24, 7), TARGET).split("i", 4).split("j", 16).split("k", 4)
    nest.reorder("i.outer", "j.outer", "k.outer", "k.inner", "i.inner", "j.inner").finish()
    other = nest.copy().undo().undo()
    assert nest.config == other.unroll("i.inner").vectorize("j.inner").config
    assert other.finish().config == nest.config  # kinds that were chosen before stay
    check(nest)


def test_a_part_of_a_tile_that_does_not_fit_is_in_registers_meanwhile():
    nest = HandSchedule(matmul(16, 48, 30), TARGET).split("i", 4).split("j", 16).split("k", 4)
    nest.reorder("k.outer", "i.outer", "j.outer", "k.inner", "i.inner", "j.inner").finish()
    text = str(nest)
    assert "part: float32[4, 16]" in text
    assert "acc[i.outer, j.outer, i.inner.keep, 8*j.inner.keep + j.inner.keeplane] = part" in text
    check(nest)
    check(nest.undo().undo().vectorize("j.inner"))
    nest = HandSchedule(matmul(11, 20, 30), TARGET).split("i", 4).split("j", 8).split("k", 4)
    check(nest.reorder("k.outer", "i.outer", "j.outer", "k.inner", "i.inner", "j.inner").finish())


def test_a_constant_operand_is_packed_ahead_of_calls():
    nest = tiled(matmul()).pack("B")
    assert [b.name for b in nest.tree.prepared] == ["B_packed"]
    check(nest)


def test_a_schedule_is_a_config_that_json_keeps_and_names_do_not_matter_to():
    nest = tiled(matmul()).pack("B")
    config = Config.from_json(nest.config.to_json())
    assert config == nest.config
    x, y, z = lw.indices("x y z")
    P, Q, R = lw.tensor("P", (13, 7)), lw.tensor("Q", (7, 11), constant=True), lw.tensor("R")
    R[x, y] += P[x, z] * Q[z, y]
    other = lw.workload(R)
    assert other.key == nest.workload.key
    data = data_of(other)
    np.testing.assert_allclose(
        build(other, config, TARGET)(*data), oracle(other, data), rtol=1e-4, atol=1e-4
    )


def test_undo_and_copy_leave_other_schedules_alone():
    nest = HandSchedule(matmul(), TARGET).split("i", 4)
    other = nest.copy().split("j", 4)
    assert nest.loops == ("i.outer", "i.inner", "j", "k")
    assert other.undo().loops == nest.loops
    with pytest.raises(ConfigError, match="nothing to undo"):
        nest.undo().undo()


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda n: n.split("z", 2), "the loops are i, j, k"),
        (lambda n: n.split("i", 14), "give a factor of 1 to 13"),
        (lambda n: n.split("i", "4"), "an integer from 1 to 13"),
        (lambda n: n.split("i", 2.5), "an integer from 1 to 13"),
        (lambda n: n.split("i", True), "an integer from 1 to 13"),
        (lambda n: n.parallel("k"), "rfactor"),
        (lambda n: n.parallel("j"), "outside of all others"),
        (lambda n: n.vectorize("k"), "is a reduction"),
        (lambda n: n.vectorize("j"), "innermost"),
        (lambda n: n.fuse("i", "k"), "adjacent"),
        (lambda n: n.fuse("j", "k"), "one of j and k is a reduction"),
        (lambda n: n.reorder("i", "i"), "twice"),
        (lambda n: n.pack("C"), "the operands are A, B"),
        (lambda n: n.parallel("i").split("i", 2), "undo that first"),
        (lambda n: n.parallel("i").swap("i", "j"), "outside of all others"),
        (lambda n: n.split("j", 4).swap("j.outer", "k").vectorize("j.outer"), "do not divide"),
        (lambda n: n.fuse("i", "j").swap("i*j", "k").vectorize("i*j"), "fused"),
        (lambda n: n.parallel("i").parallel("j").pack("A", at="i"), "inside of all parallel"),
        (lambda n: n.stage("D"), "those that have are C"),
        (lambda n: n.swap("j", "k").vectorize("j"), "j has 11 iterations, which no vector of 2"),
    ],
)
def test_what_is_not_legal_is_refused_with_what_is_allowed(ask, words):
    with pytest.raises(ConfigError, match=words.replace("*", r"\*")):
        ask(HandSchedule(matmul(), TARGET))


def test_a_stage_without_loops_is_reordered_into_itself_and_says_that_it_has_none():
    x, y = lw.tensor("x", ()), lw.tensor("y")
    y[()] = 2 * x[()]
    nest = HandSchedule(lw.workload(y), TARGET).reorder()
    assert nest.build()(np.float32(3)) == 6
    with pytest.raises(ConfigError, match="no loop 'i'; this stage has no loops"):
        nest.split("i", 2)


def test_an_index_names_its_own_loop():
    (i,) = lw.indices("i")
    assert HandSchedule(matmul(), TARGET).split(i, 4).loops[:2] == ("i.outer", "i.inner")


@pytest.mark.parametrize("outwards", [False, True])
def test_parallel_tiles_that_overlap_are_right_in_every_call(outwards):
    workload, rng = matmul(), np.random.default_rng(0)
    schedule = HandSchedule(workload, resolve("cpu", 4)).split("i", 8)
    if outwards:
        schedule.reorder("i.outer", "k", "i.inner", "j")
    library = schedule.parallel("i.outer").build()
    a, b = (rng.standard_normal(t.shape).astype("float32") for t in workload.inputs)
    for _ in range(300):
        np.testing.assert_allclose(library(a, b), a @ b, rtol=1e-4, atol=1e-4)


def test_very_long_unrolled_loops_are_refused():
    with pytest.raises(ConfigError, match="at most 4096"):
        HandSchedule(matmul(m=5000), TARGET).unroll("i")


@pytest.mark.parametrize(
    "text",
    [
        "hand 0:dance,1",
        "hand 0:split,9,9",
        "hand x",
        "hand 3:split,0,2",
        "hand -1:split,0,4",
        "hand 0:split,-1,4",
        "hand 0:kind,0,-1",
        "hand 0:pack,-1",
        "hand 0:split,1",
        "hand 0:fuse,0,1,2",
        "hand 0:kind,0,7",
        "hand 0:order,0,0,1",
    ],
)
def test_a_damaged_schedule_is_refused(text):
    config = HandSchedule(matmul(), TARGET).config.to_json()
    with pytest.raises(ConfigError):
        build(matmul(), Config.from_json({**config, "sketch": text}), TARGET)


def test_schedules_by_hand_are_for_processors():
    with pytest.raises(TargetError, match="processors"):
        lw.nest(matmul(), {"kind": "cuda", "arch": "sm_90"})


def test_a_schedule_without_operations_has_no_speed_in_operations():
    for moved in (lw.einsum("ij->ji", lw.tensor("x", (3, 5))), lw.ops.sort(lw.tensor("x", (9,)))):
        with pytest.raises(LoopwrightError, match="no operations to count"):
            lw.nest(moved).gflops()


@pytest.mark.slow
def test_a_schedule_is_timed():
    assert tiled(matmul(), ALONE).gflops() > 0


def test_the_page_about_schedules_runs_as_it_stands(monkeypatch, capsys):
    page = (Path(__file__).parents[2] / "docs" / "nest.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    monkeypatch.setattr(HandSchedule, "gflops", lambda nest: 1.0)  # not timed here
    found: dict[str, object] = {}
    exec(code.replace("N = 512", "N = 45"), found)
    assert capsys.readouterr().out.count("GFLOP/s") == 5
    a, b = np.random.default_rng(0).standard_normal((2, 45, 45)).astype("float32")
    for library in (found["library"], found["again"]):
        np.testing.assert_allclose(library(a, b), a @ b, rtol=1e-4, atol=1e-4)


def test_a_factor_may_be_an_integer_of_numpy():
    x = lw.tensor("x", (24,))
    by_numpy = lw.nest(lw.ops.relu(x)).split("i0", np.int64(4))
    assert by_numpy.config == lw.nest(lw.ops.relu(x)).split("i0", 4).config
