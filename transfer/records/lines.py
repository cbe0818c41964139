"""Records as JSON lines: to look at, to send, to put under version control."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from loopwright.dsl.errors import LoopwrightError
from loopwright.transfer.records.record import Record, RecordError


def write_lines(path: str | os.PathLike[str], records: Iterable[Record]) -> int:
    """Write one JSON object per record; their number. The file takes its name when it is
    complete, and an older one stays if anything fails."""
    path = Path(path)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    number = 0
    try:
        with open(partial, "w", encoding="utf-8") as file:
            for record in records:
                text = json.dumps(record.to_json(), allow_nan=False, separators=(",", ":"))
                file.write(f"{text}\n")
                number += 1
        partial.replace(path)
    except OSError as error:
        raise RecordError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)
    return number


def read_lines(path: str | os.PathLike[str], skipped: list[str] | None = None) -> Iterator[Record]:
    """The records of a file; empty lines are nothing.

    Raises `RecordError` for a damaged line, and names it; where there is a list `skipped`, the
    problem is put there instead.
    """
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    if line.strip():
                        yield Record.from_json(json.loads(line))
                except (LoopwrightError, ValueError, RecursionError) as error:
                    if skipped is None:
                        raise RecordError(
                            f"{path}, line {number}: {error}; nothing was imported: mend the "
                            "file, or skip damaged lines"
                        ) from error
                    skipped.append(f"line {number}: {error}")
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}") from error
