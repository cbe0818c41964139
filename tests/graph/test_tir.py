"""TIR functions that TVM made, as workloads: compared with TVM's own build of the same."""

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx, topi

import loopwright as lw
from loopwright.codegen.target import resolve
from loopwright.codegen.tvm_target import tvm_target
from loopwright.graph.errors import UnsupportedOperator
from loopwright.graph.importers.tir import from_tir, import_function


def _data(shape, dtype, rng):
    if dtype.startswith("float"):
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 5, shape).astype(dtype)


def _same(func, rtol=1e-4, atol=1e-5):
    """Our default program and TVM's, on the same arrays."""
    imported = import_function(func)
    rng = np.random.default_rng(0)
    arrays = [_data([int(n) for n in p.shape], str(p.dtype), rng) for p in func.params]
    theirs = [tvm.runtime.tensor(a) for a in arrays]
    tvm.compile(func.with_attr("global_symbol", "main"), tvm_target(resolve("cpu")))["main"](
        *theirs
    )
    ours = lw.build(imported.workload, threads=1)(*(arrays[n] for n in imported.inputs))
    for number, result in zip(imported.outputs, ours if isinstance(ours, tuple) else (ours,)):
        np.testing.assert_allclose(result, theirs[number].numpy(), rtol=rtol, atol=atol)


def _placeholders(*shapes, dtype="float32"):
    return [te.placeholder(s, dtype, name=f"x{n}") for n, s in enumerate(shapes)]


def _made(build, *shapes, dtype="float32"):
    inputs = _placeholders(*shapes, dtype=dtype)
    result = build(*inputs)
    outputs = [result] if isinstance(result, te.Tensor) else list(result)
    return te.create_prim_func([*inputs, *outputs])


def _power(x, exponent):
    return topi.power(x, tirx.const(exponent, "float32"))


def _popcount(x):
    return te.compute(x.shape, lambda i: tirx.popcount(x[i]))


