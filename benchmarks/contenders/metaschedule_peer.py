"""TVM's MetaSchedule, for convolutions and products of matrices: `tune_tir` as it comes, with its
own builder, runner, space and cost model.

Weights are free of layout: it rewrites them as its schedule likes, ahead of time as ours are.
"""

from __future__ import annotations

import json
import operator
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from peers import UnableError
from suites.row import Arrays, Row
from tvm import te, tirx

from contenders.contract import Prepared, filled, strides_and_pads
from loopwright.codegen.target import resolve
from loopwright.dsl.workload import tensor_shape
from loopwright.measure.machine import builders

OPERATORS = ("conv2d", "matmul", "dense")
_MOVES = "meta_schedule.layout_rewrite_preproc"
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
}


def plain(row: Row, inputs: Arrays, threads: int, folder: str) -> Prepared:
    """What `tuned` left in the folder."""
    if row.operator not in OPERATORS:
        raise UnableError(f"only {', '.join(OPERATORS)}")
    if not Path(folder, "seconds").exists():
        raise ValueError("its tuning failed")
    function = tvm.runtime.load_module(f"{folder}/theirs.so")["main"]
    tensors = [tvm.runtime.tensor(a) for a in _laid_out(inputs, Path(folder, "layout.npz"))]
    out = tvm.runtime.empty(tensor_shape(row.request.workload.outputs[0]), "float32")
    return Prepared(lambda: function(*tensors, out), lambda _: out.numpy())


def tuned(row: Row, threads: int, trials: int, folder: Path) -> float:
    """Tune in a process of its own, unless the folder has the result; the seconds it took."""
    result = folder / "seconds"
    if row.operator in OPERATORS and not result.exists():
        folder.mkdir(parents=True, exist_ok=True)
        arguments = json.dumps([row.to_json(), threads, trials, str(folder)])
        environment = {"TVM_NUM_THREADS": str(threads), "TVM_BIND_THREADS": "0"}
        subprocess.run(
            [sys.executable, "-m", "contenders.metaschedule_peer", arguments],
            cwd=Path(__file__).parent.parent,
            env={**os.environ, **environment},
            check=False,  # a failure is its answer, see `plain`
            stdout=subprocess.DEVNULL,
        )
    return float(result.read_text()) if result.exists() else float("nan")


def _tune(row: Row, threads: int, trials: int, folder: str) -> None:
    from tvm.s_tir import meta_schedule as ms

    host = resolve("cpu", threads)
    config = {"kind": "llvm", "mcpu": host.mcpu, "mattr": list(host.features)}
    target = tvm.target.Target({**config, "num-cores": threads})
    start = perf_counter()
    workers = builders()[0]  # as many as ours
    builder = ms.builder.LocalBuilder(max_workers=workers, timeout_sec=180)  # it times imports too
    function = primfunc(row)
    database = ms.tune_tir(
        function, target, folder, trials, num_trials_per_iter=64, seed=0, builder=builder
    )
    seconds = perf_counter() - start
    schedule = ms.tir_integration.compile_tir(database, function, target)
    _keep_layout(schedule, Path(folder, "layout.npz"))
    code = tvm.s_tir.transform.RemoveWeightLayoutRewriteBlock(True)(schedule.mod)
    tvm.compile(code, target).export_library(f"{folder}/theirs.so")
    Path(folder, "seconds").write_text(str(seconds))


def _keep_layout(schedule: Any, path: Path) -> None:
    """Where each weight goes, if the schedule has a block that moves them."""
    moves: list[Any] = []
    found = (tvm.s_tir.SBlock, lambda b: moves.append(b) if _MOVES in b.annotations else None)
    tvm_ffi.structural_walk(schedule.mod["main"].body, [found])
    if not moves:
        return
    (block,) = moves
    store = block.body
    grid = np.indices([int(v.dom.extent) for v in block.iter_vars])
    values = {v.var: axis for v, axis in zip(block.iter_vars, grid, strict=True)}
    source = tuple(values[v] for v in store.value.indices)
    shape = [int(e) for e in store.buffer.shape]
    to = np.ravel_multi_index([_evaluated(e, values) for e in store.indices], shape)
    places = np.empty_like(to)
    places[source] = to
    np.savez(path, places=places, shape=shape)


def _evaluated(e: Any, values: Mapping[Any, np.ndarray]) -> Any:
    """An index over all values of its variables."""
    kind = type(e).__name__
    if kind == "Var":
        return values[e]
    if kind == "IntImm":
        return int(e)
    return _ARITHMETIC[kind](_evaluated(e.a, values), _evaluated(e.b, values))


def _laid_out(inputs: Arrays, path: Path) -> list[np.ndarray]:
    """The arguments, the weights as `_keep_layout` says."""
    arrays = list(inputs.values())
    if not path.exists():
        return arrays
    with np.load(path) as layout:
        moved = np.zeros(layout["shape"], np.float32)
        moved.reshape(-1)[layout["places"]] = arrays[-1]
    return [*arrays[:-1], moved]


def primfunc(row: Row) -> Any:
    """The same computation in TE; the last argument is the weights, where there are any."""
    function = _function(row)
    if not row.request.workload.constants:
        return function
    return function.with_attr("layout_free_buffers", [1])


def _function(row: Row) -> Any:
    a = filled(row, {t.name: tensor_shape(t) for t in row.request.workload.inputs})
    if row.operator == "conv2d":
        return _conv2d(a["x"], a["w"], *strides_and_pads(a))
    turned = row.operator == "dense"
    one, other = (a["x"], a["w"]) if turned else (a["a"], a["b"])
    A, B = te.placeholder(one, name="A"), te.placeholder(other, name="B")
    k = te.reduce_axis((0, one[1]), "k")
    C = te.compute(
        (one[0], other[0] if turned else other[1]),
        lambda i, j: te.sum(A[i, k] * (B[j, k] if turned else B[k, j]), axis=k),
        name="C",
    )
    return te.create_prim_func([A, B, C])


def _conv2d(x: tuple[int, ...], w: tuple[int, ...], stride: int, pad: int) -> Any:
    X, W = te.placeholder(x, name="X"), te.placeholder(w, name="W")
    height, width = x[2:]
    zero = tirx.const(0, "float32")

    def padded(n: Any, c: Any, i: Any, j: Any) -> Any:
        inside = tirx.all(i >= pad, i < height + pad, j >= pad, j < width + pad)
        return tirx.if_then_else(inside, X[n, c, i - pad, j - pad], zero)

    shape = (*x[:2], height + 2 * pad, width + 2 * pad)
    P = te.compute(shape, padded, name="P") if pad else X
    c, r, s = (te.reduce_axis((0, e), n) for e, n in zip(w[1:], "crs", strict=True))
    spatial = [(e - t) // stride + 1 for e, t in zip(shape[2:], w[2:], strict=True)]
    Y = te.compute(
        (x[0], w[0], *spatial),
        lambda n, o, i, j: te.sum(
            P[n, c, i * stride + r, j * stride + s] * W[o, c, r, s], axis=[c, r, s]
        ),
        name="Y",
    )
    return te.create_prim_func([X, W, Y])


if __name__ == "__main__":
    row_, *rest = json.loads(sys.argv[1])
    _tune(Row.from_json(row_), *rest)
