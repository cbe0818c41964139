"""Records put into the tables: each text, setting and session once, and each record once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from sqlalchemy import BindParameter, Connection, Table, bindparam, func, insert, select

from loopwright.transfer.records.rows import Row, digest
from loopwright.transfer.records.sql.tables import records, sessions, settings, texts

_AT_ONCE = 1024
"""Values in one query; databases have a limit."""


def add(connection: Connection, batch: Sequence[Row]) -> tuple[tuple[int, ...], int]:
    """Add rows with their digests, in a transaction of the only writer; their numbers, and how
    many were new. A row that has an `id` gets that number, others those after the highest."""
    named = {text: digest(text) for row in batch for text in _texts(row)}
    numbers, _ = _numbered(connection, texts, {d: {"text": t} for t, d in named.items()})
    own, places, searches = {}, {}, {}
    for row in batch:
        w, t, m, v = (numbers[named[text]] for text in _texts(row))
        place = (row["workload_key"], w, t, m, row["threads"])
        search = (row["session"], row["seed"], v)
        places[digest(*place)] = dict(zip(_PLACE, place))
        searches[digest(*search)] = dict(zip(_SEARCH, search))
        own[row["digest"]] = (row, digest(*place), digest(*search))
    place_of, _ = _numbered(connection, settings, places)
    search_of, _ = _numbered(connection, sessions, searches)
    made = {
        name: {
            **{column: row[column] for column in _OWN if column in row},
            "setting": place_of[place],
            "session": search_of[search],
        }
        for name, (row, place, search) in own.items()
    }
    found, new = _numbered(connection, records, made)
    return tuple(found[row["digest"]] for row in batch), new


_PLACE = ("workload_key", "workload", "target", "machine", "threads")
_SEARCH = ("session", "seed", "versions")
_OWN = tuple(c.name for c in records.c if c.name not in ("setting", "session"))


def _texts(row: Row) -> tuple[str, ...]:
    return row["workload"], row["target"], row["machine"], row["versions"]


def _numbered(
    connection: Connection, into: Table, rows: Mapping[bytes, Row]
) -> tuple[dict[bytes, int], int]:
    """The numbers of rows by their digests, and how many were not in the table before.

    There is one writer at a time. So numbers follow each other in the order of commits, and
    whoever has read up to one of them misses none.
    """
    found: dict[bytes, int] = {}
    left = iter(rows)
    while names := list(itertools.islice(left, _AT_ONCE)):
        found |= dict(iter(connection.execute(_KNOWN[into], {"names": names})))
    new = [name for name in rows if name not in found]
    if new:
        last = connection.execute(_LAST[into]).scalar_one()
        made = [{"id": n, "digest": d, **rows[d]} for n, d in enumerate(new, last + 1)]
        connection.execute(_INSERT[into], made)
        found |= {row["digest"]: row["id"] for row in made}
    return found, len(new)


# Made once: to put one together takes longer than to run it.
_TABLES = (texts, settings, sessions, records)
_NAMES: BindParameter[bytes] = bindparam("names", expanding=True)
_KNOWN = {t: select(t.c.digest, t.c.id).where(t.c.digest.in_(_NAMES)) for t in _TABLES}
_LAST = {t: select(func.coalesce(func.max(t.c.id), 0)) for t in _TABLES}
_INSERT = {t: insert(t) for t in _TABLES}
