"""`loopwright tasks`: the distinct work of a network."""

from __future__ import annotations

import click

from loopwright.cli.common.command import Command
from loopwright.cli.common.network import Network, network_options
from loopwright.cli.common.network_summary import show_tasks, show_untuned
from loopwright.cli.common.options import POLICY


@click.command(cls=Command)
@network_options
@POLICY
def tasks(network: Network, policy: str) -> None:
    """List the distinct work of NET.onnx: count, FLOPs, share of the time, record."""
    built = network.built(policy)
    show_tasks(built)
    show_untuned(built, network.tune_command())
