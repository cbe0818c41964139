"""`Device`: what measures candidates, the paper's f; and `Measurement`, what it says of one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from loopwright.codegen.facts.facts import Facts
from loopwright.dsl.errors import LoopwrightError
from loopwright.dsl.workload import Workload
from loopwright.measure.timing import typical
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target

FAILURES = ("illegal", "build", "timeout", "crash", "memory", "wrong", "run")
"""Kinds of failures: not a point of the space; refused by the compiler; slower than allowed;
killed by a signal; more memory than allowed; other results than the reference; anything else
that a run raised."""

_D = TypeVar("_D", bound="Device")


class DeviceError(LoopwrightError):
    """A device that cannot measure at all, whatever the candidate."""


class TimeUpError(DeviceError):
    """Work that a device was asked for, and that was not done by the time given to `until`."""


@dataclass(frozen=True)
class Failure:
    """Reason why a candidate has no cost: one of `FAILURES`, a sentence, and a traceback or what
    the worker printed last, as text."""

    kind: str
    message: str
    traceback: str = ""

    def __post_init__(self) -> None:
        if self.kind not in FAILURES:
            raise ValueError(f"no failure is of kind {self.kind!r}; use {', '.join(FAILURES)}")

    def to_json(self) -> dict[str, str]:
        return {"kind": self.kind, "message": self.message, "traceback": self.traceback}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Failure:
        return Failure(str(data["kind"]), str(data["message"]), str(data["traceback"]))

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True)
class Measurement:
    """Measurement of one candidate.

    Attributes
    ----------
    seconds: every sample, seconds of one call each; empty where it failed.
    build_seconds, run_seconds: wall time spent on building and on running it.
    cache: "warm" (repeated on the same data) or "cold" (caches flushed before every call).
    threads: threads that a call uses.
    started: when its run began, in seconds since 1970.
    codegen: what made the code, where the target leaves that open: "builtin" or "llvm".
    facts: what its code tells before it runs, see `codegen.facts`; empty where that is not known,
        as of built-in code that nobody inspected.
    """

    config: Config
    seconds: tuple[float, ...]
    failure: Failure | None
    build_seconds: float
    run_seconds: float
    cache: str
    threads: int
    started: float
    codegen: str | None = None
    facts: Facts = field(default_factory=dict, hash=False)

    @property
    def cost(self) -> float:
        """c = f(x): the lower quartile of the samples in seconds, infinite for a failure."""
        return typical(self.seconds) if self.seconds else math.inf


@dataclass(frozen=True)
class Inspection:
    """Facts of a candidate's code, or why it could not be built; and seconds of building."""

    config: Config
    facts: Facts
    failure: Failure | None
    build_seconds: float


@dataclass(frozen=True)
class Comparison:
    """Measurements of candidates side by side, in the order in which they were given.

    Attributes
    ----------
    samples: seconds of one call, as many of each as there were rounds; those of one place were
        taken side by side, so a paired test may compare them. Infinite where a candidate failed.
    sizes: bytes of code, of constants prepared ahead, and of workspace.
    others: cores that other programs kept busy meanwhile, beyond those that were free.
    """

    samples: tuple[tuple[float, ...], ...]
    sizes: tuple[int, ...]
    others: float = 0.0


Stop = Callable[[], bool]


def never() -> bool:
    """A search that does not stop."""
    return False


class Device(ABC):
    """A machine on which candidates are built, run and checked.

    Its life: `prepare` lets it begin while there is other work; `check` says early whether
    anything works at all; `measure` is called with one batch of candidates after another;
    `compare` decides between the finalists, `verify` makes sure of the winner; `close`, or
    leaving its `with` block, frees what it holds. A candidate
    that fails is a `Measurement` with a `Failure`; only a broken device raises, a `DeviceError`.
    """

    target: Target
    name: str
    cache: str = "warm"
    """Cache state of its measurements."""
    codes = 1
    """Codes of a candidate that `compare` runs, and of which the faster one counts."""
    inspects = False
    """True where `inspect` tells anything."""
    here = True
    """True where it is this machine, so that whole libraries can be timed in this process, too."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def target_of(self, workload: Workload, config: Config) -> Target:
        """Target to build a config for: that of the faster code where `compare` measured two."""
        return self.target

    @abstractmethod
    def fingerprint(self) -> dict[str, str]:
        """Fingerprint of the machine: processor, cores, caches, system, versions."""

    @abstractmethod
    def check(self) -> None:
        """Build, run and check one trivial candidate. Raises `DeviceError`, with what to do."""

    def prepare(self) -> None:  # noqa: B027 - most devices need nothing
        """Begin with what the first `measure` needs, such as processes, and do not wait for it.
        Raises `DeviceError`; what goes wrong later is told by what is asked for next."""

    def admit(self, workload: Workload) -> None:  # noqa: B027 - most devices have no limit
        """Return if the workload fits this device. Raises `DeviceError` with the bytes that are
        needed and those that are there."""

    def doubtful(self, workload: Workload) -> Sequence[Config]:
        """Configs to measure again, each told once: their machine turned out to have changed."""
        return ()

    def until(self, deadline: float) -> None:  # noqa: B027 - most devices need no time
        """Set when work must end, by the monotonic clock; infinite for never. Work that is not
        done by then is left, with `TimeUpError`."""

    @abstractmethod
    def measure(
        self, workload: Workload, configs: Sequence[Config], stop: Stop = never
    ) -> Iterator[Measurement]:
        """The cost of every config, in their order; lazily, a few at a time. Before all but the
        first few `stop` is asked whether the rest be left out: what was measured is not lost."""

    def inspect(
        self, workload: Workload, configs: Sequence[Config], stop: Stop = never
    ) -> list[Inspection]:
        """Build every config, in their order, and read its code; nothing runs. Before all but the
        first few `stop` is asked whether the rest be left out. To measure one of the last few
        afterwards takes no second build. Raises `DeviceError` where nothing is built."""
        raise DeviceError(f"{self.name} tells nothing of programs before they run")

    @abstractmethod
    def verify(self, workload: Workload, config: Config) -> Failure | None:
        """Compare a config's outputs with the oracle's on fresh random data; None if they agree
        within `dsl.oracle.tolerance`."""

    @abstractmethod
    def compare(self, workload: Workload, configs: Sequence[Config], rounds: int) -> Comparison:
        """Take `rounds` samples of each config, in turns; fewer where time is up."""

    def close(self) -> None:  # noqa: B027 - most devices hold nothing
        """Free what the device holds. It must not be used afterwards; closing twice is fine."""

    def __enter__(self: _D) -> _D:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
