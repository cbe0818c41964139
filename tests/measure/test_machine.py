"""What is known of this machine."""

from __future__ import annotations

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
