"""Attention of com.microsoft, with past keys and without, against onnxruntime."""

import numpy as np
import pytest

from loopwright.graph.build import build_model
from tests.graph.onnx_nodes import node_model
from tests.graph.test_onnx_microsoft import RNG, compare, real, whole

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.onnx


@pytest.mark.parametrize("mask", ["none", "keys", "lengths", "causal"])
def test_attention_of_one_input(mask):
    arrays = {"x": real(2, 5, 8)}
    known = {"w": real(8, 24) * 0.3, "b": real(24)}
    options = {"num_heads": 2}
    if mask == "keys":
        arrays["m"] = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)
    elif mask == "lengths":
        arrays["m"] = np.array([3, 5], np.int32)
    elif mask == "causal":
        options["unidirectional"] = 1
    order = ["x", "w", "b", *(["m"] if "m" in arrays else [])]
    compare("Attention", arrays, known, order=order, **options)


@pytest.mark.parametrize("mask", ["keys", "each query", "none"])
def test_attention_takes_past_keys_and_gives_all(mask):
    arrays = {"x": real(2, 3, 8), "past": real(2, 2, 2, 2, 4)}
    known = {"w": real(8, 24) * 0.3, "b": real(24)}
    shape = {"keys": (2, 5), "each query": (2, 3, 5)}.get(mask)
    if shape is not None:
        arrays["m"] = RNG.integers(0, 2, shape).astype(np.int32)
    order = ["x", "w", "b", "" if shape is None else "m", "past"]
    options = {"num_heads": 2, "results": 2, "unidirectional": 1}
    compare("Attention", arrays, known, order=order, **options)


@pytest.mark.parametrize("mask", [(2, 5), (2, 3, 5)])
def test_attention_of_queries_takes_past_keys_and_gives_all(mask):
    arrays = {"q": real(2, 3, 8), "k": real(2, 3, 8), "v": real(2, 3, 8)}
    arrays |= {"m": RNG.integers(0, 2, mask).astype(np.int32)}
    arrays |= {"pk": real(2, 2, 2, 4), "pv": real(2, 2, 2, 4)}
    order = ["q", "k", "v", "", "m", "", "pk", "pv"]
    options = {"num_heads": 2, "results": 3, "unidirectional": 1}
    compare("MultiHeadAttention", arrays, order=order, **options)


@pytest.mark.parametrize("given", [(), ("b",), ("m",), ("a",), ("b", "m", "a")])
def test_attention_of_queries_keys_and_values(given):
    arrays = {"q": real(2, 3, 8), "k": real(2, 5, 8), "v": real(2, 5, 12)}
    more = {"b": real(28), "a": real(2, 2, 3, 5)}
    more["m"] = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    arrays |= {name: more[name] for name in given}
    order = ["q", "k", "v", *(name if name in given else "" for name in "bma")]
    compare("MultiHeadAttention", arrays, order=order, num_heads=2)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("shape", [(2, 5, 24), (2, 3, 5, 8)])
def test_places_turn_channels(interleaved, shape):
    arrays = {"x": real(*shape), "p": RNG.integers(0, 9, (2, 5))}
    known = {"c": np.cos(real(9, 4)), "s": np.sin(real(9, 4))}
    compare("RotaryEmbedding", arrays, known, interleaved=interleaved)


def test_a_part_of_the_channels_is_turned_from_one_place_on():
    known = {"p": np.array([2]), "c": np.cos(real(9, 2)), "s": np.sin(real(9, 2))}
    options = {"num_heads": 3, "rotary_embedding_dim": 4}
    compare("RotaryEmbedding", {"x": real(1, 5, 24)}, known, **options)


