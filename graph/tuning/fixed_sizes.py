"""`tune_fixed`: a network of fixed shapes, from its tasks to a library by what was found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from loopwright.explore.budget import Budget
from loopwright.graph.compile.build import build_work, check_results, runs_here, without_source
from loopwright.graph.compile.model import TunedModel
from loopwright.graph.compile.stored_records import best_records
from loopwright.graph.compile.vm_fallback import VmModel, VmWork
from loopwright.graph.open.model import OpenModel
from loopwright.graph.placed.model import PlacedModel
from loopwright.graph.tasks import Work
from loopwright.graph.tuning.search import SearchOptions, search, unstored
from loopwright.graph.tuning.summary import summary
from loopwright.measure.machine import fingerprint
from loopwright.schedule.target import Target
from loopwright.transfer.records.location import GivenLocation, may_exist

AGAIN = 1.2
"""Seconds that building by what was found takes over those by default schedules, at most, about:
other layouts of weights are computed for it."""


def tune_fixed(
    work: Work | VmWork,
    target: Target,
    budget: Budget,
    records: GivenLocation,
    options: SearchOptions,
    check: bool,
    name: str = "model",
) -> tuple[TunedModel | VmModel, bool]:
    """The network, compiled by what was found, and whether the user ended the search. With `check`
    it is compiled and compared with the one that it was made of before anything is measured, too,
    which tells how long that takes at the end."""
    default = None
    if check:
        began = options.clock.elapsed
        with options.clock.part("building"):
            default = check_results(build_work(work, target, name=name), target)
        options = replace(options, building=AGAIN * (options.clock.elapsed - began))
    with options.clock.part("searching"):
        found = search(work, target, budget, records, options)
    with options.clock.part("building"):
        machine = None if options.device is None else options.device.fingerprint()
        besides, store = unstored(found.states), records if may_exist(records) else None
        if default is not None and not besides:
            if store is None or not best_records(work, target, store, machine=machine):
                return without_source(default), found.interrupted
        built = build_work(work, target, store, name=name, machine=machine, besides=besides)
        if check:
            built = check_results(built, target, tuned=True)
    return without_source(built), found.interrupted


def summarized(
    built: TunedModel | OpenModel | VmModel | PlacedModel,
    target: Target,
    budget: Budget,
    options: SearchOptions,
) -> Iterator[str]:
    """Lines on what the library takes, where it was measured on this machine and there is time to,
    and on where the time of the tuning went."""
    here = options.device is None or options.device.fingerprint() == fingerprint()
    if isinstance(built, TunedModel) and here and runs_here(target):
        if options.clock.elapsed < 60 * budget.minutes:
            with options.clock.part("measuring"):
                yield from summary(built)
        else:
            yield f"measured   not at all, since the budget of {budget} is used up"
    if isinstance(built, PlacedModel):
        yield str(built.explain())
    yield f"time       {options.clock}"
