"""The command line's `model` group: cost models in files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from loopwright.cli_command import Group, show_details


@click.group(cls=Group)
def model() -> None:
    """Look into cost models that were saved."""


@model.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--features", type=click.IntRange(0), default=12, show_default=True, help="How many to list."
)
def show(file: Path, features: int) -> None:
    """Show the card of a model: what it is, what it learned from, which features matter to it."""
    from loopwright.costmodel.file import load_model

    loaded = load_model(file)
    size = f"{file}, {file.stat().st_size / 1e6:.2f} MB"
    show_details(("file", size), ("model", loaded.describe()), ("reads", loaded.reads))
    show_details(*_lines(loaded.about))
    shares = sorted(loaded.importance().items(), key=lambda share: -share[1])
    listed = [f"{share:6.1%}  {name}" for name, share in shares[:features]]
    if listed:
        show_details(("importance", "\n".join(listed)))


def _lines(about: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """What is known of a model's origin, with what is nested on lines of its own."""
    for name, value in about.items():
        if isinstance(value, Mapping):
            value = "\n".join(f"{key}: {entry}" for key, entry in value.items())
        elif isinstance(value, list):
            numbers = all(isinstance(entry, (int, float)) for entry in value)
            value = f"{len(value)} numbers" if numbers else "\n".join(map(str, value))
        yield name, value
