"""A search on a device: Algorithm 1 of the AutoTVM paper, between a session's begin and end."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from loopwright.costmodel.model import CostModel
from loopwright.costmodel.models.file import StoredModel
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.words import among, brief
from loopwright.dsl.workload import Workload
from loopwright.explore.budget import Budget, Interrupted, TuningError
from loopwright.explore.finalize import INTERRUPTED, NO_TIME, finalize, reserved, unmeasured
from loopwright.explore.report.callbacks import Callback
from loopwright.explore.session import Session
from loopwright.explore.stopwatch import Stopwatch
from loopwright.explore.strategies.annealing import Schedule
from loopwright.explore.strategies.encoded_space import EncodedSpace, Mask, Points
from loopwright.explore.strategies.legality import by_sketch, legal_points
from loopwright.explore.tuned import Tuned
from loopwright.explore.tuner import (
    MODELLED,
    POLICY,
    PROPOSED,
    SOURCES,
    Begin,
    StrategyLike,
    Tuner,
    check_seed,
    reads_of,
)
from loopwright.explore.zero_shot import ZeroShot
from loopwright.measure.device import Device, DeviceError, Measurement, TimeUpError
from loopwright.measure.tabular import TabularDevice
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import Space, space
from loopwright.transfer.pretrained.base import (
    AUTO,
    Transfer,
    check_transfer,
    find_base,
    find_proposer,
    is_sequence,
)
from loopwright.transfer.records.location import GivenLocation
from loopwright.transfer.records.store import RecordStore

SHARE, MOST = 0.125, 64
"""b, the candidates that are chosen together with one model: a share of those measured so far,
within bounds. Early on a model learns much from few, later it is not asked anew for every few."""
GO_ON = ("gbt", "mlp", "blend", *SOURCES)
"""The models that go on from the shipped one: they rank, by the features that it reads, or rank
what one of these proposes."""
_SEVERAL, _MANY = 2, 64
"""Other machines, and configs that worked on each, from which on their order is followed."""
COMPILED = "compiled"
"""The feedback that there is: facts of code that is built and does not run."""


def check_feedback(feedback: str | None, device: Device | None = None) -> None:
    """Raise `TuningError` for feedback that there is none of, by its name or on a device."""
    if feedback not in (None, COMPILED):
        raise TuningError(f"feedback = {feedback!r}: give {COMPILED!r}, or None")
    if feedback and device is not None and not device.inspects:
        raise TuningError(
            f"feedback={feedback!r} reads code before it runs, of which {device.name} tells "
            "nothing: leave it out"
        )


def check_use(transfer: Transfer, strategy: StrategyLike, model: str | CostModel) -> None:
    """Raise `TuningError` for a file of a model that a search would not go on from."""
    check_transfer(transfer)
    if transfer in (None, AUTO) or strategy == "sampled":
        return
    reads = reads_of(model)
    if _goes_on(strategy, reads if reads in SOURCES else model):  # "gbt" proposes for these
        return
    if strategy not in PROPOSED or not is_sequence(transfer):
        raise TuningError(
            f"transfer = {os.fspath(transfer)!r} is for strategy='annealing' or 'transfer', and a "
            "model that is named and learns: leave it out, or give base= to the one that you make"
        )


def _goes_on(strategy: StrategyLike, model: str | CostModel) -> bool:
    """Return whether a search has a model of its own that may go on from another one."""
    return strategy in MODELLED and isinstance(model, str) and model != "random"


@dataclass(frozen=True)
class TuneOptions:
    """Options of a search, as the parameters of `tune` say."""

    records: GivenLocation | None = "tuning.db"
    seed: int = 0
    strategy: StrategyLike = "annealing"
    model: str | CostModel = "gbt"
    callbacks: Sequence[Callback] = ()
    transfer: Transfer = AUTO
    numerics: Numerics = Numerics.STANDARD
    batch: int | None = None
    schedule: Schedule | None = None
    feedback: str | None = None

    def __post_init__(self) -> None:
        check_feedback(self.feedback)
        check_seed(self.seed)
        check_use(self.transfer, self.strategy, self.model)
        if self.batch is not None and not (isinstance(self.batch, int) and self.batch >= 1):
            raise TuningError(f"batch = {self.batch!r}: give an integer of at least 1")
        if not isinstance(self.schedule, Schedule | None):
            raise TuningError(
                f"schedule = {brief(self.schedule)}: give a Schedule, of "
                "loopwright.explore.strategies.annealing, or None"
            )
        told = self.callbacks
        if not (isinstance(told, Sequence) and all(isinstance(c, Callback) for c in told)):
            raise TuningError(
                f"callbacks = {brief(self.callbacks)}: give a list of Callbacks, of "
                "loopwright.explore.report.callbacks"
            )


def search(
    workload: Workload,
    device: Device,
    budget: Budget,
    options: TuneOptions,
    watch: Stopwatch | None = None,
) -> Tuned:
    """`tune` of fixed shapes with a budget, of which what the watch shows is used already, on a
    device, which stays open."""
    watch = watch or Stopwatch()
    options = _proposed(options, budget)
    with ExitStack() as stack, watch.part("starting"):
        device.admit(workload)
        device.until(watch.began + 60 * budget.minutes)
        stack.callback(device.until, math.inf)
        result = _search(workload, device, budget, options, watch)
    result = replace(result, spent=watch.spent())
    for callback in options.callbacks:
        callback.finish(result)
    if result.end == INTERRUPTED:
        raise Interrupted(result)
    return result


def _proposed(options: TuneOptions, budget: Budget) -> TuneOptions:
    """The options with the strategy "sampled" where they ask for it in another way: by the model
    "policy", or by a file of a sequence model without time to learn a cost model."""
    strategy, policy = options.strategy, among(options.model, (POLICY,))
    if not isinstance(strategy, str) and not callable(strategy):
        raise TuningError(
            f"strategy={brief(strategy)}: give a name such as 'annealing', or a function"
        )
    if policy and strategy not in PROPOSED:
        raise TuningError(
            f"model={POLICY!r} chooses by itself, so strategy={strategy!r} cannot ask it: give "
            "strategy='sampled', or none"
        )
    if policy and options.feedback:
        raise TuningError(
            f"feedback is for cost models, and model={POLICY!r} chooses by itself: leave one out"
        )
    by_file = budget.zero_shot and strategy == "annealing" and is_sequence(options.transfer)
    return replace(options, strategy="sampled", model="gbt") if policy or by_file else options


def _search(
    workload: Workload, device: Device, budget: Budget, options: TuneOptions, watch: Stopwatch
) -> Tuned:
    """The search alone."""
    check_feedback(options.feedback, device)
    if options.feedback and budget.zero_shot:
        raise TuningError(
            'feedback is for searches that learn: leave it out where trials=0, or effort="instant"'
        )
    with ExitStack() as stack:
        store = None
        if options.records is not None:
            store = stack.enter_context(RecordStore(options.records))
        points = _space(workload, device, options.numerics)
        callbacks, seed = options.callbacks, options.seed
        session = Session(workload, points, device, store, budget, callbacks, seed, watch)
        session.reserved = functools.partial(reserved, session)
        session.checked = budget.zero_shot  # in a hurry the first batch tells
        with _shown(session):
            strategy = options.strategy
            chosen = strategy == "sampled" and budget.zero_shot  # by the sequence model alone
            base = None if chosen else _base(session, options)
            if budget.zero_shot and not chosen:
                strategy = _zero_shot(session, strategy, base)
            tuner = Tuner(
                EncodedSpace(points, _legal(device, points)),
                strategy,
                options.model,
                seed,
                schedule=options.schedule,
                base=base,
                begin=_begin(session, strategy, options.transfer),
                feedback=session.inspect if options.feedback else None,
            )
            if not budget.trials:
                return unmeasured(session, tuner)
            return finalize(session, _run(session, tuner, options.batch))


def algorithm_1(
    session: Session, tuner: Tuner, earlier: Sequence[Measurement], batch: int | None = None
) -> str:
    """Algorithm 1 of Chen et al. 2018, *Learning to optimize tensor programs*; why it ended.

    D ← ∅                                            (here: what `earlier` sessions measured)
    while n_trials < max_n_trials do
      Q ← run parallel simulated annealing to collect candidates in S_e, by energy f̂
      S ← run greedy submodular optimization to pick a (1-ε)b-subset from Q, by Eq. 3
      S ← S ∪ {εb candidates sampled at random}
      for s in S do  c ← f(g(e, s));  D ← D ∪ {(e, s, c)}
      update f̂ using D
      n_trials ← n_trials + b
    s* ← argmin of c over D
    """
    tuner.tell(*session.told(earlier))
    while left := session.trials_left:
        b = batch or min(max(int(SHARE * len(session.history)), tuner.strategy.least), MOST)
        with session.watch.part("choosing"):
            session.update("choosing")
            configs = tuner.ask(min(b, left))  # Q, then S: Annealing._propose
        measured = session.measure(configs)
        with session.watch.part("learning"):
            session.update("learning")
            tuner.tell(*session.told(measured))
        if tuner.exhausted:
            return "the space is exhausted"
    return f"budget of {session.budget} used"


def _base(session: Session, options: TuneOptions) -> StoredModel | None:
    """The global model that a search begins with, or that judges its samples, if there is one."""
    strategy, model = options.strategy, options.model
    if reads_of(model) in SOURCES:  # "gbt" proposes, which a base helps
        model = reads_of(model)
    if judges := strategy == "sampled":  # whatever model is named: none learns there
        model = "gbt"
    beside = strategy in PROPOSED and is_sequence(options.transfer)
    transfer = AUTO if beside else options.transfer
    if transfer == AUTO:
        if not (judges or _goes_on(strategy, model)) or isinstance(session.device, TabularDevice):
            return None
        if model not in GO_ON:
            session.note(f"no model is shipped for model={model!r} to go on from")
            return None
    with session.watch.part("starting"):
        store = None if session.budget.zero_shot else session.store
        base = find_base(transfer, session.workload, session.device.target, store)
    for note in base.notes:
        session.note(note)
    return base.model


def _begin(session: Session, strategy: StrategyLike, transfer: Transfer) -> Begin:
    """The beginning of a search: measurements of other machines, one's best config, or a sequence
    model, which annealing has only where the file of one is given."""
    if strategy == "transfer":
        return _machines(session) or _elsewhere(session)
    if strategy == "sampled" or (strategy == "annealing" and is_sequence(transfer)):
        with session.watch.part("starting"):
            if isinstance(session.device, TabularDevice) and transfer == AUTO:
                return None
            proposer, note = find_proposer(transfer, session.device.target)
            session.note(note)
            return proposer
    return None


def _machines(session: Session) -> list[dict[Config, float]]:
    """Measurements of other machines, where they are several and measured many configs."""
    if session.store is None:
        return []
    here = session.device.fingerprint()
    found = session.store.elsewhere(session.workload, session.device.target, here)
    of_space = ({c: cost for c, cost in costs.items() if c in session.space} for costs in found)
    many = [costs for costs in of_space if sum(map(math.isfinite, costs.values())) >= _MANY]
    if len(many) < _SEVERAL:
        return []
    session.note(f"begins with the configs that {len(many)} other machines measured")
    return many


def _elsewhere(session: Session) -> Config | None:
    """Best config of another machine, the nearest first, if there are records of any."""
    if session.store is None:
        return None
    here = session.device.fingerprint()
    target = session.device.target
    found = session.store.best(
        session.workload, target, "any", machine=here, besides=here, among=session.space
    )
    if found is None:
        return None
    machine = found.machine.get("processor", "another machine")
    session.note(f"begins with what was best on {machine}")
    return found.config


def _zero_shot(session: Session, strategy: StrategyLike, base: StoredModel | None) -> StrategyLike:
    """Strategy for when there is no time: the global model, if there is one."""
    if base is not None:
        if session.budget.trials:
            return functools.partial(ZeroShot, model=base)
        return functools.partial(ZeroShot, model=base, sketches=12, kept=2)  # within a second
    session.note("there is no global model to choose by: rules of thumb do")
    return strategy


def _run(session: Session, tuner: Tuner, batch: int | None) -> str:
    """Search; why it ended, an interrupt by the user included."""
    earlier = session.resume()  # an interrupt from now on leaves what was found before
    try:
        end = algorithm_1(session, tuner, earlier, batch)
    except KeyboardInterrupt:
        if not session.ranked():
            raise
        return INTERRUPTED
    except TimeUpError:
        end = f"budget of {session.budget} used"
    except DeviceError as error:
        if not session.ranked() or len(session.history) == session.resumed:
            raise
        session.note(f"the search ends early, with what it has: {error}")
        return "the device failed"
    if session.history:
        return end
    session.note(
        f"nothing was measured within {session.budget}: the start, the outputs to compare with, "
        "and one call of the default schedule take longer here; give more minutes"
    )
    return NO_TIME


@contextmanager
def _shown(session: Session) -> Iterator[None]:
    """Callbacks begin before anything is measured, and stop whatever happens."""
    for callback in session.callbacks:
        callback.start(session.progress("starting"))
    try:
        yield
    finally:
        for callback in session.callbacks:
            callback.stop()


def _space(workload: Workload, device: Device, numerics: Numerics) -> Space:
    if not isinstance(device, TabularDevice):
        return space(workload, device.target, numerics)
    if workload != device.space.workload:
        raise TuningError(f"{device.name} is a table of another workload: tune that of its space")
    return device.space


def _legal(device: Device, points: Space) -> Callable[[Points], Mask] | None:
    """The points of a table, or of a space."""
    if isinstance(device, TabularDevice):
        return by_sketch(points, device.legal)
    return legal_points(points)
