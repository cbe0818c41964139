"""Device mapping of 680 rows beside two GPUs, after Cummins et al. 2017.

    python -m benchmarks.heuristics.mapping FOLDER [--models ours,counts,neighbours] [--seeds 5]
        [--gpus amd,nvidia] [--protocols random,program,suite] [--folds 10]

FOLDER has `deeptune` and `clgen`. `ours` are trees over symbols and counts; `ours+clgen` learns
from 2000 rows of synthetic kernels too; `counts` are trees without text;
`neighbours` are three nearest rows by counts; `majority` is the device that is best for most
rows of the others; `lstm` is the published network, minutes a fold:
`--models lstm --seeds 1 --gpus amd --protocols random --folds 1` trains it once, and judges the
rows of that fold alone.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from benchmarks.heuristics.data import Kernels, clgen, folds, mapping
from benchmarks.heuristics.judging import Metrics, Results, judged, over_seeds, parser
from loopwright.costmodel.source.model import SourceModel

GPUS = ("amd", "nvidia")
PROTOCOLS = ("random", "program", "suite")
PUBLISHED = {"amd": {"random": 83.7}, "nvidia": {"random": 80.3}}
_ADDED = 2000  # synthetic rows that are learned from


def predicted(model: str, seen: Kernels, unseen: Kernels, seed: int, grouped: bool) -> np.ndarray:
    """1 where the GPU is chosen; `grouped` where whole programs or suites are new."""
    if model == "majority":
        return np.full(len(unseen.sources), int(seen.labels.mean() > 0.5))
    if model == "neighbours":
        logs = [np.log1p(k.counts) for k in (seen, unseen)]
        scale = logs[0].std(axis=0) + 1e-9
        distance = ((logs[1][:, None] - logs[0]) / scale) ** 2
        near = np.argsort(distance.sum(axis=2), axis=1, kind="stable")[:, :3]
        return (seen.labels[near].mean(axis=1) > 0.5).astype(int)
    texts = [seen.sources, unseen.sources]
    if model == "counts":
        texts = [[""] * len(known) for known in texts]
    columns = slice(6 if model == "lstm" else 0, None)  # the published one has no counts of code
    kind = "lstm" if model == "lstm" else "trees"
    weights = None if model == "lstm" else seen.weights
    made = SourceModel(kind, seed=seed)
    groups = seen.groups["program"] if grouped else None
    made.fit(texts[0], seen.labels, seen.counts[:, columns], groups, weights)
    return np.array(made.predict(texts[1], unseen.counts[:, columns]))


def joined(a: Kernels, b: Kernels) -> Kernels:
    """The rows of both."""
    groups = {name: [*values, *b.groups[name]] for name, values in a.groups.items()}
    numbers = (np.concatenate(pair) for pair in ((a.counts, b.counts), (a.seconds, b.seconds)))
    return Kernels([*a.sources, *b.sources], *numbers, groups)


def cross_validated(
    data: Kernels, added: Kernels | None, model: str, protocol: str, seed: int, most: int = 10
) -> Metrics:
    """Metrics where every row is judged by a model that has not seen its fold, and the minutes
    that all took; of the first folds alone if `most` are fewer."""
    start = time.monotonic()
    fold = folds(data, protocol, seed)
    chosen = np.zeros(len(fold), int)
    for number in np.unique(fold[fold < most]):
        rows = np.flatnonzero(fold == number)
        seen = data.part(np.flatnonzero(fold != number))
        if added is not None:
            rng = np.random.default_rng(seed)
            seen = joined(seen, added.part(rng.permutation(len(added.labels))[:_ADDED]))
        chosen[rows] = predicted(model, seen, data.part(rows), seed, protocol != "random")
    done = fold < most
    minutes = (time.monotonic() - start) / 60
    return judged(chosen[done], data.seconds[done]) | {"minutes": minutes}


def table(
    folder: Path,
    results: Results,
    models: list[str],
    seeds: int,
    gpus: list[str],
    protocols: list[str],
    most: int,
) -> str:
    """A Markdown table of every model, GPU and protocol."""
    lines = [
        "| GPU | held out | model | accuracy % | time / oracle | mean | geometric |",
        "|---|---|---|---|---|---|---|",
    ]

    def line(gpu: str, protocol: str, model: str, m: Metrics) -> None:
        cells = f"{100 * m['accuracy']:.1f} | {m['time']:.2f} | {m['mean']:.2f}"
        lines.append(f"| {gpu} | {protocol} | {model} | {cells} | {m['geometric']:.2f} |")

    data = {gpu: mapping(folder, gpu) for gpu in gpus}
    added = {gpu: clgen(folder, gpu) if "ours+clgen" in models else None for gpu in gpus}
    for gpu in gpus:
        for device, name in enumerate(("CPU", "GPU")):
            every = np.full(len(data[gpu].labels), device)
            line(gpu, "–", f"always {name}", judged(every, data[gpu].seconds))
        line(gpu, "–", "oracle", judged(data[gpu].labels, data[gpu].seconds))
        for protocol, accuracy in PUBLISHED[gpu].items():
            lines.append(
                f"| {gpu} | {protocol} | DeepTune as published | {accuracy} | – | – | – |"
            )
    made = {}
    for model in models:
        for seed in range(seeds):
            for gpu in gpus:
                for protocol in protocols:
                    extra = added[gpu] if model == "ours+clgen" else None
                    metrics = results.of(
                        ("mapping", gpu, protocol, model, seed, *([most] if most < 10 else [])),
                        lambda g=gpu, p=protocol, m=model, s=seed, e=extra: cross_validated(
                            data[g], e, m, p, s, most
                        ),
                    )
                    made.setdefault((gpu, protocol, model), []).append(metrics)
    for (gpu, protocol, model), found in sorted(made.items()):
        line(gpu, protocol, model, over_seeds(found))
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    options = parser(__doc__)
    options.add_argument("--models", default="neighbours,counts,ours")
    options.add_argument("--gpus", default=",".join(GPUS))
    options.add_argument("--protocols", default=",".join(PROTOCOLS))
    options.add_argument("--folds", type=int, default=10)
    given = options.parse_args()
    models, gpus, protocols = (
        each.split(",") for each in (given.models, given.gpus, given.protocols)
    )
    results = Results(given.results)
    print(table(given.folder, results, models, given.seeds, gpus, protocols, given.folds))


if __name__ == "__main__":
    main()
