"""Choice of a device by a few counts, after Hayashi et al. 2015.

    python -m benchmarks.heuristics.choice FOLDER [--models trees,svm] [--seeds 5] [--rows 2000]

Features are added in five steps, as in the paper's Table 2. `svm` has an RBF kernel, with C and γ
by a grid search inside of the training rows; it needs scikit-learn, of the extra `bench`. `--rows`
of the synthetic kernels are drawn. Folds are random, or hold whole kernels or programs out.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.heuristics.data import COUNTS, Kernels, clgen, folds, mapping
from benchmarks.heuristics.judging import Metrics, Results, judged, over_seeds, parser
from loopwright.costmodel.source.model import SourceModel

STEPS = {
    "range": ("wgsize",),
    "+ count": ("comp", "mem"),
    "+ kinds": ("rational", "localmem", "atomic"),
    "+ accesses": ("coalesced",),
    "+ transfers": ("transfer",),
}
PROTOCOLS = {"680": ("random", "program"), "clgen": ("random", "kernel")}


def columns(step: str) -> list[int]:
    """Places in `COUNTS` of the features up to a step."""
    names = list(STEPS)[: list(STEPS).index(step) + 1]
    return [COUNTS.index(feature) for name in names for feature in STEPS[name]]


def predicted(model: str, x: np.ndarray, seen: Kernels, new: np.ndarray, seed: int) -> np.ndarray:
    """1 where the GPU is chosen."""
    if model == "trees":
        made = SourceModel(seed=seed).fit([""] * len(x), seen.labels, x, weights=seen.weights)
        return np.array(made.predict([""] * len(new), new))
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler
    from sklearn.svm import SVC

    grid = {"svc__C": [1, 100, 10000], "svc__gamma": [0.1, 1, 10]}
    search = GridSearchCV(make_pipeline(MinMaxScaler((-1, 1)), SVC()), grid, cv=5)
    return search.fit(np.log1p(x), seen.labels).predict(np.log1p(new))


def cross_validated(data: Kernels, model: str, step: str, protocol: str, seed: int) -> Metrics:
    """Metrics where every row is judged by a model that has not seen its fold."""
    fold = folds(data, protocol, seed)
    chosen = np.zeros(len(fold), int)
    x = data.counts[:, columns(step)]
    for number in np.unique(fold):
        unseen = fold == number
        seen = data.part(np.flatnonzero(~unseen))
        chosen[unseen] = predicted(model, x[~unseen], seen, x[unseen], seed)
    return judged(chosen, data.seconds)


def table(folder: Path, results: Results, models: list[str], seeds: int, rows: int) -> str:
    """A Markdown table of every set of kernels, GPU, protocol, model and step."""
    lines = [
        "| rows | GPU | held out | model | features | accuracy | CPU: P, R, F1 | GPU | time |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, read in (("680", mapping), ("clgen", clgen)):
        for gpu in ("amd", "nvidia"):
            data = read(folder, gpu)
            if name == "clgen":
                drawn = np.random.default_rng(0).permutation(len(data.labels))[:rows]
                data = data.part(drawn)
            for protocol in PROTOCOLS[name]:
                for model in models:
                    for step in STEPS:
                        found = [
                            results.of(
                                ("choice", name, gpu, protocol, model, step, seed, rows),
                                lambda a=(data, model, step, protocol, seed): cross_validated(*a),
                            )
                            for seed in range(seeds)
                        ]
                        m = over_seeds(found)
                        both = [
                            ", ".join(
                                f"{100 * m[f'{what} {device}']:.1f}"
                                for what in ("precision", "recall", "F1")
                            )
                            for device in ("cpu", "gpu")
                        ]
                        cells = (name, gpu, protocol, model, step, f"{100 * m['accuracy']:.1f}")
                        time = f"{m['time']:.2f}"
                        lines.append(f"| {' | '.join((*cells, *both, time))} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    options = parser(__doc__)
    options.add_argument("--models", default="trees,svm")
    options.add_argument("--rows", type=int, default=2000)
    given = options.parse_args()
    models = given.models.split(",")
    print(table(given.folder, Results(given.results), models, given.seeds, given.rows))


if __name__ == "__main__":
    main()
