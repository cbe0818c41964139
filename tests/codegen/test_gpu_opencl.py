"""OpenCL libraries, on whatever device there is (PoCL's will do); hand-written trees."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.devices import opencl
from loopwright.codegen.devices.nvidia import compile_cuda
from loopwright.codegen.gpu.library import load_code
from loopwright.codegen.gpu.source import compile_gpu, gpu_program
from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.dsl.errors import BuildError, LibraryError, ShapeError
from loopwright.dsl.expr import Binary, Const
from loopwright.dsl.oracle import evaluate, random_inputs
from loopwright.schedule.target import Gpu, Target
from loopwright.schedule.tree.grammar import (
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    Buffer,
    Let,
    Linear,
    Load,
    Loop,
    MatrixFill,
    MatrixLoad,
    MatrixMultiply,
    MatrixStore,
    Quotient,
    Remainder,
    Store,
    Tree,
    Var,
)
from loopwright.schedule.tree.verifier import verify

OPENCL = Target("opencl", gpu=Gpu(tensor_cores=True, async_copies=True))
CUDA = Target(
    "cuda", gpu=Gpu("sm_90", tensor_cores=True, async_copies=True, shared_bytes=99 << 10)
)


def at(*terms, const=0):
    return Linear(tuple((t, 1) if isinstance(t, Var) else t for t in terms), const)


def loop(var, extent, kind, *body, bound=None):
    return Loop(var, extent, kind, tuple(body), bound)


def argument(name, *shape, dtype="float32"):
    return Buffer(name, shape, dtype, "argument")


def tree(inputs, outputs, kernel):
    if kernel.kind != "block":
        kernel = loop(Var("only"), 1, "block", kernel)
    return Tree(1, tuple(inputs), (), tuple(outputs), (), (), (kernel,))


def run(made, *inputs, legal=True):
    if legal:
        verify(made, OPENCL.gpu)

    def parameter(b):
        return Parameter(b.name, tuple(b.shape), b.dtype)

    signature = Signature(
        "k", tuple(map(parameter, made.inputs)), tuple(map(parameter, made.outputs))
    )
    return load_code(signature, compile_gpu(made, OPENCL).to_bytes())(*inputs)


def reversal():
    """Y[64 b + t] = X[64 b + 63 - t], through shared memory filled by asynchronous copies."""
    X, Y = argument("X", 190), argument("Y", 190)
    S = Buffer("S", (64,), "float32", "shared")
    b, t, base = Var("b"), Var("t"), Var("base")
    pair = Var("pair")
    copy = AsyncCopy(S, (at(pair),), X, (at(base, pair),), 2)
    guarded = loop(Var("few"), 1, "serial", copy, bound=at((t, -1), const=32))
    store = Store(Y, (at(base, t),), Load(S, (at((t, -1), const=63),)))
    inside = (
        Allocate(S),
        Let(pair, at((t, 2)), 62),
        guarded,
        AsyncCommit(),
        AsyncWait(0),
        Barrier(),
        store,
    )
    threads = loop(t, 64, "thread", *inside)
    kernel = loop(b, 3, "block", Let(base, at((b, 64)), 126), threads)
    return tree([X], [Y], kernel)


def matrices(dtype, transposed):
    """C = A · B of 32×48 and 48×16, two warps, each with one tile of rows."""
    A, C = argument("A", 32, 48, dtype=dtype), argument("C", 32, 16)
    B = argument("B", *((16, 48) if transposed else (48, 16)), dtype=dtype)
    S = Buffer("S", (48, 24), dtype, "shared")
    P = Buffer("P", (2, 16, 24), "float32", "shared")
    a, b, c = (
        Buffer(n, (1, 16, 16), d, s)
        for n, d, s in (
            ("a", dtype, "matrix_a"),
            ("b", dtype, "matrix_b"),
            ("c", "float32", "accumulator"),
        )
    )
    w, lane, k, r, i = Var("w"), Var("lane"), Var("k"), Var("r"), Var("i")
    thread = at((w, 32), lane)
    k_row, column = (
        at((Quotient(at((r, 64), *thread.terms), 16), 1)),
        at((Remainder(at((r, 64), *thread.terms), 16), 1)),
    )
    fill = loop(
        r, 12, "serial",
        Store(S, (k_row, column), Load(B, (column, k_row) if transposed else (k_row, column))),
    )  # fmt: skip
    zero = (Linear(),)
    steps = loop(
        k, 3, "serial",
        MatrixLoad(a, zero, A, (at((w, 16)), at((k, 16))), 0, 1),
        MatrixLoad(b, zero, S, (at((k, 16)), Linear()), 0, 1),
        MatrixMultiply(c, zero, a, zero, b, zero),
    )  # fmt: skip
    place = at((Quotient(at((i, 32), lane), 16), 1)), at((Remainder(at((i, 32), lane), 16), 1))
    out = loop(
        i, 8, "serial",
        Store(C, (at((w, 16)) + place[0], place[1]), Load(P, (at(w), *place))),
    )  # fmt: skip
    store = MatrixStore(P, (at(w), Linear(), Linear()), 1, 2, c, zero)
    inside = (
        *map(Allocate, (S, P, a, b, c)),
        fill, Barrier(), MatrixFill(c, zero, 0.0), steps, store, Barrier(), out,
    )  # fmt: skip
    return tree([A, B], [C], loop(w, 2, "thread", loop(lane, 32, "thread", *inside)))


def doubled(extent, offset):
    """Y[i] = 2 X[i + offset], in vectors of four where they are aligned."""
    X, Y = argument("X", extent + offset), argument("Y", extent)
    t, lane = Var("t"), Var("lane")
    value = Binary("mul", Load(X, (at((t, 4), lane, const=offset),)), Const(2.0, "float32"))
    store = Store(Y, (at((t, 4), lane),), value)
    return tree([X], [Y], loop(t, extent // 4, "thread", loop(lane, 4, "vectorized", store)))


def large(threads):
    """Y = X through more shared memory than static arrays may have."""
    X, Y = argument("X", threads), argument("Y", threads)
    S, T = (Buffer(n, (e,), "float32", "shared") for n, e in (("S", 20000), ("T", threads)))
    t = Var("t")
    body = (
        Allocate(S), Allocate(T), Store(S, (at((t, 3)),), Load(X, (at(t),))),
        Store(T, (at(t),), Load(S, (at((t, 3)),))), Store(Y, (at(t),), Load(T, (at(t),))),
    )  # fmt: skip
    return tree([X], [Y], loop(t, threads, "thread", *body))


@pytest.mark.opencl
def test_guards_barriers_and_asynchronous_copies_do_what_they_say():
    x = np.arange(190, dtype=np.float32)
    expected = np.concatenate([x[0:64][::-1], x[64:126][::-1], x[126:190][::-1]])
    got = run(reversal(), x)
    np.testing.assert_array_equal(got[:64], expected[:64])
    # Where the last two blocks overlap, each writes its own, and either may come last.
    np.testing.assert_array_equal(got[128:], expected[128:])


@pytest.mark.opencl
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_matrix_statements_multiply(dtype):
    rng = np.random.default_rng(0)
    import ml_dtypes

    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    a, b = (rng.standard_normal(s).astype(kind) for s in ((32, 48), (48, 16)))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    for transposed in (False, True):
        given = np.ascontiguousarray(b.T) if transposed else b
        got = run(matrices(dtype, transposed), a, given)
        np.testing.assert_allclose(got, expected, 1e-5, 1e-5)


def test_vectors_are_wide_where_they_are_aligned():
    for target, word in ((OPENCL, "lw_move4("), (CUDA, "lw_move<16>(")):
        aligned = gpu_program(doubled(32, 0), target).source.split("lw_main_0")[-1]
        assert aligned.count(word) == 2
        shifted = gpu_program(doubled(32, 1), target).source.split("lw_main_0")[-1]
        assert shifted.count(word) == 1  # the store


@pytest.mark.opencl
def test_vectors_that_are_not_aligned_give_the_same():
    x = np.arange(33, dtype=np.float32)
    np.testing.assert_array_equal(run(doubled(32, 1), x, legal=False), 2 * x[1:])
    np.testing.assert_array_equal(run(doubled(32, 0), x[:32]), 2 * x[:32])


@pytest.mark.nvcc
def test_much_shared_memory_is_asked_for_at_the_launch():
    made = gpu_program(large(128), CUDA)
    (launch,) = made.plans["main"].launches
    assert launch.shared_bytes == 80000 + 512
    image, (resources,) = compile_cuda(made.source, "sm_90", portable=True)
    assert image
    assert resources.shared == 0
    assert resources.spills == 0


def test_what_is_only_read_is_const():
    source = gpu_program(doubled(32, 0), CUDA).source
    assert "const float* __restrict__ X_ptr, float* __restrict__ Y_ptr" in source


def test_a_buffer_that_32_bits_cannot_index_is_an_error():
    X, Y = argument("X", 1 << 31, dtype="int8"), argument("Y", 1, dtype="int8")
    store = Store(Y, (Linear(),), Load(X, (Linear(),)))
    with pytest.raises(BuildError, match="32 bits wide"):
        gpu_program(tree([X], [Y], loop(Var("t"), 1, "thread", store)), CUDA)


@pytest.mark.opencl
def test_a_library_is_called_bound_and_timed():
    X, W, Y = lw.tensor("X", (7, 33)), lw.tensor("W", (33, 19), constant=True), lw.tensor("half")
    kernel, k, global_ = lw.indices("kernel k global")
    Y[kernel, global_] += X[kernel, k] * W[k, global_]
    workload = lw.workload(Y)
    library = lw.build(workload, target="opencl")
    x, w = random_inputs(workload, np.random.default_rng(0))
    (expected,) = evaluate(workload, (x, w))
    np.testing.assert_allclose(library(x, w), expected, 1e-5, 1e-5)
    out = np.zeros((7, 19), np.float32)
    assert library.bind(W=w)(x, out=out) is out
    np.testing.assert_allclose(out, expected, 1e-5, 1e-5)
    call = library.prepare_call(x, W=w, out=out)
    np.testing.assert_array_equal(call.outputs[0], out)
    assert 0 < call.repeat(3)[0] < 10
    call.flush()
    with pytest.raises(ShapeError, match="no unbound input 'V'"):
        library.bind(V=w)
    with pytest.raises(ShapeError, match=r"shape \(6, 33\)"):
        library(x[:6], w)
    with pytest.raises(LibraryError, match="OpenCL cannot be exported"):
        library.export("k.so")
    with pytest.raises(LibraryError, match="what is bound lies on the GPU"):
        library.bind(W=w).export("k.so")
    with pytest.raises(LibraryError, match="part of its config"):
        library.threads = 2
    assert "__kernel" in library.source("opencl")
    assert "block" in library.source("tree")


@pytest.mark.opencl
def test_source_that_the_driver_cannot_compile_is_an_error():
    with pytest.raises(BuildError, match="could not compile the kernels"):
        opencl._compiled("__kernel void k() { wrong; }")
