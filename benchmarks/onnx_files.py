"""ONNX files of users, untuned, beside onnxruntime: each side in a process of its own, by turns.

    python benchmarks/onnx_files.py net.onnx x=1,3,320,320 -- other.onnx input=1,576 sr:=16000
    python benchmarks/onnx_files.py timm:resnet50 -- transformers:bert -- timm: -- transformers:

`NAME=SHAPE` draws an input of that shape; `NAME:=NUMBER` is an integer that is given itself.
`timm:` and `transformers:` stand for all of `suites.architectures`, exported by torch.
Prints a table: the time to build, the median times of a call, their ratio, the largest error as a
share of the largest value.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from suites.architectures import TIMM, TRANSFORMERS, make

ROUNDS = 5
SECONDS = 0.5


def main() -> None:
    """Print the table."""
    if sys.argv[1] == "--child":
        print(json.dumps(timed(*sys.argv[2:5], sys.argv[5:])))
        return
    print("| file | build | ours | onnxruntime | ratio | error |")
    print("|---|---|---|---|---|---|")
    ratios = []
    for words in split(sys.argv[1:]):
        name, path, inputs = words[0], words[0], words[1:]
        with tempfile.TemporaryDirectory() as folder:
            if ":" in name:
                path = f"{folder}/net.onnx"
                child("export", path, folder, [name])
            built = json.loads(child("build", path, folder, inputs))
            rounds: dict[str, list[float]] = {"ours": [], "onnxruntime": []}
            for _ in range(ROUNDS):
                for side, times in rounds.items():
                    times.append(json.loads(child(side, path, folder, inputs))["seconds"])
            ours, peer = (statistics.median(t) * 1e3 for t in rounds.values())
            error = np.load(f"{folder}/error.npy")
        ratios.append(peer / ours)
        print(
            f"| {Path(name).name} | {built['seconds']:.1f} s | {ours:.3f} ms | {peer:.3f} ms ",
            end="",
        )
        print(f"| {peer / ours:.2f} | {error:.1e} |", flush=True)
    print(f"\nGeometric mean {np.exp(np.mean(np.log(ratios))):.2f}")


def split(words: list[str]) -> list[list[str]]:
    """The words for each file."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word == "--":
            parts.append([])
        else:
            parts[-1].append(word)
    every = {"timm:": TIMM, "transformers:": tuple(TRANSFORMERS)}
    return [
        w for p in parts for w in ([[p[0] + n] for n in every[p[0]]] if p[0] in every else [p])
    ]


def child(what: str, path: str, folder: str, inputs: list[str]) -> str:
    """The last line that a process of its own prints."""
    command = [sys.executable, __file__, "--child", what, path, folder, *inputs]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return result.stdout.splitlines()[-1]


def timed(what: str, path: str, folder: str, words: list[str]) -> dict[str, float]:
    """Seconds of one side: to build, or of a call, the median over half a second."""
    if what == "export":
        return exported(path, folder, words[0])
    rng, given = np.random.default_rng(0), {}
    saved = Path(folder, "inputs.npz")
    if saved.exists():
        given = dict(np.load(saved))
    for word in words:
        name, _, shape = word.partition("=")
        if name.endswith(":"):
            given[name[:-1]] = np.array(int(shape), np.int64)
        else:
            extents = tuple(int(n) for n in shape.split(",") if n)
            given[name] = rng.standard_normal(extents).astype(np.float32)
    if what == "onnxruntime":
        session = peer(path)
        return {"seconds": per_call(lambda: session.run(None, given))}
    import loopwright as lw

    library = f"{folder}/net.so"
    if what == "build":
        start = time.perf_counter()
        model = lw.build_model(path, given, check=False)
        seconds = time.perf_counter() - start
        model.export(library)
        made = model(**given)
        wanted = peer(path).run(None, given)
        pairs = zip(made if isinstance(made, tuple) else (made,), wanted, strict=True)
        errors = [np.abs(a - b).max() / max(np.abs(b).max(), 1e-30) for a, b in pairs]
        np.save(f"{folder}/error.npy", max(errors))
        return {"seconds": seconds}
    loaded = lw.load(library)
    own = [given[p.name] for p in loaded.signature.inputs]
    return {"seconds": per_call(lambda: loaded(*own))}


def exported(path: str, folder: str, name: str) -> dict[str, float]:
    """Write an architecture as ONNX, and its inputs; the seconds that it takes."""
    import torch

    model, inputs = make(name)
    start = time.perf_counter()
    words = {"kwargs": inputs} if isinstance(inputs, dict) else {"args": inputs}
    try:
        program = torch.onnx.export(model, f=path, dynamo=True, **{"args": (), **words})
        assert program is not None
        proto = program.model_proto
    except Exception:  # noqa: BLE001 - torch's exporter loses the strides of some views
        from loopwright.graph.importers.torch.program import onnx_of, torch_program

        proto = onnx_of(torch_program(model, inputs))
        Path(path).write_bytes(proto.SerializeToString())
    values = inputs.values() if isinstance(inputs, dict) else inputs
    names = [v.name for v in proto.graph.input]
    np.savez(f"{folder}/inputs.npz", **dict(zip(names, (x.numpy() for x in values), strict=True)))
    return {"seconds": time.perf_counter() - start}


def peer(path: str):
    """Session of onnxruntime with as many threads as we have."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])


def per_call(call) -> float:
    """The median seconds of a call, after some that are not counted."""
    for _ in range(3):
        call()
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


if __name__ == "__main__":
    main()
