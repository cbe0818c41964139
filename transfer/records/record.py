"""`Record`: one measurement, and everything that is needed to repeat or to judge it."""

from __future__ import annotations

import functools
import json
import math
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from loopwright.dsl.errors import ConfigError, LoopwrightError, NotationError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.workload import Workload
from loopwright.measure.device import Failure, Measurement
from loopwright.measure.timing import typical
from loopwright.schedule.sketch.naming import Derivation
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target
from loopwright.transfer.records import upgrade

SCHEMA = 3
"""The form of records as JSON lines; the layout of stores is `sql.schema.LAYOUT`."""

FINALS = "/finals"
"""Ends the name of a session that compared the best of a search, all measured side by side."""

CHOSEN = "/chosen" + FINALS
"""Ends it where the winner was stored first: the one to choose, though it need not have the lowest
cost, since a test could not tell it from what has."""

NEVER = ("wrong", "crash")
"""Failures after which a config is never the best, however often it works."""

NETWORK = "network"
CACHES = ("warm", "cold", NETWORK)
"""Contents of the caches before a call: the same call's data; nothing; what the steps before it in
a whole network left there."""
_TEXTS = ("workload_key", "workload", "target", "session")


class RecordError(LoopwrightError):
    """A record, a store or a file of records that is damaged, foreign, missing or too new."""


@dataclass(frozen=True)
class Record:
    """One point (e, s, c) of the paper's D, with its circumstances.

    Attributes
    ----------
    workload_key: the hash of the workload, which ignores names; look-ups go by it.
    workload: the workload itself, as JSON text.
    target: what the code was made for, `str(Target)`.
    machine: the fingerprint of the device that measured.
    threads: threads that a call used.
    config: the point of the workload's space.
    numerics: what its program does to rounding errors, a word of `dsl.numerics`.
    seconds: every sample, seconds of one call each; empty if it failed before any.
    failure: why it has no cost, or None.
    cache: one of `CACHES`.
    build_seconds, run_seconds: wall time spent on building and on running it.
    seed: of the search that chose it, if one did.
    session: names that search, one call of `tune`; with `FINALS` or `CHOSEN` behind it, the
        comparison at its end. Any text.
    versions: of loopwright, TVM and Python.
    created: when it ran, in seconds since 1970.
    facts: what its code told before it ran, by the names of `codegen.facts`; empty where that is
        not known, as in records of schema 2. They follow from the rest, and are of no matter to
        equality.
    id: its number within a store; None outside, and of no matter to equality.
    schema: the form of the record; older ones are brought up to `SCHEMA` when read.
    """

    workload_key: str
    workload: str
    target: str
    machine: Mapping[str, str] = field(hash=False)
    threads: int
    config: Config
    numerics: str
    seconds: tuple[float, ...]
    failure: Failure | None
    cache: str
    build_seconds: float
    run_seconds: float
    seed: int | None
    session: str
    versions: Mapping[str, str] = field(hash=False)
    created: float
    facts: Mapping[str, int] = field(default_factory=dict, compare=False)
    id: int | None = field(default=None, compare=False)
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if problem := _problem(self):
            raise RecordError(f"not a record: {problem}")

    @staticmethod
    def of(
        workload: Workload,
        target: Target,
        machine: Mapping[str, str],
        measurement: Measurement,
        *,
        numerics: Numerics = Numerics.STRICT,
        seed: int | None = None,
        session: str = "",
    ) -> Record:
        """Record of what a device measured; `machine` is its fingerprint, `numerics` that of the
        config's sketch."""
        m = measurement
        return Record(
            workload_key=workload.key,
            workload=_workload_text(workload.to_json()),
            target=str(target),
            machine=dict(machine),
            threads=m.threads,
            config=m.config,
            numerics=str(numerics),
            seconds=tuple(map(float, m.seconds)),
            failure=_clean(m.failure),
            cache=m.cache,
            build_seconds=float(m.build_seconds),
            run_seconds=float(m.run_seconds),
            seed=None if seed is None else int(seed),
            session=session,
            versions=current_versions(),
            created=float(m.started),
            facts=dict(m.facts),
        )

    @property
    def cost(self) -> float:
        """c: the lower quartile of the samples in seconds, infinite for a failure."""
        return math.inf if self.failure else typical(self.seconds)

    @property
    def measurement(self) -> Measurement:
        """The record as a device reported it."""
        return Measurement(
            self.config,
            self.seconds,
            self.failure,
            self.build_seconds,
            self.run_seconds,
            self.cache,
            self.threads,
            self.created,
            facts=self.facts,
        )

    @property
    def made_for(self) -> tuple[str, str]:
        """The target and the code generator that make its program again, on this machine."""
        kind = self.target.partition(" ")[0]
        return (
            kind if kind in ("c", "cuda", "opencl") else "cpu",
            "builtin" if kind == "builtin" else "llvm",
        )

    def computation(self) -> Workload:
        """The workload, read from its text. Raises `RecordError` if that is damaged."""
        return workload_of(self.workload)

    def to_json(self) -> dict[str, Any]:
        """Plain data for one JSON line; `id` stays behind."""
        data = {name: getattr(self, name) for name in FIELDS}
        data["workload"] = _plain(self.workload)
        data["seconds"] = list(self.seconds)
        data["config"] = self.config.to_json()
        data["failure"] = self.failure.to_json() if self.failure else None
        return data

    @staticmethod
    def from_json(data: object) -> Record:
        """Read what `to_json` wrote. Raises `RecordError` for anything else."""
        if not isinstance(data, dict) or "schema" not in data:
            raise RecordError("not a record: a JSON object with a field `schema` is expected")
        check_schema(data["schema"], SCHEMA, "this record")
        try:
            data = _upgraded(data)
        except ConfigError as error:
            raise RecordError(f"not a record: {error}") from error
        if data.keys() != set(FIELDS):
            odd = sorted(data.keys() ^ set(FIELDS))
            raise RecordError(f"not a record of schema {SCHEMA}: missing or unknown {odd}")
        try:
            return Record(**{**data, **_typed(data)})
        except (ConfigError, TypeError, ValueError, KeyError) as error:
            raise RecordError(f"not a record: {type(error).__name__} {error}") from error


