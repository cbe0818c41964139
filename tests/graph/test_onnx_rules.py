"""Single operators against NumPy."""

import numpy as np
import pytest

from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError
from tests.graph.onnx_nodes import computed, node_model

pytestmark = pytest.mark.onnx
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def drawn(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def pairs(z):
    return np.stack([z.real, z.imag], -1)


def test_a_slice_cuts_every_axis_that_it_names():
    x = drawn(5, 6, 7)
    known = {"starts": [1, -5, 6], "ends": [4, 6, 0], "axes": [0, 1, 2], "steps": [2, 1, -2]}
    known = {name: np.array(numbers) for name, numbers in known.items()}
    np.testing.assert_array_equal(computed("Slice", {"x": x}, known), x[1:4:2, -5:6, 6:0:-2])
    got = computed("Slice", {"x": x}, opset=9, starts=[1, 2], ends=[4, 6])
    np.testing.assert_array_equal(got, x[1:4, 2:6])


@pytest.mark.parametrize("length", [5, 7, 9])
@pytest.mark.parametrize("inverse", [0, 1])
def test_a_fourier_transform_of_complex_samples(length, inverse):
    x = drawn(2, 7, 2)
    function = np.fft.ifft if inverse else np.fft.fft
    wanted = pairs(function(x[..., 0] + 1j * x[..., 1], length))
    got = computed("DFT", {"x": x}, {"n": np.array(length)}, inverse=inverse)
    np.testing.assert_allclose(got, wanted, **CLOSE)


@pytest.mark.parametrize("length", [6, 7])
def test_a_fourier_transform_of_real_samples_and_back(length):
    x = drawn(3, length, 1)
    wanted = np.fft.rfft(x[..., 0])
    got = computed("DFT", {"x": x}, onesided=1)
    np.testing.assert_allclose(got, pairs(wanted), **CLOSE)
    back = computed("DFT", {"x": got}, {"n": np.array(length)}, onesided=1, inverse=1)
    np.testing.assert_allclose(back, x, **CLOSE)


@pytest.mark.parametrize("known", [True, False])
def test_a_short_time_fourier_transform_under_a_window(known):
    x, window = drawn(2, 20, 1), drawn(6)
    more = {"w": window}
    got = computed(
        "STFT",
        {"x": x} if known else {"x": x, **more},
        {"s": np.array(3), **(more if known else {})},
        order=["x", "s", "w"],
        opset=17,
    )
    starts = range(0, 15, 3)
    wanted = np.stack([pairs(np.fft.rfft(x[:, s : s + 6, 0] * window)) for s in starts], 1)
    np.testing.assert_allclose(got, wanted, **CLOSE)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_determinants_need_other_pivots_than_the_diagonal(size):
    x = drawn(3, size, size)
    x[0, 0, 0] = 0
    np.testing.assert_allclose(computed("Det", {"x": x}), np.linalg.det(x), **CLOSE)


def test_the_determinant_of_a_singular_matrix_is_zero():
    np.testing.assert_array_equal(computed("Det", {"x": np.ones((2, 3, 3), np.float32)}), [0, 0])


@pytest.mark.parametrize(
    ("old", "new", "number"),
    [("float32", "int32", 6), ("int64", "float64", 11), ("int8", "uint8", 2)],
)
def test_bits_are_read_as_another_type(old, new, number):
    x = (drawn(3, 4) * 50).astype(old)
    np.testing.assert_array_equal(computed("BitCast", {"x": x}, opset=26, to=number), x.view(new))


def test_bits_of_other_numbers_are_refused():
    with pytest.raises(ModelError, match="differ in their bits"):
        computed("BitCast", {"x": drawn(3)}, opset=26, to=11)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_a_known_condition_compresses(axis):
    x, chosen = drawn(3, 4), np.array([True, False, True])
    axes = {} if axis is None else {"axis": axis}
    got = computed("Compress", {"x": x}, {"c": chosen}, **axes)
    np.testing.assert_array_equal(got, np.compress(chosen, x, axis))


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [("TF", [0, 3, 1, 1, 2]), ("IDF", [0, 1, 3, 4, 5]), ("TFIDF", [0, 3, 3, 4, 10])],
)
def test_n_grams_are_counted_with_skips(mode, wanted):
    got = computed(
        "TfIdfVectorizer",
        {"x": np.array([7, 8, 7, 9, 7], np.int32)},
        opset=9,
        mode=mode,
        pool_int64s=[7, 8, 7, 7, 7, 9],
        ngram_counts=[0, 2],
        ngram_indexes=[1, 2, 4, 3],
        weights=[1.0, 1.0, 3.0, 4.0, 5.0],
        min_gram_length=1,
        max_gram_length=2,
        max_skip_count=1,
    )
    np.testing.assert_array_equal(got, wanted)


def test_padding_takes_a_number_that_is_an_axis_long():
    x, fill = drawn(2, 3), np.array([5], np.float32)
    weights = {"p": np.array([0, 1, 1, 0])}
    got = computed("Pad", {"x": x, "v": fill}, weights, order=["x", "p", "v"])
    np.testing.assert_array_equal(got, np.pad(x, ((0, 1), (1, 0)), constant_values=5))


