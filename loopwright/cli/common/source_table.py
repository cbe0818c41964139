"""Tables of sources and labels, as `loopwright model train --table` reads them."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click


@dataclass(frozen=True)
class SourceTable:
    """Columns of a table: texts of `sources` and their `labels`, numbers of each row, and names of
    groups. The latter two are None if no column has them."""

    sources: list[str]
    labels: list[str]
    auxiliary: list[list[float]] | None
    groups: list[str] | None


def read_source_table(
    path: Path, source: str, label: str, auxiliary: Sequence[str], group: str | None
) -> SourceTable:
    """Read a CSV file, or one that gzip compressed.

    An entry of the column `source` is a text, or the name of a file beside the table that ends in
    .cl, .c or .cu. Raises `click.ClickException` for columns or files that are missing.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            rows, columns = list(reader), reader.fieldnames or []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise click.ClickException(f"cannot read the table {path}: {error}") from error
    wanted = [source, label, *auxiliary, *([group] if group else [])]
    if missing := [name for name in wanted if name not in columns]:
        raise click.ClickException(
            f"{path} has no column {', '.join(missing)}; there are {', '.join(columns) or 'none'}"
        )
    if short := [n for n, row in enumerate(rows, 2) if any(row[name] is None for name in wanted)]:
        raise click.ClickException(f"{path}: row {short[0]} has fewer cells than the first line")
    numbers = [[_number(path, name, row[name]) for name in auxiliary] for row in rows]
    return SourceTable(
        [_text(path, row[source]) for row in rows],
        [row[label] for row in rows],
        numbers if auxiliary else None,
        [row[group] for row in rows] if group else None,
    )


def _number(path: Path, name: str, cell: str) -> float:
    try:
        return float(cell)
    except ValueError as error:
        raise click.ClickException(f"{path}: {cell!r} in column {name} is no number") from error


def _text(path: Path, cell: str) -> str:
    if "\n" in cell or not cell.endswith((".cl", ".c", ".cu")):
        return cell
    try:
        return (path.parent / cell).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(
            f"{path} names {cell}, which cannot be read: {error}"
        ) from error
