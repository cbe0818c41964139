"""Operators that read images between their elements."""

import numpy as np
import pytest

from loopwright.graph.build import build_model
from tests.graph.onnx_nodes import computed, node_model

pytestmark = pytest.mark.onnx
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize(
    ("mode", "padding", "aligned"),
    [
        ("bilinear", "zeros", 0),
        ("bilinear", "border", 1),
        ("bilinear", "reflection", 0),
        ("bilinear", "reflection", 1),
        ("nearest", "zeros", 1),
        ("nearest", "reflection", 0),
    ],
)
def test_a_grid_is_sampled_as_torch_does(mode, padding, aligned):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 5, 4)).astype(np.float32)
    grid = rng.uniform(-2.7, 2.7, (2, 3, 7, 2)).astype(np.float32)
    wanted = torch.nn.functional.grid_sample(
        *map(torch.tensor, (x, grid)), mode, padding, align_corners=bool(aligned)
    )
    name = "linear" if mode == "bilinear" else mode
    options = {"mode": name, "padding_mode": padding, "align_corners": aligned}
    np.testing.assert_allclose(
        computed("GridSample", {"x": x, "g": grid}, **options), wanted, **CLOSE
    )


def test_regions_are_averaged_over_samples_between_elements():
    """Bilinear samples of an image that is linear are that image's function."""
    rows, columns = np.mgrid[:8, :9].astype(np.float32)
    x = (rows * 10 + columns)[None, None]
    regions = np.array([[1, 2, 5, 6], [0, 0, 4, 2]], np.float32)
    got = computed(
        "RoiAlign",
        {"x": x, "r": regions, "b": np.array([0, 0])},
        opset=16,
        output_height=2,
        output_width=2,
        sampling_ratio=3,
        coordinate_transformation_mode="output_half_pixel",
    )
    for region, (left, top, right, bottom) in enumerate(regions):
        y = top + (bottom - top) * np.array([0.25, 0.75])
        z = left + (right - left) * np.array([0.25, 0.75])
        np.testing.assert_allclose(got[region, 0], y[:, None] * 10 + z, **CLOSE)


@pytest.mark.parametrize("mode", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 2])
def test_regions_of_all_sizes_are_averaged_as_onnxruntime_does(mode, ratio):
    onnxruntime = pytest.importorskip("onnxruntime")
    regions = [[1, 1, 9, 9], [0, 0, 12.5, 5.5], [3, 2, 3.4, 2.9], [-2, -3, 40, 18], [5, 5, 2, 3]]
    inputs = {
        "x": np.random.default_rng(3).standard_normal((2, 3, 12, 14)).astype(np.float32),
        "r": np.array(regions, np.float32),
        "b": np.array([0, 1, 1, 0, 1]),
    }
    options = {"output_height": 3, "output_width": 2, "spatial_scale": 0.9}
    options |= {"sampling_ratio": ratio, "coordinate_transformation_mode": mode}
    model = node_model("RoiAlign", inputs, opset=16, **options)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    got = build_model(model, inputs, threads=1, check=False)(*inputs.values())
    np.testing.assert_allclose(got, session.run(None, inputs)[0], **CLOSE)


def test_the_greatest_element_of_each_part_of_a_region_is_taken():
    x = np.arange(30, dtype=np.float32).reshape(1, 1, 5, 6)
    regions = np.array([[0, 0, 0, 3, 3], [0, 2, 1, 2, 1], [0, 9, 9, 12, 12]], np.float32)
    got = computed("MaxRoiPool", {"x": x, "r": regions}, pooled_shape=[2, 2])
    np.testing.assert_array_equal(got[0, 0], [[7, 9], [19, 21]])
    np.testing.assert_array_equal(got[1, 0], np.full((2, 2), 8))
    np.testing.assert_array_equal(got[2, 0], np.zeros((2, 2)))


def test_a_deformable_convolution_without_offsets_is_a_convolution():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 4, 7, 6)).astype(np.float32)
    w = rng.standard_normal((6, 2, 3, 2)).astype(np.float32)
    wanted = torch.conv2d(torch.tensor(x), torch.tensor(w), stride=2, padding=1, groups=2)
    offset = np.zeros((2, 2 * 6 * 2, *wanted.shape[2:]), np.float32)
    got = computed(
        "DeformConv",
        {"x": x, "o": offset},
        {"w": w},
        order=["x", "w", "o"],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        group=2,
        offset_group=2,
    )
    np.testing.assert_allclose(got, wanted, **CLOSE)


def test_the_places_of_the_greatest_elements_leave_padding_out():
    torch = pytest.importorskip("torch")
    x = -np.random.default_rng(2).random((1, 2, 5, 6)).astype(np.float32)
    wanted = torch.nn.functional.max_pool2d(torch.tensor(x), 3, 2, 1, return_indices=True)
    options = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    values, places = computed("MaxPool", {"x": x}, results=2, opset=12, **options)
    np.testing.assert_array_equal(values, wanted[0])
    np.testing.assert_array_equal(
        places, wanted[1].numpy() + 30 * np.arange(2).reshape(1, 2, 1, 1)
    )


def test_a_resize_of_an_old_version_begins_at_the_center_of_its_first_element():
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    known = {"roi": np.zeros(0, np.float32), "scales": np.array([1, 1, 0.5], np.float32)}
    said = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    y = computed("Resize", {"x": x}, known, opset=11, **said)
    np.testing.assert_array_equal(y, [[[1, 3]]])


def test_a_resize_without_modes_takes_the_next_element_where_it_shrinks():
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4)  # an example of ONNX's own
    known = {"scales": np.array([1, 1, 0.6, 0.6], np.float32)}
    np.testing.assert_array_equal(computed("Resize", {"x": x}, known, opset=10), [[[[1, 3]]]])
