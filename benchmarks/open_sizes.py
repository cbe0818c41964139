"""Libraries of open sizes beside others that take any size, and beside programs of one size each.

    python benchmarks/open_sizes.py FOLDER --minutes 240
    python benchmarks/open_sizes.py FOLDER --minutes 20 --tuning 2 --sizes 24 softmax

Every row is tuned once for all sizes, exported, and called at sizes drawn evenly in the logarithm,
which the search did not see; small ones are drawn more than once, and count as often. torch,
onnxruntime and OpenVINO run one model with a dynamic axis.
Then, in the minutes that are left, sizes are tuned alone too, those of all rows by turns. FOLDER
keeps the libraries and what was timed: the same command goes on, and prints the table again.

Each side runs in a process of its own, by turns. Columns: the library's size; the time of a
program tuned for the size alone over ours (geometric mean, least), and at how many sizes; the best
peer's time over ours, and the share of sizes at which that is 1 or more; the chosen program's time
over that of the best in the library.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kept
import numpy as np

import loopwright as lw
from loopwright.measure.open_programs import program_seconds

ROUNDS = 3
SECONDS = 0.03  # of calls of one size, in one round
PEERS = ("torch", "onnxruntime", "openvino")
THREADS = 2
BATCH = 32  # sizes that are timed together


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


class Rows:
    """The rows of the table, as far as a folder has them, and the time that is left."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.folder = options, Path(options.folder)
        self.end = time.monotonic() + 60 * options.minutes
        self.folder.mkdir(parents=True, exist_ok=True)
        self.results = self.folder / "results.jsonl"
        self.known: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
        for result in kept.lines(self.results):
            self.add(result)

    def add(self, result: dict[str, Any]) -> None:
        """Take in the times of a row at a size."""
        key = result["row"], result["kind"]
        self.known.setdefault(key, {})[result["n"]] = result["seconds"]

    def left(self) -> float:
        """Minutes."""
        return (self.end - time.monotonic()) / 60

    def drawn(self, row: str) -> list[int]:
        """Sizes of a row in random order, some more than once."""
        _, low, high = ROWS[row]
        rng = np.random.default_rng(self.options.seed)
        return [round(low * (high / low) ** rng.random()) for _ in range(self.options.sizes)]

    def at_drawn(self, row: str, kind: str) -> list[dict[str, float]]:
        """What was timed at the sizes that were drawn, each as often as it was."""
        known = self.known.get((row, kind), {})
        return [known[n] for n in self.drawn(row) if n in known]

    def run(self) -> None:
        """Do what the folder lacks, as far as time goes."""
        for row in self.options.rows:
            if not (self.folder / row / "ours.so").exists() and self.left() >= self.options.tuning:
                self.tune(row)
        tuned = [row for row in self.options.rows if (self.folder / row / "ours.so").exists()]
        for kind in ("peers", "alone")[: 1 + (self.options.reference > 0)]:
            batches = {
                row: [
                    n
                    for n in dict.fromkeys(self.drawn(row))
                    if n not in self.known.get((row, kind), {})
                ]
                for row in tuned
            }
            for first in range(0, self.options.sizes, BATCH):
                for row in tuned:
                    batch = batches[row][first : first + BATCH]
                    if batch and self.left() > 0:
                        self.time(row, kind, batch)

    def tune(self, row: str) -> None:
        """Tune a row for all sizes."""
        make, low, high = ROWS[row]
        workload = lw.workload(make(lw.dim("n", low, high)))
        tuned = lw.tune(
            workload, minutes=self.options.tuning, threads=THREADS, records=None, progress=False
        )
        (self.folder / row).mkdir(exist_ok=True)
        tuned.library.export(self.folder / row / "ours.so")

    def time(self, row: str, kind: str, sizes: list[int]) -> None:
        """Time a row at some sizes, and keep it."""
        folder, sides = self.folder / row, ["ours", *PEERS]
        if kind == "alone":
            sizes, sides = [n for n in sizes if self.tuned_alone(row, n)], ["ours", "alone"]
        times = timed(sides, row, folder, sizes) if sizes else {}
        if kind == "peers":
            times |= choice(row, folder, sizes)
        for k, n in enumerate(sizes):
            seconds = {side: float(t[k]) for side, t in times.items()}
            result = {"row": row, "kind": kind, "n": n, "seconds": seconds}
            kept.add(self.results, result)
            self.add(result)
        print(f"{row}, {kind}: {len(self.known.get((row, kind), {}))} sizes", file=sys.stderr)

    def tuned_alone(self, row: str, n: int) -> bool:
        """Return whether there is a library of one size, for which there may be time."""
        path = self.folder / row / f"alone{n}.so"
        if not path.exists() and self.left() > 0:
            alone = lw.tune(
                ROWS[row][0](n),
                trials=self.options.reference,
                threads=THREADS,
                records=None,
                progress=False,
            )
            alone.library.export(path)
        return path.exists()

    def line(self, row: str) -> str:
        """The row of the table."""
        peers, alone = self.at_drawn(row, "peers"), self.at_drawn(row, "alone")
        path = self.folder / row / "ours.so"
        size = f"{path.stat().st_size / 1e6:.2f} MB" if path.exists() else ""
        share = [t["alone"] / t["ours"] for t in alone]
        ratios = [min(t[p] for p in PEERS) / t["ours"] for t in peers]
        lost = [t["chosen"] / t["best"] for t in peers]
        fastest = f"{np.mean(np.array(ratios) >= 1):.0%} of {len(ratios)}" if ratios else ""
        most = f", most {max(lost):.2f}" if lost else ""
        return (
            f"| {row} | {size} | {_mean(share)} | {len(share)} | {_mean(ratios)} | {fastest} "
            f"| {_geometric(lost)}{most} |"
        )


