"""`loopwright bench`: the time of an exported library."""

from __future__ import annotations

import statistics
from pathlib import Path

import click

from loopwright.cli.common.command import Command
from loopwright.cli.common.options import EXISTING, SEED, THREADS
from loopwright.dsl.workload import Workload


@click.command(cls=Command)
@click.argument("file", type=EXISTING)
@SEED
@THREADS
def bench(file: Path, seed: int, threads: int | None) -> None:
    """Time the exported library of an operator, FILE.so, on random data."""
    import numpy as np

    from loopwright.codegen.load import load
    from loopwright.dsl.oracle import random_inputs
    from loopwright.explore.result import speed
    from loopwright.measure.timing import Timer, Timing

    library = load(file)
    if threads is not None:
        library.threads = threads
    data = library.origin.extra.get("workload")
    if data is None:
        raise click.ClickException(f"{file}: its manifest names no workload to make data for")
    workload = Workload.from_json(data)
    inputs = random_inputs(workload, np.random.default_rng(seed))
    samples = Timer(library.prepare_call(*inputs), Timing(relative=0.01, cap=1.0)).run()
    click.echo(str(workload))
    click.echo(f"{library.signature}, {library.threads} threads")
    median = statistics.median(samples)
    click.echo(
        f"{speed(workload.flops, median, None)}; {len(samples)} samples from "
        f"{min(samples) * 1e3:.4g} to {max(samples) * 1e3:.4g} ms, constants prepared ahead"
    )
