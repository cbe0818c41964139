"""SQLite files as earlier versions of Loopwright made them, and as none would."""

import json
import sqlite3

from loopwright.transfer.records import rows
from loopwright.transfer.records.sql.schema import VERSIONS

FLAT = """
CREATE TABLE records (
    id INTEGER PRIMARY KEY, workload_key TEXT NOT NULL, workload TEXT NOT NULL,
    target TEXT NOT NULL, machine TEXT NOT NULL, threads INTEGER NOT NULL,
    config TEXT NOT NULL, seconds TEXT NOT NULL, cost REAL, failure TEXT, message TEXT,
    traceback TEXT, cache TEXT NOT NULL, build_seconds REAL NOT NULL,
    run_seconds REAL NOT NULL, seed TEXT NOT NULL, session TEXT NOT NULL,
    versions TEXT NOT NULL, created REAL NOT NULL)
"""

NORMALIZED = """
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

TRIGGER = """
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


def execute(path, statement, *values):
    """Do to a file what no version of Loopwright does."""
    connection = sqlite3.connect(path)
    connection.execute(statement, values)
    connection.commit()
    connection.close()


def write(path, layout, made, first_config):
    """Write a file of layout 0, 1 or 2 with some records; in 0 and 1, `first_config` has the JSON
    of their configs."""
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE {VERSIONS} (version INTEGER NOT NULL, applied REAL)")
    connection.executemany(
        f"INSERT INTO {VERSIONS} VALUES (?, 0.0)", [(n,) for n in range(layout + 1)]
    )
    connection.executescript((FLAT, NORMALIZED + TRIGGER, _second())[layout])
    for r in made:
        row = {name: value for name, value in rows.to_row(r).items() if name != "facts"}
        if layout < 2:
            text = json.dumps(first_config(r), separators=(",", ":"))
            row = {name: row[name] for name in rows.COLUMNS if name in row and name != "numerics"}
            row["config"] = text
            content = (v for name, v in row.items() if name not in ("digest", "cost"))
            row["digest"] = rows.digest(*content)
        if layout == 0:
            del row["digest"]
        into = "measured" if layout else "records"
        marks = ", ".join("?" * len(row))
        connection.execute(
            f"INSERT INTO {into} ({', '.join(row)}) VALUES ({marks})", tuple(row.values())
        )
    connection.commit()
    connection.close()


def _second():
    """The statements of layout 2 for a new file, whose records have a column more."""
    tables = NORMALIZED.replace("cache TEXT NOT NULL,", "cache TEXT NOT NULL, numerics TEXT,")
    tables = tables.replace("r.config, r.seconds", "r.config, r.numerics, r.seconds")
    trigger = TRIGGER.replace("config, seconds, cost", "config, numerics, seconds, cost")
    return tables + trigger.replace(
        "new.config, new.seconds", "new.config, new.numerics, new.seconds"
    )
