"""The best record of settings whose costs may be compared."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, func, select

from loopwright.schedule.sketch.sketch import Config
from loopwright.transfer.records.record import CHOSEN, FINALS, NETWORK, NEVER, Record
from loopwright.transfer.records.rows import to_config, to_record
from loopwright.transfer.records.sql.database import Database
from loopwright.transfer.records.sql.tables import measured, records, sessions


class _Compared(NamedTuple):
    """A config in a comparison at the end of a search, when it was measured and at which cost."""

    session: str
    number: int
    config: str
    created: float
    cost: float


def best_of(
    database: Database, group: Sequence[int], cache: str | None, among: Callable[[Config], bool]
) -> Record | None:
    """The best record of some settings, of a config that is `among` those asked for.

    The median over a config's records, each counted as often as it has samples, is never
    below the lowest cost of them; so in the order of these, few configs need to be looked at.
    """

    def serves(config: str) -> bool:
        with database.explained():
            return among(to_config(config))

    r = records.c
    never = select(r.config).where(r.setting.in_(group), r.failure.in_(NEVER))
    some: ColumnElement[bool] = and_(
        r.setting.in_(group),
        r.cost.is_not(None),
        r.cache != NETWORK if cache is None else r.cache == cache,
        r.config.not_in(never),
    )
    since, lost = _judged([c for c in _compared(database, some) if serves(c.config)])
    if since is not None:
        some = and_(some, r.created >= since)
    floor = func.min(r.cost)
    floors = select(r.config, floor).where(some).group_by(r.config).order_by(floor, func.min(r.id))
    lowest, best = math.inf, None
    for config, lower in database.read(floors):
        if lower >= lowest:
            break
        if config in lost or not serves(config):
            continue
        numbers = select(r.id).where(some, r.config == config)
        rows = database.read(select(measured).where(measured.c.id.in_(numbers)))
        with database.explained():
            found = [to_record(row._mapping) for row in rows]
        median = statistics.median(record.cost for record in found for _ in record.seconds)
        if median < lowest:
            lowest, best = median, max(found, key=lambda r: (len(r.seconds), r.created))
    return best


def _compared(database: Database, some: ColumnElement[bool]) -> list[_Compared]:
    """The configs of comparisons, of each in the order in which they were stored."""
    r, s = records.c, sessions.c
    query = (
        select(s.session, s.id, r.config, func.min(r.created), func.min(r.cost))
        .join_from(records, sessions, s.id == r.session)
        .where(some, s.session.endswith(FINALS, autoescape=True))
        .group_by(s.session, s.id, r.config)
        .order_by(func.min(r.id))
    )
    return [_Compared(*row) for row in database.read(query)]


def _judged(compared: Sequence[_Compared]) -> tuple[float | None, frozenset[str]]:
    """From when on records count, and the configs that do not, by the configs of comparisons.

    Records count from the last comparison on, or from an earlier one whose winner is in none of
    the later ones. A config does not count if it lost the last one that it was in. A comparison
    names its winner (the first of it) or not (the cheapest of it).
    """
    comparisons: dict[int, list[_Compared]] = {}
    for config in compared:
        comparisons.setdefault(config.number, []).append(config)
    since, seen, lost = None, set[str](), set[str]()
    for members in sorted(comparisons.values(), key=lambda c: -max(m.created for m in c)):
        named = members[0].session.endswith(CHOSEN)
        winner = (members[0] if named else min(members, key=lambda m: m.cost)).config
        own = {m.config for m in members}
        if winner not in seen:
            since = min(m.created for m in members)
        if named:
            lost |= own - seen - {winner}
        seen |= own
    return since, frozenset(lost)
