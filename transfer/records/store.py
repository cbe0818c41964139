"""`RecordStore`: everything ever measured, the paper's D = {(e, s, c)}, in one file."""

from __future__ import annotations

import itertools
import math
import os
import statistics
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from loopwright.dsl.workload import Workload
from loopwright.paths import file_at
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target
from loopwright.transfer.records import rows
from loopwright.transfer.records.database import Database
from loopwright.transfer.records.explain import explain
from loopwright.transfer.records.lines import read_lines, write_lines
from loopwright.transfer.records.lookup import Query, Setting, choose, comparable, hardware
from loopwright.transfer.records.record import (
    CACHES,
    CHOSEN,
    FINALS,
    NETWORK,
    NEVER,
    Record,
    RecordError,
    canonical,
)

__all__ = ["Record", "RecordError", "RecordStore", "Setting"]

_PAGE = 1024
"""Records read or written at once: a lock is never held for long."""


class RecordStore:
    """A SQLite file of records, which are only ever added.

    Its life: made with a path, it opens the file when first used; `add` has stored a batch for
    good when it returns; `close`, or leaving its `with` block, frees the file, and the next use
    opens it again. Threads may share a store, processes may share a file, whether they were
    forked or not, and readers never wait for writers. Equal records are stored once.

    Every method raises `RecordError` for a file that is missing, foreign, damaged or of a newer
    schema, and says what to do; an older schema is brought up to date when the file is opened.
    """

    def __init__(self, path: str | os.PathLike[str] = "tuning.db", create: bool = True) -> None:
        """`create` makes the file where there is none, when it is first used. Raises `RecordError`
        for a path that no file can have."""
        if os.fspath(path) in ("", ":memory:"):
            raise RecordError(f"{path!r} is not a file: give the path of a record store")
        file_at(path, "the record store", RecordError, exists=False)
        self._database = Database(path, create)
        self.path = self._database.path

    def __repr__(self) -> str:
        return f"<RecordStore {self.path}>"

    def add(self, records: Iterable[Record]) -> tuple[int, ...]:
        """Store records, all or none; their ids, in order. A record that is in the store already
        keeps its id. Once this returns, no crash of the process loses them."""
        return self._add(records)[0]

    def get(self, number: int) -> Record:
        """The record of an id. Raises `RecordError` if there is none."""
        found = self._database.read(f"{rows.SELECT} WHERE id = ?", (number,))
        if not found:
            hint = f"`loopwright records list --records {self.path}` shows them"
            raise RecordError(f"{self.path} has no record {number}; {hint}")
        return self._record(found[0])

    def query(
        self,
        workload_key: str | None = None,
        target: Target | str | None = None,
        machine: Mapping[str, str] | None = None,
        threads: int | None = None,
        *,
        session: str | None = None,
        failed: bool | None = None,
        newest: bool = False,
    ) -> Iterator[Record]:
        """Records that agree with everything given, by id, or `newest` first.

        They are read as they are consumed, those added meanwhile included; `failed` chooses
        those without a cost, or with one.
        """
        given = {
            "workload_key": workload_key,
            "target": None if target is None else str(target),
            "machine": None if machine is None else canonical(machine),
            "threads": threads,
            "session": session,
            "(cost IS NULL)": failed,
        }
        return self._pages({name: v for name, v in given.items() if v is not None}, newest)

    def __iter__(self) -> Iterator[Record]:
        return self.query()

    def __len__(self) -> int:
        return int(self._database.read("SELECT count(*) FROM records")[0][0])

    def settings(self) -> tuple[Setting, ...]:
        """The workloads and places of which there are records, with their numbers."""
        found = self._database.read(
            """SELECT s.id, s.workload_key, w.text, t.text, m.text, s.threads,
                count(r.cost), count(*) - count(r.cost)
            FROM settings s JOIN records r ON r.setting = s.id JOIN texts w ON w.id = s.workload
                JOIN texts t ON t.id = s.target JOIN texts m ON m.id = s.machine
            GROUP BY s.id ORDER BY s.id"""
        )
        with self._database.explained():
            return tuple(map(rows.to_setting, found))

    def best(
        self,
        workload: Workload | str,
        target: Target | str,
        policy: str = "exact",
        *,
        machine: Mapping[str, str] | None = None,
        threads: int | None = None,
        cache: str | None = None,
        besides: Mapping[str, str] | None = None,
        among: Container[Config] | None = None,
    ) -> Record | None:
        """A record of the fastest config for a workload (or its key), or None.

        Of the settings that `policy` allows (see `lookup.POLICIES`), the nearest that has costs
        decides. There, what was measured before the last comparison at the end of a search does
        not count, since the best of it was in that comparison, and costs of other times say less;
        but for an earlier comparison whose best was in none of the later ones, that of another
        store, say, which has been merged with this one.
        Of a comparison that names its winner (see `CHOSEN`) that one alone counts: the others were
        slower, or tied with it. The fastest config is that with the lowest median over its
        records, so a lucky record does not beat the later ones of the same config. A config that
        ever gave wrong results, or crashed, is never the best. `threads` are the target's if not
        given; `cache` limits
        the choice to such times; if it is None, times inside of a network are left out. Records
        of the machine `besides` are left out, and so are configs that are not `among` those given:
        a space, say, since one of another version's may not be there any more.
        """
        if cache not in (None, *CACHES):
            raise RecordError(f"cache = {cache!r}: use one of {CACHES}, or None for both")
        wanted = _wanted(workload, target, machine, threads, policy)
        here = None if besides is None else hardware(besides)
        groups = choose((s for s in self.settings() if s.hardware != here), wanted)
        return next(filter(None, (self._best_of(g, cache, among) for g in groups)), None)

    def best_of_each(self) -> Iterator[Record]:
        """The best record of every workload, target, machine and number of threads, and after it
        what was the best inside of a network."""
        groups = comparable(self.settings())
        return filter(None, (self._best_of(g, cache) for g in groups for cache in (None, NETWORK)))

    def explain_miss(
        self,
        workload: Workload,
        target: Target | str,
        policy: str = "exact",
        *,
        machine: Mapping[str, str] | None = None,
        threads: int | None = None,
    ) -> str:
        """Explanation of why `best` finds nothing: the nearest records, and the fields in which
        they differ."""
        if self.best(workload, target, policy, machine=machine, threads=threads) is not None:
            return f"{self.path} has records of {workload.key} that serve: this is no miss."
        wanted = _wanted(workload, target, machine, threads, policy)
        return explain(self.settings(), wanted, workload.to_json(), str(self.path))

    def measured(
        self,
        workload: Workload | str,
        target: Target | str,
        machine: Mapping[str, str],
        threads: int | None = None,
        cache: str = "warm",
    ) -> dict[Config, float]:
        """The configs that have been measured, with their last cost in seconds, infinite for a
        failure; in the order in which they were first measured."""
        wanted = _wanted(workload, target, machine, threads, "exact")
        ids, marks = _ids(s for s in self.settings() if wanted.allows(s))
        found = self._database.read(
            f"""SELECT config, cost FROM records
            WHERE setting IN ({marks}) AND cache = ? ORDER BY id""",
            (*ids, cache),
        )
        with self._database.explained():
            return {rows.to_config(text): math.inf if c is None else c for text, c in found}

    def export_lines(
        self, path: str | os.PathLike[str], records: Iterable[Record] | None = None
    ) -> int:
        """Write records (all of them, if not given) as JSON lines; their number.

        The file is complete or not there: it takes its name when all is written.
        """
        return write_lines(path, self if records is None else records)

    def import_lines(
        self, path: str | os.PathLike[str], skip_damaged: bool = False
    ) -> tuple[int, list[str]]:
        """Add the records of a file of JSON lines: how many are new, and what was skipped.

        All are added or none. A damaged line is a `RecordError`; with `skip_damaged` its number
        and problem are in the list instead.
        """
        skipped: list[str] = []
        _, new = self._add(list(read_lines(path, skipped if skip_damaged else None)))
        return new, skipped

    def merge(self, records: Iterable[Record]) -> int:
        """Add records, those of another store say, in small batches; how many were new."""
        pending, new = iter(records), 0
        while batch := list(itertools.islice(pending, _PAGE)):
            new += self._add(batch)[1]
        return new

    def export_best(self, path: str | os.PathLike[str]) -> int:
        """Write a new store with `best_of_each` alone, small enough to ship; its records.

        Raises `RecordError` if there is such a file already. Leaves none where it fails.
        """
        if os.path.exists(path):
            raise RecordError(f"{os.fspath(path)!r} is there already; give the path of a new file")
        try:
            with RecordStore(path) as store:
                return store.merge(self.best_of_each())
        except BaseException:  # a part of it would stand in the way of the next attempt
            if os.path.exists(path):
                os.unlink(path)
            raise

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._database.close()

    def __enter__(self) -> RecordStore:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _add(self, records: Iterable[Record]) -> tuple[tuple[int, ...], int]:
        """The ids, and how many records were new."""
        batch = [rows.to_row(record) for record in records]
        with self._database.write() as connection:
            (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM records").fetchone()
            connection.executemany(rows.INSERT, batch)
            sql = "SELECT id FROM records WHERE digest = ?"
            ids = tuple(connection.execute(sql, row[:1]).fetchone()[0] for row in batch)
        return ids, len({number for number in ids if number > last})

    def _record(self, row: Sequence[Any]) -> Record:
        with self._database.explained():
            return rows.to_record(row)

    def _pages(self, given: Mapping[str, Any], newest: bool) -> Iterator[Record]:
        """Records whose columns have the given values, read a page at a time."""
        order, side, last = ("DESC", "<", 1 << 62) if newest else ("ASC", ">", 0)
        conditions = " AND ".join((f"id {side} ?", *(f"{name} = ?" for name in given)))
        sql = f"{rows.SELECT} WHERE {conditions} ORDER BY id {order} LIMIT {_PAGE}"
        while found := self._database.read(sql, (last, *given.values())):
            for row in found:
                yield self._record(row)
            last = found[-1][0]

    def _best_of(
        self, group: Iterable[Setting], cache: str | None, among: Container[Config] | None = None
    ) -> Record | None:
        """The best record of comparable settings.

        The median over a config's records, each counted as often as it has samples, is never
        below the lowest cost of them; so in the order of these, few configs need to be looked at.
        """
        ids, marks = _ids(group)
        some = f"setting IN ({marks}) AND cost IS NOT NULL"
        some += f" AND cache = coalesce(?, nullif(cache, '{NETWORK}'))"
        wrong = f"""SELECT config FROM records
            WHERE setting IN ({marks}) AND failure IN {NEVER}"""
        some += f" AND config NOT IN ({wrong})"
        given: tuple[Any, ...] = (*ids, cache, *ids)
        compared = self._database.read(
            f"""SELECT s.session LIKE '%{CHOSEN}', r.session, config, min(created), min(cost)
            FROM records r JOIN sessions s ON s.id = r.session
            WHERE {some} AND s.session LIKE '%{FINALS}'
            GROUP BY r.session, config ORDER BY min(r.id)""",
            given,
        )

        def serves(config: str) -> bool:
            with self._database.explained():
                return among is None or rows.to_config(config) in among

        since, lost = _judged([row for row in compared if serves(row[2])])
        if since is not None:
            some, given = f"{some} AND created >= ?", (*given, since)
        floors = self._database.read(
            f"""SELECT config, min(cost) FROM records WHERE {some}
            GROUP BY config ORDER BY min(cost)""",
            given,
        )
        lowest, best = math.inf, None
        for config, floor in floors:
            if floor >= lowest:
                break
            if config in lost or not serves(config):
                continue
            found = self._database.read(
                f"{rows.SELECT} WHERE {some} AND config = ?", (*given, config)
            )
            records = [self._record(row) for row in found]
            median = statistics.median(r.cost for r in records for _ in r.seconds)
            if median < lowest:
                lowest, best = median, max(records, key=lambda r: (len(r.seconds), r.created))
        return best


def _judged(
    compared: Sequence[tuple[bool, int, str, float, float]],
) -> tuple[float | None, frozenset[str]]:
    """From when on records count, and the configs that do not: by the configs of comparisons,
    each with whether its comparison names the winner (the first of it) or not (the cheapest of
    it), its session, when it was measured and at which cost.

    Records count from the last comparison on, or from an earlier one whose winner is in none of
    the later ones. A config does not count if it lost the last one that it was in.
    """
    sessions: dict[int, list[tuple[bool, int, str, float, float]]] = {}
    for row in compared:
        sessions.setdefault(row[1], []).append(row)
    since, seen, lost = None, set[str](), set[str]()
    for rows_ in sorted(sessions.values(), key=lambda found: -max(row[3] for row in found)):
        named = rows_[0][0]
        winner = rows_[0][2] if named else min(rows_, key=lambda row: row[4])[2]
        if winner not in seen:
            since = min(row[3] for row in rows_)
        if named:
            lost |= {row[2] for row in rows_} - seen - {winner}
        seen |= {row[2] for row in rows_}
    return since, frozenset(lost)


def _ids(settings: Iterable[Setting]) -> tuple[tuple[int, ...], str]:
    """The numbers of settings, and as many placeholders."""
    ids = tuple(s.id for s in settings)
    return ids, ", ".join("?" * len(ids))


def _wanted(
    workload: Workload | str,
    target: Target | str,
    machine: Mapping[str, str] | None,
    threads: int | None,
    policy: str,
) -> Query:
    key = workload if isinstance(workload, str) else workload.key
    if threads is None and isinstance(target, Target):
        threads = target.threads
    return Query(key, str(target), machine, threads, policy)
