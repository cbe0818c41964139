"""Corners of ONNX's operators, beside onnxruntime, which a build compares with."""

import numpy as np
import pytest

from loopwright.graph.build import build_model
from loopwright.graph.errors import UnsupportedOperator
from tests.graph.onnx_nodes import computed, node_model

onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.onnx


def floats(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_activations_of_a_recurrence_take_numbers_in_turn(direction):
    ways, names = (1, 2)[direction[0] == "b"], ["Affine", "Softsign", "Elu"]
    known = {"w": floats(ways, 20, 3), "r": floats(ways, 20, 5)}
    options = {"activation_alpha": [0.3, 0.4] * ways, "activation_beta": [0.1] * ways}
    options |= {"activations": names * ways, "direction": direction, "hidden_size": 5}
    computed("LSTM", {"x": floats(4, 2, 3)}, known, opset=14, results=3, **options)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_the_size_of_a_region_that_is_scaled_is_that_of_the_image(mode):
    known = {
        "roi": np.array([0, 0, 0.1, 0.2, 1, 1, 0.9, 1.1], np.float32),
        "scales": np.array([1, 1, 1.6, 0.6], np.float32),
    }
    said = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize"}
    computed("Resize", {"x": floats(1, 2, 5, 7)}, known, opset=19, **said)


def test_integers_are_resized_by_the_nearest_elements_alone():
    x, known = np.arange(12, dtype=np.uint8).reshape(1, 1, 3, 4), {}
    known["scales"] = np.array([1, 1, 2, 2], np.float32)
    computed("Resize", {"x": x}, known, order=["x", "", "scales"])
    with pytest.raises(UnsupportedOperator, match="is uint8, and its mode is linear: cast the in"):
        computed("Resize", {"x": x}, known, order=["x", "", "scales"], mode="linear")


def test_powers_of_integers_are_exact_and_cut_off():
    x = np.array([3, -2, 5, 9, 0, 1])
    whole = np.array([33, 62, 2, 0, 3, 7])
    np.testing.assert_array_equal(computed("Pow", {"x": x, "y": whole}), x**whole)
    share = np.array([0.5, 3, 2, 0.5, 0.3, -1.5], np.float32)
    powers = computed("Pow", {"x": x.astype(np.int32), "y": share})
    np.testing.assert_array_equal(powers, [1, -8, 25, 3, 0, 1])
    np.testing.assert_array_equal(computed("Pow", {"x": x[3:]}, {"y": share[:1]}), [3, 0, 1])


def test_a_node_may_stand_before_what_it_reads_and_have_empty_graphs_in_attributes():
    # So files are that onnxruntime's converter has put into halves.
    x = floats(2, 3)
    model = node_model("Neg", {"x": x})
    model.graph.node[0].input[0] = "two"
    model.graph.node.add(op_type="Mul", input=["x", "number"], output=["two"])
    model.graph.node.add(op_type="Constant", output=["number"]).attribute.add(
        name="value", type=4, t=onnx.numpy_helper.from_array(np.float32(2))
    ).g.SetInParent()
    before = model.SerializeToString()
    np.testing.assert_array_equal(build_model(model, threads=1)(x), -2 * x)
    assert model.SerializeToString() == before
