"""How many candidates a second a search can score: config → loop tree → features → score.

    python benchmarks/scoring.py [--model gbt] [--sizes 1024 8192] [--repeats 9]

A ResNet-18 convolution (C6: 128→128 channels, 28×28, 3×3), a model of full size and the features
that it reads, one thread; and how long an update of the model on 1,000 records takes. Lowering and
features of a sketch are recorded once, which is timed apart, and replayed. The parts are timed one
by one, by the CPU time of this process; the medians are shown.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

import loopwright as lw
from loopwright.codegen.target import resolve
from loopwright.costmodel.features.representation import (
    ContextRelation,
    Representation,
    make_representation,
)
from loopwright.costmodel.model import CostModel
from loopwright.costmodel.models.registry import make_model
from loopwright.dsl import ops
from loopwright.schedule.space import Space, space

WANTED = {"gbt": 50_000, "treegru": 5_000}  # candidates a second
UPDATED = 1000  # records that the model learns from


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", choices=WANTED, default="gbt")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 2048, 8192])
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    points, model = c6(), make_model(options.model)
    representation = make_representation(model.reads)
    update = trained(model, representation, points)
    columns = representation.features(points, 0, drawn(points, 1)).shape[1]
    recording = seconds(
        lambda: make_representation(model.reads).features(points, 0, drawn(points, 1)),
        options.repeats,
    )
    print(f"{len(points.sketches)} sketches, {columns} features, {model.describe()}; recording a "
          f"sketch takes {recording * 1e3:.0f} ms, an update {update:.1f} s")  # fmt: skip
    print(f"{'n':>7} {'features':>12} {'prediction':>12} {'total':>12} {'candidates/s':>13}")
    for n in options.sizes:
        parts = measured(points, model, representation, n, options.repeats)
        show(n, parts, WANTED[options.model])


def c6() -> Space:
    """The space of ResNet-18's C6 on this machine, one thread."""
    weights = lw.tensor("W", (128, 128, 3, 3), constant=True)
    c = ops.conv2d(lw.tensor("X", (1, 128, 28, 28)), weights, padding=1)
    return space(lw.workload(c), resolve("cpu", 1))


def drawn(points: Space, n: int, seed: int = 0) -> np.ndarray:
    """Random configs of the first sketch."""
    rng = np.random.default_rng(seed)
    knobs = points.sketches[0].knobs
    return np.stack([rng.integers(len(k.choices), size=n) for k in knobs], axis=1)


def trained(model: CostModel, representation: Representation, points: Space) -> float:
    """Train a model to the size that tuning makes, on made-up costs that are not easily learned;
    the CPU time of it."""
    numbers = drawn(points, UPDATED, seed=1)
    relation = ContextRelation().features(points, 0, numbers)
    rng = np.random.default_rng(2)
    spread = (relation - relation.mean(axis=0)) / (relation.std(axis=0) + 1e-3)
    costs = np.exp(spread @ rng.normal(size=relation.shape[1]) / 10) * 1e-3
    features = representation.features(points, 0, numbers)
    start = time.process_time()
    model.fit(features, costs, np.zeros(len(costs), int))
    return time.process_time() - start


def measured(
    points: Space, model: CostModel, representation: Representation, n: int, repeats: int
) -> dict[str, float]:
    """Seconds of each part for n configs, and of all of them as a search runs them."""
    numbers = drawn(points, n)
    features = representation.features(points, 0, numbers)
    return {
        "features": seconds(lambda: representation.features(points, 0, numbers), repeats),
        "prediction": seconds(lambda: model.predict(features), repeats),
        "total": seconds(
            lambda: model.predict(representation.features(points, 0, numbers)), repeats
        ),
    }


def seconds(run: Callable[[], object], repeats: int) -> float:
    """The median CPU time of a call, after one that warms up."""
    run()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return statistics.median(times)


def show(n: int, parts: dict[str, float], wanted: int) -> None:
    """One line of the table."""
    cells = " ".join(f"{s * 1e3:9.1f} ms" for s in parts.values())
    rate = n / parts["total"]
    verdict = "" if rate >= wanted else f"  below {wanted}"
    print(f"{n:>7} {cells} {rate:>13,.0f}{verdict}")


if __name__ == "__main__":
    main()
