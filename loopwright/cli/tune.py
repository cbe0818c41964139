"""`loopwright tune`: the search for the fastest program of a workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopwright.cli.common import command
from loopwright.cli.common import options as option
from loopwright.cli.common.peers import before_peer, compare_peer
from loopwright.cli.common.workload import OPERATORS, read_workload, workload_arguments
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.words import counted
from loopwright.transfer.records.location import Location

if TYPE_CHECKING:
    from loopwright.dsl.workload import Workload
    from loopwright.explore.budget import Budget
    from loopwright.explore.open.tuned import OpenTuned
    from loopwright.explore.report.callbacks import Callback
    from loopwright.explore.search import TuneOptions
    from loopwright.explore.stopwatch import Stopwatch
    from loopwright.explore.tuned import Tuned
    from loopwright.measure.device import Device
    from loopwright.schedule.target import Target


@dataclass(frozen=True)
class _Options:
    """Options of `tune`: the workload, the budget, the search, and the files of results."""

    what: str
    settings: tuple[str, ...]
    trials: int | None
    minutes: float | None
    effort: str
    seed: int
    strategy: str
    model: str
    acquisition: str
    transfer: str | None
    numerics: str
    codegen: str
    feedback: str | None
    target: str
    threads: int | None
    device: str | None
    fleet: str | None
    records: Location
    output: Path | None
    plot: Path | None
    report: Path | None
    tensorboard: Path | None


@click.command(cls=command.Command, epilog=OPERATORS)
@workload_arguments
@option.collect(_Options)
@click.option(
    "--trials", type=click.IntRange(0), help="Candidates to measure; with 0, a model chooses."
)
@option.MINUTES
@option.choice(
    "--effort",
    among=["instant", "quick", "normal", "thorough"],
    default="normal",
    help="The budget where none is given: 8 trials in seconds, 256 or 2 minutes, 1000 or 15, 4000 "
    "or 120.",
)
@option.SEED
@option.choice(
    "--strategy",
    among=["annealing", "transfer", "sampled", "random", "grid", "genetic"],
    default="annealing",
    help="Who chooses candidates.",
)
@option.choice(
    "--model",
    among=(
        *("gbt", "policy", "gbt-regression", "gbt-ensemble", "mlp", "mlp-regression", "blend"),
        *("source", "source-lstm", "treegru", "treegru-regression", "treegru-plain"),
        *("treegru-ensemble", "random"),
    ),
    default="gbt",
    help="What annealing learns; source-lstm and the treegru ones need torch. source and "
    "source-lstm read the text of what gbt proposes, on targets c, opencl and cuda. With policy, "
    "a sequence model proposes candidates: --strategy sampled.",
)
@option.choice(
    "--acquisition",
    among=["mean", "ei", "ucb"],
    default="mean",
    help="What annealing maximizes; ei and ucb ask an ensemble how uncertain it is.",
)
@option.TRANSFER
@option.NUMERICS
@option.CODEGEN
@option.FEEDBACK
@option.TARGET
@option.THREADS
@option.DEVICE
@option.FLEET
@option.RECORDS
@click.option(
    "-o", "--output", type=command.NewFile(), help="The library, NAME.so; NAME.cl of OpenCL."
)
@click.option("--plot", type=command.NewFile(), help="Draw the tuning curve: .png, .svg, …")
@click.option("--report", type=command.NewFile(), help="Write an HTML report.")
@click.option(
    "--tensorboard",
    type=command.NewFolder(),
    metavar="FOLDER",
    help="Write TensorBoard's event files of the search to this folder.",
)
def tune(options: _Options) -> None:
    """Find the fastest program for WHAT on this machine, and export it.

    WHAT is an operator with shapes, an einsum string with sizes, or a Python file:

    \b
      loopwright tune conv2d x=1,128,28,28 w=128,128,3,3:constant padding=1
      loopwright tune "ij,jk->ik" i=512 j=512 k=512
      loopwright tune my.py:workload

    With --device another machine measures, and the library is for that one.

    A workload of a file may have dims (lw.dim); all its sizes then go into one library.

    Ctrl-C, or a closed terminal, ends it with what was found, and the same command again goes on
    from there; when all trials are done, --trials with more of them does. The minutes include all
    but the writing of files. Networks have `loopwright tune-model`.
    """  # noqa: D301 - the \b is for click, which leaves the lines after it as they are
    from loopwright.explore.stopwatch import Stopwatch

    watch = Stopwatch()  # all counts, from here on
    request = read_workload(options.what, options.settings)
    output = _output(options, request.workload.outputs[0].name)

    from loopwright.explore.budget import Budget, Interrupted
    from loopwright.measure.opening import open_device
    from loopwright.measure.timing import ZERO_SHOT_TIMING

    workload = request.workload
    logs = _checked(options, workload)
    click.echo(str(workload), err=True)
    if options.trials != 0:
        command.check_records(options.records)
    budget = Budget.of(options.trials, options.minutes, options.effort)
    here = options.device is None and options.fleet is None
    compared = here and options.target == "cpu" and not budget.zero_shot
    if compared and not workload.dims:
        budget = before_peer(budget)
    timing = ZERO_SHOT_TIMING if budget.zero_shot else None
    where = (options.device, options.target, options.threads)
    with open_device(*where, timing, options.codegen, options.fleet) as device:
        if budget.trials:
            device.prepare()  # while this process imports the rest
        from loopwright.explore.report.callbacks import display
        from loopwright.explore.search import TuneOptions, search
        from loopwright.explore.strategies.annealing import Schedule

        with watch.part("peak"):
            known = budget.zero_shot or bool(workload.dims) or not device.here
            peak = None if known else _peak_flops(device.target)
        how = TuneOptions(
            records=options.records,
            seed=options.seed,
            strategy=options.strategy,
            model=options.model,
            callbacks=[display(peak), *logs],
            transfer=options.transfer,
            numerics=Numerics.of(options.numerics),
            schedule=Schedule(acquisition=options.acquisition),
            feedback=options.feedback,
        )
        if not device.here:
            click.echo(f"on {device.name}", err=True)
        if workload.dims:
            _tune_all_sizes(workload, device, budget, how, watch, output, options)
            return
        try:
            tuned = search(workload, device, budget, how, watch)
        except Interrupted as interrupted:
            tuned, compared = interrupted.tuned, False  # who interrupts does not wait for torch
    _show_result(tuned, peak, options.records, options.device)
    with watch.part("writing"):
        written = [_written(tuned, output)]
    if tuned.record is not None and compared:
        with watch.part("other library"):
            peer = compare_peer(request, tuned, lambda: 60 * budget.minutes - watch.elapsed)
        if peer is not None:
            click.echo(str(peer))
            tuned = replace(tuned, peer=peer)
    with watch.part("writing"):
        written += _drawn(tuned, options, measured=tuned.record is not None)
    _tell_files(written, watch, options.records)


def _checked(options: _Options, workload: Workload) -> list[Callback]:
    """Refuse what cannot be done before anything is measured; who else is told of the search."""
    from loopwright.explore.budget import TuningError
    from loopwright.explore.report.plot import check_format
    from loopwright.packages import optional
    from loopwright.schedule.loops.nothing import refuse_nothing
    from loopwright.transfer.pretrained.base import AUTO, check_readable

    if not workload.dims:
        refuse_nothing(workload)
    check_readable(options.transfer)
    if options.transfer not in (None, AUTO):
        from loopwright.explore.search import check_use

        check_use(options.transfer, options.strategy, options.model)
    if options.plot is not None:
        check_format(options.plot)
    elif options.report is not None:
        optional("matplotlib", "a report", TuningError)
    if workload.dims and options.codegen == "builtin":
        raise click.UsageError("--codegen builtin is for fixed shapes: leave it out")
    if options.tensorboard is None:
        return []
    from loopwright.explore.report.tensorboard import TensorBoard

    return [TensorBoard(options.tensorboard)]


def _tune_all_sizes(
    workload: Workload,
    device: Device,
    budget: Budget,
    how: TuneOptions,
    watch: Stopwatch,
    output: Path,
    options: _Options,
) -> None:
    """Tune a workload with dims, show the programs, and export them as one library."""
    from loopwright.explore.budget import Interrupted
    from loopwright.explore.open.tune import tune_open

    try:
        tuned = tune_open(workload, device, budget, how, watch=watch)
    except Interrupted as interrupted:
        tuned = interrupted.tuned
    click.echo(f"result     {tuned}")
    for rule in tuned.library.open_signature.rules:
        names = (d.name for d in workload.dims)
        box = ", ".join(
            f"{name} {low} to {high}" for name, (low, high) in zip(names, rule.bounds, strict=True)
        )
        click.echo(f"{box:10s} program {rule.program}")
    written = [
        tuned.library.export(output),
        *_drawn(tuned, options, measured=bool(tuned.measured)),
    ]
    _tell_files(written, watch, options.records)


def _drawn(tuned: Tuned | OpenTuned, options: _Options, measured: bool) -> list[Path]:
    """The plot and the report, as far as they are asked for."""
    if not measured:
        if options.plot or options.report:
            click.echo("nothing was measured, so nothing is drawn")
        return []
    drawn = [tuned.plot(options.plot)] if options.plot else []
    return drawn + ([tuned.report(options.report)] if options.report else [])


def _tell_files(written: Sequence[Path], watch: Stopwatch, records: Location) -> None:
    click.echo(f"time       {watch}")
    click.echo(f"saved      {', '.join(map(str, written))}; records in {records}")


def _output(options: _Options, name: str) -> Path:
    """Path of the result; a usage error where it cannot be written."""
    if options.target != "opencl":
        return command.library_path(options.output, Path(f"{name}.so"))
    if options.output is None:
        command.check_new("--output", path := Path(f"{name}.cl"))
        return path
    if options.output.suffix != ".cl":
        raise click.UsageError(f"--output {options.output}: the name of a library ends in .cl")
    return options.output


def _written(tuned: Tuned, output: Path) -> Path:
    """The library as a file; of OpenCL the source, since drivers compile that where it runs."""
    from loopwright.codegen.library.export import write_together

    if tuned.target.kind != "opencl":
        return tuned.library.export(output)
    write_together({output: tuned.library.source("opencl").encode()})
    return output


def _peak_flops(machine: Target) -> float | None:
    """FLOP/s that a processor reaches at most, measured; not known of a GPU."""
    if machine.gpu is not None:
        click.echo(f"on {machine}", err=True)
        return None
    from loopwright.measure.roofline import peak_flops

    about = f"on {machine}, {counted(machine.threads, 'thread')}"
    click.echo(f"{about}; measuring the machine's peak", err=True)
    return peak_flops(machine)


def _show_result(tuned: Tuned, peak: float | None, records: Location, device: str | None) -> None:
    from loopwright.explore.report.callbacks import failed
    from loopwright.explore.result import speed
    from loopwright.schedule.space import find_sketch

    flops = tuned.workload.flops
    if tuned.record is not None:
        click.echo(f"default    {speed(flops, tuned.default, peak)}")
        click.echo(f"best       {speed(flops, tuned.seconds, peak)}")
        click.echo(f"speed-up   {tuned.speedup or f'none: {tuned.claim}'}")
    if tuned.tied:
        click.echo(f"tied       with {len(tuned.tied)} of {len(tuned.finalists) - 1} others")
    sketch = find_sketch(tuned.workload, tuned.target, tuned.config.sketch)
    click.echo(
        f"numerics   {sketch.numerics}, errors {sketch.error_growth:.3g} x the direct sum's"
    )
    click.echo(f"trials     {len(tuned.history)}, failures: {failed(tuned.failures)}; {tuned.end}")
    click.echo(f"config     {tuned.config}")
    if tuned.record is not None and tuned.record.id is not None:
        again = command.replay_command(tuned.record.id, records, device)
        click.echo(f"record     {tuned.record.id}; again: {again}")
    elif tuned.record is not None:
        click.echo(f"record     none: it could not be stored in {records}")
