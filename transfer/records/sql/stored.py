"""`Stored`: what a record store asks of its database."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Select, func, select

from loopwright.schedule.sketch.sketch import Config
from loopwright.transfer.records import rows
from loopwright.transfer.records.location import Location, Server
from loopwright.transfer.records.lookup import Setting
from loopwright.transfer.records.record import Record
from loopwright.transfer.records.sql.adding import add
from loopwright.transfer.records.sql.best import best_of
from loopwright.transfer.records.sql.database import Database
from loopwright.transfer.records.sql.postgresql import PostgresDatabase
from loopwright.transfer.records.sql.sqlite import SqliteDatabase
from loopwright.transfer.records.sql.tables import measured, records, settings, texts


class Stored:
    """The records in a database, which is opened when first used. Methods raise `RecordError`."""

    def __init__(self, location: Location, create: bool) -> None:
        self.database: Database
        if isinstance(location, Server):
            self.database = PostgresDatabase(location, create)
        else:
            self.database = SqliteDatabase(location, create)

    def close(self) -> None:
        self.database.close()

    def add(self, batch: Sequence[rows.Row]) -> tuple[tuple[int, ...], int]:
        """Add rows, all or none: their numbers, and how many were new."""
        return self.database.write(lambda connection: add(connection, batch))

    def count(self) -> int:
        return int(self.database.read(select(func.count()).select_from(records))[0][0])

    def numbered(self, numbers: Sequence[int]) -> list[Record]:
        """The records of these numbers, by number; those that are not there are left out."""
        number = measured.c.id
        return self._records(select(measured).where(number.in_(numbers)).order_by(number))

    def page(
        self, given: Mapping[str, Any], newest: bool, after: int | None, size: int
    ) -> list[Record]:
        """The first records by number, or last if `newest`, whose columns have the given values;
        `failed` tells whether they lack a cost. `after` is the last number of the page before."""
        number = measured.c.id
        query = select(measured).order_by(number.desc() if newest else number).limit(size)
        if after is not None:
            query = query.where(number < after if newest else number > after)
        for name, value in given.items():
            if name == "failed":
                query = query.where(measured.c.cost.is_(None) == value)
            else:
                query = query.where(measured.c[name] == value)
        return self._records(query)

    def settings(self) -> tuple[Setting, ...]:
        """The settings with records, and how many of these have a cost, or none."""
        found = self.database.read(_settings())
        with self.database.explained():
            return tuple(rows.to_setting(row) for row in found)

    def costs(self, of: Sequence[int], cache: str) -> dict[Config, float]:
        """The last cost of each config in some settings, infinite for a failure, in the order in
        which they were first measured."""
        r = records.c
        query = select(r.config, r.cost).where(r.setting.in_(of), r.cache == cache).order_by(r.id)
        found = self.database.read(query)
        with self.database.explained():
            return {rows.to_config(text): math.inf if c is None else c for text, c in found}

    def best_of(
        self, group: Sequence[int], cache: str | None, among: Callable[[Config], bool]
    ) -> Record | None:
        """The best record of comparable settings, of a config that is `among` some."""
        return best_of(self.database, group, cache, among)

    def digests(self, after: int, size: int) -> dict[bytes, int]:
        """Numbers of the first records after one, by their digests, in order."""
        r = records.c
        query = select(r.digest, r.id).where(r.id > after).order_by(r.id).limit(size)
        return dict(self.database.read(query))

    def known(self, names: Sequence[bytes]) -> frozenset[bytes]:
        """Those of some digests that records have."""
        query = select(records.c.digest).where(records.c.digest.in_(names))
        return frozenset(name for (name,) in self.database.read(query))

    def _records(self, query: Select[Any]) -> list[Record]:
        found = self.database.read(query)
        with self.database.explained():
            return [rows.to_record(row._mapping) for row in found]


def _settings() -> Select[Any]:
    """Settings with the texts that they refer to, and the counts of their records."""
    r, s = records.c, settings.c
    with_cost = func.count(r.cost)
    counts = (
        select(r.setting, with_cost.label("measured"), (func.count() - with_cost).label("failed"))
        .group_by(r.setting)
        .subquery()
    )
    workload, target, machine = texts.alias("w"), texts.alias("t"), texts.alias("m")
    return (
        select(
            s.id,
            s.workload_key,
            *(text.c.text.label(text.name) for text in (workload, target, machine)),
            s.threads,
            counts.c.measured,
            counts.c.failed,
        )
        .join_from(settings, counts, counts.c.setting == s.id)
        .join(workload, workload.c.id == s.workload)
        .join(target, target.c.id == s.target)
        .join(machine, machine.c.id == s.machine)
        .order_by(s.id)
    )
