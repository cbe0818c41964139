"""Records for the tests: made by hand, and drawn by Hypothesis."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

from hypothesis import strategies as st

import loopwright as lw
from loopwright.measure.device import FAILURES, Failure, Measurement
from loopwright.schedule.sketch.naming import Derivation, SketchName, Step
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target
from loopwright.transfer.records.record import Record
from tests.sketches import direct

AVX512 = Target(
    mcpu="skylake-avx512", features=("+sse3", "+avx2", "+avx512f", "+lzcnt"), threads=2
)
MACHINE = {"processor": "Some CPU", "cores": "2", "system": "Linux 6.1", "apache-tvm": "0.27.0"}
OTHER = {**MACHINE, "processor": "Another CPU"}


@functools.cache
def matmul(m: int = 4, k: int = 5, n: int = 6, names: str = "A B C") -> lw.Workload:
    a, b, c = names.split()
    i, j, r = lw.indices("i j r")
    A, B, C = lw.tensor(a, (m, k)), lw.tensor(b, (k, n)), lw.tensor(c)
    C[i, j] += A[i, r] * B[r, j]
    return lw.workload(C)


def config(number: int) -> Config:
    return Config(direct("vector=1 tile=0"), (("tile0", (number, 16)), ("unroll0", (1,))))


def record(
    number: int = 0,
    milliseconds: float = 1.0,
    workload: lw.Workload | None = None,
    target: Target = AVX512,
    machine: dict[str, str] = MACHINE,
    **changes: Any,
) -> Record:
    """A success of config `number`, unless `changes` say otherwise."""
    seconds = (milliseconds * 1e-3,) * 3
    m = Measurement(config(number), seconds, None, 0.1, 0.2, "warm", target.threads, 1e9 + number)
    made = Record.of(workload or matmul(), target, machine, m, seed=7, session="a session")
    return dataclasses.replace(made, **changes)


def failed(number: int = 0, kind: str = "crash", **changes: Any) -> Record:
    failure = Failure(kind, "killed by signal 9", "Traceback\n  …")
    return record(number, **{"seconds": (), "failure": failure, **changes})


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
times = st.floats(0, 1e6)
mappings = st.dictionaries(keys, texts, max_size=3)
steps = st.builds(
    Step,
    texts,
    st.dictionaries(keys, st.integers(-(2**70), 2**70), max_size=2).map(dict.items).map(tuple),
)
derivations = st.builds(Derivation, st.lists(steps, max_size=2).map(tuple))
configs = st.builds(
    Config,
    st.builds(SketchName, derivations, texts),
    st.dictionaries(
        keys, st.lists(st.integers(-(2**70), 2**70), max_size=3).map(tuple), max_size=4
    )
    .map(dict.items)
    .map(tuple),
)
failures = st.builds(Failure, st.sampled_from(FAILURES), texts, texts)
results = st.one_of(
    st.tuples(st.lists(times, min_size=1, max_size=5).map(tuple), st.none()),
    st.tuples(st.lists(times, max_size=5).map(tuple), failures),
)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Any record that is legal, whether or not a search could make it."""
    workload = draw(st.dictionaries(texts, st.lists(st.integers(), max_size=3), max_size=3))
    seconds, failure = draw(results)
    return Record(
        workload_key=draw(texts),
        workload=json.dumps(workload, separators=(",", ":")),
        target=draw(texts),
        machine=draw(mappings),
        threads=draw(st.integers(1, 2**31 - 1)),
        config=draw(configs),
        numerics=draw(st.sampled_from(["strict", "standard", "fast"])),
        seconds=seconds,
        failure=failure,
        cache=draw(st.sampled_from(["warm", "cold"])),
        build_seconds=draw(times),
        run_seconds=draw(times),
        seed=draw(st.none() | st.integers(-(2**130), 2**130)),
        session=draw(texts),
        versions=draw(mappings),
        created=draw(times),
        facts=draw(st.dictionaries(keys, st.integers(0, 2**63 - 1), max_size=3)),
    )
