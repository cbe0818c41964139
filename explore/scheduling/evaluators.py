"""Evaluators: the speed of schedules, measured or predicted, each asked for once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from loopwright.dsl.errors import ConfigError
from loopwright.explore.scheduling.loops import State
from loopwright.measure.local import LocalDevice
from loopwright.measure.roofline import peak_flops
from loopwright.measure.timing import Timing
from loopwright.schedule.target import Target

QUICK = Timing(relative=0.03, cap=2e-2, shortest=5e-4, retries=6)
"""Precision of the measurements of a search: some per cent, for milliseconds."""


class Evaluator(ABC):
    """Tells the speed of schedules in GFLOP/s, and remembers it. `peak` is the machine's most, in
    GFLOP/s, too; `evaluated` counts those found so far. Raises `ConfigError` for another peak."""

    def __init__(self, peak: float) -> None:
        if isinstance(peak, bool) or not isinstance(peak, int | float) or not peak > 0:
            raise ConfigError(f"peak = {peak!r}: give the machine's most, in GFLOP/s")
        self.peak, self.evaluated = peak, 0
        self._known: dict[tuple[str | int, ...], float] = {}

    def speeds(self, states: Sequence[State]) -> list[float]:
        """GFLOP/s of each schedule; 0 for one that fails."""
        keys = [state.key for state in states]
        new = {k: s for k, s in zip(keys, states, strict=True) if k not in self._known}
        if new:
            found = self._evaluate(list(new.values()))
            self._known |= dict(zip(new, found, strict=True))
            self.evaluated += len(new)
        return [self._known[key] for key in keys]

    @abstractmethod
    def _evaluate(self, states: Sequence[State]) -> list[float]:
        """The speeds of schedules, all different."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Free what it holds."""

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class Measured(Evaluator):
    """Builds, runs and checks schedules on a device: 100 ms each, or so.

    Raises `DeviceError` where the device cannot measure at all, and `ConfigError` for a workload
    without operations to count.
    """

    def __init__(self, target: Target) -> None:
        super().__init__(peak_flops(target) / 1e9)
        self._device = LocalDevice(target, timing=QUICK)

    def _evaluate(self, states: Sequence[State]) -> list[float]:
        found = [0.0] * len(states)
        by_problem: dict[int, list[int]] = {}
        for n, state in enumerate(states):
            by_problem.setdefault(id(state.problem), []).append(n)
        for places in by_problem.values():
            problem = states[places[0]].problem
            if not problem.workload.flops:
                raise ConfigError(
                    "this workload moves or compares elements, and has no operations a second: "
                    "give an evaluator that tells another speed, such as Formula"
                )
            configs = [states[n].config for n in places]
            for n, one in zip(places, self._device.measure(problem.workload, configs)):
                found[n] = 0.0 if one.failure else problem.workload.flops / min(one.seconds) / 1e9
        if not any(found):
            self._device.check()  # raises, where nothing works at all
        return found

    def close(self) -> None:
        self._device.close()
