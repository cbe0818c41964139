"""LoopTune's experiment: a policy that schedules matrix products in ten actions, on one thread.

    python benchmarks/looptune.py FOLDER [--minutes 15] [--train 9] [--shapes 60] [--seconds 10]

m, n and k are of 64, 80, …, 256: of 2,197 shapes 1,757 are for training, 440 for testing.

1. DQN and PPO learn on training shapes, for `--train` minutes in all, by `explore.scheduling`.
2. Of every test shape, the start, the policies' choices (alone, and with the model that they
   learned on) and the default schedule of `lw.build` are measured side by side.
3. Of the first `--shapes` test shapes, every search runs for `--seconds`, on measurements that
   they share; what they found and the policies' choices are then measured side by side.

An episode begins with the loops i, k, j, as LoopTune's do, or in the order of `--order`. FOLDER
keeps what was done, so that the same command goes on; `--minutes` bounds one run of it, beside the
training. `--stored` names the folder of the stored runs of the paper, to have them beside.
"""

from __future__ import annotations

import ast
import csv
import functools
import itertools
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from kept import add, lines

import loopwright as lw
from loopwright.codegen.target import resolve
from loopwright.explore.scheduling.evaluators import Measured
from loopwright.explore.scheduling.learn import train_policies
from loopwright.explore.scheduling.loops import Problem, State
from loopwright.explore.scheduling.policy import Policy
from loopwright.explore.scheduling.searches import SEARCHES, search
from loopwright.measure.local import LocalDevice
from loopwright.measure.roofline import peak_flops

SIZES, TRAINING, SEED = range(64, 257, 16), 1757, 3
METHODS = ("dqn", "ppo")
ROUNDS = 9
PAPER = {"start": 0.20, "policy": 0.60, "times the start": 3.2, "best search": 1.8}
Shape = tuple[int, int, int]


def product(m: int, n: int, k: int) -> lw.Workload:
    i, j, r = lw.indices("i j k")
    A, B, C = lw.tensor("A", (m, k)), lw.tensor("B", (k, n)), lw.tensor("C")
    C[i, j] += A[i, r] * B[r, j]
    return lw.workload(C)


def shapes() -> tuple[list[Shape], list[Shape]]:
    """Those for training, and those for testing."""
    every = list(itertools.product(SIZES, repeat=3))
    drawn = [every[n] for n in np.random.default_rng(SEED).permutation(len(every))]
    return drawn[:TRAINING], drawn[TRAINING:]


