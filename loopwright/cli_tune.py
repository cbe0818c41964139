"""The command line's `tune`, `replay` and `bench`."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopwright.cli_command import (
    STORE,
    Command,
    NewFile,
    check_store,
    library_path,
    refuse_options,
    replay_command,
)
from loopwright.cli_graph import CHECK, LAYOUT, is_model, tune_model
from loopwright.cli_peers import compare_peer
from loopwright.cli_workload import read_workload
from loopwright.dsl.workload import Workload

if TYPE_CHECKING:
    from loopwright.explore.tuned import Tuned
    from loopwright.schedule.target import Target

_FILE = click.Path(dir_okay=False, path_type=Path)
_RECORDS = click.option(
    "--records", type=_FILE, default=STORE, show_default=True, help="The record store."
)
_THREADS = click.option(
    "--threads", type=click.IntRange(1), help="Threads of the program; all if not given."
)
_TARGET = click.option(
    "--target",
    type=click.Choice(["cpu", "cuda", "opencl"]),
    default="cpu",
    show_default=True,
    help="What programs run on: this machine's processor, or its GPU.",
)
_C6 = ("conv2d", ("x=1,128,28,28", "w=128,128,3,3:constant", "padding=1"))
"""ResNet-18's sixth convolution, which is tuned if nothing is named."""
_COMPILED = 16
"""Programs that --compile-only shows if --trials does not say."""
_OF_MODELS = ("chosen", "share", "shapes", "layout", "sparse", "check")
_OF_OPERATORS = (
    "growth", "strategy", "model", "acquisition", "arch", "compile_only", "plot", "report",
)  # fmt: skip
_OF_RUNS = ("minutes", "effort", "output", "plot", "report")


