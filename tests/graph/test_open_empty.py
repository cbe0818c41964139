"""Networks with axes that have no elements at some sizes, as caches before their first token."""

import ctypes
import pickle

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl.errors import NotationError, RangeError, ShapeError
from tests.graph.open_nets import model_of, random

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx.reference")
helper = onnx.helper
pytestmark = pytest.mark.onnx


@pytest.fixture(scope="module")
def cached():
    """Attention over rows of a cache and one new row, and the cache that follows."""
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["k"]),
        helper.make_node("Concat", ["past", "k"], ["present"], axis=0),
        helper.make_node("Transpose", ["present"], ["t"]),
        helper.make_node("MatMul", ["x", "t"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "present"], ["y"]),
    ]
    inputs = {"past": ("past", 8), "x": (1, 8)}
    model = model_of(nodes, inputs, ("y", "present"), [("W", random(8, 8))])
    return lw.build_model(model, dims={"past": (0, 6)}, threads=1)


def expected_of_cached(past, x):
    present = np.concatenate([past, x @ random(8, 8)])
    e = np.exp(x @ present.T)
    return e / e.sum() @ present, present


def test_a_cache_is_empty_before_its_first_row_and_grows(cached):
    past = np.zeros((0, 8), np.float32)
    for number in range(6):
        x = random(1, 8, seed=number)
        y, present = cached(past, x)
        for got, wanted in zip((y, present), expected_of_cached(past, x), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)
        past = present
    with pytest.raises(RangeError, match=r"past is 7 .* it takes 0 to 6"):
        cached(np.zeros((7, 8), np.float32), x)


def test_an_empty_cache_is_a_size_like_others(cached):
    assert "for past: 0 to 0" in cached.explain(past=0)
    assert cached.profile(past=0)
    assert cached.measure(seconds=0.01, past=0) > 0
    again = pickle.loads(pickle.dumps(cached))
    x, past = random(1, 8), np.zeros((0, 8), np.float32)
    np.testing.assert_array_equal(again(past, x)[0], cached(past, x)[0])


def test_an_exported_cache_may_be_no_array_where_it_is_empty(cached, tmp_path):
    path = cached.export(tmp_path / "net.so")
    x, past = random(1, 8), np.zeros((0, 8), np.float32)
    wanted = cached(past, x)
    np.testing.assert_array_equal(lw.load(path)(past, x)[1], wanted[1])
    assert "0 to 6" in (tmp_path / "net.h").read_text()
    function = ctypes.CDLL(str(path)).net
    outs = [np.empty((1, 8), np.float32), np.empty((1, 8), np.float32)]
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, *outs)]
    assert function(ctypes.c_int64(0), None, *pointers) == 0
    np.testing.assert_array_equal(outs[0], wanted[0])
    assert function(ctypes.c_int64(1), None, *pointers) != 0


def test_a_batch_may_be_empty():
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["h"]),
        helper.make_node("Softmax", ["h"], ["y"], axis=-1),
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=0),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
    ]
    model = model_of(nodes, {"x": ("n", 4)}, ("y", "mean", "sum"), [("W", random(4, 3))])
    built = lw.build_model(model, dims={"n": (0, 6)}, threads=1)
    for n in (0, 1, 6):
        x = random(n, 4)
        y, mean, total = built(x)
        assert y.shape == (n, 3)
        np.testing.assert_allclose(total, x.sum(), rtol=1e-5, atol=1e-5)
        if n:
            np.testing.assert_allclose(mean, x.mean(0), rtol=1e-5, atol=1e-5)
        else:
            assert np.isnan(mean).all()  # as torch and NumPy have it


def test_a_mean_of_no_elements_has_one_frame_for_all_batches():
    nodes = [helper.make_node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=0)]
    model = model_of(nodes, {"x": ("n", "m", 2)}, ["y"])
    built = lw.build_model(model, dims={"n": (1, 40), "m": (0, 6)}, threads=1)
    assert [str(d) for d in built.frames[-1].dims] == ["n: 1 to 40", "m: 0 to 0"]
    assert np.isnan(built(np.zeros((3, 0, 2), np.float32))).all()