@pytest.mark.parametrize(
    ("op", "wanted"),
    [("Sum", lambda x: x), ("L2", np.abs), ("SumSquare", np.square), ("LogSumExp", lambda x: x)],
)
def test_a_reduction_along_no_axis_still_does_its_other_steps(op, wanted):
    x = drawn(3, 4)
    known = {"a": np.zeros(0, np.int64)}
    got = computed(f"Reduce{op}", {"x": x}, known, opset=18, noop_with_empty_axes=1)
    np.testing.assert_allclose(got, wanted(x), **CLOSE)


@pytest.mark.parametrize("op", ["Hardmax", "Softmax"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_what_is_before_an_axis_is_one_row_each_in_old_versions(op, axis):
    x = drawn(2, 3, 4)
    rows = x.reshape(int(np.prod(x.shape[:axis])), -1)
    made = np.exp(rows) / np.exp(rows).sum(1, keepdims=True)
    if op == "Hardmax":
        made = np.eye(rows.shape[1])[rows.argmax(1)]
    got = computed(op, {"x": x}, opset=11, axis=axis)
    np.testing.assert_allclose(got, made.reshape(x.shape), **CLOSE)


def test_corners_of_an_image_stay_where_they_are_whatever_the_scale():
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 1, 6)
    options = {"mode": "linear", "coordinate_transformation_mode": "align_corners", "opset": 13}
    known = {"s": np.array([1, 1, 1, 1.4], np.float32)}
    got = computed("Resize", {"x": x}, known, order=["x", "", "s"], **options)
    np.testing.assert_allclose(got[0, 0, 0], np.linspace(0, 5, 8), **CLOSE)


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("LpNormalization", {"axis": 1, "p": 1}),
        ("LRN", {"size": 3, "alpha": 0.5}),
        ("Softmax", {"axis": 1, "opset": 11}),
        ("AveragePool", {"kernel_shape": [3, 3], "pads": [0, 1, 1, 2], "ceil_mode": 1}),
    ],
)
def test_known_values_are_computed_as_those_of_a_call(op, options):
    x = np.random.default_rng(0).standard_normal((2, 5, 3, 4)).astype(np.float32)
    known = computed(op, {}, {"x": x}, **options)
    np.testing.assert_allclose(known, computed(op, {"x": x}, **options), rtol=1e-5)


@pytest.mark.parametrize(
    ("op", "options", "wanted"),
    [
        ("ReduceMean", {"opset": 17}, 400),
        ("ReduceL2", {"opset": 17}, 12800),
        ("ReduceLogSum", {"opset": 17}, np.log(400 * 1024)),
        ("LpNormalization", {"axis": 3}, 1 / np.sqrt(32)),
        ("GlobalAveragePool", {}, 400),
        ("AveragePool", {"kernel_shape": [32, 32]}, 400),
        ("LRN", {"size": 1, "alpha": 1.0}, 400 / (1 + 400.0**2) ** 0.75),
    ],
)
def test_halves_whose_sum_is_beyond_them_have_a_mean(op, options, wanted):
    got = computed(op, {"x": np.full((1, 1, 32, 32), 400, np.float16)}, **options)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got.astype(float), wanted, rtol=2e-3)


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("Gelu", {"opset": 20}),
        ("Gelu", {"opset": 20, "approximate": "tanh"}),
        ("Elu", {}),
        ("HardSigmoid", {}),
        ("HardSwish", {}),
        ("Mish", {}),
        ("Selu", {}),
        ("Softplus", {}),
        ("Softsign", {}),
    ],
)
def test_an_activation_of_halves_is_rounded_once(op, options):
    x = np.linspace(-9, 9, 2000).astype(np.float16)
    wide = computed(op, {"x": x.astype(np.float32)}, **options)
    got = computed(op, {"x": x}, **options)
    np.testing.assert_array_max_ulp(got, wide.astype(np.float16), maxulp=1)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_an_image_of_halves_is_rounded_once_for_all_of_its_axes(mode):
    x = np.random.default_rng(0).standard_normal((1, 2, 7, 5)).astype(np.float16)
    known = {"roi": np.zeros(0, np.float16), "scales": np.float32([1, 1, 2.5, 3])}
    wide = computed("Resize", {"x": x.astype(np.float32)}, known, mode=mode)
    got = computed("Resize", {"x": x}, known, mode=mode)
    np.testing.assert_array_max_ulp(got, wide.astype(np.float16), maxulp=1)


def test_reductions_of_integers_are_rounded_towards_zero():
    x = np.array([[1, 2, 3], [40, 50, 60]], np.int32)
    for op, wanted in (
        ("ReduceL2", [3, 87]),
        ("ReduceLogSum", [1, 5]),
        ("ReduceLogSumExp", [3, 60]),
    ):
        got = computed(op, {"x": x}, opset=17, axes=[1], keepdims=0)
        assert got.dtype == np.int32
        assert got.tolist() == wanted


