"""Records that the tasks of a network are compiled by."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from loopwright.dsl.numerics import Numerics
from loopwright.dsl.workload import Workload
from loopwright.graph.compile.vm_fallback import VmWork
from loopwright.graph.tasks import Work
from loopwright.measure.machine import fingerprint, hardware
from loopwright.schedule.space import space
from loopwright.schedule.target import Target
from loopwright.transfer.records.location import GivenLocation
from loopwright.transfer.records.record import NETWORK
from loopwright.transfer.records.store import Record, RecordStore

_CLEARLY = 0.9
"""Share of a program's time alone, below which another is likely to be faster in a network,
too."""


def best_records(
    work: Work | VmWork,
    target: Target,
    records: GivenLocation,
    policy: str = "exact",
    machine: Mapping[str, str] | None = None,
) -> dict[str, Record]:
    """The best record of every task that has one, by the workload's key; one that was measured
    inside of a network before others of the same machine, by default this one, but for one that
    has been found since. One of a config that is not of the space any more, where there is no
    other."""
    machine = fingerprint() if machine is None else machine
    sparse, numerics = isinstance(work, Work) and work.sparse, work.numerics
    found = {}
    with RecordStore(records, create=False) as store:
        for task in work.tasks:
            w = task.workload
            if record := best_record(store, w, target, numerics, policy, machine, sparse):
                found[w.key] = record
    return found


def best_record(
    store: RecordStore,
    workload: Workload,
    target: Target,
    numerics: Numerics,
    policy: str = "exact",
    machine: Mapping[str, str] | None = None,
    sparse: bool = False,
) -> Record | None:
    """The record of a workload that a network is compiled by, if there is one."""
    machine = fingerprint() if machine is None else machine
    best = functools.partial(store.best, workload, target, policy=policy, machine=machine)
    of_any = best()
    if of_any is None and best(cache=NETWORK) is None:
        return None  # and no space is derived
    points = space(workload, target, numerics)
    if sparse:
        points = points.whole
    record, inside = best(among=points), best(among=points, cache=NETWORK)
    if inside is not None and not (record and _goes_before(record, inside, store)):
        record = inside
    return record or of_any


def _goes_before(record: Record, inside: Record, store: RecordStore) -> bool:
    """Return whether a record of a program alone goes before the best one of inside of a network.
    It does if it is of a nearer machine. It also does if an interrupted search found it before
    comparing in the network, and it is clearly the faster program."""
    if _where(inside) != _where(record):
        return True
    where = (record.workload_key, record.target, record.machine, record.threads)
    if record.config in store.measured(*where, cache=NETWORK):
        return False
    alone = store.measured(*where).get(inside.config, 0.0)  # a store of the best may not have it
    return record.cost < _CLEARLY * alone


def _where(record: Record) -> tuple[object, ...]:
    """Priority of a record by what it was measured on."""
    return record.target, record.threads, hardware(record.machine)
