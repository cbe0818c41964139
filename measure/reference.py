"""Expected outputs of a workload, and the time limit of a run."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from loopwright.dsl.numerics import Numerics
from loopwright.dsl.oracle import tolerance
from loopwright.dsl.workload import Workload
from loopwright.measure.builder import Builder, Built, Task
from loopwright.measure.device import DeviceError
from loopwright.measure.runner import Data, Runner
from loopwright.measure.timing import Timing
from loopwright.measure.workers.messages import Bytes
from loopwright.measure.workers.process import Reply
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import default_sketch
from loopwright.schedule.target import Target

_log = logging.getLogger(__name__)
_ONCE = Timing(cap=0.0)
_SLOWER = 10.0  # times the default schedule's time that a candidate may take
_KEPT = 256 << 20  # bytes of outputs
_ORACLE = 0.25  # of the time that is left, what the oracle may take


@dataclass(frozen=True)
class Limits:
    """Seconds for one candidate: for its `build`, and for a sample or the first call to `run`, but
    ten times the default schedule's where that is more. If NumPy's `oracle` takes longer, outputs
    of the default schedule, whose first run has a limit too, are what others are compared with."""

    build: float = 20.0
    run: float = 10.0
    oracle: float = 60.0
    default: float = 600.0


def strict_default(workload: Workload, target: Target) -> Config:
    """The default schedule of the definition's own sums."""
    sketch = default_sketch(workload, target, Numerics.STRICT)
    return sketch.at(sketch.default)


class References:
    """Makes the reference `Data` of workloads, and keeps those used last, by what they take: the
    tasks of a network, which have their turns, are many."""

    def __init__(
        self, target: Target, builder: Builder, runner: Runner, limits: Limits, seed: int
    ) -> None:
        self._target, self._builder, self._runner = target, builder, runner
        self._limits, self._seed, self._drawn = limits, seed, 0
        self._kept: OrderedDict[str, tuple[Data, Built]] = OrderedDict()
        self._too_slow: set[str] = set()
        self._deadline = math.inf

    def until(self, deadline: float) -> None:
        """Set when all must end, by the monotonic clock: the oracle may take a part of it."""
        self._deadline = deadline

    def of(self, workload: Workload) -> Data:
        """The reference that candidates are measured with, the same at every call.

        Raises `DeviceError` where neither the oracle nor the default schedule gives outputs.
        """
        return self._find(workload)[0]

    def beside(
        self, workload: Workload, configs: Sequence[Config]
    ) -> tuple[Data, Sequence[Built]]:
        """The reference, and candidates, all built at once where it is still to be made."""
        if workload.key in self._kept:
            data, _ = self._find(workload)
            return data, self._builder.build(data.task, configs)
        data, default, built = self._make(workload, configs)
        self._keep(workload, data, default)
        return data, built

    def fresh(self, workload: Workload, scaled: bool) -> Data:
        """A reference on data that no candidate has seen; `scaled` as for `Data`."""
        data, default = self._find(workload)
        self._drawn += 1
        data = replace(data, seed=self._seed + self._drawn, scaled=scaled)
        if workload.key in self._too_slow:  # it would be again
            return self._by_default(data, default)
        oracle = self._builder.oracle(data.task, data.seed, self._oracle_limit(), scaled)
        return self._with_outputs(data, default, oracle)

    def _find(self, workload: Workload) -> tuple[Data, Built]:
        if workload.key not in self._kept:
            data, default, _ = self._make(workload, ())
            self._keep(workload, data, default)
        self._kept.move_to_end(workload.key)
        return self._kept[workload.key]

    def _keep(self, workload: Workload, data: Data, default: Built) -> None:
        self._kept[workload.key] = data, default
        while len(self._kept) > 1 and self._bytes() > _KEPT:
            self._kept.popitem(last=False)

    def _bytes(self) -> int:
        every = (blob for data, _ in self._kept.values() for blob in data.expected)
        return sum(memoryview(blob).nbytes for blob in every)

    def _make(
        self, workload: Workload, configs: Sequence[Config]
    ) -> tuple[Data, Built, Sequence[Built]]:
        """The reference with the default schedule of the definition's own sums, and candidates."""
        data = Data(Task(workload, self._target), self._seed, (), (0.0, 0.0), self._limits.default)
        all_configs = [strict_default(workload, self._target), *configs]
        oracle = None
        if workload.key in self._too_slow:  # it would be again
            default, *built = self._builder.build(data.task, all_configs)
        else:
            (default, *built), oracle = self._builder.build_with_oracle(
                data.task, all_configs, data.seed, self._oracle_limit()
            )
        default, seconds = self._first_run(data, default)
        if "undefined symbol" in str(default.failure):
            data = replace(data, task=replace(data.task, complete=True))
            default, *built = self._builder.build(data.task, all_configs)
            default, seconds = self._first_run(data, default)
        timeout = max(self._limits.run, _SLOWER * seconds)
        if self._target.kind == "opencl":
            timeout += self._limits.build  # by the driver, where it runs
        data = replace(data, timeout=timeout)
        if oracle is None:
            return self._by_default(data, default), default, built
        return self._with_outputs(data, default, oracle), default, built

    def _oracle_limit(self) -> float:
        """Seconds that the oracle may take: of a short time no more than a part."""
        return min(self._limits.oracle, max(1.0, _ORACLE * (self._deadline - time.monotonic())))

    def _first_run(self, data: Data, default: Built) -> tuple[Built, float]:
        """The default schedule, and the seconds of one call; none where it fails."""
        if default.failure is not None:
            return default, 0.0
        reply = self._runner.run(data, default, _ONCE)
        if reply.failure is not None:
            return replace(default, failure=reply.failure), 0.0
        return default, statistics.median(reply.message.header["seconds"])

    def _with_outputs(self, data: Data, default: Built, reply: Reply) -> Data:
        """Data with what the oracle replied, or what the default schedule computes."""
        if reply.failure is None:
            close = tolerance(data.task.workload)
            return replace(data, expected=reply.message.blobs, tolerance=close)
        self._too_slow.add(data.task.workload.key)
        _log.warning(
            "the oracle could not compute the outputs (%s): candidates are compared with the "
            "default schedule instead",
            reply.failure,
        )
        return self._by_default(data, default)

    def _by_default(self, data: Data, default: Built) -> Data:
        """Data with what the default schedule computes; both sides may be off. LLVM builds it, so
        that a fault of the built-in code generator is not on both."""
        rtol, atol = tolerance(data.task.workload)
        if self._target.kind == "builtin":
            task = replace(data.task, target=replace(self._target, kind="llvm"))
            (default,) = self._builder.build(task, [strict_default(task.workload, task.target)])
        outputs = self._outputs(replace(data, expected=()), default)
        return replace(data, expected=outputs, tolerance=(2 * rtol, 2 * atol))

    def _outputs(self, data: Data, default: Built) -> tuple[Bytes, ...]:
        failure = default.failure
        if failure is None:
            reply = self._runner.run(data, default, _ONCE, outputs=True)
            if reply.failure is None:
                return reply.message.blobs
            failure = reply.failure
        raise DeviceError(
            "there is nothing to compare candidates with: the oracle is too slow for this "
            f"workload, and its default schedule fails ({failure}); raise Limits.oracle"
        )
