"""`RecordStore`: everything ever measured, the paper's D = {(e, s, c)}, in one database."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from loopwright.dsl.words import brief
from loopwright.dsl.workload import Workload, any_workload
from loopwright.measure.machine import hardware
from loopwright.paths import new_file
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target
from loopwright.transfer.records.explain import explain
from loopwright.transfer.records.lines import read_lines, write_lines
from loopwright.transfer.records.location import GivenLocation, Location, Server, location_of
from loopwright.transfer.records.lookup import Query, Setting, choose, comparable
from loopwright.transfer.records.record import CACHES, NETWORK, Record, RecordError, canonical
from loopwright.transfer.records.rows import to_row

if TYPE_CHECKING:
    from loopwright.transfer.records.sql.stored import Stored

__all__ = ["Record", "RecordError", "RecordStore", "Setting", "check_store"]

_PAGE = 1024
"""Records read or written at once: a lock is never held for long."""


def check_store(given: GivenLocation) -> None:
    """Raise `RecordError` where records cannot be added, before they are made."""
    location = location_of(given)
    if isinstance(given, Server) or isinstance(location, Server):
        with RecordStore(location) as store:
            len(store)
    elif new_file(given, "records =", RecordError).exists():
        with RecordStore(location) as store:
            len(store)  # an error for another file


class RecordStore:
    """A SQLite file, or a PostgreSQL database, of records, which are only ever added.

    Its life: made with a location, it opens that when first used; `add` has stored a batch for
    good when it returns; `close`, or leaving its `with` block, closes it, and the next use opens
    it again. Threads may share a store, and processes a location, whether they were forked or
    not, and readers never wait for writers. Equal records are stored once, and numbers follow
    each other in the order in which records were stored.

    Every method raises `RecordError` for a store that is missing, foreign, damaged, away or of a
    newer schema, and says what to do; an older schema is brought up to date when it is opened.
    A database that was reached and goes away is waited for, up to 20 seconds.

    Attributes
    ----------
    location: the path of the file, or the server; its text is for messages, without passwords.
    """

    def __init__(self, location: GivenLocation = "tuning.db", create: bool = True) -> None:
        """`location` is a path, or "postgresql://user@host/database". `create` makes the store
        where there is none, when it is first used. Raises `RecordError` for what can be no
        location."""
        self.location: Location = location_of(location)
        self._create = create
        self._made: Stored | None = None
        self._first = threading.Lock()

    def __repr__(self) -> str:
        return f"<RecordStore {self.location}>"

    def add(self, records: Iterable[Record]) -> tuple[int, ...]:
        """Store records, all or none; their ids, in order. A record that is in the store already
        keeps its id. Once this returns, no crash of the process loses them. Raises `RecordError`
        for what is no record, and where nothing can be written."""
        return self._add(records)[0]

    def get(self, number: int) -> Record:
        """The record of an id. Raises `RecordError` if there is none."""
        known = isinstance(number, int) and 0 < number < 1 << 63  # the integers of a database
        if not known or not (found := self._stored.numbered([number])):
            hint = f"`loopwright records list --records {self.location}` shows them"
            raise RecordError(f"{self.location} has no record {number!r}; {hint}")
        return found[0]

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
        those without a cost, or with one. Raises `RecordError` for what no record can have.
        """
        if not isinstance(machine, Mapping | None):
            raise RecordError(
                f"machine = {brief(machine)}: give what a record has as its machine, a mapping"
            )
        if threads is not None and not (isinstance(threads, int) and 0 < threads < 1 << 63):
            raise RecordError(f"threads = {brief(threads)}: give an integer of at least 1")
        for name, text in (("workload_key", workload_key), ("session", session)):
            if not isinstance(text, str | None):
                raise RecordError(f"{name} = {brief(text)}: give the text that a record has")
        if not isinstance(failed, bool | None):
            raise RecordError(f"failed = {brief(failed)}: give True or False, or leave it out")
        given = {
            "workload_key": workload_key,
            "target": None if target is None else str(target),
            "machine": None if machine is None else canonical(machine),
            "threads": threads,
            "session": session,
            "failed": failed,
        }
        return self._pages({name: v for name, v in given.items() if v is not None}, newest)

    def __iter__(self) -> Iterator[Record]:
        return self.query()

    def __len__(self) -> int:
        return self._stored.count()

    def settings(self) -> tuple[Setting, ...]:
        """The workloads and places of which there are records, with their numbers."""
        return self._stored.settings()

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
    ) -> str:
        """The reason why `best` finds nothing: the nearest records, and fields that differ."""
        if self.best(workload, target, policy, machine=machine) is not None:
            return f"{self.location} has records of {workload.key} that serve: this is no miss."
        wanted = _wanted(workload, target, machine, None, policy)
        return explain(self.settings(), wanted, workload.to_json(), str(self.location))

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
        ids = [s.id for s in self.settings() if wanted.allows(s)]
        return self._stored.costs(ids, cache)

    def elsewhere(
        self, workload: Workload | str, target: Target | str, machine: Mapping[str, str]
    ) -> list[dict[Config, float]]:
        """Measurements by other machines, with warm caches, the nearest first: each as
        `measured`."""
        wanted, here = _wanted(workload, target, machine, None, "any"), hardware(machine)
        groups = choose((s for s in self.settings() if s.hardware != here), wanted)
        return [self._stored.costs([s.id for s in group], "warm") for group in groups]

    def export_lines(
        self, path: str | os.PathLike[str], records: Iterable[Record] | None = None
    ) -> int:
        """Write records (all of them, if not given) as JSON lines; their number.

        The file is complete or not there: it takes its name when all is written.
        """
        return write_lines(path, self if records is None else _each(records))

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

    def lacking(self, other: RecordStore) -> Iterator[Record]:
        """The records that another store has not, in the order of this one."""
        last = 0
        while page := self._stored.digests(last, _PAGE):
            known = other._stored.known(list(page))
            last = max(page.values())
            yield from self._stored.numbered([n for d, n in page.items() if d not in known])

    def merge(self, records: Iterable[Record]) -> int:
        """Add records, those that another store is `lacking` say, in small batches; how many were
        new. After an interruption, the same call goes on."""
        pending, new = _each(records), 0
        while batch := list(itertools.islice(pending, _PAGE)):
            new += self._add(batch)[1]
        return new

    def export_best(self, path: str | os.PathLike[str]) -> int:
        """Write a new store with `best_of_each` alone, small enough to ship; its records.

        Raises `RecordError` if there is such a file already. Leaves none where it fails.
        """
        if os.path.exists(path := new_file(path, "the new store", RecordError)):
            raise RecordError(f"{os.fspath(path)!r} is there already; give the path of a new file")
        try:
            with RecordStore(path) as store:
                return store.merge(self.best_of_each())
        except BaseException:  # a part of it would stand in the way of the next attempt
            if os.path.exists(path):
                os.unlink(path)
            raise

    def close(self) -> None:
        """Close the file or the connection; the next use opens it again."""
        if self._made is not None:
            self._made.close()

    def __enter__(self) -> RecordStore:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def _stored(self) -> Stored:
        from loopwright.transfer.records.sql.stored import Stored  # SQLAlchemy takes a while

        with self._first:
            if self._made is None:
                self._made = Stored(self.location, self._create)
        return self._made

    def _add(self, records: Iterable[Record]) -> tuple[tuple[int, ...], int]:
        """The ids, and how many records were new."""
        return self._stored.add([to_row(record) for record in _each(records)])

    def _pages(self, given: Mapping[str, Any], newest: bool) -> Iterator[Record]:
        """Records whose columns have the given values, read a page at a time."""
        last = None
        while found := self._stored.page(given, newest, last, _PAGE):
            yield from found
            last = found[-1].id

    def _best_of(
        self, group: Iterable[Setting], cache: str | None, among: Container[Config] | None = None
    ) -> Record | None:
        """The best record of comparable settings, of a config that is `among` those given."""
        ids = [s.id for s in group]
        return self._stored.best_of(ids, cache, lambda config: among is None or config in among)


def _wanted(
    workload: Workload | str,
    target: Target | str,
    machine: Mapping[str, str] | None,
    threads: int | None,
    policy: str,
) -> Query:
    key = workload if isinstance(workload, str) else any_workload(workload).key
    if threads is None and isinstance(target, Target):
        threads = target.threads
    return Query(key, str(target), machine, threads, policy)


def _each(records: Iterable[Record]) -> Iterator[Record]:
    """The records of some. Raises `RecordError` for what is none."""
    try:
        several: Iterator[Any] = iter(records)
    except TypeError:
        several = iter([records])
    for one in several:
        if not isinstance(one, Record):
            raise RecordError(f"{brief(one)} is no Record: give records, as of query()")
        yield one
