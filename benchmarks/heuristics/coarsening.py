"""Factors of thread coarsening for 17 kernels on four GPUs, after Cummins et al. 2017, case B.

    python -m benchmarks.heuristics.coarsening FOLDER [--seeds 5]

One kernel is left out at a time. Each kernel's own source is read. The model is a `SourceModel`
of kernels, each once with every factor: is that factor within 3 % of the best? The factor of the
most belief is taken. Where a kernel lacks a constant factor it is not coarsened.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.heuristics.data import rows_of
from benchmarks.heuristics.judging import Results, over_seeds, parser
from loopwright.costmodel.source.model import SourceModel

GPUS = ("Cypress", "Tahiti", "Fermi", "Kepler")
_NEAR = 1.03
Times = dict[str, dict[float, float]]


def times_of(rows: list[dict[str, str]], gpu: str) -> Times:
    """Times by kernel and factor."""
    found: Times = {}
    for row in rows:
        if time := row[f"runtime_{gpu}"]:
            found.setdefault(row["kernel"], {})[float(row["cf"])] = float(time)
    return found


def speedups(times: Times, factors: dict[str, float]) -> dict[str, float]:
    """Arithmetic and geometric mean over kernels of the speed-up over no coarsening."""
    ratios = [t[1.0] / t.get(factors[kernel], t[1.0]) for kernel, t in times.items()]
    return {"mean": float(np.mean(ratios)), "geometric": float(np.exp(np.mean(np.log(ratios))))}


def chosen(sources: dict[str, str], times: Times, seed: int) -> dict[str, float]:
    """The factor of each kernel by a model that has not seen it."""
    found = {}
    for left_out, offered in times.items():
        texts, labels, factors = [], [], []
        for kernel, measured in times.items():
            if kernel != left_out:
                best = min(measured.values())
                texts += [sources[kernel]] * len(measured)
                labels += [int(time <= _NEAR * best) for time in measured.values()]
                factors += [[factor] for factor in measured]
        model = SourceModel(seed=seed).fit(texts, labels, factors)
        every = sorted(offered)
        scores = model.scores([sources[left_out]] * len(every), [[f] for f in every])
        found[left_out] = every[int(scores[:, 1].argmax())]
    return found


def table(folder: Path, results: Results, seeds: int) -> str:
    """A Markdown table of every GPU."""
    rows = rows_of(folder / "deeptune" / "case-study-b__pact-2014-runtimes.csv.gz")
    sources = {row["kernel"]: row["src"] for row in rows}
    found: dict[str, list[dict[str, float]]] = {}
    for gpu in GPUS:
        times = times_of(rows, gpu)
        for factor in (2.0, 4.0):
            fixed = speedups(times, dict.fromkeys(times, factor))
            found.setdefault(f"always {factor:.0f}", []).append(fixed)
        best = {kernel: min(t, key=t.get) for kernel, t in times.items()}
        found.setdefault("oracle", []).append(speedups(times, best))
        ours = [
            results.of(
                ("coarsening", gpu, seed),
                lambda t=times, s=seed: speedups(t, chosen(sources, t, s)),
            )
            for seed in range(seeds)
        ]
        found.setdefault("ours", []).append(over_seeds(ours))
    lines = [f"| model | {' | '.join(GPUS)} | mean | geometric |", "|---|---|---|---|---|---|---|"]
    for name, metrics in found.items():
        cells = " | ".join(f"{m['mean']:.3f}" for m in metrics)
        both = over_seeds(metrics)  # of GPUs
        lines.append(f"| {name} | {cells} | {both['mean']:.3f} | {both['geometric']:.3f} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    options = parser(__doc__)
    given = options.parse_args()
    print(table(given.folder, Results(given.results), given.seeds))


if __name__ == "__main__":
    main()
