"""Shares of processors and memory that control groups grant."""

from __future__ import annotations

import os

import pytest

from loopwright.codegen import processors
from loopwright.measure import machine

ALL = len(os.sched_getaffinity(0))


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Makes up what /sys/fs/cgroup and /proc/self/cgroup say."""

    def make(own, **files):
        (tmp_path / "own").write_text(own)
        for name, text in files.items():
            path = tmp_path.joinpath(
                *name.split("__")[:-1], name.split("__")[-1].replace("_", ".")
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.setattr(processors, "_ROOT", tmp_path)
        monkeypatch.setattr(processors, "_OWN", tmp_path / "own")

    return make


def test_a_share_of_the_processors_is_counted_up(groups):
    groups("0::/\n", cpu_max="50000 100000\n")
    assert processors.usable_processors() == 1


@pytest.mark.parametrize("text", ["max 100000\n", f"{ALL * 100_000} 100000\n", "", "nonsense\n"])
def test_without_a_limit_all_that_may_be_used_count(groups, text):
    groups("0::/\n", cpu_max=text)
    assert processors.usable_processors() == ALL


def test_a_group_is_limited_by_those_around_it(groups):
    groups("0::/job/step\n", job__cpu_max="100000 100000\n", job__step__cpu_max="max 100000\n")
    assert processors.usable_processors() == 1


def test_the_first_version_of_control_groups_is_read_too(groups, tmp_path):
    groups("3:cpu,cpuacct:/job\n2:memory:/job\n")
    job = tmp_path / "cpu" / "job"
    job.mkdir(parents=True)
    (job / "cpu.cfs_quota_us").write_text("100000\n")
    (job / "cpu.cfs_period_us").write_text("100000\n")
    assert processors.usable_processors() == 1
    (job / "cpu.cfs_quota_us").write_text("-1\n")
    assert processors.usable_processors() == ALL


def test_memory_is_that_of_the_smallest_group_around(groups):
    before = machine.fingerprint()
    groups("0::/job/step\n", job__memory_max=f"{1 << 29}\n", job__step__memory_max="max\n")
    assert machine.memory_bytes() == 1 << 29
    assert machine.fingerprint() == before
    assert machine.builders() == (1, 2 << 30)


def test_elsewhere_there_are_no_groups(groups, tmp_path):
    groups("")
    (tmp_path / "own").unlink()
    assert processors.usable_processors() == ALL
    assert machine.memory_bytes() > 1 << 28
