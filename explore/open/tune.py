"""Tuning of workloads with dims: a few programs that together lose least over all sizes.

Searches at a few sizes give candidates. All of them are measured at sizes drawn as calls will have
them, those with many threads beside their twins with one. A greedy cover keeps the programs that
lose least, and NN+C learns the time of each, which chooses among them for every size.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.codegen.open.build import check_elements, default_configs, open_library
from loopwright.codegen.open.library import OpenLibrary
from loopwright.dsl.errors import ConfigError
from loopwright.dsl.size import Dim, check_told, named
from loopwright.dsl.workload import Workload, tensor_shape
from loopwright.explore.budget import Budget, Interrupted, TuningError
from loopwright.explore.open.choice import Choice, Lines, cells, middles
from loopwright.explore.open.proposals import proposals
from loopwright.explore.open.tuned import OpenTuned, Sizes
from loopwright.explore.search import TuneOptions, search
from loopwright.explore.stopwatch import Stopwatch
from loopwright.explore.tuned import Tuned
from loopwright.measure.device import Device
from loopwright.measure.open_programs import program_seconds
from loopwright.measure.tabular import TabularDevice
from loopwright.schedule.loops.nothing import refuse_nothing_at_some_size
from loopwright.schedule.open.cover import MOST_PROGRAMS, Choose, Cover, completed, settled, spread
from loopwright.schedule.open.family import Sized
from loopwright.schedule.open.program import OpenProgram, open_program
from loopwright.schedule.sketch.sketch import Config
from loopwright.temporary import TemporaryFolder

_SEARCHED, _MOST_SEARCHED = 5, 9  # sizes
_BEST = 3  # configs of each search that are tried at other sizes
_BETWEEN = 2  # times as large: from one size to the next for which configs are chosen unsearched
_FEW = 8  # rows, of which one register tile may hold all
_LEAST_MINUTES = 0.2  # of one search: with fewer in all, fewer sizes are searched
_ENOUGH_MINUTES = 0.7  # of one search: with more, more sizes are
# Of the minutes, those that have passed at most when
_SHARE = 0.6  # the searches end,
_GENERALIZED = 0.75  # no further config is lowered for all sizes,
_COMPARED = 0.85  # candidates are measured at no further size,
_TIMED = 0.95  # nor those that are kept.
_SAMPLED = 24  # sizes at which all candidates are measured
_LEARNED = 48  # further ones of those that were given, at which those that are kept are
_MOST_KEPT = 8
_WORTH = 0.002  # least gain in the mean logarithm of time for which one more program is kept
_SMALL = 20_000_000  # operations from which on one thread alone is not tried


def tune_open(
    workload: Workload,
    device: Device,
    budget: Budget,
    options: TuneOptions,
    sizes: Sequence[Sizes] | None = None,
    watch: Stopwatch | None = None,
) -> OpenTuned:
    """`tune` for a workload with dims, as `explore.tune` describes it. `sizes` are those of calls,
    each as often as it matters; what the watch shows is used of the budget already."""
    if isinstance(device, TabularDevice) or device.target.gpu is not None:
        raise TuningError("a workload with dims is tuned on this machine's processor")
    if not device.here:
        raise TuningError(
            f"the programs of a workload with dims are timed as one library, which {device.name} "
            "cannot do: tune workload.at(…) there, or all of it on this machine"
        )
    refuse_nothing_at_some_size(workload)
    check_told(workload.dims, map(tensor_shape, workload.inputs))
    check_elements(workload)
    with ExitStack() as stack:
        if options.records is None and budget.trials:  # a search learns from those before it
            folder = stack.enter_context(TemporaryFolder())
            options = replace(options, records=Path(folder) / "tuning.db")
        return _OpenTuning(workload, device, budget, options, sizes, watch or Stopwatch()).run()


class _OpenTuning:
    def __init__(
        self,
        workload: Workload,
        device: Device,
        budget: Budget,
        options: TuneOptions,
        sizes: Sequence[Sizes] | None,
        watch: Stopwatch,
    ) -> None:
        self.device, self.target = device, device.target
        self.asked, self.budget, self.options = workload, budget, options

        def choosing(given: Sized) -> Choose:
            return partial(default_configs, given, self.target, options.numerics)

        self.workload: Any = settled(workload, self.target, choosing)
        self.rng = np.random.default_rng(options.seed)
        self.given = None if sizes is None else _checked(workload, sizes)
        self.watch = watch
        self.searches: list[tuple[Sizes, Tuned]] = []
        self.end = f"budget of {budget} used"
        self.interrupted = False

    def run(self) -> OpenTuned:
        for sizes, part in self._parts():
            with self.watch.part("searching"):
                self._search(sizes, part)
            if self.interrupted:
                self.end = "interrupted"
                break
        with self.watch.part("generalizing"):
            candidates = self._candidates()
        measures = bool(self.budget.trials and candidates)
        result = self._measured(candidates) if measures else self._unmeasured(candidates)
        if self.interrupted:
            raise Interrupted(result)
        return result

    # ---- candidates ----

    def _parts(self) -> Iterator[tuple[Sizes, Budget]]:
        """The sizes that are searched, and the budget of each."""
        drawn = self._drawn(200, self.rng)
        count, minutes = _SEARCHED, self.budget.minutes * _SHARE - self.watch.elapsed / 60
        if math.isfinite(minutes):
            count = min(_MOST_SEARCHED, max(count, int(minutes / _ENOUGH_MINUTES)))
            count = max(1, min(count, int(minutes / _LEAST_MINUTES)))
        chosen = _far_apart(self.workload.dims, drawn, count)
        minutes = max(minutes, _LEAST_MINUTES / 2) / len(chosen)
        trials = self.budget.trials
        if trials and math.isfinite(trials):
            trials = max(1, trials // len(chosen))
        for sizes in chosen:
            yield sizes, replace(self.budget, trials=trials, minutes=minutes)

    def _search(self, sizes: Sizes, part: Budget) -> None:
        try:
            found = search(self.workload.at(**sizes), self.device, part, self.options)
        except Interrupted as interrupted:
            found, self.interrupted = interrupted.tuned, True
        self.searches.append((sizes, found))

    def _candidates(self) -> list[OpenProgram]:
        """The programs of the best configs of all searches, and of default ones; after the best of
        each, as many as there is time for."""
        programs: dict[tuple[Any, ...], OpenProgram] = {}
        for number, (sizes, config) in enumerate(self._configs()):
            if programs and self._past(_GENERALIZED) and number >= len(self.searches):
                break  # the best of every search may have no form for other sizes
            with contextlib.suppress(ConfigError):  # a rewrite may have no form for other sizes
                made = open_program(self.workload, self.target, config, sizes)
                programs.setdefault((made.config, made.dims), made)
        return list(programs.values())

    def _configs(self) -> Iterator[tuple[Sizes, Config]]:
        """The best config of each search, then the default ones there, then what a model chooses
        at sizes between and the default ones of these, then the next best."""
        ranked = []
        for sizes, found in self.searches:
            best = sorted(found.history, key=lambda m: m.cost)
            configs = [found.config, *(m.config for m in best if math.isfinite(m.cost))]
            ranked.append((sizes, list(dict.fromkeys(configs))[:_BEST]))
        yield from ((sizes, configs[0]) for sizes, configs in ranked)
        for sizes, _ in ranked:
            yield from ((sizes, config) for config in self._defaults(sizes))
        if self.budget.trials and not self.interrupted:
            between = spread(self.workload.dims, _BETWEEN)
            yield from proposals(self.workload, between, self.target, self.options)
        for sizes in self._between():
            yield from ((sizes, config) for config in itertools.islice(self._defaults(sizes), 1))
        for rank in range(1, _BEST):
            yield from ((sizes, configs[rank]) for sizes, configs in ranked if len(configs) > rank)

    def _between(self) -> Iterator[Sizes]:
        """Sizes whose default config is tried, and where constants are most of what is read, each
        number of few rows."""
        yield from spread(self.workload.dims, _BETWEEN)
        (known, *others) = self.workload.dims
        if not others and any(t.constant for t in self.workload.inputs):
            few = range(known.low, min(known.high, _FEW) + 1, known.multiple)
            yield from ({known.name: rows} for rows in few)

    def _past(self, share: float) -> bool:
        """Return whether a share of the minutes has passed."""
        return self.watch.elapsed > 60 * self.budget.minutes * share

    def _unmeasured(self, candidates: Sequence[OpenProgram]) -> OpenTuned:
        made = self._covering(list(candidates)[: MOST_PROGRAMS // 2])
        library = self._library(made)
        return self._result(library, (), np.empty((len(made.programs), 0)), 1.0)

    def _covering(self, programs: list[OpenProgram]) -> Cover:
        return completed(self.workload, self.target, programs, self._defaults)

    def _defaults(self, sizes: Sizes) -> Iterator[Config]:
        return default_configs(self.workload, self.target, self.options.numerics, sizes)

    # ---- measurements ----

    def _measured(self, candidates: list[OpenProgram]) -> OpenTuned:
        with self.watch.part("building"):
            alone = replace(self.target, threads=1)
            twins = [replace(p, target=alone) for p in candidates if self._is_small(p)]
            candidates = [*candidates, *twins] if self.target.threads > 1 else candidates
            most = MOST_PROGRAMS
            parts = [
                self._library(Cover(self.workload.dims, tuple(candidates[k : k + most]), ()))
                for k in range(0, len(candidates), most)
            ]
        sampled = self._drawn(_SAMPLED, self.rng)
        with self.watch.part("measuring"):
            late = partial(self._past, _COMPARED)
            seconds = program_seconds(parts, self.workload, sampled, self.rng, late)
        kept = _cover_of(seconds)
        with self.watch.part("building"):
            made = self._covering([candidates[k] for k in kept])
            library = self._library(made)
        lines = cells(self.workload.dims)
        more = [*sampled, *self._learned(lines)]
        with self.watch.part("measuring"):
            late = partial(self._past, _TIMED)
            seconds = program_seconds([library], self.workload, more, self.rng, late)
            more = more[: seconds.shape[1]]
        with self.watch.part("learning"):
            choice = Choice(made, more, seconds, self.options.seed)
        library = self._with_choice(library, choice, lines)
        chosen = [library.open_signature.program(sizes) for sizes in more]
        best = seconds.min(axis=0)
        loss = math.exp(np.mean([np.log(seconds[k, n] / best[n]) for n, k in enumerate(chosen)]))
        return self._result(library, more, seconds, loss)

    def _learned(self, lines: Lines) -> list[Sizes]:
        """Sizes at which the programs that are kept are measured: the middles of all cells, or
        some of those that were given."""
        if self.given is not None:
            return self._drawn(_LEARNED, self.rng)
        found = middles(self.workload.dims, lines)
        return [found[k] for k in self.rng.permutation(len(found))]

    # ---- libraries ----

    def _library(self, made: Cover) -> OpenLibrary:
        numerics = str(self.options.numerics)
        return open_library(made, self.workload, self.target, "kernel", numerics)

    def _with_choice(self, library: OpenLibrary, choice: Choice, lines: Lines) -> OpenLibrary:
        extra = {**library.origin.extra, "times": choice.to_json()}
        signature = replace(library.open_signature, rules=choice.rules(lines))
        return OpenLibrary(signature, library._binary, replace(library.origin, extra=extra))

    def _is_small(self, program: OpenProgram) -> bool:
        return any(self.workload.at(**sizes).flops < _SMALL for sizes in program.made_for)

    # ---- the rest ----

    def _drawn(self, count: int, rng: np.random.Generator) -> list[Sizes]:
        """Sizes of calls, as they will be: of those that were given, or evenly in the logarithm,
        each part of the range as often as the others."""
        if self.given is not None:
            order = rng.permutation(len(self.given))
            return [self.given[order[n % len(order)]] for n in range(count)]
        columns = []
        for d in self.workload.dims:
            u = (rng.permutation(count) + rng.random(count)) / count
            values = d.low * (d.high / d.low) ** u
            columns.append([_nearest(v, d) for v in values])
        return [named(self.workload.dims, row) for row in zip(*columns, strict=True)]

    def _result(
        self, library: OpenLibrary, measured: Sequence[Sizes], seconds: Any, loss: float
    ) -> OpenTuned:
        return OpenTuned(
            self.asked,
            self.target,
            library,
            tuple(self.searches),
            tuple(measured),
            seconds,
            loss,
            self.watch.spent(),
            self.end,
        )


def _checked(workload: Workload, sizes: Sequence[Sizes]) -> list[Sizes]:
    if not (isinstance(sizes, Sequence) and sizes and all(isinstance(e, Mapping) for e in sizes)):
        raise TuningError("sizes: give at least one mapping of a value to every dim, in a list")
    for each in sizes:
        workload.at(**each)  # which says what is wrong
    return [dict(each) for each in sizes]


def _far_apart(dims: Sequence[Dim], drawn: Sequence[Sizes], count: int) -> list[Sizes]:
    """Sizes from the largest on, each the farthest from those before, in the logarithm."""
    logs = np.array([[math.log(each[d.name]) for d in dims] for each in drawn])
    chosen = [int(logs.sum(axis=1).argmax())]
    nearest = np.abs(logs - logs[chosen[0]]).sum(axis=1)
    while len(chosen) < count and nearest.max() > 0:
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, np.abs(logs - logs[chosen[-1]]).sum(axis=1))
    return [drawn[k] for k in chosen]


def _cover_of(seconds: Any) -> list[int]:
    """The programs that together lose least, found one by one: at most `_MOST_KEPT`."""
    able = np.isfinite(seconds).any(axis=0)
    if not able.any():  # so few sizes were measured that no program was made for one of them
        return []
    logs = np.log(np.where(np.isfinite(seconds), seconds, 1e9))[:, able]
    chosen: list[int] = []
    least = np.full(logs.shape[1], math.log(1e9))
    while len(chosen) < _MOST_KEPT:
        means = np.minimum(logs, least).mean(axis=1)
        best = int(means.argmin())
        if chosen and least.mean() - means[best] < _WORTH:
            break
        chosen.append(best)
        least = np.minimum(least, logs[best])
    return chosen


def _nearest(value: float, known: Dim) -> int:
    steps = round((value - known.low) / known.multiple)
    return min(known.high, known.low + known.multiple * steps)
