"""Records as JSON lines: to look at, to send, to put under version control.

Every line ends with a checksum of its other fields. It is that of their values, so that spaces and
the order of fields do not matter.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from loopwright.dsl.errors import LoopwrightError
from loopwright.dsl.words import counted
from loopwright.paths import file_at, whole_file, why
from loopwright.transfer.records.record import Record, RecordError

_FIELD = "checksum"


def to_line(record: Record) -> str:
    """A record as one line of JSON, with its checksum."""
    data = record.to_json()
    data[_FIELD] = _checksum(data)
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def _checksum(data: dict[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_lines(path: str | os.PathLike[str], records: Iterable[Record]) -> int:
    """Write one JSON object per record, all or nothing; their number."""
    number = 0
    with (
        whole_file(path, "the file of records", RecordError) as new,
        open(new, "w", encoding="utf-8") as file,
    ):
        for record in records:
            file.write(f"{to_line(record)}\n")
            number += 1
    return number


def read_lines(path: str | os.PathLike[str], skipped: list[str] | None = None) -> Iterator[Record]:
    """The records of a file; empty lines are nothing.

    Raises `RecordError` for a damaged line, and names it; where there is a list `skipped`, the
    problem is put there instead. Lines without a checksum, as older versions wrote them, are read
    with one warning for the file.
    """
    unchecked = 0
    path = file_at(path, "the file of records", RecordError)
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    if line.strip():
                        record, checked = _read(json.loads(line))
                        unchecked += not checked
                        yield record
                except (LoopwrightError, ValueError, RecursionError) as error:
                    if skipped is None:
                        raise RecordError(
                            f"{path}, line {number}: {error}; nothing was imported: mend the "
                            "file, or skip damaged lines"
                        ) from error
                    skipped.append(f"line {number}: {error}")
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {why(error)}") from error
    if unchecked:
        warnings.warn(
            f"{path}: {counted(unchecked, 'line')} without a checksum, of an older version: "
            "damage to numbers would not be noticed; export them anew",
            stacklevel=2,
        )


def _read(data: object) -> tuple[Record, bool]:
    """The record of a line, and whether it has a checksum. Raises `RecordError`."""
    claimed = data.pop(_FIELD, None) if isinstance(data, dict) else None
    record = Record.from_json(data)
    if isinstance(data, dict) and claimed not in (None, _checksum(data)):
        raise RecordError(
            "its checksum is not that of its content, so it was damaged or changed; a line that "
            f"was changed on purpose is read without its field {_FIELD}"
        )
    return record, claimed is not None
