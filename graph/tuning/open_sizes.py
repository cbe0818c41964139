"""`tune_open`: a network with open axes, tuned at some of its sizes, as one library for all."""

from __future__ import annotations

import math
from dataclasses import replace

from loopwright.dsl.numerics import Numerics
from loopwright.dsl.size import boxes
from loopwright.dsl.words import assigned
from loopwright.explore.budget import Budget
from loopwright.explore.stopwatch import Stopwatch
from loopwright.graph.build import build_open
from loopwright.graph.compile.build import import_model
from loopwright.graph.open.model import OpenModel
from loopwright.graph.open.source import OpenSource
from loopwright.graph.transforms.choices import Choices
from loopwright.graph.tuning.fixed_sizes import AGAIN
from loopwright.graph.tuning.search import SearchOptions, search
from loopwright.schedule.open.cover import spread
from loopwright.schedule.target import Target
from loopwright.transfer.records.location import GivenLocation, may_exist
from loopwright.transfer.records.store import RecordStore


def tune_open(
    source: OpenSource,
    target: Target,
    budget: Budget,
    records: GivenLocation,
    options: SearchOptions,
    layout: str,
    check: bool,
    numerics: Numerics,
) -> tuple[OpenModel, bool]:
    """The network, compiled for all sizes by what was found, and whether the user ended the
    search. It is compiled before anything is measured, too, as `tune_fixed` does; where nothing
    is found, that is the result."""
    clock, machine = options.clock, None
    if options.device is not None:
        machine = options.device.fingerprint()

    def build(known: GivenLocation | None) -> OpenModel:
        with clock.part("building"):
            return build_open(
                source, target, known, "exact", "model", layout, check, numerics, machine
            )

    default, building = None, 0.0
    if check:
        began = clock.elapsed
        default = build(None)
        building = AGAIN * (clock.elapsed - began)
    chosen = list(spread(boxes(source.dims)[0]))
    choices: Choices = {}
    ended = False
    for done, sizes in enumerate(chosen):
        left = (60 * budget.minutes - building - clock.elapsed) / (len(chosen) - done)
        trials = budget.trials if math.isinf(budget.trials) else budget.trials // len(chosen)
        part = Budget(max(trials, 1), max(left, 0.0) / 60)
        try:
            with clock.part("searching"):
                own = replace(options, clock=Stopwatch(), building=0.0)
                if own.tell is not None:
                    own.tell(f"at {assigned(sizes)}:")
                work = import_model(
                    source.model,
                    source.inputs(sizes),
                    target,
                    layout,
                    numerics=numerics,
                    choices=choices,
                )
                ended = search(work, target, part, records, own).interrupted
        except KeyboardInterrupt:
            if not done:
                raise
            ended = True
        if ended:
            break
    return build(records) if default is None or _has_some(records) else default, ended


def _has_some(records: GivenLocation) -> bool:
    """Return whether there are records at all, be it of other workloads."""
    if not may_exist(records):
        return False
    with RecordStore(records, create=False) as store:
        return len(store) > 0