def test_squares_of_no_elements_are_summed_for_all_batches():
    nodes = [
        helper.make_node(op, ["x"], [op], axes=[1], keepdims=0)
        for op in ("ReduceL2", "ReduceSumSquare")
    ]
    model = model_of(nodes, {"x": ("n", "m", 2)}, ("ReduceL2", "ReduceSumSquare"))
    built = lw.build_model(model, dims={"n": (0, 4), "m": (0, 3)}, threads=1)
    for n, m in ((0, 0), (0, 3), (1, 0), (4, 0), (3, 2)):
        x = random(n, m, 2)
        for got, wanted in zip(built(x), (np.linalg.norm(x, axis=1), (x**2).sum(1)), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_a_recurrence_of_no_rows_ends_with_its_first_state():
    w, r = random(1, 9, 2), random(1, 9, 3, seed=1)
    node = helper.make_node("GRU", ["x", "w", "r", "", "", "first"], ["y", "last"], hidden_size=3)
    model = model_of([node], {"x": ("n", 1, 2), "first": (1, 1, 3)}, ("y", "last"))
    model.graph.initializer.extend(map(onnx.numpy_helper.from_array, (w, r), "wr"))
    built = lw.build_model(model, dims={"n": (0, 4)}, threads=1)
    first = random(1, 1, 3, seed=2)
    for n in (0, 1, 4):
        y, last = built(random(n, 1, 2), first)
        assert y.shape == (n, 1, 1, 3)
        np.testing.assert_array_equal(last, y[-1] if n else first)


def test_a_loop_of_no_iterations_gives_no_rows():
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "state"], ["after"]),
            helper.make_node("Concat", ["state", "after"], ["row"], axis=0),
            helper.make_node("Identity", ["going"], ["on"]),
        ],
        "body",
        [value("number", 7, []), value("going", 9, []), value("state", 1, [2])],
        [value("on", 9, []), value("after", 1, [2]), value("row", 1, [4])],
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["n"]),
        helper.make_node("Loop", ["n", "", "first"], ["last", "rows"], body=body),
    ]
    model = model_of(nodes, {"x": ("n",), "first": (2,)}, ("last", "rows"))
    built = lw.build_model(model, dims={"n": (0, 3)}, threads=1)
    first = random(2)
    for n in (0, 1, 3):
        last, rows = built(random(n), first)
        np.testing.assert_array_equal(last, first * 2**n)
        wanted = [np.concatenate([first * 2**k, first * 2 ** (k + 1)]) for k in range(n)]
        np.testing.assert_array_equal(rows, np.reshape(wanted, (n, 4)))


def test_tests_of_elements_and_casts_may_have_none():
    cast = helper.make_node("Cast", ["x"], ["whole"], to=onnx.TensorProto.INT32)
    nodes = [helper.make_node("IsNaN", ["x"], ["y"]), cast]
    model = model_of(nodes, {"x": ("n", "m")}, ("y", "whole"))
    built = lw.build_model(model, dims={"n": (0, 3), "m": (0, 4)}, threads=1)
    for n, m in ((0, 0), (0, 4), (3, 0), (2, 3)):
        y, whole = built(random(n, m))
        assert (y.shape, whole.shape, y.any()) == ((n, m), (n, m), False)


def test_an_axis_that_is_named_by_a_sum_follows_its_dims(tmp_path):
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["rows"], axis=0),
        helper.make_node("Mul", ["rows", "mask"], ["y"]),
    ]
    inputs = {"past": ("past", 4), "x": ("n", 4), "mask": ("past + n", 1)}
    onnx.save(model_of(nodes, inputs, ["y"]), tmp_path / "net.onnx")
    built = lw.build_model(tmp_path / "net.onnx", dims={"past": (0, 6), "n": (1, 3)}, threads=1)
    for past, n in ((0, 1), (6, 3), (2, 2)):
        rows, mask = random(past + n, 4), random(past + n, 1, seed=1)
        np.testing.assert_array_equal(built(rows[:past], rows[past:], mask), rows * mask)
    with pytest.raises(ShapeError, match=r"past \+ n = 3, got 4"):
        built(rows[:2], rows[2:3], random(4, 1))


