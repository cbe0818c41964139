"""`loopwright tasks`: the distinct work of a network."""

from __future__ import annotations

import click

from loopwright.cli.command import Command
from loopwright.cli.network import Network, network_options
from loopwright.cli.network_summary import say_tasks, say_untuned
from loopwright.cli.options import POLICY


@click.command(cls=Command)
@network_options
@POLICY
def tasks(network: Network, policy: str) -> None:
    """List the distinct work of NET.onnx: count, FLOPs, share of the time, record."""
    built = network.built(policy)
    say_tasks(built)
    say_untuned(built, network.tune_command)
