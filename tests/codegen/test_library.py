"""Compiled libraries as Python calls them."""

from __future__ import annotations

import threading

import ml_dtypes
import numpy as np
import pytest

from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.dsl.errors import ConfigError, LibraryError, LoopwrightError, ShapeError
from tests.codegen import kernels
from tests.codegen.kernels import matrices


class Foreign:
    """An array of another library's: all it has is DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.fixture(scope="module")
def matmul():
    return kernels.matmul()


@pytest.fixture(scope="module")
def packed():
    return kernels.matmul(packed=True)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_computes_the_same_on_any_number_of_threads(matmul, threads):
    A, W = matrices()
    before = matmul.threads
    matmul.threads = threads
    assert matmul.threads == threads
    np.testing.assert_allclose(matmul(A, W), A @ W, rtol=1e-5, atol=1e-5)
    matmul.threads = before


@pytest.mark.parametrize("threads", [0, -1, 100_000, "x", 2.5, True])
def test_an_impossible_number_of_threads_is_refused(matmul, threads):
    with pytest.raises(ConfigError, match="from 1 to 256"):
        matmul.threads = threads


def test_inputs_go_by_position_or_by_name(matmul):
    A, W = matrices()
    expected = matmul(A, W)
    assert np.array_equal(matmul(A, W=W), expected)
    assert np.array_equal(matmul(W=W, A=A), expected)


def test_a_new_output_is_aligned_to_a_cache_line(matmul):
    assert matmul(*matrices()).ctypes.data % 64 == 0


def test_out_is_written_and_returned(matmul):
    A, W = matrices()
    C = np.full((24, 16), np.nan, np.float32)
    assert matmul(A, W, out=C) is C
    np.testing.assert_allclose(C, A @ W, rtol=1e-5, atol=1e-5)


def test_strided_inputs_are_copied(matmul):
    A, W = matrices()
    wide = np.zeros((24, 24), np.float32)
    wide[:, ::2] = A
    result = matmul(wide[:, ::2], np.asfortranarray(W))
    np.testing.assert_allclose(result, A @ W, rtol=1e-5, atol=1e-5)


def shifted(array, offset):
    """A copy of `array` that begins `offset` bytes after a 64-byte boundary."""
    buffer = np.zeros(array.nbytes + 128, np.uint8)
    start = -buffer.ctypes.data % 64 + offset
    copy = buffer[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.parametrize("offset", [0, 4, 20, 36, 1, 3])
def test_any_alignment_will_do(matmul, offset):
    A, W = matrices()
    out = shifted(np.zeros((24, 16), np.float32), offset)
    assert matmul(shifted(A, offset), shifted(W, offset), out=out) is out
    np.testing.assert_allclose(out, A @ W, rtol=1e-5, atol=1e-5)


def test_an_output_that_overlaps_an_input_is_computed_aside():
    square = kernels.matmul(16, 16, 16)
    A, W = matrices(16, 16, 16)
    expected = A @ W
    assert square(A, W, out=A) is A
    np.testing.assert_allclose(A, expected, rtol=1e-5, atol=1e-5)
    both = np.zeros((24, 16), np.float32)
    both[:16] = expected
    square(both[:16], W, out=both[8:])
    np.testing.assert_allclose(both[8:], expected @ W, rtol=1e-4, atol=1e-4)


def test_several_outputs_come_as_a_tuple():
    twice = kernels.elementwise("float32")
    X = np.arange(40, dtype=np.float32)
    Y, Z = twice(X)
    assert np.array_equal(Y, 2 * X)
    assert np.array_equal(Z, X)
    out = np.empty((2, 40), np.float32)
    given = (out[0], out[1])
    assert twice(X, out=given) is given
    assert np.array_equal(out, [2 * X, X])
    with pytest.raises(ShapeError, match="out has 1 arrays; there are 2 outputs: Y, Z"):
        twice(X, out=Y)
    with pytest.raises(ShapeError, match="Z overlaps another output"):
        twice(X, out=(Y, Y))


@pytest.mark.parametrize(
    "dtype",
    ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool"],
)
def test_every_dtype_passes(dtype):
    same = kernels.elementwise(dtype, (5, 8), compute=lambda x: x)
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    X = np.arange(40).reshape(5, 8).astype(kind)
    Y, Z = same(X)
    assert Y.dtype == kind
    assert np.array_equal(Y, X)
    assert np.array_equal(Z, X)


def test_dlpack_arrays_share_their_memory(matmul):
    A, W = matrices()
    C = np.zeros((24, 16), np.float32)
    out = Foreign(C)
    assert matmul(Foreign(A), Foreign(W), out=out) is out
    np.testing.assert_allclose(C, A @ W, rtol=1e-5, atol=1e-5)


@pytest.mark.torch
def test_torch_tensors_pass_bfloat16_included(matmul):
    import torch

    A, W = map(torch.from_numpy, matrices())
    out = torch.zeros(24, 16)
    assert matmul(A, W, out=out) is out
    torch.testing.assert_close(out, A @ W, rtol=1e-4, atol=1e-4)
    same = kernels.elementwise("bfloat16", compute=lambda x: x)
    X = torch.arange(40).to(torch.bfloat16)
    doubled, copied = same(X)
    assert doubled.dtype == copied.dtype == torch.bfloat16
    assert torch.equal(doubled, X)


@pytest.mark.torch
def test_torch_tensors_come_back_where_one_goes_in(matmul):
    import torch

    A, W = matrices()
    expected = torch.from_numpy(matmul(A, W))
    wants_gradients = torch.from_numpy(A).requires_grad_()
    for result in (matmul(torch.from_numpy(A), W), matmul(wants_gradients, W=torch.from_numpy(W))):
        assert isinstance(result, torch.Tensor)
        assert torch.equal(result, expected)


@pytest.mark.torch
def test_torch_tensors_that_have_no_memory_to_read_are_refused(matmul):
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    A, W = map(torch.from_numpy, matrices())
    negated = torch._neg_view(A)
    assert torch.equal(negated, -A)
    with FakeTensorMode():
        fake = torch.empty(24, 12)
    for wrong in (negated, fake, torch.empty(24, 12, device="meta"), A.to_sparse()):
        with pytest.raises(ShapeError, match="A: cannot read"):
            matmul(wrong, W)
    with pytest.raises(ShapeError, match=r"negative bit .*resolve_neg\(\)"):
        matmul(A, W, out=torch._neg_view(torch.zeros(24, 16)))


def test_an_array_with_masked_elements_is_refused(matmul):
    A, W = matrices()
    masked = np.ma.masked_array(A, mask=A > 0)
    with pytest.raises(ShapeError, match=r"A has masked elements.*filled"):
        matmul(masked, W)
    assert np.array_equal(matmul(np.ma.masked_array(A), W), matmul(A, W))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda lib, A, W: lib(A), "input W is missing: matmul"),
        (lambda lib, A, W: lib(A, W, W), "got 3 inputs, takes 2"),
        (lambda lib, A, W: lib(A, W, A=A), "'A' was given twice"),
        (lambda lib, A, W: lib(A, W, B=A), "'B' is no input"),
        (lambda lib, A, W: lib(A.astype("float64"), W), "A has dtype float64; it must be float32"),
        (lambda lib, A, W: lib(A.T, W), r"A has shape \(12, 24\); .* built for \(24, 12\)"),
        (lambda lib, A, W: lib(A, "no"), "W: cannot read str 'no'"),
        (lambda lib, A, W: lib({"A": A}, W), "A: cannot read dict .* inputs by name .* f"),
        (
            lambda lib, A, W: lib(None, W),
            "A: cannot read None .* give float32",
        ),
        (lambda lib, A, W: lib(A, [[None] * 16] * 12), "W: cannot read list .* no numbers"),
        (lambda lib, A, W: lib(A, [[10**400]]), r"W: cannot read list .*float32\[12, 16\]"),
        (lambda lib, A, W: lib(np.float32, W), "A: cannot read type <class"),
        (lambda lib, A, W: lib(A, W, out=A), "C has shape"),
        (lambda lib, A, W: lib(A, W, out=[[0.0]]), r"C is list \[0\.0\]; give an array"),
        (lambda lib, A, W: lib(A, W, out=np.zeros((16, 24), "f4").T), "C is not contiguous"),
        (lambda lib, A, W: lib(A, W, out=np.broadcast_to(np.float32(0), (24, 16))), "C is not"),
        (lambda lib, A, W: lib.bind(B=A), "no unbound input 'B'; these are: A, W"),
    ],
)
def test_wrong_arguments_are_explained(matmul, call, message):
    with pytest.raises(ShapeError, match=message):
        call(matmul, *matrices())


def test_a_read_only_output_is_refused(matmul):
    C = np.zeros((24, 16), np.float32)
    C.flags.writeable = False
    with pytest.raises(ShapeError, match="C is read-only"):
        matmul(*matrices(), out=C)


def test_constants_are_prepared_at_each_call_unless_bound(packed):
    A, W = matrices()
    expected = A @ W
    np.testing.assert_allclose(packed(A, W), expected, rtol=1e-5, atol=1e-5)
    bound = packed.bind(W=W)
    W[...] = 0  # the library has its own copy
    assert [p.name for p in bound.inputs] == ["A"]
    np.testing.assert_allclose(bound(A), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(bound.bind(A=A)(), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ShapeError, match="got 2 inputs, takes 1"):
        bound(A, W)


def test_messages_tell_what_is_bound_by_the_names_of_inputs(packed):
    A, W = matrices()
    bound = packed.bind(W=W)
    assert repr(bound).endswith("; bound: W>")
    for call in (lambda: bound(A, W), lambda: bound(A, W=W), bound, lambda: bound(x=A)):
        with pytest.raises(ShapeError, match=r"-> .*; bound: W$"):
            call()
    assert "W_packed" not in bound._repr_html_()


def test_any_input_can_be_bound(matmul):
    A, W = matrices()
    np.testing.assert_allclose(matmul.bind(A=A)(W), A @ W, rtol=1e-5, atol=1e-5)


def test_a_prepared_call_reads_its_arrays_anew(packed):
    A, W = matrices()
    call = packed.prepare_call(A, W)
    call()
    np.testing.assert_allclose(call.outputs[0], A @ W, rtol=1e-5, atol=1e-5)
    A *= 2
    elapsed, cpu = call.repeat(10)
    np.testing.assert_allclose(call.outputs[0], A @ W, rtol=1e-5, atol=1e-5)
    assert 0 < elapsed < 10
    assert 0 <= cpu < 10


def test_a_prepared_call_refuses_what_it_would_have_to_copy(matmul):
    A, W = matrices()
    with pytest.raises(ShapeError, match="W is not a dense"):
        matmul.prepare_call(A, np.asfortranarray(W))
    square = kernels.matmul(16, 16, 16)
    B = np.zeros((16, 16), np.float32)
    with pytest.raises(ShapeError, match="overlaps an input"):
        square.prepare_call(B, B, out=B)


def test_a_prepared_call_outlives_its_library():
    A, W = matrices()
    call = kernels.matmul(packed=True).bind(W=W).prepare_call(A)
    call()
    np.testing.assert_allclose(call.outputs[0], A @ W, rtol=1e-5, atol=1e-5)


def test_calls_from_several_threads_do_not_meet(matmul, packed):
    rng = np.random.default_rng(1)
    wrong = []

    def work(seed):
        A, W = (rng.random(s, dtype=np.float32) for s in ((24, 12), (12, 16)))
        for i in range(200):
            lib = (matmul, packed)[(i + seed) % 2]
            if not np.allclose(lib(A, W), A @ W, rtol=1e-4):
                wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_sources_are_computed_when_asked_for():
    asked = []
    lib = kernels.matmul(sources={"tir": lambda: asked.append(1) or "text"})
    assert not asked
    assert lib.source("tir") == "text"
    with pytest.raises(LibraryError, match="no source of kind 'asm'; there are: tir"):
        lib.source("asm")


def test_a_signature_survives_json():
    signature = kernels.matmul_signature(24, 16, 12, True, 3)
    assert Signature.from_json(signature.to_json()) == signature
    assert str(signature) == "matmul(A: float32[24, 12], W: float32[12, 16]) -> C: float32[24, 16]"
    assert [p.name for p in signature.main_parameters] == ["A", "P", "C"]
    assert [p.name for p in signature.prepare_parameters] == ["W", "P"]


@pytest.mark.parametrize("data", [None, {}, {"name": "x", "inputs": 3}, []])
def test_what_is_no_signature_is_refused(data):
    with pytest.raises(LibraryError, match="not a signature"):
        Signature.from_json(data)


def test_signatures_that_make_no_sense_are_refused():
    X, Y = Parameter("X", (2,), "float32"), Parameter("Y", (2,), "float32")
    for bad in (
        lambda: Parameter("X", (2,), "complex64"),
        lambda: Signature("f", (X,), ()),
        lambda: Signature("f", (X,), (X,)),
        lambda: Signature("f", (X,), (Y,), threads=0),
        lambda: Signature("f", (X,), (Y,), constants=("X",)),
        lambda: Signature("f", (X,), (Y,), prepared=(Parameter("P", (2,), "float32"),)),
        lambda: Signature("f", (X,), (Y,), ("Q",), (Parameter("P", (2,), "float32"),)),
    ):
        with pytest.raises(LoopwrightError):
            bad()
