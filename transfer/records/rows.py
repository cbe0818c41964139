"""Records as rows of a table, and back."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from loopwright.dsl.errors import ConfigError
from loopwright.measure.device import Failure
from loopwright.schedule.sketch.sketch import Config
from loopwright.transfer.records.lookup import Setting
from loopwright.transfer.records.record import Record, RecordError, canonical, mapping

COLUMNS = (
    "digest", "workload_key", "workload", "target", "machine", "threads", "config", "numerics",
    "seconds", "cost", "failure", "message", "traceback", "cache", "build_seconds", "run_seconds",
    "seed", "session", "versions", "created", "facts",
)  # fmt: skip
"""Columns of a record. `digest` names the content; `machine`, `config`, `seconds`, `versions` and
`facts` are JSON; `cost` is null, and the three texts of a failure are not, where the record
failed; `seed` is text, as seeds may have more than 64 bits, or empty; `facts` is null where there
are none."""

_FOLLOWS = ("digest", "cost", "facts")
"""Columns that are no part of what the digest names: they follow from the others, and the code
from the config, the target and the versions."""

_SAME = ("workload_key", "target", "threads", "numerics", "cache", "session")
_SECONDS = ("build_seconds", "run_seconds", "created")

Row = Mapping[str, Any]
"""Values of `COLUMNS`."""


def digest(*values: object) -> bytes:
    """16 bytes that name a content: of a record, its columns from `workload_key` on, but for
    those that follow from them."""
    return hashlib.sha256(json.dumps(values).encode()).digest()[:16]


def to_config(text: str) -> Config:
    """Read the column `config`, where knobs are in their sketch's order. Raises `RecordError`."""
    try:
        return Config.from_json(json.loads(text))
    except (ConfigError, ValueError, RecursionError) as error:
        raise RecordError(f"damaged: {error}") from error


def to_row(r: Record) -> Row:
    """A record as a row."""
    f = r.failure
    content = {
        **{name: getattr(r, name) for name in _SAME},
        **{name: float(getattr(r, name)) for name in _SECONDS},
        "workload": r.workload,
        "machine": canonical(r.machine),
        "config": json.dumps(r.config.to_json(), separators=(",", ":")),
        "seconds": json.dumps(list(map(float, r.seconds))),
        "failure": f and f.kind,
        "message": f and f.message,
        "traceback": f and f.traceback,
        "seed": "" if r.seed is None else str(r.seed),
        "versions": canonical(r.versions),
        "facts": json.dumps(dict(r.facts), separators=(",", ":")) if r.facts else None,
    }
    return with_digest({**content, "cost": None if f else r.cost})


def with_digest(row: Row) -> Row:
    """A row with the digest of its other columns."""
    content = (row[name] for name in COLUMNS if name not in _FOLLOWS)
    return {**row, "digest": digest(*content)}


def to_record(row: Row) -> Record:
    """The record of a row, with its `id`. Raises `RecordError` for damaged values."""
    try:
        return _record(row)
    except (RecordError, TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"record {row['id']} is damaged: {error}") from error


def to_setting(row: Sequence[Any]) -> Setting:
    """The setting of a row with its attributes. Raises `RecordError` for a damaged fingerprint."""
    number, key, workload, target, machine, *rest = row
    try:
        return Setting(number, key, workload, target, mapping(json.loads(machine)), *rest)
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"a fingerprint is damaged: {error}") from error


def _record(c: Row) -> Record:
    kind = c["failure"]
    return Record(
        **{name: c[name] for name in (*_SAME, *_SECONDS, "id")},
        workload=sys.intern(c["workload"]),
        machine=json.loads(c["machine"]),
        config=to_config(c["config"]),
        seconds=tuple(json.loads(c["seconds"])),
        failure=None if kind is None else Failure(kind, c["message"], c["traceback"]),
        seed=int(c["seed"]) if c["seed"] else None,
        versions=json.loads(c["versions"]),
        facts=json.loads(c["facts"] or "{}"),
    )
