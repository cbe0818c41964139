"""Scatters whose places are known at a call only, against NumPy's loops."""

import numpy as np
import pytest

from loopwright.dsl.dtypes import numpy_dtype
from loopwright.graph.build import build_model
from tests.graph.onnx_nodes import computed, node_model

pytestmark = pytest.mark.onnx
JOIN = {
    "none": lambda old, new: new,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
OPSET = 18


def elements(data, indices, updates, axis, how):
    out = data.copy()
    for at in np.ndindex(indices.shape):
        place = (*at[:axis], indices[at], *at[axis + 1 :])
        out[place] = JOIN[how](out[place], updates[at])
    return out


def rows(data, indices, updates, how):
    out = data.copy()
    for at in np.ndindex(indices.shape[:-1]):
        place = tuple(indices[at])
        out[place] = JOIN[how](out[place], updates[at])
    return out


@pytest.mark.parametrize(
    ("how", "axis", "dtype"),
    [
        ("none", 0, "float32"),
        ("none", 1, "int32"),
        ("add", 1, "float16"),
        ("mul", 0, "int64"),
        ("max", 1, "bfloat16"),
        ("min", 0, "uint8"),
    ],
)
def test_elements_are_scattered_along_an_axis(how, axis, dtype):
    rng = np.random.default_rng(0)
    data = rng.integers(0, 6, (5, 7)).astype(numpy_dtype(dtype))
    indices = rng.integers(-data.shape[axis], data.shape[axis], (3, 4))
    if how == "none":  # which of two updates wins is not said
        indices = np.argsort(rng.random((3, data.shape[axis]) if axis else (data.shape[axis], 4)))
        indices = indices[:, :4] if axis else np.argsort(rng.random((5, 4)), 0)[:3] - 5
    updates = rng.integers(0, 4, (3, 4)).astype(data.dtype)
    inputs = {"x": data, "i": indices, "u": updates}
    got = computed("ScatterElements", inputs, opset=OPSET, axis=axis, reduction=how)
    np.testing.assert_array_equal(got, elements(data, indices, updates, axis, how))


@pytest.mark.parametrize(
    ("how", "depth"), [("none", 1), ("none", 3), ("add", 2), ("mul", 3), ("max", 1), ("min", 2)]
)
def test_rows_are_scattered(how, depth):
    rng = np.random.default_rng(depth)
    data = rng.integers(-5, 6, (5, 3, 4)).astype(np.float32)
    count = 11 if how != "none" else 3
    drawn = rng.permuted(np.arange(np.prod(data.shape[:depth])))[np.arange(count) % 5]
    indices = np.stack(np.unravel_index(drawn, data.shape[:depth]), -1)
    indices[::2] -= data.shape[:depth]
    updates = rng.integers(-3, 4, (count, *data.shape[depth:])).astype(np.float32)
    inputs = {"x": data, "i": indices, "u": updates}
    got = computed("ScatterND", inputs, opset=OPSET, reduction=how)
    np.testing.assert_array_equal(got, rows(data, indices, updates, how))


def test_many_updates_of_one_known_place_are_all_added():
    updates = np.arange(9, dtype=np.float32)
    got = computed(
        "ScatterElements",
        {"x": np.zeros(4, np.float32), "u": updates},
        {"i": np.array([2, 0, 2, 2, 2, 2, 2, 2, -1])},
        opset=OPSET,
        order=["x", "i", "u"],
        reduction="add",
    )
    np.testing.assert_array_equal(got, [1, 0, 27, 8])


def test_a_cache_is_updated_at_a_place_that_each_sample_names():
    rng = np.random.default_rng(3)
    past, new = (rng.standard_normal((3, 2, n, 5)).astype(np.float32) for n in (7, 2))
    starts = np.array([0, 5, 3])
    got = computed("TensorScatter", {"p": past, "u": new, "w": starts}, opset=24)
    wanted = past.copy()
    for sample, start in enumerate(starts):
        wanted[sample, :, start : start + 2] = new[sample]
    np.testing.assert_array_equal(got, wanted)


def test_pooled_elements_go_back_to_where_they_were():
    torch = pytest.importorskip("torch")
    x = torch.randn(2, 3, 6, 8)
    pooled, places = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
    wanted = torch.nn.functional.max_unpool2d(pooled, places, 2)
    plane = torch.arange(6).reshape(2, 3, 1, 1) * 48
    inputs = {"x": pooled.numpy(), "i": (places + plane).numpy()}
    options = {"kernel_shape": [2, 2], "strides": [2, 2], "opset": 11}
    np.testing.assert_array_equal(computed("MaxUnpool", inputs, **options), wanted)


def test_places_that_are_known_at_a_call_only_are_not_fixed():
    data, updates = np.zeros(5, np.float32), np.ones(2, np.float32)
    inputs = {"x": data, "i": np.array([0, 1]), "u": updates}
    made = build_model(node_model("ScatterElements", inputs, opset=OPSET), inputs, threads=1)
    np.testing.assert_array_equal(made(data, np.array([3, -1]), updates), [0, 0, 0, 1, 1])
