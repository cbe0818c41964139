"""Results in files of JSON lines, so that a benchmark that was interrupted goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def lines(path: Path) -> list[Any]:
    """Values of a file, none if it does not exist. A line that was cut short is left out."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def add(path: Path, value: Any) -> None:
    """Append a line."""
    with path.open("a") as file:
        file.write(json.dumps(value) + "\n")


class Kept(dict[str, Any]):
    """Results by name. Each becomes a line of a file as soon as it is there."""

    def __init__(self, path: Path) -> None:
        super().__init__(lines(path))
        self._path = path

    def __setitem__(self, name: str, result: Any) -> None:
        super().__setitem__(name, result)
        add(self._path, [name, result])
