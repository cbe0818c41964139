"""Schema of records in a SQLite file, and the steps from each earlier form to this one.

What is long and repeats (workloads, targets, fingerprints, versions) is stored once, in `texts`.
The view `measured` puts the parts together again, a row per record; a row inserted into the view
is taken apart by its trigger. So everybody who has `sqlite3` can read a store:

    sqlite3 tuning.db 'select id, cost, config from measured order by cost limit 5'
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.numerics import Numerics
from loopwright.schedule.sketch.naming import Derivation
from loopwright.transfer.records import upgrade
from loopwright.transfer.records.record import SCHEMA, RecordError, check_schema

VERSIONS = "loopwright_schema"
"""The table of the schemas that a file has had; a file without it is not a store."""

COLUMNS = (
    "digest", "workload_key", "workload", "target", "machine", "threads", "config", "numerics",
    "seconds", "cost", "failure", "message", "traceback", "cache", "build_seconds", "run_seconds",
    "seed", "session", "versions", "created",
)  # fmt: skip
"""Columns of the view `measured` beside its id. `digest` names the content; `machine`,
`config`, `seconds` and `versions` are JSON; `cost` is null, and the three texts of a failure are
not, where the record failed; `seed` is text, as seeds may have more than 64 bits, or empty."""

Step = Callable[[sqlite3.Connection], None]


def digest(*columns: object) -> bytes:
    """16 bytes that name a record's content: the columns from `workload_key` on, but for the cost,
    which follows from them."""
    return hashlib.sha256(json.dumps(columns).encode()).digest()[:16]


def schema_of(connection: sqlite3.Connection) -> int | None:
    """The schema of an open file; None if it is empty. Raises `RecordError` for a foreign one."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if not tables:
        return None
    if VERSIONS not in tables:
        raise RecordError(
            f"it is a SQLite file of another program, with {', '.join(sorted(tables)[:4])}; "
            "give the path of a record store, or of a new file"
        )
    (version,) = connection.execute(f"SELECT max(version) FROM {VERSIONS}").fetchone()
    check_schema(version, "the record store")
    return int(version)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a file up to `SCHEMA` in one transaction; does nothing if it is there already.

    Raises `RecordError` for a newer schema and for a foreign file, which stay as they are.
    """
    if schema_of(connection) == SCHEMA:
        return
    try:
        connection.execute("BEGIN IMMEDIATE")
        found = schema_of(connection)  # another process may have been faster
        for version in range(0 if found is None else found + 1, SCHEMA + 1):
            STEPS[version](connection)
            connection.execute(f"INSERT INTO {VERSIONS} VALUES (?, ?)", (version, time.time()))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite itself undoes some, on a full disk say
            connection.execute("ROLLBACK")
        raise


def _flat(connection: sqlite3.Connection) -> None:
    """Schema 0, of an empty file: one table, all of a record in its row."""
    connection.execute(f"CREATE TABLE {VERSIONS} (version INTEGER NOT NULL, applied REAL)")
    connection.execute(
        """CREATE TABLE records (
            id INTEGER PRIMARY KEY, workload_key TEXT NOT NULL, workload TEXT NOT NULL,
            target TEXT NOT NULL, machine TEXT NOT NULL, threads INTEGER NOT NULL,
            config TEXT NOT NULL, seconds TEXT NOT NULL, cost REAL, failure TEXT, message TEXT,
            traceback TEXT, cache TEXT NOT NULL, build_seconds REAL NOT NULL,
            run_seconds REAL NOT NULL, seed TEXT NOT NULL, session TEXT NOT NULL,
            versions TEXT NOT NULL, created REAL NOT NULL)"""
    )


_TABLES = """
CREATE TABLE texts (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);

CREATE TABLE settings (
    id INTEGER PRIMARY KEY, workload_key TEXT NOT NULL,
    workload INTEGER NOT NULL REFERENCES texts, target INTEGER NOT NULL REFERENCES texts,
    machine INTEGER NOT NULL REFERENCES texts, threads INTEGER NOT NULL,
    UNIQUE (workload_key, workload, target, machine, threads));

CREATE TABLE sessions (
    id INTEGER PRIMARY KEY, session TEXT NOT NULL, seed TEXT NOT NULL,
    versions INTEGER NOT NULL REFERENCES texts,
    UNIQUE (session, seed, versions));

CREATE TABLE records (
    id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE,
    setting INTEGER NOT NULL REFERENCES settings, session INTEGER NOT NULL REFERENCES sessions,
    config TEXT NOT NULL, seconds TEXT NOT NULL, cost REAL,
    failure TEXT, message TEXT, traceback TEXT, cache TEXT NOT NULL,
    build_seconds REAL NOT NULL, run_seconds REAL NOT NULL, created REAL NOT NULL);

CREATE INDEX records_by_cost ON records (setting, cost);

