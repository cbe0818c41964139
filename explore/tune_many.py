"""`tune_many`: tuners of many workloads at once, each a task of a fleet's Ray cluster."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopwright.dsl.tensor import Tensor
from loopwright.dsl.words import brief
from loopwright.dsl.workload import Workload, any_workload
from loopwright.explore.budget import TuningError
from loopwright.explore.tune import tune
from loopwright.measure.device import Measurement
from loopwright.measure.fleet import joining
from loopwright.measure.fleet.joining import ray_package
from loopwright.measure.fleet.station import from_plain, to_plain
from loopwright.measure.fleet.values import from_bytes, to_bytes
from loopwright.schedule.sketch.sketch import Config

_REFUSED = ("device", "fleet", "targets", "sizes", "progress")


@dataclass(frozen=True)
class Found:
    """The result of a tuner of `tune_many`: the best config and its cost in seconds, that of the
    `default` schedule, all candidates in order, why it ended, and notes."""

    workload: Workload
    config: Config
    seconds: float
    default: float
    history: tuple[Measurement, ...]
    end: str
    notes: tuple[str, ...]


def tune_many(
    workloads: Sequence[Workload | Tensor], fleet: str = "auto", *, tuners: int = 4, **options: Any
) -> Iterator[Found]:
    """Tune workloads on a fleet, several at once; what was found of each, in their order.

    Each has a tuner of its own, in a process of the fleet that Ray chooses. The tuners share the
    machines that measure: while one chooses, the others' candidates run.

    Parameters
    ----------
    fleet: as for `lw.tune`.
    tuners: how many work at a time.
    options: others of `lw.tune`, each tuner's. A `model`, `strategy` or `callbacks` of the user's
        own go there by value, with the code of the module that defines them (by cloudpickle, to
        processes of the same user). `records` of tuners on several machines are best
        postgresql://…; a path is of the machine where the tuner runs.

    Raises `TuningError` for options that are not allowed, and what `lw.tune` raises.
    """
    for name in _REFUSED:
        if name in options:
            raise TuningError(
                f"{name} = {options[name]!r} is no option of tune_many: leave it out"
            )
    known = list(inspect.signature(tune).parameters)
    if unknown := [name for name in options if name not in known]:
        raise TuningError(
            f"{unknown[0]} is no option of tune_many; it takes tuners, and of lw.tune "
            f"{', '.join(name for name in known[1:] if name not in _REFUSED)}"
        )
    if not isinstance(tuners, int) or tuners < 1:
        raise TuningError(f"tuners = {tuners!r}: give an integer of at least 1")
    if isinstance(workloads, str) or not isinstance(workloads, Sequence):
        raise TuningError(f"{brief(workloads)} in place of workloads: give a list of them")
    return _tuned([any_workload(w) for w in workloads], fleet, tuners, options)


def _tuned(
    given: Sequence[Workload], fleet: str, tuners: int, options: Mapping[str, Any]
) -> Iterator[Found]:
    leave = joining.join(fleet)
    try:
        ray, values = ray_package(), to_bytes(options)
        # None of a core: a tuner that held the last one would wait for its own builds.
        task = ray.remote(num_cpus=0, max_retries=1, scheduling_strategy="SPREAD")(_search)
        running: dict[int, Any] = {}
        begun = 0
        for place, workload in enumerate(given):
            while begun < len(given) and begun < place + tuners:
                running[begun] = task.remote(json.dumps(given[begun].to_json()), values)
                begun += 1
            yield _found(workload, ray.get(running.pop(place)))
    finally:
        leave()


def _search(workload: str, options: bytes) -> dict[str, Any]:
    """One search, in a process of the fleet; the result as plain data."""
    own = Workload.from_json(json.loads(workload))
    tuned: Any = tune(own, fleet="auto", progress=False, **from_bytes(options))
    return {
        "config": tuned.config.to_json(),
        "seconds": tuned.seconds,
        "default": tuned.default,
        "history": [(m.config.to_json(), to_plain(m)) for m in tuned.history],
        "end": tuned.end,
        "notes": list(tuned.notes),
    }


def _found(workload: Workload, told: Mapping[str, Any]) -> Found:
    history = ((Config.from_json(config), data) for config, data in told["history"])
    return Found(
        workload=workload,
        config=Config.from_json(told["config"]),
        seconds=told["seconds"],
        default=told["default"],
        history=tuple(from_plain(config, data) for config, data in history),
        end=told["end"],
        notes=tuple(told["notes"]),
    )