@click.command(cls=Command)
@click.argument("what", required=False)
@click.argument("settings", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "--trials", type=click.IntRange(0), help="Candidates to measure; with 0, a model chooses."
)
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="Time to take.")
@click.option(
    "--effort",
    type=click.Choice(["instant", "quick", "normal", "thorough"]),
    help="The budget where none is given: 8 trials in seconds, 256 or 2 minutes, 1000 or 15, 4000 "
    "or 120. Normal, or quick if nothing is named.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides what is random."
)
@click.option(
    "--strategy",
    type=click.Choice(["annealing", "probing", "random", "grid", "genetic"]),
    default="annealing",
    show_default=True,
    help="Who chooses candidates.",
)
@click.option(
    "--model",
    type=click.Choice(
        [
            "gbt",
            "gbt-regression",
            "gbt-ensemble",
            "mlp",
            "mlp-regression",
            "blend",
            "treegru",
            "treegru-regression",
            "treegru-plain",
            "treegru-ensemble",
            "random",
        ]
    ),
    default="gbt",
    show_default=True,
    help="What annealing learns; the treegru ones need torch.",
)
@click.option(
    "--acquisition",
    type=click.Choice(["mean", "ei", "ucb"]),
    default="mean",
    show_default=True,
    help="What annealing maximizes; ei and ucb ask an ensemble how uncertain it is.",
)
@click.option(
    "--transfer",
    default="auto",
    show_default=True,
    metavar="[auto|none|FILE]",
    help="The global model to begin with: the shipped one (for an operator with the store's "
    "records), none, or FILE.",
)
@click.option(
    "--growth",
    type=click.FloatRange(1),
    help="How much rounding errors may grow; 1: no Winograd, Strassen or weights of 24 bits.",
)
@_TARGET
@click.option("--arch", help="Of another NVIDIA GPU, such as sm_90; for --compile-only.")
@click.option(
    "--compile-only",
    is_flag=True,
    help="Run nothing: show what programs use of a GPU, as nvcc tells, --trials of them.",
)
@click.option("--tasks", "chosen", metavar="1,3-5", help="Of a model: the tasks to tune.")
@click.option(
    "--share", type=click.FloatRange(0, 1), help="Of a model: the share of its time to tune."
)
@click.option("--shape", "shapes", multiple=True, help="Of a model's input: NAME=1,3,224,224.")
@LAYOUT
@click.option(
    "--sparse/--no-sparse",
    default=True,
    help="Of a model: let programs leave zeros of their data out; their time depends on it.",
)
@CHECK
@_THREADS
@_RECORDS
@click.option("-o", "--output", type=NewFile(), help="The library, NAME.so; NAME.cl of OpenCL.")
@click.option("--plot", type=NewFile(), help="Draw the tuning curve: .png, .svg, …")
@click.option("--report", type=NewFile(), help="Write an HTML report.")
def tune(
    what: str | None,
    settings: tuple[str, ...],
    trials: int | None,
    minutes: float | None,
    effort: str | None,
    seed: int,
    strategy: str,
    model: str,
    acquisition: str,
    transfer: str,
    growth: float | None,
    target: str,
    arch: str | None,
    compile_only: bool,
    chosen: str | None,
    share: float | None,
    shapes: tuple[str, ...],
    layout: str,
    sparse: bool,
    check: bool,
    threads: int | None,
    records: Path,
    output: Path | None,
    plot: Path | None,
    report: Path | None,
) -> None:
    """Find the fastest program for WHAT on this machine, and export it.

    WHAT is an operator with shapes, an einsum string with sizes, a Python file, or a model:

    \b
      loopwright tune conv2d x=1,128,28,28 w=128,128,3,3:constant padding=1
      loopwright tune "ij,jk->ik" i=512 j=512 k=512
      loopwright tune my.py:workload
      loopwright tune softmax x=64,512 --target cuda --arch sm_90 --compile-only
      loopwright tune model.onnx --minutes 30

    Without it, a convolution of ResNet-18 is tuned in about two minutes and exported to c6.so.
    Ctrl-C ends it with what was found, and the same command again goes on from there; when all
    trials are done, --trials with more of them does.
    """  # noqa: D301 - the \b is for click, which leaves the lines after it as they are
    base = None if transfer == "none" else transfer
    if what and is_model(what):
        refuse_options(_OF_OPERATORS, "for single operators, not for the file of a model")
        if target != "cpu":
            raise click.UsageError(f"--target {target}: a model is tuned for cpu; leave it out")
        if settings:
            raise click.UsageError(f"{settings[0]}: the shape of a model's input goes to --shape")
        if chosen and share is not None:
            raise click.UsageError("--tasks and --share both choose tasks: give one of them")
        tune_model(
            Path(what), shapes, output, chosen, share, trials, minutes, effort or "normal",
            records, seed, threads, base, layout, sparse, check,
        )  # fmt: skip
        return
    refuse_options(_OF_MODELS, "for the file of a model, MODEL.onnx")
    request = read_workload(what, settings) if what else read_workload(*_C6)
    workload = request.workload
    default = Path("c6.so" if what is None else f"{workload.outputs[0].name}.so")
    if arch is not None and target != "cuda":
        raise click.UsageError("--arch is of an NVIDIA GPU: give --target cuda too")
    if compile_only and target == "cpu":
        raise click.UsageError("--compile-only shows what programs use of a GPU: --target cuda")

    if compile_only:
        refuse_options(_OF_RUNS, "for programs that are run, and --compile-only runs nothing")
    elif target != "opencl":
        output = library_path(output, default)
    elif output is None:
        output = Path(NewFile().convert(default.with_suffix(".cl"), None, None))
    elif output.suffix != ".cl":
        raise click.UsageError(f"--output {output}: the name of a library ends in .cl")

    from loopwright.codegen.target import resolve
    from loopwright.explore.annealing import Schedule
    from loopwright.explore.budget import Budget
    from loopwright.explore.callbacks import display
    from loopwright.explore.plot import check_format
    from loopwright.explore.tune import tune as run

    named = target if arch is None else {"kind": target, "arch": arch}
    machine = resolve(named, threads)
    if plot is not None:
        check_format(plot)
    click.echo(str(workload), err=True)
    if compile_only:
        from loopwright.cli_compile import compile_only as report_use

        report_use(workload, machine, trials or _COMPILED, seed, growth)
        return
    if trials != 0:
        check_store(records)
    hasty = Budget.of(trials, minutes, effort or "quick").hasty
    peak = None if hasty else _peak(machine)  # which takes seconds to find out
    tuned = run(
        workload,
        machine,
        trials,
        minutes,
        effort or ("normal" if what else "quick"),
        records,
        seed,
        strategy=strategy,
        model=model,
        growth=growth,
        callbacks=[display(peak)],
        transfer=base,
        schedule=Schedule(acquisition=acquisition),
    )
    assert output is not None  # --compile-only has returned
    written = [_written(tuned, output), *([tuned.plot(plot)] if plot else [])]
    written += [tuned.report(report)] if report else []
    _say_result(tuned, peak, records)
    if target == "cpu" and not hasty:
        peer = compare_peer(request, tuned.library)
        if peer is not None:
            click.echo(peer)
    _say_spent(tuned)
    click.echo(f"saved      {', '.join(map(str, written))}; records in {records}")


