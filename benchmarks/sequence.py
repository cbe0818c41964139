"""A sequence model that learns from what the shipped cost models say.

    python benchmarks/sequence.py [--workloads 1300] [--steps 9500] [--keep FOLDER] [-o FILE]

Workloads are drawn as those of `collect.py`, on machines with AVX2 and with AVX-512, so many of
each. Thousands of legal configs of each are scored by the cost model for such vectors, those near
the best of them in several rounds. Nothing is measured. `loopwright model train --model sequence`
learns from records in the same way. With --keep the scores are kept in a folder, and read where
they are there.
"""

from __future__ import annotations

import functools
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
from suites.drawn import drawn
from suites.row import Row

from loopwright.costmodel.models.file import StoredModel
from loopwright.costmodel.sequence.examples import Group, weighted
from loopwright.costmodel.sequence.grammar import Grammar
from loopwright.explore.strategies.encoded_space import EncodedSpace, Points, distinct
from loopwright.explore.strategies.features import Features
from loopwright.schedule.space import Space, space
from loopwright.schedule.target import Target
from loopwright.transfer.pretrained.base import SHIPPED
from loopwright.transfer.pretrained.training import load_global

KB = 1 << 10
WIDE = Target(mcpu="znver4", vector_bytes=64, vector_registers=32, l2_bytes=1024 * KB)
MACHINES = {
    "x86-avx2": (
        Target(mcpu="znver3", l2_bytes=512 * KB),
        Target(mcpu="x86-64-v3", l2_bytes=256 * KB),
        Target(mcpu="x86-64-v3", l1_bytes=48 * KB, l2_bytes=1280 * KB),
    ),
    "x86-avx512": (
        WIDE,
        replace(WIDE, mcpu="sapphirerapids", l1_bytes=48 * KB, l2_bytes=2048 * KB),
        replace(WIDE, mcpu="znver5", l1_bytes=48 * KB),
    ),
}
"""Machines that the workloads are thought to run on, with one thread or two."""
NUMERICS = ("standard", "standard", "standard", "fast", "strict")
DEFAULTS, GUESSES, RANDOM = 48, 2048, 512
ROUNDS, BEST, MOVES = 5, 96, 6
"""Rounds of steps from the best points so far, number of these, and steps of each."""
KEPT = 256
"""Best points of a workload that are kept."""
SEED = 44
"""Seed of the workloads; those that judge a model are drawn by others."""
TEMPERATURE = 0.3
"""T: a config whose score is lower by as much has 1/e of the weight of the best."""


def machine(name: str, number: int) -> Target:
    """The machine of a workload."""
    every = MACHINES[name]
    return replace(every[number % len(every)], threads=1 + number // len(every) % 2)


def the_space(row: Row, name: str, number: int) -> Space:
    """The space of a drawn workload."""
    numerics = NUMERICS[number % len(NUMERICS)]
    return space(row.request.workload, machine(name, number), numerics)


def best_scored(points: Space, model: StoredModel, seed: int) -> tuple[Points, np.ndarray]:
    """Points that a cost model likes best, and their scores."""
    encoded, rng = EncodedSpace(points), np.random.default_rng(seed)
    features = Features(points, model.reads)
    found = np.empty((0, encoded.width), np.int64)
    scores = np.empty(0)
    new = np.concatenate(
        [encoded.defaults(DEFAULTS), encoded.guesses(GUESSES, rng), encoded.sample(RANDOM, rng)]
    )
    for _ in range(1 + ROUNDS):
        new = distinct(np.concatenate([found, new]))[len(found) :]
        if not len(new):
            break
        found = np.concatenate([found, new])
        scores = np.append(scores, model.predict(features(new)))
        order = np.argsort(-scores, kind="stable")[:BEST]
        new = encoded.neighbours(np.repeat(found[order], MOVES, axis=0), rng)
    order = np.argsort(-scores, kind="stable")[:KEPT]
    return found[order], scores[order]


@functools.cache
def cost_model(name: str) -> StoredModel:
    return load_global(SHIPPED / f"{name}.json")


def one(name: str, keep: Path | None, job: tuple[int, Row]) -> tuple[Points, np.ndarray]:
    """The best points of one workload, from the folder if they are there."""
    number, row = job
    path = keep and keep / f"{name}-{number}.npz"
    if path and path.exists():
        with np.load(path) as data:
            return data["points"], data["scores"]
    points, scores = best_scored(the_space(row, name, number), cost_model(name), number)
    if path:
        np.savez(path, points=points, scores=scores)
    return points, scores


def groups(name: str, workloads: int, keep: Path | None, processes: int) -> Iterator[Group]:
    """The examples of all workloads for a kind of vectors."""
    jobs = list(enumerate(drawn(workloads, SEED)))
    start = time.monotonic()
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        found = pool.map(functools.partial(one, name, keep), jobs)
        for (number, row), (points, scores) in zip(jobs, found, strict=True):
            grammar = Grammar(the_space(row, name, number))
            weights = np.exp((scores - scores.max()) / TEMPERATURE)
            yield weighted(grammar, [grammar.sequence(p) for p in points.tolist()], weights)
            if (number + 1) % 50 == 0:
                seconds = f"{time.monotonic() - start:.0f} s"
                click.echo(f"{name}: {number + 1} workloads, {seconds}", err=True)


@click.command()
@click.option("--workloads", default=1300, show_default=True, help="For each kind of vectors.")
@click.option("--steps", default=9500, show_default=True)
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False))
@click.option("--processes", default=1, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), default="x86-sequence.json")
def main(workloads: int, steps: int, keep: Path | None, processes: int, output: Path) -> None:
    """Train a sequence model for x86."""
    from loopwright.costmodel.sequence.training import train

    if keep:
        keep.mkdir(parents=True, exist_ok=True)
    every = [g for name in MACHINES for g in groups(name, workloads, keep, processes)]
    model = train(every, steps)
    model.about["from"] = f"configs of drawn workloads, scored by {' and '.join(MACHINES)}"
    model.save(output)
    click.echo(
        f"{output}: {model.describe()}, {output.stat().st_size / 1e6:.2f} MB, {model.about}"
    )


if __name__ == "__main__":
    main()
