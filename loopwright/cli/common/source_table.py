"""Tables of sources and labels, as `loopwright model train --table` reads them."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
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
    .cl, .c or .cu. Raises `click.ClickException` for columns, cells or files that are missing.
    """
    wanted = [source, label, *auxiliary, *([group] if group else [])]
    rows = _rows(path, wanted)
    if not rows:
        raise click.ClickException(f"{path} has no row below its first line")
    for number, row in enumerate(rows, 2):
        if None in row:
            raise click.ClickException(
                f"{path}: row {number} has more cells than the first line: write texts with "
                'commas in quotation marks, "…"'
            )
        if any(row[name] is None for name in wanted):
            raise click.ClickException(f"{path}: row {number} has fewer cells than the first line")
        if not row[label]:
            raise click.ClickException(f"{path}: row {number} has no {label}")
    places = [f"{path}: row {number}" for number in range(2, 2 + len(rows))]
    numbers = [
        [_number(place, name, row[name]) for name in auxiliary] for place, row in zip(places, rows)
    ]
    return SourceTable(
        [_text(path.parent, place, row[source]) for place, row in zip(places, rows)],
        [row[label] for row in rows],
        numbers if auxiliary else None,
        [row[group] for row in rows] if group else None,
    )


def _rows(path: Path, wanted: Sequence[str]) -> list[dict[str, str]]:
    """Rows of a table that has each wanted column once."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            rows, columns = list(reader), reader.fieldnames or []
    except csv.Error as error:
        raise click.ClickException(
            f"cannot read the table {path}: {error}; a long text may be a file beside it, of "
            "which the cell has the name"
        ) from error
    except (EOFError, OSError, UnicodeDecodeError, zlib.error) as error:
        raise click.ClickException(f"cannot read the table {path}: {error}") from error
    if missing := [name for name in wanted if name not in columns]:
        raise click.ClickException(
            f"{path} has no column {', '.join(missing)}; there are {', '.join(columns) or 'none'}"
        )
    if twice := [name for name in wanted if columns.count(name) > 1]:
        raise click.ClickException(f"{path} has several columns {twice[0]}: rename all but one")
    return rows


def _number(place: str, name: str, cell: str) -> float:
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise click.ClickException(f"{place}: {cell!r} in column {name} is no finite number")
    return number


def _text(folder: Path, place: str, cell: str) -> str:
    if "\n" in cell or not cell.endswith((".cl", ".c", ".cu")):
        return cell
    try:
        return (folder / cell).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(
            f"{place} names {cell}, which cannot be read: {error}"
        ) from error
