"""`loopwright build`: a network as a library, by records."""

from __future__ import annotations

from pathlib import Path

import click

from loopwright.cli.common.command import Command, NewFile, library_path
from loopwright.cli.common.network import Network, network_options
from loopwright.cli.common.network_summary import have, saved, show_untuned
from loopwright.cli.common.options import POLICY, TARGETS
from loopwright.dsl.words import counted


@click.command(cls=Command)
@network_options
@POLICY
@TARGETS
@click.option("-o", "--output", type=NewFile(), help="The library; NET.so if not given.")
@click.option("--strict", is_flag=True, help="Fail if anything has no record.")
def build(
    network: Network,
    policy: str,
    targets: tuple[str, ...] | None,
    output: Path | None,
    strict: bool,
) -> None:
    """Compile NET.onnx by the best records there are, into a library with a C header.

    With --dim the library takes all sizes of an axis. With --targets it has code for two devices:
    C calls the processor's, and `lw.either(cpu=lw.load("NET.so"))` runs each step on its own.
    """
    output = library_path(output, network.path)
    if network.dims:
        if targets is not None:
            raise click.UsageError("--targets is for fixed shapes: give a --shape, and no --dim")
        whole = network.built(policy)
        for note in whole.notes:
            click.echo(f"note: {note}", err=True)
        click.echo(f"saved      {whole.export(output)}, {whole.library.open_signature}")
        return
    made = network.built(policy, targets)
    built = made if targets is None else made.cpu
    missing = show_untuned(built, network.tune_command(targets))
    for note in made.notes:
        click.echo(f"note: {note}", err=True)
    if strict and missing:
        raise click.ClickException(
            f"--strict was given, and {counted(missing, 'task')} {have(missing)} no record"
        )
    if strict and (left := built.notes[len(built.work.notes()) :]):
        raise click.ClickException(f"--strict was given, and {left[0]}")
    path = made.export(output)
    if targets is not None:
        click.echo(str(made.explain()))
    click.echo(f"saved      {path}, {saved(built)}")
