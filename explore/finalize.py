"""End of a search: the best few compared, the winner verified and recorded."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence

from loopwright.explore.session import Session
from loopwright.explore.significance import (
    FEWEST,
    Finalist,
    Order,
    Ratio,
    doubt,
    fixed_order,
    judge,
    ratio,
)
from loopwright.explore.strategies.sampled import Sampled
from loopwright.explore.tuned import Tuned
from loopwright.explore.tuner import Tuner
from loopwright.explore.zero_shot import ZeroShot
from loopwright.measure.device import Comparison, DeviceError, Failure, Measurement, TimeUpError
from loopwright.measure.timing import typical
from loopwright.schedule.sketch.sketch import Config
from loopwright.transfer.records.store import Record, RecordError

FIRST_ROUND, FIRST_ROUND_SAMPLES = 24, 5
FINALISTS, ROUNDS = 8, 20
"""The comparison at the end, which a noisy neighbour at the wrong moment must not decide: at most
so many of the best, a quarter of all, are measured side by side, so many samples each; the better
ones of them are measured again as finalists."""
INTERRUPTED = "interrupted"
"""End of a search that the user ended."""
NO_TIME = "the default schedule, time was up before anything was measured"
"""End of a search whose budget allowed no measurement."""
LONGEST, LEAST = 30.0, 3.0
"""Seconds that a comparison takes at most, about, and that it may take after the shortest search:
of slow programs fewer samples are taken, and of very slow ones fewer are compared."""
OF_SEARCH, OF_BUDGET = 0.5, 0.25
"""Seconds of a comparison over those of the search before it, and over all of the budget."""
OF_FIRST = 0.3
"""Share of a comparison's time that the choice of the finalists takes."""
ONCE = 0.01
"""Seconds that a sample takes beside its call, about."""
OF_MEASURED = 0.25
"""Seconds of a sample over those that a measurement takes, about: many on a busy machine."""
SLACK = 1.5
"""Seconds of a comparison over those of its samples: LLVM builds what is compared, too."""

TRIES = 3
"""Number of times that a comparison is made at most; it is made again where it was disturbed."""
CROWDED = 0.25
"""Cores that other programs may keep busy beyond the free ones: with more, it was disturbed."""
DRIFT = 1.25
"""Ratio by which times may differ between the search and its end without a word. Those of the best
are a little lower during the search, which chose them by these. With more, it was disturbed."""


def reserved(session: Session) -> float:
    """Seconds of a budget that are kept for its end: for a first round of the best so far, and two
    comparisons of the finalists."""
    budget = session.budget
    if budget.zero_shot or math.isinf(budget.minutes):
        return 0.0
    most = min(LONGEST, OF_BUDGET * 60 * budget.minutes)
    if session.left > most or not (ranked := session.ranked()):
        return most
    took = {m.config: OF_MEASURED * m.run_seconds for m in session.history}
    each = [max(session.cost(c) + ONCE, took[c]) for c in ranked[:FIRST_ROUND]]
    samples = FIRST_ROUND_SAMPLES * sum(each) + 2 * ROUNDS * sum(each[: FINALISTS + 2])
    return min(most, SLACK * session.device.codes * samples)


def finalize(session: Session, end: str) -> Tuned:
    """Name the winner, by a comparison unless the user is in a hurry."""
    finalists: list[Finalist] = []
    disturbed = ""
    try:
        compared = end != INTERRUPTED and not session.budget.zero_shot
        while compared and session.ranked() and not finalists:
            finalists, disturbed = _compared(session)
    except KeyboardInterrupt:
        end = INTERRUPTED
    except DeviceError as error:
        session.note(f"the best were not compared: {error}")
    if not session.ranked():
        if end == NO_TIME:
            return _result(session, session.space.default, end)
        raise session.nothing_worked(end)
    best = finalists[0].config if finalists else _uncompared(session)
    return _result(session, best, end, finalists, disturbed)


def _uncompared(session: Session) -> Config:
    """The best of a search without a comparison: what the store says, where there is one."""
    session.flush()
    ranked = session.ranked()
    try:
        known = None if session.recorder.unstored else session.best_known()
    except RecordError as error:
        session.note(f"the best of earlier searches is not known: {error}")
        known = None
    return known if known in ranked else ranked[0]


