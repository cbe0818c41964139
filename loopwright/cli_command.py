"""What the commands of the command line share."""

from __future__ import annotations

from typing import Any

import click

from loopwright.dsl.errors import LoopwrightError


class Command(click.Command):
    """A command that ends with a message and exit code 1 on our errors."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LoopwrightError as error:
            raise click.ClickException(str(error)) from error


class Group(Command, click.Group):
    """A group of such commands."""


def show_details(*details: tuple[str, object]) -> None:
    """Print names and values, one below the other."""
    for name, value in details:
        click.echo(f"{name + ':':<14}{value}".replace("\n", f"\n{'':<14}"))
