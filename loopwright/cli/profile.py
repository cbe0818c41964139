"""`loopwright tasks` and `loopwright profile`: a network's work, and where its time goes."""

from __future__ import annotations

from collections.abc import Sequence

import click

from loopwright.cli.common.command import Command
from loopwright.cli.common.network import Network, closed_network_options, network_options
from loopwright.cli.common.network_summary import show_tasks, show_untuned
from loopwright.cli.common.options import POLICY


@click.command(cls=Command)
@network_options
@POLICY
@click.option(
    "--at",
    multiple=True,
    metavar="NAME=128",
    help="The size of an axis that --dim leaves open, at which the network is timed; once for "
    "each.",
)
@click.option(
    "--calls",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Calls, of whose times the medians are shown.",
)
def profile(network: Network, policy: str, at: tuple[str, ...], calls: int) -> None:
    """Time every step of NET.onnx inside of a whole call, those of a loop over all iterations."""
    sizes = dict(map(_size, at))
    if network.dims or sizes:
        if not (network.dims and sizes):
            raise click.UsageError("give --dim NAME=1:512 for an open axis and --at NAME=128")
        _show(network.built(policy).profile(calls=calls, **sizes))
        return
    built = network.built(policy)
    times = [built.work.network.steps[n].times if n >= 0 else 1 for n in built.linked.steps]
    steps = [
        (name if count == 1 else f"{name} × {count}", seconds)
        for (name, seconds), count in zip(built.profile(calls=calls), times, strict=True)
    ]
    _show(steps, f"; a whole call {built.measure() * 1e3:.4f} ms")


def _show(steps: Sequence[tuple[str, float]], whole: str = "") -> None:
    """Print the seconds of steps, the longest first."""
    total = sum(seconds for _, seconds in steps)
    for name, seconds in sorted(steps, key=lambda s: -s[1]):
        share = seconds / total if total else 0.0
        click.echo(f"{seconds * 1e3:9.4f} ms {share:6.1%}  {name}")
    click.echo(f"{total * 1e3:9.4f} ms in all{whole}")


def _size(text: str) -> tuple[str, int]:
    """The name and the size of an option `--at`."""
    name, equals, value = text.rpartition("=")
    if not (name and equals and value.isdecimal()):
        raise click.UsageError(f"--at {text}: write NAME=128")
    return name, int(value)


@click.command(cls=Command)
@closed_network_options
@POLICY
def tasks(network: Network, policy: str) -> None:
    """List the distinct work of NET.onnx: count, FLOPs, share of the time, record."""
    network.check_closed()
    built = network.built(policy)
    show_tasks(built)
    show_untuned(built, network.tune_command())
