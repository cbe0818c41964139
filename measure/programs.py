"""`ProgramDevice`: candidates are built here, and run here or on another machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from loopwright.codegen.facts.facts import facts_of
from loopwright.dsl.errors import ConfigError
from loopwright.dsl.index import indices
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.tensor import tensor
from loopwright.dsl.workload import Workload, tensor_bytes, workload
from loopwright.measure import device
from loopwright.measure.builder import Builder, Built, Task
from loopwright.measure.reference import Limits, References
from loopwright.measure.runner import Data, Runner
from loopwright.measure.timing import Timing, typical
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import find_sketch, space
from loopwright.schedule.target import Target

BATCH = 64
"""Candidates that are built before the first of them runs."""

_KEPT = 256  # candidates whose code is kept, so that checks and comparisons need no builds


class ProgramDevice(device.Device):
    """A device that builds candidates by a builder, and runs them by a runner.

    Candidates are built in parallel while nothing is timed, and run in rounds, one at a time, in a
    worker process that may crash, hang or run out of memory. All that ran is checked against the
    reference: the oracle's outputs, or those of the default schedule where the oracle is too slow.

    For a target of kind "builtin" they are built-in code where its generator covers them. A
    comparison builds them by LLVM too, and of each the faster code counts (`target_of`).
    """

    needs = "a working TVM, a C compiler and a linker"
    """Requirements of building and running a program."""

    def __init__(
        self,
        name: str,
        target: Target,
        builder: Builder,
        runner: Runner,
        timing: Timing | None,
        limits: Limits,
        memory: int,
        seed: int,
    ) -> None:
        """`memory`: bytes that a workload may take where it runs. `seed`: of the data."""
        self.name, self.target = name, target
        self._timing = timing or Timing()
        self.cache = self._timing.cache
        self.codes = 2 if target.kind == "builtin" else 1
        self.inspects = target.kind != "opencl"  # whose driver compiles where it runs
        self._builder, self._runner, self._memory = builder, runner, memory
        self._references = References(target, builder, runner, limits, seed)
        self._built: dict[tuple[str, str, Config], Built] = {}
        self._faster: dict[tuple[str, Config], str] = {}

    def check(self) -> None:
        trivial = _trivial()
        config = space(trivial, self.target).default
        (measured,) = self.measure(trivial, [config])
        failure = measured.failure or self.verify(trivial, config)
        if failure is not None:
            raise device.DeviceError(
                f"{self.name} cannot build and run a trivial program; it needs {self.needs}"
                f"\n{failure}\n{failure.traceback}"
            )

    def admit(self, workload: Workload) -> None:
        # The outputs are there three times: a candidate's, those expected, and these on their way.
        outputs = sum(tensor_bytes(t) for t in workload.outputs)
        needed = workload.min_bytes + 2 * outputs
        if needed > self._memory:
            raise device.DeviceError(
                f"{', '.join(t.name for t in workload.outputs)} is too large to be measured here: "
                f"its inputs and outputs, and what these are compared with, need {needed:,} bytes "
                f"of memory, and {self._memory:,} may be used; tune a smaller workload of the "
                "same form"
            )

    def until(self, deadline: float) -> None:
        self._builder.until(deadline)
        self._runner.until(deadline)
        self._references.until(deadline)

    def prepare(self) -> None:
        self._builder.start(BATCH)
        self._runner.start()

    def measure(
        self, workload: Workload, configs: Sequence[Config], stop: device.Stop = device.never
    ) -> Iterator[device.Measurement]:
        for start in range(0, len(configs), BATCH):
            if start and stop():
                return
            batch = configs[start : start + BATCH]
            data, found = self._candidates(workload, batch)
            timed = self._runner.measure(data, found, self._timing, stop)
            for config, built, one in zip(batch, found, timed, strict=False):
                yield device.Measurement(
                    config=config,
                    seconds=one.times,
                    failure=one.failure,
                    build_seconds=built.seconds,
                    run_seconds=one.spent,
                    cache=self.cache,
                    threads=self.target.threads,
                    started=one.started,
                    codegen=built.codegen if self.target.kind == "builtin" else None,
                    facts=built.facts,
                )

    def inspect(
        self, workload: Workload, configs: Sequence[Config], stop: device.Stop = device.never
    ) -> list[device.Inspection]:
        if not self.inspects:
            return super().inspect(workload, configs, stop)
        found: list[device.Inspection] = []
        for start in range(0, len(configs), BATCH):
            if start and stop():
                break
            batch = configs[start : start + BATCH]
            data, built = self._candidates(workload, batch)
            read = [_with_facts(one) for one in built]
            self._remember(data.task, batch, read)
            found += (
                device.Inspection(config, one.facts, one.failure, one.seconds)
                for config, one in zip(batch, read, strict=True)
            )
        return found

    def verify(self, workload: Workload, config: Config) -> device.Failure | None:
        try:
            sketch = find_sketch(workload, self.target, config.sketch)
        except ConfigError as error:
            return device.Failure("illegal", str(error))
        # "fast" promises nothing of features that are small beside others.
        data = self._references.fresh(workload, scaled=sketch.numerics < Numerics.FAST)
        task = replace(data.task, target=self.target_of(workload, config))
        built = self._code(task, [config])[0]
        if built.failure is not None:
            return built.failure
        return self._runner.run(data, built, replace(self._timing, cap=0.0), whole=True).failure

    def compare(
        self, workload: Workload, configs: Sequence[Config], rounds: int
    ) -> device.Comparison:
        data = self._references.of(workload)
        built = self._code(data.task, configs)
        timing = replace(self._timing, shortest=max(5e-3, self._timing.shortest), retries=3)
        if self.target.kind != "builtin":
            return self._runner.compare(data, built, timing, rounds)
        # What LLVM was found to be faster at is its own; the rest is built by it too, once.
        by_llvm = replace(data.task, target=replace(self.target, kind="llvm"))
        settled = {c: self._faster.get((workload.key, c)) for c in configs}
        theirs = [c for c in configs if settled[c] == "llvm"]
        replaced = dict(zip(theirs, self._code(by_llvm, theirs), strict=True))
        built = [replaced.get(c, own) for c, own in zip(configs, built, strict=True)]
        twins = {
            c: n
            for n, c in enumerate(configs)
            if built[n].codegen == "builtin" and settled[c] is None
        }
        every = [*built, *self._code(by_llvm, [*twins])]
        found = self._runner.compare(data, every, timing, rounds)
        samples, sizes = list(found.samples), list(found.sizes)
        for place, (config, n) in enumerate(twins.items(), len(configs)):
            faster = typical(samples[place]) < typical(samples[n])
            self._faster[workload.key, config] = "llvm" if faster else "builtin"
            if faster:
                samples[n], sizes[n] = samples[place], sizes[place]
        count = len(configs)
        return device.Comparison(tuple(samples[:count]), tuple(sizes[:count]), found.others)

    def target_of(self, workload: Workload, config: Config) -> Target:
        kind = self._faster.get((workload.key, config), self.target.kind)
        return replace(self.target, kind=kind)

    def _candidates(
        self, workload: Workload, configs: Sequence[Config]
    ) -> tuple[Data, Sequence[Built]]:
        """The reference, and candidates: those whose code is known, and others that are built."""
        key = (workload.key, self.target.kind)
        known = {c: self._built[(*key, c)] for c in configs if (*key, c) in self._built}
        found = {c: built for c, built in known.items() if built.failure is None}
        missing = [c for c in dict.fromkeys(configs) if c not in found]
        if not missing:
            return self._references.of(workload), [found[c] for c in configs]
        data, made = self._references.beside(workload, missing)
        self._remember(data.task, missing, made)
        found |= zip(missing, made, strict=True)
        return data, [found[c] for c in configs]

    def _code(self, task: Task, configs: Sequence[Config]) -> list[Built]:
        """Candidates, of which those that are not known are built."""
        key = (task.workload.key, task.target.kind)
        found = {c: self._built[(*key, c)] for c in configs if (*key, c) in self._built}
        if missing := [c for c in configs if c not in found]:
            built = self._builder.build(task, missing)
            found |= zip(missing, built, strict=True)
            self._remember(task, missing, built)
        return [found[c] for c in configs]

    def _remember(self, task: Task, configs: Sequence[Config], built: Sequence[Built]) -> None:
        key = (task.workload.key, task.target.kind)
        self._built |= {(*key, c): b for c, b in zip(configs, built, strict=True)}
        for old in list(self._built)[:-_KEPT]:
            del self._built[old]

    def close(self) -> None:
        self._runner.close()
        self._builder.close()


def _with_facts(built: Built) -> Built:
    """A candidate with the facts of its code, which the file of built-in code has."""
    if built.facts or built.codegen != "builtin":
        return built
    return replace(built, facts=facts_of(bytes(built.code)))


def _trivial() -> Workload:
    i, j, k = indices("i j k")
    A, B, C = tensor("A", (8, 8)), tensor("B", (8, 8)), tensor("C")
    C[i, j] += A[i, k] * B[k, j]
    return workload(C)
