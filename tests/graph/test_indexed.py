"""Integers of inputs that index: one outside of its axis is an error, wherever it is called."""

import ctypes

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.load import load
from tests.graph.onnx_nodes import node_model

pytestmark = pytest.mark.onnx

TABLE = np.arange(21, dtype=np.float32).reshape(7, 3)


def embedding(dtype=np.int64):
    ids = np.array([[0, 6, -7, -1]], dtype)
    return node_model("Gather", {"ids": ids}, {"table": TABLE}, order=("table", "ids")), ids


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("wrong", [7, -8, np.iinfo(np.int32).max, np.iinfo(np.int32).min])
def test_an_index_outside_of_its_axis_is_an_error(dtype, wrong):
    model, ids = embedding(dtype)
    built = lw.build_model(model, threads=1)
    np.testing.assert_array_equal(built(ids), TABLE[ids])
    ids[0, 2] = wrong
    with pytest.raises(lw.LoopwrightError, match=r"ids.*-7 to 6"):
        built(ids)


def test_an_exported_library_tells_of_an_index_outside_too(tmp_path):
    model, ids = embedding()
    lw.build_model(model, threads=1).export(tmp_path / "net.so")
    library = load(tmp_path / "net.so")
    np.testing.assert_array_equal(library(ids), TABLE[ids])
    with pytest.raises(lw.LoopwrightError, match=r"ids.*-7 to 6"):
        library(ids + 7)
    call = ctypes.CDLL(str(tmp_path / "net.so")).net
    out = np.full((1, 4, 3), np.nan, np.float32)
    call.argtypes = [ctypes.c_void_p] * 2
    assert call((ids + 7).ctypes.data, out.ctypes.data) == 10
    assert np.isnan(out).all()


def test_real_numbers_that_are_made_integers_index():
    from onnx import TensorProto, helper

    model, ids = embedding(np.float32)
    model.graph.node.insert(0, helper.make_node("Cast", ["ids"], ["whole"], to=TensorProto.INT32))
    model.graph.node[1].input[1] = "whole"
    built = lw.build_model(model, threads=1)
    np.testing.assert_array_equal(built(ids), TABLE[ids.astype(int)])


def test_a_model_of_open_sizes_looks_at_every_index():
    model, _ = embedding()
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "n"
    n = lw.dim("n", 1, 64)
    built = lw.build_model(model, {"ids": (1, n)}, threads=1)
    for size in (1, 5, 64):
        ids = np.arange(size).reshape(1, size) % 14 - 7
        np.testing.assert_array_equal(built(ids), TABLE[ids])
        ids[0, -1] = 7
        with pytest.raises(lw.LoopwrightError, match="ids"):
            built(ids)


def test_indices_that_are_computed_or_read_under_a_condition_may_be_anything():
    model, ids = embedding()
    model.graph.node[0].input[1] = "near"
    clip = model.graph.node.add(op_type="Mod", input=["ids", "seven"], output=["near"])
    model.graph.node.remove(clip)
    model.graph.node.insert(0, clip)
    seven = node_model("Relu", {}, {"seven": np.array(7)}).graph.initializer[0]
    model.graph.initializer.append(seven)
    built = lw.build_model(model, threads=1)
    np.testing.assert_array_equal(built(ids + 70), TABLE[(ids + 70) % 7])
