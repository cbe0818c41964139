"""`loopwright tasks` and `loopwright profile`: a network's work, and where its time goes."""

from __future__ import annotations

import click

from loopwright.cli.common.command import Command
from loopwright.cli.common.network import Network, closed_network_options
from loopwright.cli.common.network_summary import show_tasks, show_untuned
from loopwright.cli.common.options import POLICY


@click.command(cls=Command)
@closed_network_options
@POLICY
@click.option(
    "--calls",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Calls, of whose times the medians are shown.",
)
def profile(network: Network, policy: str, calls: int) -> None:
    """Time every step of NET.onnx inside of a whole call, those of a loop over all iterations."""
    built = network.built(policy)
    times = [built.work.network.steps[n].times if n >= 0 else 1 for n in built.linked.steps]
    steps = [
        (name if count == 1 else f"{name} × {count}", seconds)
        for (name, seconds), count in zip(built.profile(calls=calls), times, strict=True)
    ]
    total = sum(seconds for _, seconds in steps)
    for name, seconds in sorted(steps, key=lambda s: -s[1]):
        click.echo(f"{seconds * 1e3:9.4f} ms {seconds / total:6.1%}  {name}")
    click.echo(f"{total * 1e3:9.4f} ms in all; a whole call {built.measure() * 1e3:.4f} ms")


@click.command(cls=Command)
@closed_network_options
@POLICY
def tasks(network: Network, policy: str) -> None:
    """List the distinct work of NET.onnx: count, FLOPs, share of the time, record."""
    built = network.built(policy)
    show_tasks(built)
    show_untuned(built, network.tune_command())