def _result(
    session: Session,
    config: Config,
    end: str,
    finalists: Sequence[Finalist] = (),
    disturbed: str = "",
) -> Tuned:
    """Result of a search, about the winner; finalists are recorded."""
    of_search = next((m for m in reversed(session.history) if m.config == config), None)
    finals = [_again(session, f) for f in finalists if of_search]
    costs = {f.config: f.cost for f in finalists}
    record = _recorded(session, config, finals, of_search)
    if session.recorder.again():
        record = _recorded(session, config, finals, of_search)
    default = session.space.default
    speedup, claim = claimed(finalists, default, disturbed)
    return Tuned(
        workload=session.workload,
        target=session.device.target_of(session.workload, config),
        config=config,
        record=record,
        default=costs.get(default, session.cost(default)),
        speedup=speedup,
        claim=claim,
        history=tuple(session.history),
        resumed=session.resumed,
        finalists=tuple(finalists),
        spent=session.watch.spent(),
        end=end,
        notes=tuple(session.notes),
    )


def _recorded(
    session: Session, config: Config, finals: Sequence[Measurement], of_search: Measurement | None
) -> Record | None:
    """The record of the winner, stored with the other finalists."""
    again = dict(zip((m.config for m in finals), session.record_finals(finals)))
    if config not in again and of_search is not None:
        return session.record(of_search)
    return again.get(config)


def claimed(
    finalists: Sequence[Finalist], default: Config, disturbed: str = ""
) -> tuple[Ratio | None, str]:
    """The speed-up over the default if one is claimed, and in words how the winner stands to the
    default; `disturbed` tells why the comparison says nothing sure."""
    if not finalists:
        return None, "not compared with the default"
    beside = {f.config: f.seconds for f in finalists}
    if default not in beside:
        return None, "the default failed"
    winner = finalists[0]
    found = ratio(beside[default], winner.seconds)
    if winner.config == default and all(f.standing == "slower" for f in finalists[1:]):
        return None, "the default is the fastest"
    if winner.config == default or found.low <= 1:
        return None, "tied with the default"
    if disturbed:
        return None, f"no speed-up is claimed, since {disturbed}"
    return found, f"{found} times as fast as the default"


