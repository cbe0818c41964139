"""Operators of com.microsoft, against onnxruntime."""

import numpy as np
import pytest

from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError
from tests.graph.onnx_nodes import computed, node_model

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.onnx
RNG = np.random.default_rng(0)


def real(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def whole(*shape, dtype="uint8"):
    bounds = np.iinfo(dtype)
    return RNG.integers(bounds.min, bounds.max, shape, endpoint=True).astype(dtype)


def weights(*shape):
    """Whole numbers of 7 bits: on processors without VNNI onnxruntime's sums of pairs of products
    saturate for greater ones."""
    return whole(*shape, dtype="int8") // 2


def compare(op, arrays, known=None, off=0.0, origin=None, **options):
    """Compare with onnxruntime; results may be `off` by so much. `origin` is the opset whose
    operator a quantized one is made of, where it says so."""
    model = node_model(op, arrays, known, opset=17, domain="com.microsoft", **options)
    if origin is not None:
        model.graph.node[0].attribute.append(onnx.helper.make_attribute("opset", origin))
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1  # each thread rounds its part of a batch by itself
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), settings, ["CPUExecutionProvider"]
    )
    found = build_model(model, threads=1, check=False)(*arrays.values())
    found = found if isinstance(found, tuple) else (found,)
    for got, wanted in zip(found, session.run(None, arrays), strict=True):
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        close = {"rtol": 1e-4, "atol": max(off, 1e-4)}
        np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), **close)


def step(name, value, zero, dtype="uint8"):
    """A scale and a zero point as weights."""
    return {f"{name}_scale": np.float32(value), f"{name}_zero": np.array(zero, dtype)}


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantized_numbers_are_added_and_multiplied(op, dtype):
    zero = 3 if dtype == "int8" else 120
    arrays = {"a": whole(2, 3, 4, dtype=dtype), "b": whole(3, 1, dtype=dtype)}
    known = {
        **step("a", 0.03, zero, dtype),
        **step("b", 0.02, zero + 1, dtype),
        **step("y", 0.05, zero, dtype),
    }
    order = ["a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "y_scale", "y_zero"]
    compare(op, arrays, known, off=1, order=order)


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("QLinearSigmoid", {}),
        ("QLinearLeakyRelu", {"alpha": 0.1}),
        ("QLinearGlobalAveragePool", {}),
        ("QLinearAveragePool", {"kernel_shape": [2, 3], "pads": [1, 0, 0, 1]}),
    ],
)
def test_functions_of_quantized_numbers(op, options):
    known = {**step("x", 0.04, 100), **step("y", 0.01, 10)}
    order = ["x", "x_scale", "x_zero", "y_scale", "y_zero"]
    compare(op, {"x": whole(2, 3, 4, 5)}, known, off=1, order=order, **options)


@pytest.mark.parametrize(("axis", "origin"), [(1, 13), (2, 11)])
def test_a_softmax_of_quantized_numbers_is_that_of_its_opset(axis, origin):
    known = {**step("x", 0.04, 100), **step("y", 1 / 256, 0)}
    order = ["x", "x_scale", "x_zero", "y_scale", "y_zero"]
    arrays = {"x": whole(2, 3, 4, 5)}
    compare("QLinearSoftmax", arrays, known, off=1, order=order, axis=axis, origin=origin)


