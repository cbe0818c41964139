"""Model files: JSON with a small header.

The checksum in it is compared before anything reads what is inside, since xgboost ends the whole
process, rather than raise, when it meets trees that make no sense.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from loopwright.costmodel.model import ModelError

_FORMAT, _SCHEMA = "loopwright cost model", 1


def write_model(path: Path, kind: str, content: dict[str, Any]) -> None:
    """Write a model's content, whole or not at all; `kind` says which class reads it."""
    text = json.dumps(content)
    header = {"format": _FORMAT, "schema": _SCHEMA, "kind": kind, "sha256": _digest(text)}
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_text(json.dumps({**header, "content": text}))
    os.replace(new, path)


def read_model(path: Path, kind: str) -> dict[str, Any]:
    """What `write_model` wrote for this kind; `ModelError` for anything else."""
    try:
        data = json.loads(path.read_text())
        if data["format"] != _FORMAT or data["schema"] != _SCHEMA:
            raise ModelError(
                f"{path} is of format {data['format']!r}, schema {data['schema']}; this version "
                f"reads {_FORMAT!r}, schema {_SCHEMA}: train and save the model again"
            )
        if data["kind"] != kind:
            raise ModelError(f"{path} holds a model of kind {data['kind']!r}, not {kind!r}")
        if data["sha256"] != _digest(data["content"]):
            raise ModelError(f"{path} is damaged (its checksum is wrong): get or save it again")
        content: dict[str, Any] = json.loads(data["content"])
        return content
    except OSError as error:
        raise ModelError(f"cannot read the model {path}: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"{path} is no model file, or cut short: {error!r}") from error


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