FIELDS = tuple(name for name in Record.__dataclass_fields__ if name != "id")


def workload_of(text: str) -> Workload:
    """The workload of a record's text. Raises `RecordError` if that is damaged."""
    try:
        return Workload.from_json(_plain(text))
    except NotationError as error:
        raise RecordError(f"a damaged workload: {error}") from error


def _plain(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"a damaged workload: {error} in {text[:80]!r}") from error


def check_schema(found: object, newest: int, what: str) -> None:
    """Refuse what a newer version of Loopwright wrote, and what none did."""
    if type(found) is not int or found < 0:
        raise RecordError(f"{what} is damaged: its schema is {found!r}, not a number")
    if found > newest:
        raise RecordError(
            f"{what} has schema {found}, this version of Loopwright knows up to {newest}: "
            "a newer Loopwright wrote it; upgrade with `pip install --upgrade loopwright`"
        )


def canonical(mapping: Mapping[str, str]) -> str:
    """A mapping as JSON text; equal mappings have equal texts."""
    return json.dumps(dict(mapping), sort_keys=True, separators=(",", ":"))


def current_versions() -> dict[str, str]:
    """The versions that matter to a measurement, without importing TVM."""
    return dict(_versions())


@functools.cache
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name, package in (("loopwright", "loopwright"), ("tvm", "apache-tvm")):
        installed = metadata.distributions(name=package)
        found[name] = next((d.version for d in installed), "unknown")
    return found


def _workload_text(data: object) -> str:
    if not isinstance(data, dict):
        raise RecordError(f"not a record: its workload is {data!r}")
    return sys.intern(json.dumps(data, separators=(",", ":")))  # many records share it