def test_quantized_numbers_are_chosen_by_a_condition():
    arrays = {"c": whole(2, 3) > 99, "a": whole(2, 3), "b": whole(1, 3)}
    known = {**step("y", 0.05, 128), **step("a", 0.03, 120), **step("b", 0.06, 130)}
    order = ["c", "a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "y_scale", "y_zero"]
    compare("QLinearWhere", arrays, known, off=1, order=order)


def test_quantized_numbers_are_joined():
    arrays = {"a": whole(2, 3), "b": whole(2, 2)}
    known = {**step("y", 0.05, 128), **step("a", 0.03, 120), **step("b", 0.06, 130)}
    order = ["y_scale", "y_zero", "a", "a_scale", "a_zero", "b", "b_scale", "b_zero"]
    compare("QLinearConcat", arrays, known, off=1, order=order, axis=1)


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("to_real", [False, True])
def test_quantized_matrices_are_multiplied(turned, to_real):
    known = {
        **step("a", 0.02, 128),
        "b": weights(5, 7) if turned else weights(7, 5),
        "b_scale": np.abs(real(5)) * 0.01,
        "b_zero": np.zeros(5, np.int8),
        "c": whole(5, dtype="int16").astype(np.int32),
    }
    order = ["a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "c"]
    if not to_real:
        known |= step("y", 0.2, 100)
        order += ["y_scale", "y_zero"]
    compare("QGemm", {"a": whole(3, 7)}, known, off=1, order=order, transB=turned, alpha=0.5)


def test_a_product_of_integers_is_made_real():
    arrays = {"a": whole(3, 7), "b": weights(7, 5)}
    known = {"s": np.float32(0.02), "t": np.abs(real(5)) * 0.01, "z": np.uint8(120)}
    known |= {"w": np.int8(3), "c": real(5)}
    order = ["a", "b", "s", "t", "z", "w", "c"]
    compare("MatMulIntegerToFloat", arrays, known, off=1e-3, order=order)


@pytest.mark.parametrize("x", [real(3, 7), abs(real(3, 7)), np.zeros((3, 7), np.float32)])
def test_the_scale_of_data_is_that_of_onnxruntime_to_the_last_bit(x):
    model = node_model("DynamicQuantizeLinear", {"x": x}, results=3, opset=17)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    for got, value in zip(build_model(model, threads=1)(x), wanted, strict=True):
        np.testing.assert_array_equal(got, value)


@pytest.mark.parametrize("columns", [False, True])
def test_a_recurrence_with_quantized_weights_rounds_data_and_states(columns):
    steps, batch, width, hidden = 3, 2, 5, 4
    scale = (2, 4 * hidden) if columns else (2,)
    known = {
        "w": weights(2, width, 4 * hidden),
        "r": weights(2, hidden, 4 * hidden),
        "b": real(2, 8 * hidden),
        "w_scale": np.full(scale, 0.004, np.float32),
        "w_zero": np.zeros(scale, np.int8),
        "r_scale": np.full(scale, 0.003, np.float32),
        "r_zero": np.zeros(scale, np.int8),
    }
    order = ["x", "w", "r", "b", "", "", "", "", "w_scale", "w_zero", "r_scale", "r_zero"]
    options = {"hidden_size": hidden, "direction": "bidirectional", "results": 3, "order": order}
    compare("DynamicQuantizeLSTM", {"x": real(steps, batch, width)}, known, off=1e-5, **options)


@pytest.mark.parametrize(("bits", "lines"), [(4, 3), (4, 11), (8, 3)])
@pytest.mark.parametrize("zeros", [False, True])
def test_weights_of_a_few_bits_are_unpacked(bits, lines, zeros):
    rows, columns, size = 6, 40, 32  # the second block is not full
    blocks = -(-columns // size)
    known = {"b": whole(rows, blocks, size * bits // 8), "s": np.abs(real(rows * blocks))}
    if zeros:
        known["z"] = whole(rows * -(-blocks * bits // 8))
    options = {"N": rows, "K": columns, "bits": bits, "block_size": size}
    compare("MatMulNBits", {"a": real(lines, columns)}, known, off=1e-2, **options)


def test_weights_of_four_bits_stay_packed_for_a_few_rows():
    rows, columns, size = 64, 128, 32
    known = {"b": whole(rows, columns // size, size // 2), "s": real(rows * columns // size)}
    options = {"N": rows, "K": columns, "bits": 4, "block_size": size}
    domain = {"domain": "com.microsoft"}
    model = node_model("MatMulNBits", {"a": real(2, columns)}, known, **options, **domain)
    built = build_model(model, threads=1, check=False)
    assert built.linked.weight_bytes <= known["b"].nbytes + known["s"].nbytes + 64


@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_a_fused_product_turns_its_sides_and_scales_them(turned):
    a = real(2, 5, 3) if turned[0] else real(2, 3, 5)
    b = real(2, 4, 5) if turned[1] else real(2, 5, 4)
    options = {"transA": turned[0], "transB": turned[1], "alpha": 0.5}
    compare("FusedMatMul", {"a": a, "b": b}, **options)


def test_the_batch_of_a_fused_product_may_stand_behind_its_rows():
    options = {"transBatchA": 1, "transA": 0}
    compare("FusedMatMul", {"a": real(3, 2, 5), "b": real(2, 5, 4)}, **options)


@pytest.mark.parametrize(
    ("name", "given"), [("Relu", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.5]), ("Tanh", [])]
)
def test_a_fused_convolution_ends_in_its_activation(name, given):
    known = {"w": real(4, 3, 3, 3), "b": real(4)}
    options = {"activation": name, "pads": [1, 1, 1, 1]}
    if given:
        options["activation_params"] = given
    compare("FusedConv", {"x": real(1, 3, 6, 6)}, known, **options)


def test_what_it_does_not_know_is_refused():
    known = {"w": real(4, 3, 3, 3)}
    with pytest.raises(ModelError, match="activation is 'Swish'; it may be Relu"):
        computed(
            "FusedConv", {"x": real(1, 3, 6, 6)}, known, domain="com.microsoft", activation="Swish"
        )


def test_products_and_sums_of_halves_are_rounded_once():
    q = (40 + 2 * real(1, 4, 128)).astype(np.float16)  # squares sum up to more than 65504
    compare("MultiHeadAttention", {"q": q, "k": q, "v": q / 64}, off=2e-3, num_heads=2)
    compare("FusedMatMul", {"a": q, "b": q}, off=4, alpha=0.01, transB=1)
    one, none = np.ones(128, np.float16), np.zeros(128, np.float16)
    compare("SkipLayerNormalization", {"x": q, "s": q * 8}, {"g": one, "b": none}, off=4e-3)
    gemm = computed("Gemm", {"a": q[0], "b": q[0].T}, alpha=0.01)
    np.testing.assert_allclose(gemm, q[0].astype(float) @ q[0].T * 0.01, rtol=1e-3)
    np.testing.assert_array_equal(computed("Mean", {"a": q * 1000, "b": q * 1000}), q * 1000)


@pytest.mark.parametrize("results", [1, 4])
def test_a_sum_is_normalized_by_its_root_mean_square(results):
    known = {"g": real(8), "b": real(8)}
    arrays = {"x": real(2, 3, 8), "s": real(2, 3, 8)}
    if results == 1:
        compare("SkipSimplifiedLayerNormalization", arrays, known, epsilon=1e-5)
        return
    model = node_model(
        "SkipSimplifiedLayerNormalization",
        arrays,
        known,
        results=4,
        domain="com.microsoft",
        epsilon=1e-5,
    )
    total = arrays["x"] + arrays["s"] + known["b"]
    *_, found = build_model(model, threads=1, check=False)(*arrays.values())
    np.testing.assert_allclose(found, total, rtol=1e-5, atol=1e-6)


def test_embeddings_are_summed_and_normalized():
    arrays = {
        "ids": RNG.integers(0, 9, (2, 4)).astype(np.int32),
        "segments": RNG.integers(0, 2, (2, 4)).astype(np.int32),
    }
    known = {"words": real(9, 8), "places": real(6, 8), "kinds": real(2, 8)}
    known |= {"gamma": real(8), "beta": real(8)}
    arrays["mask"] = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    order = ["ids", "segments", "words", "places", "kinds", "gamma", "beta", "mask"]
    compare("EmbedLayerNormalization", arrays, known, results=2, order=order)


def test_embeddings_of_halves_are_summed_in_float32():
    arrays = {name: np.zeros((1, 1), np.int32) for name in ("ids", "segments")}
    tables = {"words": [60000.0, 0], "places": [9000.0, 1], "kinds": [-9000.0, 0]}
    known = {name: np.array([row], np.float16) for name, row in tables.items()}
    known |= {"gamma": np.ones(2, np.float16), "beta": np.zeros(2, np.float16)}
    order = ["ids", "segments", *known]
    model = node_model(
        "EmbedLayerNormalization", arrays, known, domain="com.microsoft", order=order, results=2
    )
    got, _ = build_model(model, threads=1, check=False)(*arrays.values())
    assert got.ravel().tolist() == [1, -1]


@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu", "Tanh"])
def test_a_product_of_matrices_has_its_activation(activation):
    known = {"b": real(5, 7), "c": real(5)}
    options = {"transB": 1, "alpha": 0.5, "activation": activation, "activation_alpha": 0.1}
    compare("FusedGemm", {"a": real(3, 7)}, known, **options)


@pytest.mark.parametrize("bias", [False, True])
def test_data_is_quantized_at_the_call(bias):
    known = {"b": weights(7, 5), "s": np.float32(0.02), "z": np.int8(3)}
    known |= {"c": real(5)} if bias else {}
    compare("DynamicQuantizeMatMul", {"a": real(3, 7)}, known, off=1e-3)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_rows_of_a_quantized_table_are_read(zeros, bits):
    known = {"table": whole(9, 64 * bits // 8), "s": np.abs(real(9, 4))}
    order = ["table", "i", "s"]
    if zeros:
        known["z"] = whole(9, 4 * bits // 8)
        order.append("z")
    arrays = {"i": RNG.integers(0, 9, (2, 3))}
    options = {"block_size": 16, "bits": bits, "quantize_axis": 1}
    compare("GatherBlockQuantized", arrays, known, order=order, **options)


@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("columns", [False, True])
def test_attention_of_quantized_data(unidirectional, columns):
    """Its weights have one scale, or one for each column."""
    scale = np.full(24 if columns else 1, 0.01, np.float32)
    known = {
        "w": weights(8, 24),
        "b": real(24),
        "x_scale": np.float32(0.02),
        "w_scale": scale if columns else np.float32(0.01),
        "mask": np.array([4, 5], np.int32),
        "x_zero": np.uint8(120),
        "w_zero": np.zeros(24 if columns else (), np.int8),
    }
    options = {"num_heads": 2, "unidirectional": unidirectional}
    compare("QAttention", {"x": whole(2, 5, 8)}, known, **options)


def test_quantized_tables_are_embedded_and_normalized():
    parts = {"words": (20, 6), "places": (9, 6), "segments": (2, 6), "gamma": (6,), "beta": (6,)}
    known = {name: whole(*shape) for name, shape in parts.items()}
    known["mask"] = np.ones((2, 5), np.int32)
    known |= {f"{name}_scale": np.float32(0.01 + n / 100) for n, name in enumerate(parts)}
    known |= {f"{name}_zero": np.uint8(100 + n) for n, name in enumerate(parts)}
    rows = {"ids": whole(2, 5).astype(np.int32) % 20, "kinds": whole(2, 5).astype(np.int32) % 2}
    compare("QEmbedLayerNormalization", rows, known, results=2, epsilon=1e-12)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances_between_rows(metric):
    compare("CDist", {"a": real(7, 5), "b": real(3, 5)}, metric=metric)


def test_inverses_of_matrices():
    compare("Inverse", {"x": real(2, 4, 4) + 4 * np.eye(4, dtype=np.float32)})