CREATE VIEW measured AS SELECT
    r.id, r.setting, r.digest, s.workload_key, w.text AS workload, t.text AS target,
    m.text AS machine, s.threads, r.config, r.seconds, r.cost, r.failure, r.message, r.traceback,
    r.cache, r.build_seconds, r.run_seconds, e.seed, e.session, v.text AS versions, r.created
    FROM records r JOIN settings s ON s.id = r.setting JOIN sessions e ON e.id = r.session
    JOIN texts w ON w.id = s.workload JOIN texts t ON t.id = s.target
    JOIN texts m ON m.id = s.machine JOIN texts v ON v.id = e.versions;
"""

_TRIGGER = """
CREATE TRIGGER measured_insert INSTEAD OF INSERT ON measured BEGIN
    INSERT OR IGNORE INTO texts (text)
        VALUES (new.workload), (new.target), (new.machine), (new.versions);
    INSERT OR IGNORE INTO settings (workload_key, workload, target, machine, threads)
        SELECT new.workload_key, w.id, t.id, m.id, new.threads FROM texts w, texts t, texts m
        WHERE w.text = new.workload AND t.text = new.target AND m.text = new.machine;
    INSERT OR IGNORE INTO sessions (session, seed, versions)
        SELECT new.session, new.seed, v.id FROM texts v WHERE v.text = new.versions;
    INSERT OR IGNORE INTO records (
        id, digest, setting, session, config, seconds, cost, failure, message, traceback, cache,
        build_seconds, run_seconds, created)
        SELECT new.id, new.digest, s.id, e.id, new.config, new.seconds, new.cost, new.failure,
            new.message, new.traceback, new.cache, new.build_seconds, new.run_seconds, new.created
        FROM settings s, sessions e, texts w, texts t, texts m, texts v
        WHERE w.text = new.workload AND t.text = new.target AND m.text = new.machine
            AND v.text = new.versions AND s.workload_key = new.workload_key
            AND s.workload = w.id AND s.target = t.id AND s.machine = m.id
            AND s.threads = new.threads AND e.session = new.session AND e.seed = new.seed
            AND e.versions = v.id;
END
"""

_FIRST = tuple(c for c in COLUMNS if c != "numerics")
"""The columns of schema 1."""

_MOVE = f"""
INSERT INTO measured (id, {", ".join(_FIRST)})
    SELECT id, digest({", ".join(c for c in _FIRST if c not in ("digest", "cost"))}),
        {", ".join(_FIRST[1:])} FROM flat
"""


def _normalized(connection: sqlite3.Connection) -> None:
    """Schema 1: what repeats is stored once, and every record has its digest."""
    connection.create_function("digest", -1, digest, deterministic=True)
    connection.execute("ALTER TABLE records RENAME TO flat")
    for statement in (*_TABLES.strip().split(";\n\n"), _TRIGGER, _MOVE):
        connection.execute(statement)
    connection.execute("DROP TABLE flat")


def _derived(connection: sqlite3.Connection) -> None:
    """Schema 2: configs name the rewrites that derive their programs, and every record says its
    numerics."""
    connection.create_function("digest", -1, digest, deterministic=True)
    connection.create_function("upgraded", 1, _upgraded, deterministic=True)
    connection.create_function("numerics_of", 1, _numerics_of, deterministic=True)
    connection.execute("DROP VIEW measured")  # and its trigger
    connection.execute("ALTER TABLE records ADD COLUMN numerics TEXT NOT NULL DEFAULT 'strict'")
    connection.execute("UPDATE records SET config = upgraded(config)")
    connection.execute("UPDATE records SET numerics = numerics_of(config)")
    view = next(s for s in _TABLES.split(";\n\n") if s.startswith("CREATE VIEW"))
    columns = ("r.config, r.seconds", "r.config, r.numerics, r.seconds")
    connection.execute(view.replace(*columns))
    trigger = _TRIGGER.replace("config, seconds, cost", "config, numerics, seconds, cost")
    trigger = trigger.replace("new.config, new.seconds", "new.config, new.numerics, new.seconds")
    connection.execute(trigger)
    content = ", ".join(c for c in COLUMNS if c not in ("digest", "cost"))
    connection.execute(
        f"""UPDATE records SET digest =
            (SELECT digest({content}) FROM measured m WHERE m.id = records.id)"""
    )


def _upgraded(config: str) -> str:
    """The text of a config of schema 1 in today's form; a damaged one stays as it is."""
    try:
        return json.dumps(upgrade.config_json(json.loads(config)), separators=(",", ":"))
    except (ConfigError, ValueError, RecursionError):
        return config


def _numerics_of(config: str) -> str:
    try:
        return str(upgrade.numerics_of(Derivation.from_json(json.loads(config)["derivation"])))
    except (ConfigError, ValueError, KeyError, TypeError, RecursionError):
        return str(Numerics.STRICT)


STEPS: tuple[Step, ...] = (_flat, _normalized, _derived)
"""`STEPS[n]` takes a file from schema n - 1 to n; the first, from an empty file."""
