"""Options that several commands have."""

from pathlib import Path

import click

from loopwright.dsl.numerics import Numerics

FILE = click.Path(dir_okay=False, path_type=Path)

numerics = click.option(
    "--numerics",
    type=click.Choice([str(n) for n in Numerics]),
    default="standard",
    show_default=True,
    help="What our programs may do to rounding errors.",
)


def listed(_: click.Context, __: click.Parameter, value: str) -> list[str]:
    """The parts of an option that commas separate."""
    return [part for part in value.split(",") if part]
