"""Logs of AutoTVM, version 0.2, as plain rows for analyses. Nothing in them is executed."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections import Counter
from dataclasses import dataclass
from typing import Any

from loopwright.paths import file_at, why
from loopwright.transfer.records.record import RecordError

VERSION = 0.2

ERRORS = ("none", "instantiation", "compile host", "compile device", "runtime device",
          "wrong answer", "build timeout", "run timeout", "unknown")  # fmt: skip
"""Meaning of AutoTVM's error numbers."""


@dataclass(frozen=True)
class Row:
    """One line: a template with arguments, a config of it, and what measuring it gave.

    Attributes
    ----------
    target: TVM's text for it.
    task: the name of the template.
    args: its arguments, as JSON has them: `["TENSOR", shape, dtype]` for a tensor.
    index: the config's number in the space of the template.
    entity: the config, (knob, kind, value): kind "sp" has the sizes of a split, of which -1 is
        what the others leave; "re" an order; "an" annotations; "ot" a plain value.
    costs: seconds, one for every repetition; empty where it failed.
    error: one of `ERRORS`.
    seconds_spent: on building and measuring it.
    timestamp: when it ended, in seconds since 1970.
    tvm: the version of TVM, empty if the line does not say.
    """

    target: str
    task: str
    args: tuple[Any, ...]
    index: int
    entity: tuple[tuple[str, str, Any], ...]
    costs: tuple[float, ...]
    error: str
    seconds_spent: float
    timestamp: float
    tvm: str

    @property
    def cost(self) -> float:
        """The median of the costs in seconds, infinite for a failure."""
        return statistics.median(self.costs) if self.costs else math.inf


@dataclass(frozen=True)
class Log:
    """The rows of a file, and why other lines were skipped: reasons with their counts."""

    rows: tuple[Row, ...]
    skipped: Counter[str]


def import_autotvm(path: str | os.PathLike[str]) -> Log:
    """Read a log; damaged lines and those of other versions are skipped and counted.

    Raises `RecordError` if the file cannot be read.
    """
    rows: list[Row] = []
    skipped: Counter[str] = Counter()
    path = file_at(path, "the log", RecordError)
    try:
        with open(path, "rb") as file:
            for line in filter(bytes.strip, file):
                try:
                    rows.append(_row(line))
                except RecordError as reason:
                    skipped[str(reason)] += 1
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {why(error)}") from error
    return Log(tuple(rows), skipped)


def _row(line: bytes) -> Row:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RecordError("not JSON") from error
    if not isinstance(data, dict) or not {"input", "config", "result"} <= data.keys():
        raise RecordError("not a line of AutoTVM")
    if data.get("version") != VERSION:
        raise RecordError(f"version {data.get('version')}")
    try:
        return _parsed(data)
    except (KeyError, TypeError, ValueError, OverflowError, IndexError, AttributeError) as error:
        raise RecordError("a field is missing or of another type") from error


def _parsed(data: dict[str, Any]) -> Row:
    target, task, args = data["input"][:3]
    config = data["config"]
    costs, error, spent, timestamp = data["result"]
    return Row(
        target=_text(target),
        task=_text(task),
        args=tuple(args),
        index=int(config["index"]),
        entity=tuple((_text(n), _text(kind), value) for n, kind, value in config["entity"]),
        costs=() if error else tuple(map(_seconds, costs)),
        error=ERRORS[error] if 0 <= error < len(ERRORS) else f"error {error}",
        seconds_spent=_seconds(spent),
        timestamp=float(timestamp),
        tvm=str(data.get("tvm_version", "")),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is not a time")
    return float(value)
