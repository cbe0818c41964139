"""Libraries of open sizes beside others that take any size, and beside programs of one size each.

    python benchmarks/open_sizes.py --minutes 10 dense attention conv softmax layer_norm
    python benchmarks/open_sizes.py --sizes 12 --reference 64 softmax

Every row is tuned once for all sizes, exported, and called at sizes drawn evenly in the logarithm,
which the search did not see. torch, onnxruntime and OpenVINO run one model with a dynamic axis.
With `--reference TRIALS` each size is tuned alone as well. Each side runs in a process of its
own, by turns. Prints for each row: the library's size, the best peer's time and the reference's
over ours (geometric mean, least), the share of sizes at which we are the fastest, and how much
slower the chosen program is than the best of the library (geometric mean, most).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import loopwright as lw
from loopwright.measure.open_programs import program_seconds

ROUNDS = 3
SECONDS = 0.03  # of calls of one size, in one round
PEERS = ("torch", "onnxruntime", "openvino")
THREADS = 2


def dense(shape: tuple[int, int]) -> Callable[[Any], Any]:
    """A dense layer of any number of rows."""

    def make(n: Any) -> Any:
        x, w = lw.tensor("X", (n, shape[0])), lw.tensor("W", shape, constant=True)
        return lw.ops.matmul(x, w)

    return make


def attention(n: Any) -> Any:
    """Attention of eight heads of 64 over any number of places."""
    return lw.ops.attention(*(lw.tensor(name, (8, n, 64)) for name in "QKV"))


def conv(n: Any) -> Any:
    """A convolution of 3×3 over an image of any width."""
    x, w = lw.tensor("X", (1, 64, 32, n)), lw.tensor("W", (64, 64, 3, 3), constant=True)
    return lw.ops.conv2d(x, w, padding=1)


def softmax(n: Any) -> Any:
    """Softmax over any number of classes."""
    return lw.ops.softmax(lw.tensor("X", (64, n)))


def layer_norm(n: Any) -> Any:
    """Layer normalization of any number of rows."""
    return lw.ops.layer_norm(
        *(lw.tensor(*t) for t in (("X", (n, 768)), ("S", (768,)), ("T", (768,))))
    )


ROWS: dict[str, tuple[Callable[[Any], Any], int, int]] = {
    "dense768": (dense((768, 768)), 1, 4096),
    "dense3072": (dense((768, 3072)), 1, 4096),
    "dense256": (dense((512, 256)), 1, 4096),
    "attention": (attention, 1, 2048),
    "conv": (conv, 16, 512),
    "softmax": (softmax, 1, 4096),
    "layer_norm": (layer_norm, 1, 4096),
}


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == ["--child"]:
        side, row, folder, sizes = sys.argv[2:6]
        print(json.dumps(measured(side, row, Path(folder), json.loads(sizes))))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", nargs="*", default=list(ROWS))
    parser.add_argument("--minutes", type=float, default=10, help="of tuning for each row")
    parser.add_argument("--sizes", type=int, default=40)
    parser.add_argument("--reference", type=int, default=0, help="trials for each size alone")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| row | tuned | library | best peer / ours | fastest | reference / ours | choice |")
    print("|---|---|---|---|---|---|---|")
    for row in options.rows or ROWS:
        with tempfile.TemporaryDirectory() as folder:
            line(row, Path(folder), options)


def line(row: str, folder: Path, options: argparse.Namespace) -> None:
    """Print one row of the table, and what each size took on standard error."""
    make, low, high = ROWS[row]
    start = time.monotonic()
    tuned = lw.tune(
        make(lw.dim("n", low, high)), minutes=options.minutes, threads=THREADS, records=None
    )
    minutes = (time.monotonic() - start) / 60
    path = tuned.library.export(folder / "ours.so")
    rng = np.random.default_rng(options.seed)
    sizes = sorted({round(low * (high / low) ** rng.random()) for _ in range(options.sizes)})
    sides = ["ours", *PEERS]
    if options.reference:
        for n in sizes:
            alone = lw.tune(make(n), trials=options.reference, threads=THREADS, records=None)
            alone.library.export(folder / f"alone{n}.so")
        sides.append("reference")
    times = {side: np.full(len(sizes), np.inf) for side in sides}
    for _ in range(ROUNDS):
        for side in sides:
            command = [sys.executable, __file__, "--child", side, row, str(folder)]
            done = subprocess.run([*command, json.dumps(sizes)], capture_output=True, text=True)
            if done.returncode:
                print(f"{row}: {side}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
                continue
            times[side] = np.minimum(times[side], json.loads(done.stdout.splitlines()[-1]))
    for k, n in enumerate(sizes):
        shown = ", ".join(f"{side} {1e6 * t[k]:.1f}" for side, t in times.items())
        print(
            f"{row} {n}: {shown} µs, program {tuned.library.explain(n=n).rule.program}",
            file=sys.stderr,
        )
    sampled = [{"n": n} for n in sizes]
    every = program_seconds([tuned.library], tuned.workload, sampled, rng)
    chosen = [tuned.library.explain(n=n).rule.program for n in sizes]
    lost = every[chosen, np.arange(len(sizes))] / every.min(axis=0)
    ratios = np.min([times[p] for p in PEERS], axis=0) / times["ours"]
    alone = times["reference"] / times["ours"] if options.reference else np.array([np.nan])
    print(
        f"| {row} | {minutes:.1f} min | {path.stat().st_size / 1e6:.2f} MB "
        f"| {_mean(ratios)} | {np.mean(ratios >= 1):.0%} | {_mean(alone)} "
        f"| {np.exp(np.log(lost).mean()):.3f}, most {lost.max():.2f} |",
        flush=True,
    )


def _mean(ratios: np.ndarray) -> str:
    return f"{np.exp(np.log(ratios).mean()):.2f}, least {ratios.min():.2f}"


def measured(side: str, row: str, folder: Path, sizes: list[int]) -> list[float]:
    """Seconds of a call of one side at each size."""
    make = ROWS[row][0]
    rng = np.random.default_rng(0)
    weights = {
        t.name: rng.standard_normal(t.shape, "float32")
        for t in lw.workload(make(sizes[0])).inputs
        if t.constant
    }
    call = {"ours": ours, "reference": reference, "torch": torch_call}.get(side, onnx_call)
    run = call(side, row, folder, weights)
    seconds = []
    for n in sizes:
        inputs = [
            rng.standard_normal(t.shape, "float32")
            for t in lw.workload(make(n)).inputs
            if not t.constant
        ]
        once = run(n, inputs)
        for _ in range(3):
            once()
        least, start = np.inf, time.perf_counter()
        while time.perf_counter() - start < SECONDS:
            begin = time.perf_counter()
            once()
            least = min(least, time.perf_counter() - begin)
        seconds.append(least)
    return seconds


def ours(_: str, row: str, folder: Path, weights: dict[str, Any]) -> Any:
    """Our library of all sizes."""
    library = lw.load(folder / "ours.so").bind(**weights)
    return lambda n, inputs: library.prepare_call(*inputs)


def reference(_: str, row: str, folder: Path, weights: dict[str, Any]) -> Any:
    """A library of ours for each size."""
    return lambda n, inputs: lw.load(folder / f"alone{n}.so").bind(**weights).prepare_call(*inputs)


def torch_call(_: str, row: str, folder: Path, weights: dict[str, Any]) -> Any:
    """torch's own operators."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(THREADS)
    torch.set_grad_enabled(False)
    w = {name: torch.from_numpy(value) for name, value in weights.items()}
    run = {
        "attention": lambda q, k, v: functional.scaled_dot_product_attention(q, k, v),
        "conv": lambda x: functional.conv2d(x, w["W"], padding=1),
        "softmax": lambda x: functional.softmax(x, -1),
        "layer_norm": lambda x, s, t: functional.layer_norm(x, (768,), s, t),
    }.get(row, lambda x: x @ w["W"])

    def prepared(n: int, inputs: list[Any]) -> Any:
        given = [torch.from_numpy(x) for x in inputs]
        return lambda: run(*given)

    return prepared


