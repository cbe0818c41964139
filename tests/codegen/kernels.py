"""Small kernels written as TIR by hand, built to object files: what a library is made of."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.tirx import ForKind

from loopwright.codegen.library.library import Library
from loopwright.codegen.library.signature import Parameter, Signature

AARCH64 = "aarch64-linux-gnu"
PANEL = 8


def number(value: int) -> Any:
    return tirx.IntImm("int32", value)


def loop(name: str, extent: int, body: Callable[[Any], Any], kind: Any = ForKind.SERIAL) -> Any:
    v = tirx.Var(name, "int32")
    return tirx.For(v, number(0), number(extent), kind, body(v))


def parameter(p: Parameter) -> Any:
    bytes_ = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8}
    return tirx.decl_buffer(p.shape, p.dtype, p.name, data_alignment=bytes_.get(p.dtype, 1))


def function(name: str, parameters: list[Any], body: Any) -> Any:
    made = tirx.PrimFunc(parameters, body).with_attr("global_symbol", name)
    return made.with_attr("tirx.noalias", True)


def compile_object(functions: dict[str, Any], triple: str | None = None) -> bytes:
    cpu = {"mcpu": "haswell"} if triple is None else {"mcpu": "cortex-a72", "mtriple": triple}
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        module = tirx.build(tvm.IRModule(functions), tvm.target.Target({"kind": "llvm", **cpu}))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.o"
        module.write_to_file(str(path))
        return path.read_bytes()


def load(buffer: Any, *indices: Any) -> Any:
    return tirx.BufferLoad(buffer, list(indices))


def store(buffer: Any, value: Any, *indices: Any) -> Any:
    return tirx.BufferStore(buffer, value, list(indices))


def multiply(a: Any, b: Any, c: Any, rows: int, columns: int, depth: int) -> Any:
    """C = A B, rows in parallel; `b(k, j)` reads the second operand."""

    def row(i: Any) -> Any:
        def tile(j: Any) -> Any:
            def lanes(lane: Any, first: bool, k: Any) -> Any:
                column = j * PANEL + lane
                before = tirx.FloatImm("float32", 0.0) if first else load(c, i, column)
                return store(
                    c, before if first else before + load(a, i, k) * b(k, column), i, column
                )

            zero = loop("z", PANEL, lambda v: lanes(v, True, None), ForKind.VECTORIZED)
            step = loop(
                "k",
                depth,
                lambda k: loop("l", PANEL, lambda v: lanes(v, False, k), ForKind.VECTORIZED),
            )
            return tirx.SeqStmt([zero, step])

        return loop("j", columns // PANEL, tile)

    return loop("i", rows, row, ForKind.PARALLEL)


def matmul_signature(rows: int, columns: int, depth: int, packed: bool, threads: int) -> Signature:
    A = Parameter("A", (rows, depth), "float32")
    W = Parameter("W", (depth, columns), "float32")
    C = Parameter("C", (rows, columns), "float32")
    P = Parameter("P", (columns // PANEL, depth, PANEL), "float32")
    return Signature(
        "matmul", (A, W), (C,), ("W",) if packed else (), (P,) if packed else (), threads
    )


@functools.cache
def matmul_object(
    rows: int, columns: int, depth: int, packed: bool, triple: str | None = None
) -> bytes:
    signature = matmul_signature(rows, columns, depth, packed, 1)
    A, W, C = map(parameter, (*signature.inputs, *signature.outputs))
    if not packed:
        body = multiply(A, lambda k, j: load(W, k, j), C, rows, columns, depth)
        return compile_object({"main": function("main", [A, W, C], body)}, triple)
    P, Q = parameter(signature.prepared[0]), parameter(signature.prepared[0])

    def packed_read(k: Any, j: Any) -> Any:
        return load(P, tirx.floordiv(j, number(PANEL)), k, tirx.floormod(j, number(PANEL)))

    pack = loop(
        "p",
        columns // PANEL,
        lambda p: loop(
            "k",
            depth,
            lambda k: loop("l", PANEL, lambda v: store(Q, load(W, k, p * PANEL + v), p, k, v)),
        ),
    )
    main = multiply(A, packed_read, C, rows, columns, depth)
    return compile_object(
        {
            "main": function("main", [A, P, C], main),
            "prepare": function("prepare", [W, Q], pack),
        },
        triple,
    )


def matmul(
    rows: int = 24,
    columns: int = 16,
    depth: int = 12,
    packed: bool = False,
    threads: int = 2,
    triple: str | None = None,
    **options: Any,
) -> Library:
    code = matmul_object(rows, columns, depth, packed, triple)
    signature = matmul_signature(rows, columns, depth, packed, threads)
    return Library.from_object(code, signature, target_triple=triple, **options)


def doubled(x: Any) -> Any:
    return x + x


def elementwise(
    dtype: str,
    shape: tuple[int, ...] = (40,),
    compute: Callable[[Any], Any] = doubled,
) -> Library:
    """Y = compute(X) and Z = X, over flat arrays, through a temporary array and two threads."""
    size = int(np.prod(shape))
    X, Y, Z = (Parameter(n, shape, dtype) for n in "XYZ")
    x, y, z = (parameter(Parameter(n, (size,), dtype)) for n in "XYZ")
    t = tirx.decl_buffer((size,), dtype, "T")
    first = loop("i", size, lambda i: store(t, compute(load(x, i)), i), ForKind.PARALLEL)
    second = loop(
        "j",
        size,
        lambda j: tirx.SeqStmt(
            [store(y, load(t, size - 1 - j), size - 1 - j), store(z, load(x, j), j)]
        ),
        ForKind.PARALLEL,
    )
    body = tirx.SeqStmt([tirx.AllocBuffer(t), first, second])
    code = compile_object({"main": function("main", [x, y, z], body)})
    return Library.from_object(code, Signature("twice", (X,), (Y, Z), threads=2))


def matrices(rows: int = 24, columns: int = 16, depth: int = 12) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((rows, depth), dtype=np.float32)
    return A, rng.standard_normal((depth, columns), dtype=np.float32)