class Experiment:
    """The three parts, each of which goes on where it was left."""

    def __init__(self, folder: Path, order: tuple[str, ...] | None, until: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.order, self.until = folder, order, until
        self.target = resolve("cpu", 1)
        self.training, self.testing = shapes()

    def problem(self, shape: Shape) -> Problem:
        return Problem.of(product(*shape), self.target, self.order)

    def late(self) -> bool:
        return time.monotonic() > self.until

    def train(self, minutes: float, seed: int) -> None:
        curve = self.folder / "curve.jsonl"
        if (self.folder / "training.json").exists():  # it is written last
            return
        curve.unlink(missing_ok=True)

        def on_point(name: str, number: int) -> Any:
            return lambda p: add(curve, {"method": name, "round": number, **vars(p)})

        problems = [self.problem(s) for s in self.training]
        began = time.monotonic()
        with Measured(self.target) as measured:
            policies, model = train_policies(problems, measured, minutes, METHODS, seed, on_point)
            about = {
                "minutes": (time.monotonic() - began) / 60,
                "measured": measured.evaluated,
                "predicted": model.evaluated,
            }
        for name, policy in policies.items():
            policy.save(self.folder / f"{name}.json")
        model.save(self.folder / "model.json")
        (self.folder / "training.json").write_text(json.dumps(about))
        print(f"trained: {about}", flush=True)

    def chosen(self, problem: Problem) -> tuple[dict[str, State], dict[str, float]]:
        """The choices of the policies, and the seconds that they took."""
        states, seconds = {}, {}
        for name, policy in self.policies.items():
            began = time.perf_counter()
            states[name] = policy.schedule(problem)
            seconds[name] = time.perf_counter() - began
        return states, seconds

    @functools.cached_property
    def policies(self) -> dict[str, Policy]:
        return {name: Policy.load(self.folder / f"{name}.json") for name in METHODS}

    def compared(
        self, device: LocalDevice, problem: Problem, states: dict[str, State], default: bool
    ) -> dict[str, float]:
        """Shares of the peak, of schedules measured side by side."""
        configs = {name: state.config for name, state in states.items()}
        if default:
            configs["default"] = lw.space(problem.workload, self.target).default
        different = list(dict.fromkeys(configs.values()))
        made = device.compare(problem.workload, different, ROUNDS)
        peak = peak_flops(self.target)
        share = {
            c: problem.workload.flops / min(s) / peak for c, s in zip(different, made.samples)
        }
        return {name: share[config] for name, config in configs.items()}

    def test(self, count: int) -> None:
        path = self.folder / "test.jsonl"
        done = {tuple(row["shape"]) for row in lines(path)}
        with LocalDevice(self.target) as device:
            for shape in self.testing[:count]:
                if shape in done or self.late():
                    continue
                problem = self.problem(shape)
                chosen, seconds = self.chosen(problem)
                states = {"start": State.first(problem), **chosen}
                row = {"shape": shape, "seconds": seconds}
                add(path, row | {"shares": self.compared(device, problem, states, True)})

    def search(self, count: int, seconds: float) -> None:
        path = self.folder / f"searches-{seconds:g}.jsonl"
        done = {tuple(row["shape"]) for row in lines(path)}
        with Measured(self.target) as measured, LocalDevice(self.target) as device:
            for shape in self.testing[:count]:
                if shape in done or self.late():
                    continue
                problem = self.problem(shape)
                found = {name: search(name, problem, measured, seconds) for name in SEARCHES}
                states = {name: f.state for name, f in found.items()}
                states |= {"start": State.first(problem), **self.chosen(problem)[0]}
                row = {
                    "shape": shape,
                    "seconds": {name: f.seconds for name, f in found.items()},
                    "shares": self.compared(device, problem, states, False),
                }
                add(path, row)
                print(shape, {n: round(v, 2) for n, v in row["shares"].items()}, flush=True)


def report(rows: Sequence[dict[str, Any]], title: str) -> None:
    """A line for each way to schedule: share of the peak, and times the start."""
    print(f"\n{title}: {len(rows)} shapes\n")
    print(
        "| schedule | share of the peak | times the start, mean | geometric |\n|---|---|---|---|"
    )
    for name in rows[0]["shares"]:
        share = [row["shares"][name] for row in rows]
        times = [row["shares"][name] / row["shares"]["start"] for row in rows]
        print(
            f"| {name} | {statistics.mean(share):.2f} | {statistics.mean(times):.2f} | "
            f"{statistics.geometric_mean(times):.2f} |"
        )


def against_searches(rows: Sequence[dict[str, Any]], slack: float) -> None:
    """Shares of shapes on which policies are at least as good as the best of all searches."""
    for name in METHODS:
        ratios = [row["shares"][name] / max(row["shares"][s] for s in SEARCHES) for row in rows]
        good = [r >= 1 - slack for r in ratios]
        print(
            f"{name}: at least as good (within {slack:.0%}) as the best of all searches on "
            f"{np.mean(good):.0%}; {statistics.geometric_mean(ratios):.3f} times it"
        )


def stored(folder: Path) -> Iterator[tuple[str, float, float]]:
    """Of the paper's stored runs on test shapes: a method, share of the peak, times the start."""
    with (folder / "search_test_25.csv").open() as file:
        head, *body = csv.reader(file)
    columns = head[2 : head.index("benchmark", 2)]
    for n, name in enumerate(columns, 2):
        best = [max(ast.literal_eval(row[n])) for row in body]
        times = [b / ast.literal_eval(row[2])[0] for b, row in zip(best, body)]
        yield name, statistics.mean(best) / 114.2, statistics.mean(times)


def plot(points: Sequence[dict[str, Any]], path: Path) -> None:
    """Learning curves, as a picture and as a table."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    print("\n| method | round | seconds | actions | mean reward of an episode | share |")
    print("|---|---|---|---|---|---|")
    for name in METHODS:
        own, offset, drawn = [p for p in points if p["method"] == name], 0.0, []
        for number in sorted({p["round"] for p in own}):
            part = [p for p in own if p["round"] == number]
            drawn += [(offset + p["seconds"], p["gained"]) for p in part]
            offset = drawn[-1][0]
            step = max(1, len(part) // 5)
            for few in (part[n : n + step] for n in range(0, len(part) - step + 1, step)):
                gained, share = (np.mean([p[k] for p in few]) for k in ("gained", "share"))
                at = few[-1]
                print(
                    f"| {name} | {number + 1} | {at['seconds']:.0f} | {at['steps']} | "
                    f"{gained:.3f} | {share:.3f} |"
                )
        x, y = np.array(drawn).T
        width = min(len(y), 10)
        smooth = np.convolve(y, np.ones(width) / width, "valid")
        axes.plot(x[width - 1 :], smooth, label=name.upper())
    axes.set(xlabel="seconds of learning", ylabel="mean reward of an episode (share of the peak)")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    print(f"\nlearning curves: {path}")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--minutes", default=15.0, help="Bound of this run, beside the training.")
@click.option("--train", default=9.0, help="Minutes of training, of both methods together.")
@click.option("--test", default=440, help="Test shapes without searches.")
@click.option("--shapes", default=60, help="Test shapes with searches.")
@click.option("--seconds", default=10.0, help="Of every search; the paper's: 60.")
@click.option("--order", default="", help="Loops at the start, as i,j,k; empty: the paper's.")
@click.option("--seed", default=0, help="Of the training.")
@click.option("--stored", "runs", type=click.Path(path_type=Path), help="The paper's runs.")
def main(
    folder: Path,
    minutes: float,
    train: float,
    test: int,
    shapes: int,
    seconds: float,
    order: str,
    seed: int,
    runs: Path | None,
) -> None:
    """Run LoopTune's experiment, or go on with it, and print its tables."""
    loops = tuple(order.split(",")) if order else None
    experiment = Experiment(folder, loops, float("inf"))
    experiment.train(train, seed)
    experiment.until = time.monotonic() + 60 * minutes
    experiment.test(test)
    experiment.search(shapes, seconds)
    print("training:", (folder / "training.json").read_text())
    if rows := lines(folder / "test.jsonl"):
        report(rows, "test shapes")
        print("\n| policy | seconds of a choice, median | most |\n|---|---|---|")
        for name in METHODS:
            taken = [row["seconds"][name] for row in rows]
            print(f"| {name} | {statistics.median(taken):.3f} | {max(taken):.3f} |")
    for path in sorted(folder.glob("searches-*.jsonl")):
        rows = lines(path)
        report(rows, f"searches of {path.stem.partition('-')[2]} s")
        print()
        for slack in (0.0, 0.03):
            against_searches(rows, slack)
    print(f"\npublished: {PAPER}")
    if runs is not None:
        print("\n| stored run | share of the peak | times the start |\n|---|---|---|")
        for name, share, times in stored(runs):
            print(f"| {name} | {share:.2f} | {times:.2f} |")
    if points := lines(folder / "curve.jsonl"):
        plot(points, folder / "curve.png")


if __name__ == "__main__":
    main()