def onnx_call(side: str, row: str, folder: Path, weights: dict[str, Any]) -> Any:
    """A model with a dynamic axis, on onnxruntime or OpenVINO."""
    path = str(onnx_file(row, folder, weights))
    if side == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = THREADS
        session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
        names = [i.name for i in session.get_inputs()]
        return lambda n, inputs: lambda: session.run(None, dict(zip(names, inputs)))
    import openvino

    settings = {"INFERENCE_NUM_THREADS": THREADS, "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(path, "CPU", settings).create_infer_request()

    def prepared(n: int, inputs: list[Any]) -> Any:
        for k, x in enumerate(inputs):
            request.set_input_tensor(k, openvino.Tensor(x, shared_memory=True))
        return request.infer

    return prepared


def onnx_file(row: str, folder: Path, weights: dict[str, Any]) -> Path:
    """The row as an ONNX file with a dynamic axis."""
    import onnx
    from onnx import helper, numpy_helper

    path, n = folder / f"{row}.onnx", "n"
    given: dict[str, list[Any]] = {"X": [64, n]}
    nodes = [helper.make_node("Softmax", ["X"], ["Y"], axis=-1)]
    if row.startswith("dense"):
        given = {"X": [n, weights["W"].shape[0]]}
        nodes = [helper.make_node("MatMul", ["X", "W"], ["Y"])]
    elif row == "conv":
        given = {"X": [1, 64, 32, n]}
        nodes = [helper.make_node("Conv", ["X", "W"], ["Y"], pads=[1] * 4)]
    elif row == "layer_norm":
        given = {"X": [n, 768], "S": [768], "T": [768]}
        nodes = [helper.make_node("LayerNormalization", ["X", "S", "T"], ["Y"], axis=-1)]
    elif row == "attention":
        given = {name: [8, n, 64] for name in "QKV"}
        weights = {"scale": np.float32(0.125)}
        nodes = [
            helper.make_node("Transpose", ["K"], ["KT"], perm=[0, 2, 1]),
            helper.make_node("MatMul", ["Q", "KT"], ["A"]),
            helper.make_node("Mul", ["A", "scale"], ["B"]),
            helper.make_node("Softmax", ["B"], ["C"], axis=-1),
            helper.make_node("MatMul", ["C", "V"], ["Y"]),
        ]
    values = [numpy_helper.from_array(np.asarray(w), name) for name, w in weights.items()]
    inputs = [helper.make_tensor_value_info(k, 1, s) for k, s in given.items()]
    output = helper.make_tensor_value_info("Y", 1, None)
    graph = helper.make_graph(nodes, row, inputs, [output], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


if __name__ == "__main__":
    main()
