"""`loopwright inspect`: what candidates use of a GPU, as its compiler tells; nothing runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import click
import numpy as np

from loopwright.cli.common.command import Command
from loopwright.cli.common.options import NUMERICS, SEED
from loopwright.cli.common.workload import OPERATORS, read_workload, workload_arguments
from loopwright.dsl.errors import LoopwrightError
from loopwright.dsl.words import counted
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import Space, space
from loopwright.temporary import TemporaryFolder

_TIMEOUT = 120.0  # seconds for one candidate
_HEAD = ("kernels", "registers", "spilled bytes", "shared bytes", "s", "config")


@click.command(cls=Command, epilog=OPERATORS)
@workload_arguments
@click.option("--arch", help="An NVIDIA architecture, such as sm_90; this machine's if not given.")
@click.option(
    "--count",
    type=click.IntRange(1),
    default=16,
    show_default=True,
    help="Programs to compile: the default of each sketch, then random ones.",
)
@SEED
@NUMERICS
def inspect(
    what: str, settings: tuple[str, ...], arch: str | None, count: int, seed: int, numerics: str
) -> None:
    """Compile programs for WHAT and show what they use of a GPU; run nothing.

    WHAT is as for `loopwright tune`. No GPU is needed if --arch names one:

    \b
      loopwright inspect softmax x=64,512 --arch sm_90

    The registers of a thread, the bytes that it spills and the shared memory of a block are those
    of the largest kernel, as NVIDIA's assembler tells.
    """  # noqa: D301 - the \b is for click, which leaves the lines after it as they are
    from loopwright.codegen.target import resolve
    from loopwright.measure import machine
    from loopwright.measure.builder import Builder, Task
    from loopwright.measure.workers.fork_server import Kind
    from loopwright.measure.workers.pool import Pool

    workload = read_workload(what, settings).workload
    target = resolve({"kind": "cuda", "arch": arch} if arch else "cuda")
    click.echo(str(workload), err=True)
    points = space(workload, target, numerics)
    configs = list(itertools.islice(_candidates(points, seed), count))
    workers, memory = machine.builders(most=count)
    click.echo(f"{target}: {len(configs)} of {counted(points.size, 'program')}", err=True)
    with TemporaryFolder() as folder:
        builder = Builder(Pool(Kind("build", memory, folder), workers), _TIMEOUT)
        try:
            found = builder.build(Task(workload, target), configs)
        finally:
            builder.close()
    click.echo("\t".join(_HEAD))
    for config, built in zip(configs, found, strict=True):
        use = _use(built.resources) if built.failure is None else f"failed\t{built.failure}"
        click.echo(f"{use}\t{built.seconds:.1f}\t{config}")
    good = [b for b in found if b.failure is None]
    if not good:
        raise LoopwrightError(f"none of {counted(len(found), 'program')} could be compiled")
    if not any(b.resources for b in good):
        click.echo("the compiler here does not tell the use of a GPU", err=True)
        return
    spilled = sum(any(r["spills"] for r in b.resources) for b in good)
    click.echo(f"{len(good)} compiled, {len(found) - len(good)} failed, {spilled} spill", err=True)


def _candidates(points: Space, seed: int) -> Iterator[Config]:
    """The default of every sketch, then random points, none twice; it may end early."""
    from loopwright.explore.strategies.encoded_space import EncodedSpace, Seen
    from loopwright.explore.strategies.legality import legal_points

    encoded = EncodedSpace(points, legal_points(points))
    seen = Seen()
    first = encoded.defaults(len(points.sketches))
    first = first[encoded.is_legal(first)]
    yield from encoded.configs(first)
    seen.add(first)
    rng = np.random.default_rng(seed)
    while len(more := encoded.fresh(32, seen, rng)):
        yield from encoded.configs(more)
        seen.add(more)


def _use(resources: tuple[dict[str, Any], ...]) -> str:
    """The most that any kernel uses, and all that is spilled."""
    if not resources:
        return "\t".join("?" * 4)
    most = {name: max(r[name] for r in resources) for name in ("registers", "shared")}
    spilled = sum(r["spills"] for r in resources)
    return f"{len(resources)}\t{most['registers']}\t{spilled}\t{most['shared']}"
