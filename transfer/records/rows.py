"""Records as rows of the view `measured`, and back."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from loopwright.dsl.errors import ConfigError
from loopwright.measure.device import Failure
from loopwright.schedule.sketch.sketch import Config
from loopwright.transfer.records.lookup import Setting
from loopwright.transfer.records.record import Record, RecordError, canonical, mapping
from loopwright.transfer.records.schema import COLUMNS, digest

Row = tuple[Any, ...]

INSERT = f"INSERT INTO measured ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
SELECT = f"SELECT id, {', '.join(COLUMNS[1:])} FROM measured"


def config_text(config: Config) -> str:
    """A config as the column `config` has it; the knobs keep the order of their sketch."""
    return json.dumps(config.to_json(), separators=(",", ":"))


def to_config(text: str) -> Config:
    """Read what `config_text` wrote. Raises `RecordError` for anything else."""
    try:
        return Config.from_json(json.loads(text))
    except (ConfigError, ValueError, RecursionError) as error:
        raise RecordError(f"damaged: {error}") from error


def to_row(r: Record) -> Row:
    """The columns `COLUMNS` of a record."""
    f = r.failure
    where = (r.workload_key, r.workload, r.target, canonical(r.machine), r.threads)
    seconds = json.dumps(list(map(float, r.seconds)))
    result = (config_text(r.config), r.numerics, seconds)
    rest = (
        *((f.kind, f.message, f.traceback) if f else (None, None, None)),
        r.cache,
        float(r.build_seconds),
        float(r.run_seconds),
        "" if r.seed is None else str(r.seed),
        r.session,
        canonical(r.versions),
        float(r.created),
    )
    cost = None if r.failure else r.cost
    name = digest(*where, *result, *rest)
    return (name, *where, *result, cost, *rest)


def to_record(row: Sequence[Any]) -> Record:
    """The record of a row that `SELECT` gave. Raises `RecordError` for values that no version of
    Loopwright wrote."""
    columns = dict(zip(COLUMNS[1:], row[1:], strict=True))
    try:
        return _record(row[0], columns)
    except (RecordError, TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"record {row[0]} is damaged: {error}") from error


def to_setting(row: Sequence[Any]) -> Setting:
    """The setting of a row with its attributes. Raises `RecordError` for a damaged fingerprint."""
    number, key, workload, target, machine, *rest = row
    try:
        return Setting(number, key, workload, target, mapping(json.loads(machine)), *rest)
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"a fingerprint is damaged: {error}") from error


def _record(number: int, c: Mapping[str, Any]) -> Record:
    kind = c["failure"]
    return Record(
        workload_key=c["workload_key"],
        workload=sys.intern(c["workload"]),
        target=c["target"],
        machine=json.loads(c["machine"]),
        threads=c["threads"],
        config=to_config(c["config"]),
        numerics=c["numerics"],
        seconds=tuple(json.loads(c["seconds"])),
        failure=None if kind is None else Failure(kind, c["message"], c["traceback"]),
        cache=c["cache"],
        build_seconds=c["build_seconds"],
        run_seconds=c["run_seconds"],
        seed=int(c["seed"]) if c["seed"] else None,
        session=c["session"],
        versions=json.loads(c["versions"]),
        created=c["created"],
        id=number,
    )