def decoder(length, past, total, heads=4, shared=2, size=16, batch=2, packed=False):
    """Inputs of GroupQueryAttention in their order, and the names that go with them."""
    if packed:
        arrays = {"q": real(batch, length, (heads + 2 * shared) * size)}
        order = ["q", "", ""]
    else:
        arrays = {"q": real(batch, length, heads * size)}
        arrays |= {name: real(batch, length, shared * size) for name in "kv"}
        order = ["q", "k", "v"]
    if past:
        arrays |= {name: real(batch, shared, past, size) for name in ("pk", "pv")}
    order += ["pk", "pv"] if past else ["", ""]
    arrays["lengths"] = np.full(batch, total - 1, np.int32)
    return arrays, {"total": np.array(total, np.int32)}, [*order, "lengths", "total"]


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ({"length": 6, "past": 0, "total": 6}, {}),
        ({"length": 1, "past": 6, "total": 7}, {}),
        ({"length": 1, "past": 6, "total": 7, "packed": True}, {"do_rotary": 1}),
        (
            {"length": 6, "past": 0, "total": 6, "packed": True},
            {"do_rotary": 1, "rotary_interleaved": 1},
        ),
        ({"length": 3, "past": 5, "total": 8, "batch": 1}, {"softcap": 2.0, "scale": 0.3}),
        ({"length": 1, "past": 9, "total": 7}, {}),
        ({"length": 9, "past": 0, "total": 9}, {"local_window_size": 3}),
    ],
)
def test_queries_share_keys_and_past_ones_are_kept(sizes, options):
    arrays, known, order = decoder(**sizes)
    if options.get("do_rotary"):
        known |= {"c": np.cos(real(16, 8)), "s": np.sin(real(16, 8))}
        order += ["c", "s"]
    options = {"num_heads": 4, "kv_num_heads": 2, "results": 3, **options}
    compare("GroupQueryAttention", arrays, known, order=order, **options)


def test_samples_of_other_lengths_keep_their_own_past():
    arrays, known, order = decoder(1, 6, 7)
    arrays["lengths"] = np.array([3, 6], np.int32)
    options = {"num_heads": 4, "kv_num_heads": 2, "results": 3}
    compare("GroupQueryAttention", arrays, known, order=order, **options)


@pytest.mark.parametrize(("length", "past"), [(1, 6), (6, 0)])
@pytest.mark.parametrize("given", ["sink", "smooth", "positions"])
def test_a_softmax_may_have_a_sink_and_positions_may_be_given(given, length, past):
    arrays, known, order = decoder(length, past, length + past)
    known |= {"c": np.cos(real(16, 8)), "s": np.sin(real(16, 8))}
    order += ["c", "s"]
    options = {"num_heads": 4, "kv_num_heads": 2, "results": 3, "do_rotary": 1}
    if given == "sink":
        known["sink"] = real(4)
        order += ["", "", "sink"]
    elif given == "smooth":
        options["smooth_softmax"] = 1
    else:  # onnxruntime counts on from the first one where nothing is past
        arrays["at"] = np.array([[5], [3]]) if past else np.arange(6)[None].repeat(2, 0)
        order += ["at"]
    compare("GroupQueryAttention", arrays, known, order=order, **options)


def test_a_decoder_that_counts_a_mask_is_compared_where_all_keys_count():
    arrays, _, order = decoder(2, 3, 5, batch=1)
    del arrays["lengths"]
    known = {"one": np.array([1]), "all": np.array(5, np.int32)}
    options = {"num_heads": 4, "kv_num_heads": 2, "results": 3, "domain": "com.microsoft"}
    order = [*order[:-1], "all"]
    arrays["mask"] = np.ones((1, 5), np.int64)
    model = node_model("GroupQueryAttention", arrays, known, opset=17, order=order, **options)
    decoding = model.graph.node.pop()
    for op, inputs, output in (
        ("ReduceSum", ["mask", "one"], "count"),
        ("Sub", ["count", "one"], "before"),
        ("Cast", ["before"], "lengths"),
    ):
        said = {"ReduceSum": {"keepdims": 0}, "Cast": {"to": 6}}.get(op, {})
        model.graph.node.append(onnx.helper.make_node(op, inputs, [output], **said))
    model.graph.node.append(decoding)
    built = build_model(model, threads=1)  # which compares with onnxruntime
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for got, wanted in zip(built(*arrays.values()), session.run(None, arrays), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_weights_of_four_bits_take_batches_and_lengths_in_two_frames():
    known = {"b": whole(4, 1, 8), "s": np.abs(real(4))}
    many = {"N": 4, "K": 16, "bits": 4, "block_size": 16, "domain": "com.microsoft"}
    model = node_model("MatMulNBits", {"x": real(1, 1, 16)}, known, opset=17, **many)
    for axis, name in enumerate(("batch", "length")):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    built = build_model(model, dims={"batch": (1, 4), "length": (1, 7)}, threads=1)
    assert sorted(str(frame.dims[1]) for frame in built.frames) == [
        "length: 1 to 1",
        "length: 2 to 7",
    ]