def test_known_values_that_the_reference_cannot_compute_are_computed_all_the_same():
    known = {"i": np.array([0, 2, -1]), "d": np.array([4]), "v": np.array([2, 5], np.float32)}
    np.testing.assert_array_equal(
        computed("OneHot", {}, known), np.where(np.eye(4)[[0, 2, 3]] == 1, 5, 2)
    )


def test_the_norm_over_channels_has_one_more_behind_where_their_number_is_even():
    x = drawn(1, 5, 2, 2)
    got = computed("LRN", {"x": x}, size=2, alpha=0.5, beta=0.75, bias=1.0)
    padded = np.concatenate([x, np.zeros_like(x[:, :1])], 1) ** 2
    wanted = x / (1 + 0.25 * (padded[:, :-1] + padded[:, 1:])) ** 0.75
    np.testing.assert_allclose(got, wanted, **CLOSE)


@pytest.mark.parametrize(("op", "function"), [("Add", np.add), ("Div", np.divide)])
def test_before_opset_7_an_axis_says_where_an_input_broadcasts(op, function):
    a, b = drawn(3, 3, 2), np.abs(drawn(3)) + 1
    got = computed(op, {"a": a}, {"b": b}, opset=6, broadcast=1, axis=0)
    np.testing.assert_allclose(got, function(a, b[:, None, None]), **CLOSE)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_what_goes_from_space_to_depth_comes_back(mode):
    x = drawn(2, 3, 4, 6)
    deep = computed("SpaceToDepth", {"x": x}, blocksize=2, opset=28, mode=mode)
    assert deep.shape == (2, 12, 2, 3)
    back = computed("DepthToSpace", {"x": deep}, blocksize=2, mode=mode)
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize(
    ("dtype", "domain", "opset"),
    [("int4", "", 21), ("uint4", "", 21), ("int4", "com.microsoft", 17)],
)
def test_weights_of_four_bits_become_real_numbers(dtype, domain, opset):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x, low = np.eye(6, dtype=np.float32), -8 if dtype == "int4" else 0
    numbers = np.arange(30).reshape(6, 5) % 16 + low
    known = {
        "w": numbers.astype(getattr(ml_dtypes, dtype)),
        "s": np.arange(1, 6, dtype=np.float32),
        "z": np.arange(5).astype(getattr(ml_dtypes, dtype)),
    }
    model = node_model("DequantizeLinear", {}, known, opset=opset, domain=domain, axis=1)
    model.graph.input.add().CopyFrom(node_model("Relu", {"x": x}).graph.input[0])
    model.graph.node.add(op_type="MatMul", input=["x", "y0"], output=["y"])
    model.graph.output[0].name = "y"
    wanted = (numbers - np.arange(5)) * np.arange(1, 6)
    np.testing.assert_array_equal(build_model(model, threads=1)(x), wanted)


def test_negative_indices_count_from_the_end_at_a_call_too():
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    rows, places = np.array([-1, 0, -4]), np.array([[-1, 2], [0, -2]])
    np.testing.assert_array_equal(computed("Gather", {"x": x, "i": rows}), x[rows])
    np.testing.assert_array_equal(computed("GatherND", {"x": x, "i": places}), x[[-1, 0], [2, -2]])
    columns = np.array([[-1, 0], [5, -6], [-3, 3], [-2, 1]])
    found = computed("GatherElements", {"x": x, "i": columns}, axis=1)
    np.testing.assert_array_equal(found, np.take_along_axis(x, columns % 6, 1))


@pytest.mark.parametrize("pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 2), (2, 3), (1, 3), (3, 2)])
def test_a_transposed_convolution_of_padding_same_has_the_extents_of_onnxs_formula(
    kernel, stride, pad
):
    """ONNX's reference has them, too; onnxruntime's are less where the stride is greater."""
    reference = pytest.importorskip("onnx.reference")
    x, w = (np.random.default_rng(0).random((1, 1, n), np.float32) for n in (4, kernel))
    options = {"auto_pad": pad, "strides": [stride]}
    model = node_model("ConvTranspose", {"x": x}, {"w": w}, **options)
    made = build_model(model, threads=1, check=False)(x)
    assert made.shape == (1, 1, 4 * stride)
    (wanted,) = reference.ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(made, wanted, rtol=1e-6)


@pytest.mark.parametrize(("op", "hint"), [("ConvTranspose", "pads or output"), ("LpPool", "pads")])
def test_a_difference_of_onnxruntime_that_is_known_is_told_where_results_are_compared(op, hint):
    pytest.importorskip("onnxruntime")
    x = np.random.default_rng(0).random((1, 1, 8), np.float32)
    known = {"w": np.ones((1, 1, 2), np.float32)} if op == "ConvTranspose" else {}
    how = {"auto_pad": "SAME_UPPER", "strides": [4], "kernel_shape": [2]}
    with pytest.raises(ModelError, match=f"Its {op} has auto_pad SAME_UPPER, .*: give {hint}"):
        build_model(node_model(op, {"x": x}, known, **how), threads=1)