def _compared(session: Session) -> tuple[list[Finalist], str]:
    """The best few, measured side by side, the winner first and verified, and what disturbed that
    to the last. Those that fail now are taken out of the ranking, and the list is empty if nothing
    is left of them."""
    default = session.space.default
    session.update("comparing the best")
    most = min(LONGEST, max(LEAST, OF_SEARCH * session.elapsed), session.left)
    until = session.elapsed + most
    ranked = session.ranked()
    candidates = ranked[: min(FIRST_ROUND, max(FINALISTS, len(session.history) // 4))]
    if len(candidates) > FINALISTS:
        soon = until - (1 - OF_FIRST) * most
        candidates, first = _side_by_side(session, candidates, FIRST_ROUND_SAMPLES, soon)
        times = dict(zip(candidates, first.samples))
        ranked = session.ranked()
        candidates = sorted(
            (c for c in candidates if c in ranked), key=lambda c: typical(times[c])
        )
    # Where time is short, the first ones are compared.
    sure = [c for c in (*candidates[:1], session.incumbent, default) if c in ranked]
    configs = list(dict.fromkeys([*sure, *candidates[:FINALISTS]]))
    finalists, order, disturbed = _decided(session, configs, until)
    while finalists and (failure := _failure(session, finalists[0].config)):
        session.reject(finalists[0].config, failure)
        finalists = judge({f.config: f.seconds for f in finalists[1:]}, order)
    _tell_drift(session, finalists)
    if disturbed:
        session.note(f"the comparison of the best was disturbed: {disturbed}")
    session.flush()
    return finalists, disturbed


def _failure(session: Session, config: Config) -> Failure | None:
    """The failure of the winner on fresh data; nothing if time is up."""
    try:
        return session.verify(config)
    except TimeUpError:
        if config not in session.verified:
            session.note("the winner was not checked on fresh data: time was up")
        return None


def _decided(
    session: Session, configs: list[Config], until: float
) -> tuple[list[Finalist], Order, str]:
    """The finalists, the order that decided between those that are tied, and what disturbed the
    comparison: it is made again then, a few times, and all that was measured is judged if none of
    them was undisturbed."""
    pooled = dict.fromkeys(configs, tuple[float, ...]())
    tries = 0
    while True:
        tries += 1
        began = session.elapsed
        configs, found = _side_by_side(session, configs, ROUNDS, until)
        if configs and (rounds := len(found.samples[0])) < FEWEST:
            raise TimeUpError(f"there was time for {rounds} rounds alone; it takes {FEWEST}")
        took = session.elapsed - began
        order = fixed_order(session.space, dict(zip(configs, found.sizes)))
        samples = dict(zip(configs, found.samples))
        finalists = judge(samples, order)
        disturbed = _disturbed(session, finalists, found.others)
        if not disturbed:
            return finalists, order, ""
        pooled = {config: pooled[config] + seconds for config, seconds in samples.items()}
        finalists = judge(pooled, order)
        if tries == TRIES or session.elapsed + took > until:
            return finalists, order, disturbed
        configs = [f.config for f in finalists]


def _disturbed(session: Session, finalists: Sequence[Finalist], others: float) -> str:
    """Reason why a comparison says nothing sure; empty if it does."""
    if others > CROWDED:
        return f"other programs kept {others:.1f} cores busy that it needed"
    if (drift := _drift(session, finalists)) > DRIFT:
        return f"the best took {drift:.2f} times as long as during the search"
    fastest = min(finalists, key=lambda f: f.cost, default=None)
    for f in finalists:
        if fastest and f.config == session.space.default:
            both = f.seconds, fastest.seconds
            if why := doubt(*both):
                return f"the speed-up, {ratio(*both)}, {why}"
    return ""


def _drift(session: Session, finalists: Sequence[Finalist]) -> float:
    """Median ratio of the finalists' times to those during the search."""
    ratios = sorted(f.cost / session.cost(f.config) for f in finalists)
    return ratios[len(ratios) // 2] if ratios else 1.0


def _tell_drift(session: Session, finalists: Sequence[Finalist]) -> None:
    """Say so if the machine is not what it was during the search."""
    drift = _drift(session, finalists)
    if not 1 / DRIFT < drift < DRIFT:
        session.note(
            f"compared at the end, the best take {drift:.2f} times as long as during the search: "
            f"the machine has become {'busier' if drift > 1 else 'less busy'}; the times told are "
            "those of the end"
        )


def _side_by_side(
    session: Session, configs: list[Config], rounds: int, until: float
) -> tuple[list[Config], Comparison]:
    """Measure configs in rounds while there is time; those that fail now are rejected."""
    configs, rounds = _in_time(session, configs, rounds, until - session.elapsed)
    with session.watch.part("comparing"):
        found = session.device.compare(session.workload, configs, rounds)
    for config, seconds in zip(configs, found.samples, strict=True):
        if not seconds or not all(map(math.isfinite, seconds)):
            session.reject(config, Failure("run", "it failed when it was measured again"))
    return configs, found


def _in_time(
    session: Session, configs: list[Config], rounds: int, left: float
) -> tuple[list[Config], int]:
    """Configs, the best first, and rounds, as many as fit the seconds that are left; two at least
    where the budget allows it. Raises `TimeUpError` where it does not."""
    costs = (session.device.codes * (session.cost(c) + ONCE) for c in configs)
    round_of = list(itertools.accumulate(costs))  # seconds of a round of the first ones
    if not configs or rounds * round_of[-1] <= left:
        return configs, rounds
    fit = max(2, sum(FEWEST * seconds <= left for seconds in round_of))
    configs = configs[:fit]
    needed = FEWEST * round_of[len(configs) - 1]
    if needed > max(session.left, 0.0):
        raise TimeUpError(
            f"that takes {needed:.1f} s, and {max(session.left, 0.0):.1f} s are left"
        )
    return configs, min(rounds, max(FEWEST, int(left / round_of[len(configs) - 1])))


def _again(session: Session, finalist: Finalist) -> Measurement:
    device = session.device
    kind = device.target_of(session.workload, finalist.config).kind
    codegen = kind if device.target.kind == "builtin" else None
    searched = (m for m in session.history if m.config == finalist.config)
    return Measurement(
        config=finalist.config,
        seconds=finalist.seconds,
        failure=None,
        build_seconds=0.0,
        run_seconds=sum(finalist.seconds),
        cache=device.cache,
        threads=device.target.threads,
        started=time.time(),
        codegen=codegen,
        facts=next((m.facts for m in searched if m.codegen == codegen), {}),
    )


def unmeasured(session: Session, tuner: Tuner) -> Tuned:
    """The best of earlier sessions, or what the strategy would try first, nothing measured: the
    global model's choice, or the default config where there is no such model."""
    earlier = session.resume()
    if session.ranked():
        return _result(session, _uncompared(session), "nothing was measured")
    config, end = session.space.default, "the default schedule, nothing was measured"
    if isinstance(tuner.strategy, ZeroShot | Sampled):
        with session.watch.part("choosing"):
            tuner.tell([m.config for m in earlier], [math.inf for _ in earlier])
            chosen = tuner.strategy.encoded.configs(tuner.strategy.choose())
            config = chosen[0] if chosen else config  # there may be none that is new
        end = "chosen by a global model, nothing was measured"
    if any(m.config == config for m in earlier):  # all of these failed
        raise session.nothing_worked(end)
    return _result(session, config, end)
