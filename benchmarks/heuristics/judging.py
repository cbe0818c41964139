"""What a choice between two devices is worth, and results that survive an interruption."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

Metrics = dict[str, float]


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The options of all tables."""
    made = argparse.ArgumentParser(description=doc)
    made.add_argument("folder", type=Path)
    made.add_argument("--seeds", type=int, default=5)
    made.add_argument("--results", type=Path, default=Path("build/heuristics.jsonl"))
    return made


def judged(gpu: np.ndarray, seconds: np.ndarray) -> Metrics:
    """Metrics of choosing the GPU where `gpu` is true, from (rows, 2) seconds.

    `time` is the total relative to the oracle's; `mean` and `geometric` are speed-ups over the
    static choice, the device that is right more often. Precision, recall and F1 are of each
    device.
    """
    rows, oracle = np.arange(len(gpu)), seconds.min(axis=1)
    truth, chosen = seconds[:, 1] < seconds[:, 0], gpu.astype(bool)
    static = seconds[:, int(truth.mean() > 0.5)]
    taken = seconds[rows, chosen.astype(int)]
    ratio = static / taken
    found = {
        "accuracy": (chosen == truth).mean(),
        "time": taken.sum() / oracle.sum(),
        "better": seconds.sum(axis=0).min() / oracle.sum(),
        "mean": ratio.mean(),
        "geometric": np.exp(np.log(ratio).mean()),
    }
    for name, wanted, said in (("cpu", ~truth, ~chosen), ("gpu", truth, chosen)):
        both = (wanted & said).sum()
        precision, recall = both / max(said.sum(), 1), both / max(wanted.sum(), 1)
        found[f"precision {name}"], found[f"recall {name}"] = precision, recall
        found[f"F1 {name}"] = 2 * precision * recall / max(precision + recall, 1e-9)
    return {name: float(value) for name, value in found.items()}


class Results:
    """Lines of JSON, one a measurement: what is there is not made again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self._found: dict[str, Metrics] = dict(map(json.loads, lines))

    def of(self, key: tuple[object, ...], make: Callable[[], Metrics]) -> Metrics:
        """The metrics of a key, made where they are missing."""
        name = json.dumps(key)
        if name not in self._found:
            self._found[name] = made = make()
            with self._path.open("a") as file:
                file.write(json.dumps([name, made]) + "\n")
            print(name, {k: round(v, 3) for k, v in made.items()}, flush=True)
        return self._found[name]


def over_seeds(found: list[Metrics]) -> Metrics:
    """Means over seeds."""
    return {name: float(np.mean([metrics[name] for metrics in found])) for name in found[0]}
