"""Loopwright against TVM's MetaSchedule: equal trials, then both winners side by side.

    python benchmarks/metaschedule.py

MetaSchedule tunes with its own builder, runner, space and cost model, as `tune_tir` comes. Both
tune alone on the machine; the winners are then timed in processes of their own, interleaved.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import click
import numpy as np
from peers import Peer, Timer, compare, repeated
from rich.console import Console
from rich.table import Table

import loopwright as lw

CASES = ("matmul512", "c6")


def workload(case: str) -> lw.Workload:
    if case == "matmul512":
        return lw.workload(lw.ops.matmul(lw.tensor("A", (512, 512)), lw.tensor("B", (512, 512))))
    x, w = lw.tensor("x", (1, 128, 28, 28)), lw.tensor("w", (128, 128, 3, 3), constant=True)
    return lw.workload(lw.ops.conv2d(x, w, padding=1))


def arrays(case: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [t.shape for t in workload(case).inputs]
    return [rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]


def primfunc(case: str):
    """The same computation in TE."""
    from tvm import te, tirx

    if case == "matmul512":
        A, B = (te.placeholder((512, 512), name=n) for n in "AB")
        k = te.reduce_axis((0, 512), "k")
        C = te.compute((512, 512), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
        return te.create_prim_func([A, B, C])
    X, W = te.placeholder((1, 128, 28, 28), name="X"), te.placeholder((128, 128, 3, 3), name="W")
    zero = tirx.const(0, "float32")
    P = te.compute(
        (1, 128, 30, 30),
        lambda n, c, y, x: tirx.if_then_else(
            tirx.all(y >= 1, y < 29, x >= 1, x < 29), X[n, c, y - 1, x - 1], zero
        ),
        name="P",
    )
    c, r, s = (te.reduce_axis((0, e), n) for e, n in ((128, "c"), (3, "r"), (3, "s")))
    Y = te.compute(
        (1, 128, 28, 28),
        lambda n, o, y, x: te.sum(P[n, c, y + r, x + s] * W[o, c, r, s], axis=[c, r, s]),
        name="Y",
    )
    return te.create_prim_func([X, W, Y])


def tune_theirs(case: str, trials: int, folder: str) -> None:
    """Runs in a process of its own; leaves theirs.so and prints seconds."""
    import tvm
    from tvm.s_tir import meta_schedule as ms

    from loopwright.codegen.target import resolve

    host = resolve("cpu", 2)
    config = {"kind": "llvm", "mcpu": host.mcpu, "mattr": list(host.features), "num-cores": 2}
    target = tvm.target.Target(config)
    start = perf_counter()
    builder = ms.builder.LocalBuilder(max_workers=2, timeout_sec=180)  # it times imports too
    database = ms.tune_tir(
        primfunc(case), target, folder, trials, num_trials_per_iter=64, seed=0, builder=builder
    )
    seconds = perf_counter() - start
    schedule = ms.tir_integration.compile_tir(database, primfunc(case), target)
    tvm.compile(schedule.mod, target).export_library(f"{folder}/theirs.so")
    Path(folder, "seconds").write_text(json.dumps(seconds))


def tune_ours(case: str, trials: int, folder: str) -> None:
    """Likewise: ours.so."""
    start = perf_counter()
    tuned = lw.tune(workload(case), trials=trials, threads=2, records=None)
    seconds = perf_counter() - start
    tuned.library.export(f"{folder}/ours.so")
    Path(folder, "seconds").write_text(json.dumps(seconds))


def theirs(case: str, folder: str) -> Timer:
    import tvm

    function = tvm.runtime.load_module(f"{folder}/theirs.so")["main"]
    inputs = arrays(case)
    expected = lw.load(f"{folder}/ours.so")(*inputs)
    tensors = [tvm.runtime.tensor(a) for a in inputs]
    out = tvm.runtime.empty(expected.shape, "float32")
    function(*tensors, out)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-3, atol=1e-3)
    return repeated(lambda: function(*tensors, out))


def ours(case: str, folder: str) -> Timer:
    library = lw.load(f"{folder}/ours.so")
    named = dict(zip((t.name for t in workload(case).inputs), arrays(case), strict=True))
    constants = {name: named.pop(name) for name in library.signature.constants}
    call = (library.bind(**constants) if constants else library).prepare_call(**named)
    return lambda count: call.repeat(count)[0]


@click.command(help=__doc__)
@click.option("--trials", default=128)
@click.option("--rounds", default=21)
def main(trials: int, rounds: int) -> None:
    table = Table(
        "case", "trials", "MetaSchedule ms", "ours ms", "speed-up", "its s", "our s", "ratio"
    )
    environment = {**os.environ, "TVM_NUM_THREADS": "2", "TVM_BIND_THREADS": "0"}
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            seconds = {}
            for who in ("tune_ours", "tune_theirs"):
                command = [sys.executable, __file__, who, case, str(trials), folder]
                subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
                seconds[who] = json.loads(Path(folder, "seconds").read_text())
            arguments = {"case": case, "folder": folder}
            peers = [Peer(w, f"metaschedule:{w}", arguments, 2) for w in ("theirs", "ours")]
            times = compare(peers, rounds)
        table.add_row(
            case,
            str(trials),
            f"{1e3 * times['theirs']:.3f}",
            f"{1e3 * times['ours']:.3f}",
            f"{times['theirs'] / times['ours']:.2f}",
            f"{seconds['tune_theirs']:.0f}",
            f"{seconds['tune_ours']:.0f}",
            f"{seconds['tune_ours'] / seconds['tune_theirs']:.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    if sys.argv[1:2] in (["tune_ours"], ["tune_theirs"]):
        globals()[sys.argv[1]](sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        main()