def test_programs_are_for_sizes_of_at_least_one():
    n = lw.dim("n", 0, 8)
    workload = lw.workload(lw.ops.relu(lw.tensor("x", (n + 1, 4))))
    with pytest.raises(NotationError, match=r"n: 0 to 8, and a program .* workload.at\(n=0"):
        lw.build(workload)


@pytest.mark.torch
def test_a_module_may_have_an_empty_cache():
    torch = pytest.importorskip("torch")

    class Cached(torch.nn.Module):
        def forward(self, past, x, mask):
            present = torch.cat([past, x + past.shape[1]], 1) * mask
            return torch.softmax(present, 1) @ x.mT, present

    past = lw.dim("past", 0, 3)
    shapes = {"past": (2, past, 4), "x": (2, 1, 4), "mask": (past + 1, 1)}
    given = tuple(lw.tensor(name, shape) for name, shape in shapes.items())
    module, model = Cached(), lw.build_model(Cached(), given, threads=1)
    for n in (0, 1, 3):
        x = *map(torch.as_tensor, (random(2, n, 4), random(2, 1, 4))), torch.ones(n + 1, 1)
        for got, wanted in zip(model(*x), module(*x), strict=True):
            torch.testing.assert_close(got, wanted)


def _branch(name, past):
    """Attention of new elements to past ones and themselves, or to themselves alone."""
    own = {"inputs": ["past", f"{name}k"], "axis": 1} if past else {"inputs": [f"{name}k"]}
    joined = helper.make_node("Concat" if past else "Identity", outputs=[f"{name}all"], **own)
    nodes = [
        helper.make_node("MatMul", ["x", "W"], [f"{name}k"]),
        joined,
        helper.make_node("ReduceSum", [f"{name}all", "one"], [f"{name}y"], keepdims=0),
    ]
    outputs = [onnx.ValueInfoProto(name=f"{name}{end}") for end in ("y", "all")]
    return helper.make_graph(nodes, name, [], outputs)


@pytest.mark.parametrize("flag", [True, False])
def test_a_flag_that_is_given_chooses_the_branch_before_the_first_token_too(flag):
    # Both branches have the same shapes there, and would be computed.
    branches = {"then_branch": _branch("a", past=True), "else_branch": _branch("b", past=False)}
    node = helper.make_node("If", ["use_cache"], ["y", "all"], **branches)
    known = [("W", random(4, 4)), ("one", np.array([1]))]
    inputs = {"x": (2, "n", 4), "past": (2, "p", 4), "use_cache": (1,)}
    model = model_of([node], inputs, ("y", "all"), known)
    model.graph.input[-1].type.tensor_type.elem_type = onnx.TensorProto.BOOL
    dims, given = {"n": (1, 2), "p": (0, 3)}, {"use_cache": np.array([flag])}
    built = lw.build_model(model, given, dims=dims, threads=1)
    for p in (0, 1, 3):
        x, past = random(2, 2, 4), random(2, p, 4)
        own = x @ known[0][1]
        wanted = np.concatenate([past, own], 1) if flag else own
        names = [parameter.name for parameter in built.library.open_signature.inputs]
        y, joined = built(**{n: {"x": x, "past": past}[n] for n in names})
        np.testing.assert_allclose(joined, wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(y, wanted.sum(1), rtol=1e-4, atol=1e-5)


@pytest.mark.torch
def test_an_empty_batch_is_resized_and_has_no_losses():
    torch = pytest.importorskip("torch")
    from tests.graph.modules import check

    F = torch.nn.functional

    def every(x, labels):
        resized = F.interpolate(x, scale_factor=2), F.interpolate(x, (7, 5), mode="bilinear")
        return *resized, F.cross_entropy(x[:, :, 0, 0], labels, reduction="none")

    check(every, torch.zeros(0, 3, 4, 4), torch.zeros(0, dtype=torch.int64))
