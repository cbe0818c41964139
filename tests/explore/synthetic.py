"""A small real space, and devices that make its costs up."""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable, Iterator, Sequence

import loopwright as lw
from loopwright.dsl.workload import Workload
from loopwright.explore.scheduling.evaluators import Evaluator
from loopwright.explore.scheduling.loops import State
from loopwright.measure.device import (
    Comparison,
    Device,
    DeviceError,
    Failure,
    Inspection,
    Measurement,
    Stop,
    never,
)
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import Space, space
from loopwright.schedule.target import Target

TARGET = Target(threads=2)


@functools.cache
def matmul(m: int = 24, k: int = 36, n: int = 48) -> Workload:
    return lw.workload(lw.ops.matmul(lw.tensor("A", (m, k)), lw.tensor("B", (k, n))))


@functools.cache
def matmul_space() -> Space:
    return space(matmul(), TARGET)


@functools.cache
def tiny() -> Workload:
    """A workload whose space has few points."""
    i = lw.indices("i")
    X, Y = lw.tensor("X", (3,)), lw.tensor("Y")
    Y[i] = X[i] + 1.0
    return lw.workload(Y)


def cost(config: Config) -> float:
    """Seconds: a smooth bowl over the knobs, and a little that differs from sketch to sketch."""
    product = [math.prod(choice) for _, choice in config.values]
    bowl = sum((math.log2(1 + v) - 3 - i) ** 2 for i, v in enumerate(product))
    return 1e-3 * (1 + bowl / 10 + zlib.crc32(str(config.sketch).encode()) % 7 / 10)


class MadeUp(Device):
    """Costs by a formula; fails, is wrong, or is interrupted where a test says so."""

    def __init__(
        self,
        fails: frozenset[int] = frozenset(),
        wrong: frozenset[Config] = frozenset(),
        interrupt_at: int | None = None,
        noise: float = 0.0,
        breaks_at: int | None = None,
    ) -> None:
        """`fails` holds remainders modulo 8 of a config's number that fail; after `breaks_at`
        candidates the device cannot measure any more."""
        self.target, self.name = TARGET, "made up"
        self.fails, self.wrong, self.interrupt_at = fails, wrong, interrupt_at
        self.breaks_at = breaks_at
        self.measured: list[Config] = []
        self.verified: list[Config] = []
        self.closed = False

    def fingerprint(self) -> dict[str, str]:
        return {"processor": "made up"}

    def check(self) -> None:
        pass

    def measure(
        self, workload: Workload, configs: Sequence[Config], stop: Stop = never
    ) -> Iterator[Measurement]:
        for number, config in enumerate(configs):
            if number and stop():
                return
            if len(self.measured) == self.interrupt_at:
                raise KeyboardInterrupt
            if len(self.measured) == self.breaks_at:
                raise DeviceError("the device is gone")
            self.measured.append(config)
            yield self._measured(config)

    def _measured(self, config: Config) -> Measurement:
        number = zlib.crc32(str(config).encode()) % 8
        failure = None
        if number in self.fails:
            kind = "build" if number % 2 else "timeout"
            failure = Failure(kind, f"number {number} never works", "a traceback")
        seconds = () if failure else (cost(config),) * 3
        return Measurement(config, seconds, failure, 0.0, 0.0, "warm", 2, len(self.measured))

    def verify(self, workload: Workload, config: Config) -> Failure | None:
        self.verified.append(config)
        return Failure("wrong", "made up to be wrong") if config in self.wrong else None

    def compare(self, workload: Workload, configs: Sequence[Config], rounds: int) -> Comparison:
        if self.breaks_at is not None and len(self.measured) >= self.breaks_at:
            raise DeviceError("the device is gone")
        samples = tuple(
            tuple(cost(c) * (1 + 0.01 * (r % 3)) for r in range(rounds)) for c in configs
        )
        return Comparison(samples, (0,) * len(configs))

    def close(self) -> None:
        self.closed = True


class Inspected(MadeUp):
    """Tells facts that are made up, too; keeps what it was asked to inspect."""

    inspects = True

    def __init__(self, unbuilt: frozenset[int] = frozenset()) -> None:
        """Remainders modulo 8 of a config's number that cannot be built."""
        super().__init__()
        self.unbuilt = unbuilt
        self.inspected: list[Config] = []

    def inspect(
        self, workload: Workload, configs: Sequence[Config], stop: Stop = never
    ) -> list[Inspection]:
        self.inspected += configs
        bad = Failure("build", "it cannot be built")
        numbers = [zlib.crc32(str(config).encode()) for config in configs]
        return [
            Inspection(c, {}, bad, 0.1)
            if n % 8 in self.unbuilt
            else Inspection(c, {"code_bytes": n % 64, "spills": n % 4}, None, 0.1)
            for c, n in zip(configs, numbers)
        ]


class Formula(Evaluator):
    """An evaluator by any function of a state, such as a made-up one in a test."""

    def __init__(self, speed: Callable[[State], float], peak: float) -> None:
        super().__init__(peak)
        self._speed = speed

    def _evaluate(self, states: Sequence[State]) -> list[float]:
        return [float(self._speed(state)) for state in states]
