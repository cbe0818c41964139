"""The state of a fleet, as plain data: for tables, the page, and programs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from loopwright.measure.fleet import cluster
from loopwright.measure.fleet.joining import ray_package


def look() -> dict[str, Any]:
    """The machines, the tuners and the lines that were noted, of the cluster that this process is
    in. Machines of users' own nodes get an actor by the first tuner, and show from then on."""
    ray = ray_package()
    actors = cluster.actors()
    calls = {name: cluster.control(actor, "status") for name, actor in actors.items()}
    machines = []
    for name, told in cluster.ask_all(calls).items():
        if isinstance(told, Exception):
            told = {"name": name, "lost": True}
        machines.append(told)
    found = ray.get(cluster.board().snapshot.remote())
    failures: Counter[str] = Counter()
    for machine in machines:
        failures.update(machine.get("failures", {}))
    live = [t for t in found["tuners"] if not t["gone"]]
    factors = {name: f for tuner in found["tuners"] for name, f in tuner["machines"].items()}
    for machine in machines:
        machine["factor"] = factors.get(machine["name"])
        machine["state"] = state(machine)
    return {
        "time": found["time"],
        "machines": machines,
        "cores": ray.cluster_resources().get("CPU", 0),
        "free_cores": ray.available_resources().get("CPU", 0),
        "queue": sum(tuner["queue"] for tuner in live),
        "failures": dict(failures),
        "tuners": found["tuners"],
        "notes": found["notes"],
    }


def state(machine: dict[str, Any]) -> str:
    """A machine's state in a word: lost, busy, idle, draining, drained."""
    if machine.get("lost"):
        return "lost"
    busy = bool(machine["for"])
    if machine["draining"]:
        return "draining" if busy else "drained"
    return "busy" if busy else "idle"
