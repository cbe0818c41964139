"""Many machines as one device: nodes of a local Ray cluster, with replayed devices."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

import loopwright as lw
from loopwright.explore.strategies.baselines import RandomSearch
from loopwright.measure.device import DeviceError, TimeUpError
from loopwright.measure.fleet import cluster, crew
from loopwright.measure.fleet.cluster import look
from loopwright.measure.fleet.device import FleetDevice
from loopwright.measure.fleet.nodes import drained
from loopwright.measure.remote.route import SSH
from loopwright.schedule.space import space
from loopwright.schedule.target import Target
from loopwright.transfer.records.store import RecordStore
from tests.measure.fleet.machines import Replayed, cost, staff, statuses

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore::ResourceWarning")]
TARGET = Target(features=("+avx2", "+fma"))


@pytest.fixture(scope="module")
def ray_cluster(tmp_path_factory):
    board = tmp_path_factory.mktemp("board")
    shell = board / "ssh"  # of this machine, in place of another one's
    shell.write_text(f"#!/bin/sh\nXDG_CACHE_HOME={board} exec sh\n")
    shell.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            (SSH, str(shell)),
            ("RAY_AUTH_MODE", "disabled"),
            ("RAY_USAGE_STATS_ENABLED", "0"),
            ("RAY_worker_niceness", "0"),
        ):
            patch.setenv(name, value)
        import ray
        from ray.cluster_utils import Cluster

        made = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "object_store_memory": 100 << 20},
        )
        try:
            for _ in range(3):
                made.add_node(
                    num_cpus=0,
                    resources={cluster.RESOURCE: 1},
                    object_store_memory=100 << 20,
                    wait=False,
                )
            made.wait_for_nodes()
            ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
            yield made
        finally:
            ray.shutdown()
            made.shutdown()


@pytest.fixture
def names(ray_cluster):
    return sorted(cluster.nodes())[:3]


@pytest.fixture(scope="module")
def product():
    i, j, k = lw.indices("i j k")
    A, B, C = lw.tensor("A", (65, 33)), lw.tensor("B", (33, 47)), lw.tensor("C")
    C[i, j] += A[i, k] * B[k, j]
    return lw.workload(C)


@pytest.fixture(scope="module")
def configs(product):
    sketch = space(product, TARGET).sketches[0]
    rng = np.random.default_rng(0)
    drawn = {
        sketch.at([int(rng.integers(len(k.choices))) for k in sketch.knobs]): None
        for _ in range(60)
    }
    return list(drawn)[:24]


def measured_on(device, product, configs):
    found = list(device.measure(product, configs))
    assert [m.config for m in found] == configs
    return found


def test_equal_machines_share_the_candidates_and_each_is_measured_once(
    names, product, configs, tmp_path
):
    log = tmp_path / "log"
    staff(dict.fromkeys(names, Replayed(TARGET, delay=0.01, log=str(log))))
    with FleetDevice() as device:
        assert set(device.machines) == set(names)
        device.check()
        found = measured_on(device, product, configs)
        assert "3 machines measured the same 3 candidates" in device.notes[-1]
        assert device.verify(product, configs[0]) is None
        assert device.compare(product, configs[:2], 3).samples[1] == (cost(configs[1]),) * 3
        assert device.fingerprint() == {"processor": "replayed"}
        assert not device.here
        device.until(0.0)
        with pytest.raises(TimeUpError):
            next(device.measure(product, configs))
        device.until(math.inf)
        early = list(device.measure(product, configs, lambda: True))
        assert 3 <= len(early) < len(configs)
    assert [m.cost for m in found] == [cost(c) for c in configs]
    lines = log.read_text().splitlines()
    assert len({line.split()[0] for line in lines}) == 3
    # All compare themselves by the first three.
    assert len(lines) == len(configs) + 3 * 3 + len(early)
    assert sum(m["measured"] for m in statuses().values()) == len(lines)


def test_what_a_killed_machine_was_at_is_measured_elsewhere_once(names, product, configs):
    before = staff(dict.fromkeys(names, Replayed(TARGET, delay=0.05)))
    with FleetDevice() as device:
        found = device.measure(product, configs)
        got = [next(found)]
        os.kill(before[names[1]]["pid"], signal.SIGKILL)
        got += found
        assert [m.config for m in got] == configs
        assert [m.cost for m in got] == [cost(c) for c in configs]
        assert any(names[1] in note and "lost" in note for note in device.notes)


def test_a_candidate_that_ends_two_machines_is_a_failure_of_its_own(names, product, configs):
    deadly = str(configs[7])
    staff(dict.fromkeys(names, Replayed(TARGET, deadly=deadly)))
    with FleetDevice() as device:
        found = measured_on(device, product, configs)
    assert [m.config for m in found if m.failure] == [configs[7]]
    assert found[7].failure.kind == "crash"
    assert "machines were lost while they measured it" in found[7].failure.message


def test_a_machine_of_another_kind_or_that_differs_from_its_like_is_not_used(
    names, product, configs, tmp_path
):
    slower = tmp_path / "slower"
    slower.write_text("1.3")
    sound = Replayed(TARGET)
    other = replace(sound, processor="another")
    staff({names[0]: other, names[1]: sound, names[2]: replace(sound, slower=str(slower))})
    with FleetDevice() as device:
        assert f"not used: {names[0]} is of another kind (another)" in device.notes
        found = measured_on(device, product, configs)
        assert device.machines == (names[1],)
        assert any("30 % slower than its like" in note for note in device.notes)
    assert [m.cost for m in found] == [cost(c) for c in configs]


def test_a_machine_that_drifts_is_set_aside_and_what_it_measured_is_doubted(
    names, product, configs, tmp_path, monkeypatch
):
    slower = tmp_path / "slower"
    slower.write_text("1.0")
    sound = Replayed(TARGET, delay=0.01)
    staff({**dict.fromkeys(names, sound), names[2]: replace(sound, slower=str(slower))})
    with FleetDevice() as device:
        measured_on(device, product, configs[:6])
        assert set(device.machines) == set(names)
        slower.write_text("1.5")
        before = {m.config: m.cost for m in measured_on(device, product, configs[6:12])}
        off = {c for c in configs[6:12] if before[c] != cost(c)}
        assert not device.doubtful(product), "nobody has looked yet"
        monkeypatch.setattr(crew, "_CHECK", 0.0)
        found = measured_on(device, product, configs[12:])
        assert set(device.machines) == set(names[:2])
        assert any("50 % slower than at the start" in note for note in device.notes)
        assert off < set(device.doubtful(product)) <= set(configs[:12])
        assert not device.doubtful(product), "each is told once"
    assert [m.cost for m in found] == [cost(c) for c in configs[12:]]


def test_a_machine_that_drains_takes_no_new_work(names, product, configs):
    staff(dict.fromkeys(names, Replayed(TARGET, delay=0.02)))
    with FleetDevice() as device:
        found = device.measure(product, configs)
        got = [next(found)]
        cluster.control(cluster.actors()[names[0]], "drain")
        got += found
        assert [m.config for m in got] == configs
        assert names[0] not in device.machines
        shown = {m["name"]: m["state"] for m in look()["machines"]}
        assert shown == {names[0]: "drained", names[1]: "idle", names[2]: "idle"}


def test_a_machine_that_went_with_its_node_is_lost_for_good(ray_cluster):
    actor = cluster.on_node("gone", "ab" * 28)
    try:
        with pytest.raises(cluster.LostError, match="doesn't exist any more") as lost:
            cluster.answer_of(actor.ask.remote("facts", {}, {}))
        assert lost.value.gone
    finally:
        with contextlib.suppress(DeviceError):  # Ray may have forgotten it
            cluster.remove("gone")


def test_sigterm_is_left_as_it_was(tmp_path, ray_cluster):
    joins = "import signal, sys; from loopwright.measure.fleet.joining import join\n"
    joins += "join(sys.argv[1]); signal.raise_signal(signal.SIGTERM)"
    command = [sys.executable, "-c", joins, ray_cluster.address]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGTERM
    assert "SIGTERM" not in ended.stderr


def test_a_fleet_without_machines_says_so(names, monkeypatch):
    staff({})
    monkeypatch.setattr(cluster, "nodes", dict)
    with pytest.raises(DeviceError, match="no machine of the fleet measures: add one"):
        FleetDevice()


def test_a_search_over_a_fleet_finds_what_one_machine_finds(names, product, tmp_path):
    staff(dict.fromkeys(names, Replayed(TARGET)))
    store = tmp_path / "records.db"
    with FleetDevice() as device:
        tuned = lw.tune(product, device=device, trials=40, records=store, strategy="random")
    with RecordStore(store) as records:
        found = list(records.query(product.key, str(TARGET), threads=1))
    searched = [r for r in found if not r.session.endswith("finals")]
    assert {r.machine["processor"] for r in found} == {"replayed"}
    assert len({r.config for r in searched}) == 40
    assert {m.config for m in tuned.history} == {r.config for r in searched}
    assert all(m.cost == cost(m.config) for m in tuned.history)


def test_candidates_are_built_by_tasks_and_equal_the_oracle(names, product):
    staff({names[0]: None})
    with FleetDevice(threads=1) as device:
        points = space(product, device.target)
        (found,) = device.measure(product, [points.default])
        assert found.failure is None
        assert found.build_seconds > 0
        assert device.verify(product, points.default) is None
        assert _listening("workers import worker") == set()


@pytest.mark.slow
def test_a_board_that_a_url_names_is_driven_by_the_head(names, product, monkeypatch):
    staff({})
    monkeypatch.setattr(cluster, "nodes", dict)
    cluster.for_url("ssh://me@board")
    try:
        with FleetDevice(threads=1) as device:
            assert device.machines == ("ssh://me@board",)
            points = space(product, device.target)
            (found,) = device.measure(product, [points.default])
            assert found.failure is None
            assert device.verify(product, points.default) is None
        (machine,) = look()["machines"]
        assert (machine["url"], machine["state"]) == ("ssh://me@board", "idle")
    finally:
        cluster.remove("ssh://me@board")


@pytest.mark.slow
def test_a_whole_search_over_a_fleet_gives_a_library_that_equals_the_oracle(names, product):
    staff({names[0]: None})
    with FleetDevice(threads=1) as device:
        tuned = lw.tune(product, device=device, trials=4, records=None, strategy="random")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype("float32") for s in ((65, 33), (33, 47)))
    np.testing.assert_allclose(tuned.library(a, b), a @ b, rtol=1e-4, atol=1e-4)
    assert not tuned.failures


@pytest.mark.slow
def test_tuners_of_many_workloads_take_a_users_own_strategy_with_them(names, product):
    staff(dict.fromkeys(names[:2], Replayed(TARGET)))
    i, j = lw.indices("i j")
    A, B = lw.tensor("A", (30, 50)), lw.tensor("B")
    B[i, j] = lw.relu(A[i, j])
    found = list(
        lw.tune_many([product, lw.workload(B)], trials=5, records=None, strategy=Backwards)
    )
    for one, workload in zip(found, (product, lw.workload(B)), strict=True):
        assert one.workload == workload
        assert [m.cost for m in one.history] == [cost(m.config) for m in one.history]
        assert len(one.history) == 5
        assert one.seconds == cost(one.config) <= one.default


def test_a_node_that_drains_leaves_or_is_named_and_measures_no_more(names, product, configs):
    staff(dict.fromkeys(names, Replayed(TARGET)))
    actor = cluster.actors()[names[0]]
    cluster.control(actor, "drain")
    said = drained(names[0], actor, 30.0)
    if said == f"{names[0]} has left":
        end = time.monotonic() + 120  # Ray finds out by questions that are not answered
        while names[0] in cluster.nodes() and time.monotonic() < end:
            time.sleep(0.1)
        assert names[0] not in cluster.nodes()
    else:  # now and then Ray accepts the request, and does nothing
        assert "end Ray there, by `ray stop`" in said
    with FleetDevice() as device:
        assert set(device.machines) == set(names[1:])
        measured_on(device, product, configs)


class Backwards(RandomSearch):
    """A user's own strategy, which goes by value."""


def _listening(command: str) -> set[int]:
    """Numbers of processes of a command that listen on a port."""
    import psutil  # which Ray brings along

    return {
        p.pid
        for p in psutil.process_iter(["cmdline"])
        if command in " ".join(p.info["cmdline"] or ())
        for c in p.net_connections("tcp")
        if c.status == psutil.CONN_LISTEN
    }