CASES = {
    "matmul": (lambda a, b: topi.matmul(a, b), (7, 13), (13, 5)),
    "matmul of a transposed": (lambda a, b: topi.matmul(a, b, False, True), (7, 13), (5, 13)),
    "batch matmul": (lambda a, b: topi.nn.batch_matmul(a, b), (3, 7, 5), (3, 11, 5)),
    "convolution": (lambda x, w: topi.nn.conv2d(x, w, 2, 1, 1), (1, 5, 9, 11), (7, 5, 3, 3)),
    "dilated": (lambda x, w: topi.nn.conv2d(x, w, 1, 2, 2), (1, 3, 9, 7), (4, 3, 3, 3)),
    "channels last": (
        lambda x, w: topi.nn.conv2d(x, w, 1, 1, 1, "NHWC", "HWIO"), (1, 7, 9, 3), (3, 3, 3, 5),
    ),
    "grouped": (
        lambda x, w: topi.nn.group_conv2d_nchw(x, w, 1, 1, 1, 3), (1, 6, 7, 5), (9, 2, 3, 3),
    ),
    "depthwise": (
        lambda x, w: topi.nn.depthwise_conv2d_nchw(x, w, 2, 1, 1), (1, 5, 11, 7), (5, 1, 3, 3),
    ),
    "transposed": (
        lambda x, w: topi.nn.conv2d_transpose_nchw(x, w, (2, 2), (1, 1), "float32", (0, 0)),
        (1, 5, 7, 3), (5, 3, 4, 4),
    ),
    "max pooling": (
        lambda x: topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max"), (1, 3, 11, 7),
    ),
    "mean pooling without the padding": (
        lambda x: topi.nn.pool2d(
            x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "avg", count_include_pad=False
        ),
        (1, 3, 11, 7),
    ),
    "global pooling": (lambda x: topi.nn.global_pool(x, "avg"), (1, 3, 5, 7)),
    "softmax": (lambda x: topi.nn.softmax(x), (3, 13)),
    "log softmax": (lambda x: topi.nn.log_softmax(x), (3, 13)),
    "layer norm": (lambda x, g, b: topi.nn.layer_norm(x, g, b, [1]), (5, 13), (13,), (13,)),
    "element-wise": (lambda x, y: topi.tanh(topi.add(x, y)) * topi.sigmoid(x), (3, 7), (7,)),
    "powers": (lambda x: _power(x, 2.0) + _power(topi.exp(x), 0.75) - _power(x * x, 1.5), (5, 3)),
    "transposition": (lambda x: topi.transpose(x, (2, 0, 1)), (3, 5, 7)),
    "reshape": (lambda x: topi.reshape(x, (15, 7)), (3, 5, 7)),
    "concatenation": (lambda x, y: topi.concatenate([x, y], 1), (3, 4), (3, 5)),
    "parts": (lambda x: topi.split(x, [3, 8], axis=1), (3, 13)),
    "strided slice": (lambda x: topi.strided_slice(x, [1, 2], [9, 12], [2, 3]), (9, 13)),
    "flip": (lambda x: topi.flip(x, 1), (3, 7)),
    "sum and maximum": (lambda x: topi.sum(x, 1) + topi.max(x, 1), (5, 13)),
    "padding": (lambda x: topi.nn.pad(x, (1, 0), (2, 3), 1.5), (3, 5)),
    "comparison": (lambda x, y: topi.where(topi.greater(x, y), x, y * x), (3, 5), (3, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_function_made_from_tensor_expressions_computes_the_same_as_a_workload(name):
    build, *shapes = CASES[name]
    _same(_made(build, *shapes))


def test_elements_say_where_to_read():
    _same(_made(lambda x, at: _gather(x, topi.floor_mod(at, 9)), (9,), (4,), dtype="int32"))


def test_integers_are_added_up_in_the_wider_type():
    def build(a, b):
        k = te.reduce_axis((0, 13), "k")
        return te.compute(
            (7, 5), lambda i, j: te.sum(a[i, k].astype("int32") * b[k, j].astype("int32"), axis=k)
        )

    _same(_made(build, (7, 13), (13, 5), dtype="int8"))


def test_a_fused_function_of_relax_keeps_its_epilogue_in_one_workload():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((7, 13), "float32"))
    w = relax.Var("w", relax.TensorType((13, 5), "float32"))
    b = relax.Var("b", relax.TensorType((5,), "float32"))
    with builder.function("main", [x, w, b]):
        with builder.dataflow():
            made = builder.emit(relax.op.add(builder.emit(relax.op.matmul(x, w)), b))
            out = builder.emit_output(builder.emit(relax.op.nn.relu(made)))
        builder.emit_func_output(out)
    module = relax.get_pipeline("zero")(builder.get())
    (func,) = (f for f in module.functions.values() if isinstance(f, tirx.PrimFunc))
    assert len(from_tir(func).stages) == 3
    _same(func)


def test_equal_functions_with_other_names_have_one_key():
    one = _made(lambda x: topi.nn.relu(x), (3, 5))
    other = te.placeholder((3, 5), name="other")
    assert from_tir(one).key == from_tir(te.create_prim_func([other, topi.nn.relu(other)])).key


def test_constants_are_known_ahead():
    func = _made(lambda a, b: topi.matmul(a, b), (7, 13), (13, 5))
    assert [t.name for t in from_tir(func, constants=[1]).constants] == ["x1"]


def _gather(x, i):
    return te.compute((4,), lambda n: x[i[n]], name="gather")


def _times_five(x):
    k = te.reduce_axis((0, 5), "k")
    return te.compute(x.shape, lambda i: te.sum(x[i], axis=k))


@pytest.mark.parametrize(
    ("build", "shapes", "dtype", "reason"),
    [
        (lambda x: topi.argmax(x, 1), [(3, 5)], "float32", "reduce"),
        (_popcount, [(3,)], "int32", "no popcount"),
        (lambda x: topi.cumsum(x, 0), [(5,)], "float32", "not serial"),
        (_times_five, [(4,)], "float32", "which it does not read at"),
    ],
)
def test_what_the_notation_cannot_say_is_an_error_with_the_reason(build, shapes, dtype, reason):
    with pytest.raises(UnsupportedOperator, match=reason):
        from_tir(_made(build, *shapes, dtype=dtype))


def test_an_open_shape_is_an_error():
    n = te.var("n")
    x = te.placeholder((n, 4), name="x")
    with pytest.raises(UnsupportedOperator, match="not fixed"):
        from_tir(te.create_prim_func([x, topi.nn.relu(x)]))


def test_what_is_no_function_is_an_error():
    with pytest.raises(UnsupportedOperator, match="not a TIR function"):
        from_tir(3)


def test_padded_maxima_of_minus_infinity_stay_so_and_nan_stays():
    func = _made(
        lambda x: topi.nn.pool2d(x, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "max"), (1, 3, 9, 11)
    )
    given = np.random.default_rng(0).standard_normal((1, 3, 9, 11)).astype("float32")
    given[0, 0], given[0, 1, 4, 4] = -np.inf, np.nan
    work = from_tir(func)
    found, pooled = lw.build(work)(given), lw.ops.max_pool2d(lw.tensor("x", given.shape), 3, 2, 1)
    assert np.all(found[0, 0] == -np.inf)
    assert np.isnan(found[0, 1]).sum() > 0
    np.testing.assert_array_equal(found, lw.build(pooled)(given))
