"""`loopwright passes`: what LLVM does with a program, chosen by measured time."""

from __future__ import annotations

from pathlib import Path

import click

from loopwright.cli.common.command import Command, NewFile, library_path, record_of
from loopwright.cli.common.options import EXISTING, MINUTES, NUMERICS, RECORDS, SEED, THREADS
from loopwright.cli.common.workload import OPERATORS, read_workload, workload_arguments


@click.command(cls=Command, epilog=OPERATORS)
@workload_arguments
@THREADS
@NUMERICS
@RECORDS
@click.option(
    "--record", "number", type=click.IntRange(1), metavar="ID", help="Its config, not the default."
)
@MINUTES
@SEED
@click.option("--model", type=EXISTING, help="A sequence model that proposes the first lists.")
@click.option(
    "--passes", metavar="LIST", help="Build by this list; nothing is searched or measured."
)
@click.option("-o", "--output", type=NewFile(), help="The library; none is written if not given.")
def passes(  # noqa: PLR0913 - what users choose
    what: str,
    settings: tuple[str, ...],
    threads: int | None,
    numerics: str,
    records: Path,
    number: int | None,
    minutes: float | None,
    seed: int,
    model: Path | None,
    passes: str | None,
    output: Path | None,
) -> None:
    """Search for the LLVM passes and switches by which a program of WHAT is fastest.

    WHAT is as for `loopwright tune`, after which it is best done, for the record that is named
    there:

    \b
      loopwright passes softmax x=256,512 --record 17 --minutes 2 -o softmax.so

    LLVM's -O3 is kept where no list is certainly faster. Ctrl-C ends it with the fastest list so
    far, not compared. It needs the extra llvm.
    """  # noqa: D301 - the \b is for click, which leaves the lines after it as they are
    from loopwright.explore.budget import Interrupted
    from loopwright.explore.passes.tune import tune_passes

    workload = read_workload(what, settings).workload
    path = None if output is None else library_path(output, Path(what))
    record = None if number is None else record_of(workload, records, number)
    config = None if record is None else record.config
    if record is not None:
        threads = threads or record.threads
    allowed = numerics if record is None else None
    if passes is not None:
        from loopwright.codegen.build import build

        library = build(workload, config, threads=threads, numerics=allowed, passes=passes)
    else:
        try:
            found = tune_passes(
                workload,
                config,
                threads=threads,
                minutes=minutes or 2.0,
                seed=seed,
                numerics=allowed,
                model=model,
                progress=lambda line: click.echo(line, err=True),
            )
        except Interrupted as interrupted:
            found = interrupted.tuned
        click.echo(str(found))
        library = found.library
    if path is not None:
        click.echo(f"saved      {library.export(path)}")
