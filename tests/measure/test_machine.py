"""What is known of this machine."""

from __future__ import annotations

import os

import pytest

from loopwright.measure import machine


def test_the_fingerprint_is_text_and_steady():
    found = machine.fingerprint()
    assert found == machine.fingerprint()
    assert all(isinstance(value, str) for value in found.values())
    assert found["processor"]
    assert found["loopwright"]
    assert found["apache-tvm"]


def test_the_processors_of_cores_are_among_those_that_are_usable():
    assert machine.one_per_core()
    assert machine.one_per_core() <= machine.processors()


def test_sizes_are_plausible():
    assert machine.private_bytes() >= 0
    assert machine.memory_bytes() > 1 << 28
    caches = machine.last_level_caches()
    assert sorted(n for cpus, _ in caches for n in cpus) == sorted(machine.processors())
    assert all(size >= 1 << 18 for _, size in caches)


def test_every_last_level_cache_counts_with_the_processors_that_share_it(tmp_path, monkeypatch):
    for number in range(4):
        for index, (level, kind, size, shared) in enumerate(
            [
                ("1", "Data", "32K", f"{number}"),
                ("1", "Instruction", "64K", f"{number}"),
                ("2", "Unified", "1024K", f"{number}"),
                ("3", "Unified", "16M", f"{number // 2 * 2}-{number // 2 * 2 + 1}"),
            ]
        ):
            folder = tmp_path / f"cpu{number}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            names = ("level", "type", "size", "shared_cpu_list")
            for name, text in zip(names, (level, kind, size, shared)):
                (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(machine, "_CPUS", tmp_path)
    monkeypatch.setattr(machine, "processors", lambda: frozenset({0, 1, 2}))
    machine._caches_of.cache_clear()
    try:
        assert machine.last_level_caches() == [((0, 1), 16 << 20), ((2,), 16 << 20)]
        assert machine.private_bytes() == 1 << 20
    finally:
        machine._caches_of.cache_clear()


@pytest.mark.parametrize(
    ("threads", "ticks", "expected"),
    [
        (2, 100, 0.0),  # of a second on two cores, all for ours
        (2, 160, 0.6),
        (1, 160, 0.0),  # there is a free core
        (1, 240, 0.4),
    ],
)
def test_cores_that_others_keep_busy_are_in_the_way_where_none_is_free(
    monkeypatch, threads, ticks, expected
):
    hertz = os.sysconf("SC_CLK_TCK")
    now = [0.0]
    monkeypatch.setattr(machine, "processors", lambda: frozenset({0, 1}))
    monkeypatch.setattr(machine, "one_per_core", lambda: frozenset({0, 1}))
    monkeypatch.setattr(machine.time, "monotonic", lambda: now[0])

    def files(path):
        passed = now[0] * hertz / 100
        if path.name != "stat" or path.parent.name not in ("proc", "7"):
            return ""
        if path.parent.name == "7":
            return f"7 (a name) S {'0 ' * 10}{100 * passed:.0f} 0 0"
        half = f"{ticks / 2 * passed:.0f}"
        return f"cpu 0 0 0 0\ncpu0 {half} 0 0 9 9 0 0 0 5 5\ncpu1 0 0 {half} 9 9 0 0 0 0 0\n"

    monkeypatch.setattr(machine, "read", files)
    watch = machine.Neighbours(7)
    now[0] = 1.0
    assert watch.in_the_way(threads) == pytest.approx(expected)


def test_nothing_is_known_to_be_in_the_way_where_the_system_does_not_tell(monkeypatch):
    monkeypatch.setattr(machine, "read", lambda path: "")
    assert machine.Neighbours(7).in_the_way(64) == 0.0