def _clean(failure: Failure | None) -> Failure | None:
    """Clean a dying worker's output: it need not be text; a record must be."""
    if failure is None:
        return None
    texts = (failure.message, failure.traceback)
    return Failure(failure.kind, *(t.encode(errors="replace").decode() for t in texts))


def _upgraded(data: dict[str, Any]) -> dict[str, Any]:
    """A record of an earlier schema in the form of today."""
    if data["schema"] == 1 and "config" in data:
        config = upgrade.config_json(data["config"])
        numerics = upgrade.numerics_of(Derivation.from_json(config["derivation"]))
        data = {**data, "config": config, "numerics": str(numerics), "schema": 2}
    return data if data["schema"] != 2 else {**data, "facts": {}, "schema": SCHEMA}


def _typed(data: dict[str, Any]) -> dict[str, Any]:
    """The fields that JSON has in another form."""
    return {
        "workload": _workload_text(data["workload"]),
        "config": Config.from_json(data["config"]),
        "seconds": tuple(data["seconds"]),
        "failure": None if data["failure"] is None else Failure.from_json(data["failure"]),
    }


def _problem(r: Record) -> str:
    """Problem of a record; empty if there is none."""
    for name in _TEXTS:
        if not _is_text(getattr(r, name)):
            return f"{name} = {getattr(r, name)!r} is not text"
    for name, check in (("machine", mapping), ("versions", mapping), ("facts", counts)):
        try:
            check(getattr(r, name))
        except TypeError as error:
            return f"{name}: {error}"
    for name in ("build_seconds", "run_seconds", "created"):
        if not _is_time(getattr(r, name)):
            return f"{name} = {getattr(r, name)!r} is not a time in seconds"
    return _problem_of_result(r)


def _problem_of_result(r: Record) -> str:
    if r.schema != SCHEMA:
        return f"schema is {r.schema!r}, not {SCHEMA}"
    if type(r.threads) is not int or not 0 < r.threads < 1 << 31:
        return f"threads = {r.threads!r} is not a number of threads"
    if r.seed is not None and type(r.seed) is not int:
        return f"seed = {r.seed!r} is neither an integer nor None"
    if r.cache not in CACHES:
        return f"cache = {r.cache!r} is none of {CACHES}"
    if not isinstance(r.seconds, tuple) or not all(map(_is_time, r.seconds)):
        return f"seconds = {r.seconds!r} is not a tuple of times"
    if r.numerics not in map(str, Numerics):
        return f"numerics = {r.numerics!r} is none of {', '.join(map(str, Numerics))}"
    if not isinstance(r.config, Config):
        return f"config = {r.config!r} is not a Config"
    f = r.failure
    if f is not None and not (isinstance(f, Failure) and _is_text(f.message + f.traceback)):
        return f"failure = {f!r} is not a Failure in plain text"
    return "" if r.seconds or r.failure else "it has neither timings nor a failure"


def _is_text(value: object) -> bool:
    """Text that UTF-8 can hold."""
    return isinstance(value, str) and value.encode(errors="ignore").decode() == value


def mapping(value: Any) -> dict[str, str]:
    """A mapping of text to text, as it is. Raises `TypeError` for anything else."""
    if not isinstance(value, Mapping) or not all(map(_is_text, (*value, *value.values()))):
        raise TypeError(f"{value!r} does not map text to text")
    return dict(value)


def counts(value: Any) -> dict[str, int]:
    """A mapping of text to integers, as it is. Raises `TypeError` for anything else."""
    if not isinstance(value, Mapping) or not all(map(_is_text, value)):
        raise TypeError(f"{value!r} does not map text to numbers")
    if not all(type(n) is int and 0 <= n < 1 << 63 for n in value.values()):
        raise TypeError(f"{value!r} does not map text to numbers")
    return dict(value)


def _is_time(value: object) -> bool:
    if not isinstance(value, (int, float)) or type(value) is bool:
        return False
    return 0 <= value <= sys.float_info.max  # an integer may be larger