def main() -> None:
    """Do what is left, and print the table."""
    if sys.argv[1:2] == ["--child"]:
        side, row, folder, sizes = sys.argv[2:6]
        print(json.dumps(measured(side, row, Path(folder), json.loads(sizes))))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("rows", nargs="*", help=f"of {', '.join(ROWS)}; all by default")
    parser.add_argument("--minutes", type=float, default=240, help="in all")
    parser.add_argument("--tuning", type=float, default=10, help="minutes of tuning for each row")
    parser.add_argument("--sizes", type=int, default=200)
    parser.add_argument("--reference", type=int, default=64, help="trials for each size alone")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_intermixed_args()
    options.rows = options.rows or list(ROWS)
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"no row {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    rows = Rows(options)
    rows.run()
    print("| row | library | alone / ours | sizes | best peer / ours | 1 or more at | choice |")
    print("|---|---|---|---|---|---|---|")
    for row in options.rows:
        print(rows.line(row))


def timed(sides: list[str], row: str, folder: Path, sizes: list[int]) -> dict[str, np.ndarray]:
    """The least seconds of each side at each size, infinite for a side that fails."""
    times = {side: np.full(len(sizes), np.inf) for side in sides}
    for _ in range(ROUNDS):
        for side in sides:
            command = [sys.executable, __file__, "--child", side, row, str(folder)]
            done = subprocess.run([*command, json.dumps(sizes)], capture_output=True, text=True)
            if done.returncode:
                print(f"{row}: {side}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
                continue
            times[side] = np.minimum(times[side], json.loads(done.stdout.splitlines()[-1]))
    return times


def choice(row: str, folder: Path, sizes: list[int]) -> dict[str, np.ndarray]:
    """Seconds of the program that the library chooses at each size, and of its best one."""
    make, low, high = ROWS[row]
    library = lw.load(folder / "ours.so")
    sampled = [{"n": n} for n in sizes]
    workload = lw.workload(make(lw.dim("n", low, high)))
    every = program_seconds([library], workload, sampled, np.random.default_rng(0))
    chosen = [library.explain(n=n).rule.program for n in sizes]
    return {"chosen": every[chosen, np.arange(len(sizes))], "best": every.min(axis=0)}


def _mean(ratios: list[float]) -> str:
    return f"{_geometric(ratios)}, least {min(ratios):.2f}" if ratios else ""


def _geometric(ratios: list[float]) -> str:
    return f"{np.exp(np.log(ratios).mean()):.3f}" if ratios else ""


def measured(side: str, row: str, folder: Path, sizes: list[int]) -> list[float]:
    """Seconds of a call of one side at each size."""
    make = ROWS[row][0]
    rng = np.random.default_rng(0)
    weights = {
        t.name: rng.standard_normal(t.shape, "float32")
        for t in lw.workload(make(sizes[0])).inputs
        if t.constant
    }
    call = {"ours": ours, "alone": alone, "torch": torch_call}.get(side, onnx_call)
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


def alone(_: str, row: str, folder: Path, weights: dict[str, Any]) -> Any:
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
