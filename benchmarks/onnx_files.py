"""ONNX files of users beside onnxruntime: each side in a process of its own, by turns.

    python benchmarks/onnx_files.py net.onnx x=1,3,320,320 -- other.onnx input=1,576 sr:=16000
    python benchmarks/onnx_files.py timm:resnet50 -- transformers:bert -- timm: -- transformers:
    python benchmarks/onnx_files.py --minutes 10 --records tuned transformers:wav2vec2

`NAME=SHAPE` draws an input of that shape, `NAME=SHAPE<N` whole numbers below N; `NAME:=NUMBER` is
an integer that is given itself, `NAME:=NUMBER,` an array of it. `lstm:STEPS` is an LSTM of 128
cells. `timm:` and `transformers:` stand for all of `suites.architectures`, exported by torch.
Prints a table: the time to build, the median times of a call, their ratio, the largest error as a
share of the largest value. With `--minutes` each file is tuned for so long, with a store of its
own in the folder `--records`, and takes part once more; without, nothing is tuned.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from clock import per_call
from suites.architectures import TIMM, TRANSFORMERS, make

ROUNDS = 5
SECONDS = 0.5


def main() -> None:
    """Print the table."""
    if sys.argv[1] == "--child":
        print(json.dumps(timed(*sys.argv[2:5], sys.argv[5:])))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--records", type=Path, default=Path("tuned"))
    options, words = parser.parse_known_args()
    sides = ["untuned", *(["tuned"] if options.minutes else []), "onnxruntime"]
    ratios = [f"ratio {side}" for side in sides[:-1]]
    print("| file | build |", " | ".join([*sides, *ratios, "error"]), "|")
    print("|---" * (3 + len(sides) + len(ratios)) + "|")
    every: list[list[float]] = []
    for each in split(words):
        try:
            built, seconds = row(each, sides, options.minutes, options.records)
        except subprocess.CalledProcessError as error:
            print(f"| {Path(each[0]).name} | failed: {error.stderr.strip().splitlines()[-1]} |")
            continue
        every.append([seconds[-1] / own for own in seconds[:-1]])
        shown = [f"{s * 1e3:.3f} ms" for s in seconds] + [f"{r:.2f}" for r in every[-1]]
        cells = [Path(each[0]).name, f"{built['seconds']:.1f} s", *shown, f"{built['error']:.1e}"]
        print("|", " | ".join(cells), "|", flush=True)
    if not every:
        return
    means = np.exp(np.log(every).mean(0))
    print("\nGeometric means:", ", ".join(f"{r} {m:.2f}" for r, m in zip(ratios, means)))


def row(
    words: list[str], sides: list[str], minutes: float, records: Path
) -> tuple[dict[str, float], list[float]]:
    """What building told, and the median seconds of a call of each side."""
    name, path, inputs = words[0], words[0], words[1:]
    with tempfile.TemporaryDirectory() as folder:
        if ":" in name:
            path = f"{folder}/net.onnx"
            child("export", path, folder, [name])
        built = json.loads(child("build", path, folder, inputs))
        if minutes:
            records.mkdir(parents=True, exist_ok=True)
            store = records / f"{Path(name).stem.replace(':', '_')}.db"
            tune = ("tune", path, folder, [str(minutes), str(store), *inputs])
            built["error"] = max(built["error"], json.loads(child(*tune))["error"])
        rounds: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(ROUNDS):
            for side, times in rounds.items():
                times.append(json.loads(child(side, path, folder, inputs))["seconds"])
    return built, [statistics.median(times) for times in rounds.values()]


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
    """Seconds of one side: to build or tune, with the error, or of a call, the median over half a
    second."""
    if what == "export":
        return exported(path, folder, words[0])
    settings = [words.pop(0) for _ in range(2)] if what == "tune" else []
    rng, given = np.random.default_rng(0), {}
    saved = Path(folder, "inputs.npz")
    if saved.exists():
        given = dict(np.load(saved))
    for word in words:
        name, _, text = word.partition("=")
        shape, _, below = text.partition("<")
        numbers = [int(n) for n in shape.split(",") if n]
        if name.endswith(":"):
            given[name[:-1]] = np.array(numbers if "," in shape else numbers[0], np.int64)
        elif below:
            kinds = {i.name: i.type for i in peer(path).get_inputs()}
            kind = {"float": np.float32}.get(kinds[name][7:-1], kinds[name][7:-1])
            given[name] = rng.integers(0, int(below), numbers).astype(kind)
        else:
            given[name] = rng.standard_normal(numbers).astype(np.float32)
    if what == "onnxruntime":
        session = peer(path)
        return {"seconds": per_call(lambda: session.run(None, given), SECONDS)}
    import loopwright as lw

    if what in ("build", "tune"):
        start = time.perf_counter()
        if what == "build":
            model = lw.build_model(path, given, check=False)
        else:
            minutes, store = settings
            model = lw.tune_model(path, given, minutes=float(minutes), records=store)
        seconds = time.perf_counter() - start
        model.export(f"{folder}/{'untuned' if what == 'build' else 'tuned'}.so")
        made = model(**given)
        wanted = peer(path).run(None, given)
        pairs = zip(made if isinstance(made, tuple) else (made,), wanted, strict=True)
        errors = [np.abs(a - b).max() / max(np.abs(b).max(), 1e-30) for a, b in pairs]
        return {"seconds": seconds, "error": float(max(errors))}
    loaded = lw.load(f"{folder}/{what}.so")
    own = [given[p.name] for p in loaded.signature.inputs]
    return {"seconds": per_call(lambda: loaded(*own), SECONDS)}


def exported(path: str, folder: str, name: str) -> dict[str, float]:
    """Write an architecture as ONNX, and its inputs; the seconds that it takes."""
    if name.startswith("lstm:"):
        return lstm(path, folder, int(name.partition(":")[2]))
    import torch

    model, inputs = make(name)
    start = time.perf_counter()
    words = {"kwargs": inputs} if isinstance(inputs, dict) else {"args": inputs}
    try:
        program = torch.onnx.export(model, f=path, dynamo=True, **{"args": (), **words})
        assert program is not None
        proto = program.model_proto
    except Exception:  # noqa: BLE001 - torch's exporter loses the strides of some views
        from loopwright.graph.importers.torch.program import torch_program
        from loopwright.graph.importers.torch.to_onnx import onnx_of

        proto = onnx_of(torch_program(model, inputs))
        Path(path).write_bytes(proto.SerializeToString())
    values = inputs.values() if isinstance(inputs, dict) else inputs
    names = [v.name for v in proto.graph.input]
    np.savez(f"{folder}/inputs.npz", **dict(zip(names, (x.numpy() for x in values), strict=True)))
    return {"seconds": time.perf_counter() - start}


def lstm(path: str, folder: str, steps: int) -> dict[str, float]:
    """Write an LSTM of so many steps as ONNX, and its input."""
    from onnx import save
    from recurrences import recurrence

    model, x = recurrence("LSTM", 128, 1, steps)
    save(model, path)
    np.savez(f"{folder}/inputs.npz", x=x)
    return {"seconds": 0.0}


def peer(path: str):
    """Session of onnxruntime with as many threads as we have."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])


if __name__ == "__main__":
    main()
