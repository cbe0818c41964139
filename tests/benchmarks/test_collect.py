"""Which workload is visited next when records are collected."""

import sys
from pathlib import Path

import numpy as np
import pytest

from loopwright.measure.device import Measurement
from loopwright.measure.machine import fingerprint
from loopwright.schedule.space import space
from loopwright.schedule.target import Target
from loopwright.transfer.records.store import Record, RecordStore

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import collect

SIZE = 4
TARGETS = tuple(
    Target(kind="llvm", triple="x86_64-linux-gnu", mcpu="x86-64-v3", threads=n) for n in (1, 2)
)


@pytest.fixture(scope="module")
def jobs():
    return collect.jobs(6, TARGETS, seed=1)


@pytest.fixture
def store(tmp_path):
    with RecordStore(tmp_path / "collected.db") as opened:
        yield opened


def visit(store, job, configs):
    store.add(
        Record.of(
            job.workload,
            job.target,
            fingerprint(),
            Measurement(c, (1e-3,), None, 0.1, 0.1, "warm", job.threads, 1e9),
            session=f"{len(store)}",
        )
        for c in configs
    )


def some(job, count=SIZE):
    of, rng = space(job.workload, job.target), np.random.default_rng(0)
    return list(dict.fromkeys(of.sample(rng) for _ in range(count)))


def test_every_workload_is_visited_for_every_target(jobs):
    assert len({job.key for job in jobs}) == len(jobs) == 12
    assert {job.threads for job in jobs[:6]} == {1, 2}


def test_the_least_visited_come_first_until_they_have_had_enough(jobs, store):
    assert collect.ordered(jobs, store, SIZE, visits=1) == jobs
    visit(store, jobs[0], some(jobs[0]))
    assert collect.ordered(jobs, store, SIZE, visits=1) == jobs[1:]
    assert collect.ordered(jobs, store, SIZE, visits=2) == [*jobs[1:], jobs[0]]


def test_again_means_the_same_configs_of_what_was_visited(jobs, store):
    first = some(jobs[3])
    visit(store, jobs[3], first)
    assert collect.ordered(jobs, store, SIZE, visits=1, again=True) == []
    assert collect.ordered(jobs, store, SIZE, visits=2, again=True) == [jobs[3]]
    assert collect.known(jobs[3], store, SIZE) == first
    visit(store, jobs[3], first)
    assert collect.ordered(jobs, store, SIZE, visits=2, again=True) == []
