"""`loopwright tune-model`: the search for all work of a network."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click

from loopwright.cli.common import options as option
from loopwright.cli.common.command import Command, NewFile, check_records, library_path
from loopwright.cli.common.network import Network, network_options
from loopwright.cli.common.network_summary import largest, show_tasks
from loopwright.dsl.words import counted


@dataclass(frozen=True)
class _Options:
    """Options of the search, and the path of the result."""

    trials: int | None
    minutes: float | None
    effort: str
    tasks: str | None
    share: float | None
    seed: int
    transfer: str | None
    feedback: str | None
    targets: tuple[str, ...] | None
    device: str | None
    fleet: str | None
    output: Path | None

    @property
    def elsewhere(self) -> bool:
        """Return whether another machine measures."""
        return self.device is not None or self.fleet is not None


@click.command("tune-model", cls=Command)
@network_options
@option.collect(_Options)
@click.option("--trials", type=click.IntRange(1), help="Candidates to measure, of all tasks.")
@option.MINUTES
@option.choice(
    "--effort",
    among=["quick", "normal", "thorough"],
    default="normal",
    help="The budget where none is given: 256 trials or 2 minutes, 1000 or 15, 4000 or 120.",
)
@click.option("--tasks", metavar="1,3-5", help="The tasks to tune, as `loopwright tasks` counts.")
@click.option("--share", type=click.FloatRange(0, 1), help="The share of the time to tune.")
@option.SEED
@option.TRANSFER
@option.FEEDBACK
@option.TARGETS
@option.DEVICE
@option.FLEET
@click.option("-o", "--output", type=NewFile(), help="The library; NET.so if not given.")
def tune_model(network: Network, options: _Options) -> None:
    """Find the fastest programs for NET.onnx on this machine, and export it.

    One budget is shared by all of its tasks:

    \b
      loopwright tune-model net.onnx --minutes 30
      loopwright tune-model net.onnx --shape x=1,3,224,224 --share 0.9
      loopwright tune-model net.onnx --dim seq=1:512
      loopwright tune-model net.onnx --targets cpu,opencl

    With --device another machine measures, with --fleet many, and the library is for those.
    Ctrl-C, or a closed terminal, ends it with what was found, and the same command again goes on
    from there.
    """  # noqa: D301 - the \b is for click, which leaves the lines after it as they are
    _check(network, options)
    output = library_path(options.output, network.path)
    check_records(network.records)

    from loopwright.explore.stopwatch import Stopwatch

    clock = Stopwatch()  # all counts, from here on

    from loopwright.explore.budget import Budget
    from loopwright.graph.placed.targets import given_targets
    from loopwright.measure.opening import open_device
    from loopwright.transfer.pretrained.base import check_readable

    check_readable(options.transfer, proposes=False)
    if network.dims:
        _tune_open(network, options, output)
        return
    gpu = given_targets(options.targets, options.elsewhere)
    budget = Budget.of_model(options.trials, options.minutes, options.effort)
    with ExitStack() as stack:
        with clock.part("starting"):
            opened = open_device(options.device, "cpu", network.threads, fleet=options.fleet)
            device = stack.enter_context(opened)
            device.prepare()  # beside the imports
            from loopwright.graph.compile.model import TunedModel
            from loopwright.graph.placed.model import PlacedModel
            from loopwright.graph.tuning.fixed_sizes import summarized, tune_fixed
            from loopwright.graph.tuning.live_table import shown
            from loopwright.graph.tuning.search import SearchOptions
            from loopwright.graph.tuning.two_devices import tune_placed

        target = device.target
        with clock.part("reading"):
            work = network.imported(target)
        count = len(work.tasks)
        only = None if options.tasks is None else _chosen(options.tasks, count)
        if options.share is not None:
            with clock.part("building"):
                known = network.compiled(work, target, machine=device.fingerprint())
            only = largest(known, options.share)
        chosen = count if only is None else len(only)
        for note in work.notes():
            click.echo(note, err=True)
        click.echo(f"{chosen} of {counted(count, 'task')}, {budget}; on {target}", err=True)
        with shown() as (tell, watch):
            how = SearchOptions(
                seed=options.seed,
                only=only,
                transfer=options.transfer,
                feedback=options.feedback,
                device=None if device.here else device,
                own=device if device.here else None,
                tell=tell,
                watch=watch,
                clock=clock,
            )
            what = (network.records, how, network.check, network.path.stem)
            made: TunedModel | PlacedModel
            if gpu is None:
                built, _ = tune_fixed(work, target, budget, *what)
                assert isinstance(built, TunedModel)  # as of all ONNX files
                made = built
            else:
                made, _ = tune_placed(work, target, gpu, budget, *what)
                built = made.cpu
    with clock.part("writing"):
        path = made.export(output)
    show_tasks(built)
    for line in summarized(made, target, budget, how):
        click.echo(line)
    click.echo(f"saved      {path}; records in {network.records}")


def _check(network: Network, options: _Options) -> None:
    """A usage error where options exclude each other."""
    if options.tasks is not None and options.share is not None:
        raise click.UsageError("--tasks and --share both choose tasks: give one of them")
    if options.targets is not None and (options.elsewhere or network.dims):
        raise click.UsageError(
            "--targets is for this machine and for fixed shapes: leave --device, --fleet and "
            "--dim out"
        )
    if network.dims and (options.tasks is not None or options.share is not None):
        raise click.UsageError("--tasks and --share choose tasks of one size: leave --dim out")


def _tune_open(network: Network, options: _Options, output: Path) -> None:
    """Tune a network of open axes, and export it."""
    from loopwright.explore.budget import Interrupted
    from loopwright.graph.open.model import OpenModel
    from loopwright.graph.tuning.tune import tune_model as tune

    try:
        built = tune(
            network.source,
            network.inputs,
            minutes=options.minutes,
            trials=options.trials,
            effort=options.effort,
            records=network.records,
            seed=options.seed,
            transfer=options.transfer,
            feedback=options.feedback,
            progress=True,
            device=options.device,
            fleet=options.fleet,
            **network.how,
        )
    except Interrupted as interrupted:
        built = interrupted.tuned
    assert isinstance(built, OpenModel), "there are dims"
    path = built.export(output)
    click.echo(f"saved      {path}, {built.library.open_signature}; records in {network.records}")


def _chosen(text: str, count: int) -> list[int]:
    """The numbers that `1,3-5` names, as the list of tasks counts them, from 1."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            ends = int(first), int(last if dash else first)
        except ValueError as error:
            raise click.UsageError(f"--tasks {text}: write numbers as 1,3-5") from error
        if not 1 <= ends[0] <= ends[1] <= count:
            raise click.UsageError(f"--tasks {text}: the network has tasks 1 to {count}")
        numbers += range(ends[0] - 1, ends[1])
    return list(dict.fromkeys(numbers))