def _written(tuned: Tuned, output: Path) -> Path:
    """The library as a file; of OpenCL the source, since drivers compile that where it runs."""
    if tuned.target.kind != "opencl":
        return tuned.library.export(output)
    output.write_text(tuned.library.source("opencl"))
    return output


def _peak(machine: Target) -> float | None:
    """FLOP/s that a processor reaches at most, measured; not known of a GPU."""
    if machine.gpu is not None:
        click.echo(f"on {machine}", err=True)
        return None
    from loopwright.measure.peak import peak

    about = f"on {machine}, {machine.threads} threads"
    click.echo(f"{about}; measuring the machine's peak", err=True)
    return peak(machine).flops


def _say_result(tuned: Tuned, peak: float | None, records: Path) -> None:
    from loopwright.explore.callbacks import failed, speed

    flops = tuned.workload.flops
    if tuned.record is not None:
        click.echo(f"default    {speed(flops, tuned.default, peak)}")
        click.echo(f"best       {speed(flops, tuned.seconds, peak)}")
        click.echo(f"speed-up   {tuned.speedup or f'none: {tuned.claim}'}")
    if tuned.tied:
        click.echo(f"tied       with {len(tuned.tied)} of {len(tuned.finalists) - 1} others")
    click.echo(f"trials     {len(tuned.history)}, failures: {failed(tuned.failures)}; {tuned.end}")
    click.echo(f"config     {tuned.config}")
    if tuned.record is not None:
        again = replay_command(tuned.record.id, records)
        click.echo(f"record     {tuned.record.id}; again: {again}")


def _say_spent(tuned: Tuned) -> None:
    total = sum(tuned.spent.values())
    parts = sorted(tuned.spent.items(), key=lambda part: -part[1])
    shown = ", ".join(
        f"{name} {s:.1f} s ({s / max(total, 1e-9):.0%})" for name, s in parts if s >= 0.05
    )
    click.echo(f"time       {total:.1f} s: {shown}")


@click.command(cls=Command)
@click.argument("number", metavar="ID", type=click.IntRange(1))
@_RECORDS
def replay(number: int, records: Path) -> None:
    """Build, run and check the config of one record again, alone."""
    from loopwright.codegen.target import resolve
    from loopwright.explore.callbacks import speed
    from loopwright.measure.local import LocalDevice
    from loopwright.measure.timing import Timing
    from loopwright.transfer.record import NETWORK
    from loopwright.transfer.records import RecordStore

    with RecordStore(records, create=False) as store:
        record = store.get(number)
    workload = record.computation()
    kind = record.target.partition(" ")[0]
    target = resolve(kind if kind in ("cuda", "opencl") else "cpu", record.threads)
    if str(target) != record.target:
        click.echo(f"note: the record is of another target, {record.target}", err=True)
    click.echo(f"{workload}\n{record.config}")
    then = record.failure or speed(workload.flops, record.cost, None)
    click.echo(f"recorded   {then}")
    cold = Timing(cache="cold") if record.cache == "cold" else None
    if record.cache == NETWORK:
        click.echo("note: it was timed inside of a network, and is alone now", err=True)
    with LocalDevice(target, timing=cold) as device:
        (now,) = device.measure(workload, [record.config])
        failure = now.failure or device.verify(workload, record.config)
    if failure is not None:
        click.echo(f"now        {failure}\n{failure.traceback}".rstrip())
        raise SystemExit(1)
    click.echo(f"now        {speed(workload.flops, now.cost, None)}; its results are right")
    click.echo(f"spent      {now.build_seconds:.3f} s building, {now.run_seconds:.3f} s running")


@click.command(cls=Command)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the data.")
@_THREADS
def bench(file: Path, seed: int, threads: int | None) -> None:
    """Time the exported library of an operator, FILE.so, on random data."""
    import numpy as np

    from loopwright.codegen.export import load
    from loopwright.dsl.oracle import random_inputs
    from loopwright.explore.callbacks import speed
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
