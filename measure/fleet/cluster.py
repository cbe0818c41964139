"""The Ray cluster that a fleet is: how it is reached, and which actors of it measure.

Every node that offers the resource `RESOURCE` has one actor (`station.Station`), which holds it
for life. So a machine has one measurement at a time, and calls that wait are its queue. `Board`
keeps what tuners tell of themselves, for the live view.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Any

from loopwright.measure.device import DeviceError
from loopwright.measure.fleet.joining import NAMESPACE, ray_package

RESOURCE = "loopwright_measure"
"""Ray's custom resource of a machine that measures; each has one of it."""
_MACHINE, _BOARD = "measures:", "board"
_ALIVE = 10.0  # seconds in which an actor must say that it is there


class LostError(Exception):
    """An answer that was lost with the process or the machine that was at it; `gone` where that
    does not come back."""

    def __init__(self, error: Exception, gone: bool) -> None:
        super().__init__(str(error))
        self.gone = gone


def answer_of(call: Any) -> Any:
    """The answer to a call of a machine's actor. Raises `LostError`."""
    ray = ray_package()
    errors = ray.exceptions
    try:
        return ray.get(call)
    except (errors.RayTaskError, errors.TaskCancelledError):
        raise  # which is an error of ours
    except errors.RayError as error:
        gone = isinstance(error, (errors.ActorDiedError, errors.ActorUnschedulableError))
        raise LostError(error, gone) from error


def nodes() -> dict[str, str]:
    """The numbers of the nodes that measure, by the names of their machines."""
    offers = (n for n in ray_package().nodes() if n["Alive"] and n["Resources"].get(RESOURCE, 0))
    return {f"{n['NodeManagerHostname']}-{n['NodeID'][:6]}": n["NodeID"] for n in offers}


def stations() -> dict[str, Any]:
    """The actors that measure, by the names of their machines. Nodes that offer the resource and
    have none yet, as those that Ray's own launchers started, get one."""
    there = actors()
    missing = {name: node for name, node in nodes().items() if name not in there}
    for name, node in missing.items():
        on_node(name, node)
    return actors() if missing else there


def actors() -> dict[str, Any]:
    """The actors that measure and are there, by the names of their machines."""
    ray, found = ray_package(), {}
    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["namespace"] == NAMESPACE and actor["name"].startswith(_MACHINE):
            try:
                name = actor["name"].removeprefix(_MACHINE)
                found[name] = ray.get_actor(actor["name"], namespace=NAMESPACE)
            except ValueError:  # it went meanwhile
                continue
    return dict(sorted(found.items()))


def on_node(name: str, node: str, where: Mapping[str, Any] | None = None) -> Any:
    """The actor that measures on a node, made unless it is there; `where` as for `Station`."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    place = NodeAffinitySchedulingStrategy(node, soft=False)
    return _station(name, where or {}, resources={RESOURCE: 1}, scheduling_strategy=place)


def for_url(url: str) -> Any:
    """The actor on the head that measures on the machine that a URL names, such as
    "ssh://pi@board". The machine needs neither Ray nor Python."""
    return _station(url, {"url": url}, resources={"node:__internal_head__": 0.001})


def _station(name: str, where: Mapping[str, Any], **options: Any) -> Any:
    from loopwright.measure.fleet.station import Station

    # A process that is killed comes again, by Ray. What it was at does not: the tuner that asked
    # gives that to another machine.
    ray = ray_package()
    for beside in (Station.status, Station.drain):  # a mark, as the decorator makes it
        ray.method(concurrency_group="control")(beside)
    actor = ray.remote(num_cpus=0, concurrency_groups={"control": 2})(Station)
    return actor.options(
        name=_MACHINE + name,
        namespace=NAMESPACE,
        get_if_exists=True,
        lifetime="detached",
        max_restarts=-1,
        max_task_retries=0,
        **options,
    ).remote(name, dict(where))


def remove(name: str) -> None:
    """End a machine's actor."""
    ray = ray_package()
    try:
        ray.kill(ray.get_actor(_MACHINE + name, namespace=NAMESPACE))
    except ValueError as error:
        raise DeviceError(f"no machine of the fleet is called {name}") from error


def control(actor: Any, do: str, *arguments: Any) -> Any:
    """Ask a machine's actor for its `status`, or to `drain`, beside its work."""
    return getattr(actor, do).remote(*arguments)


def ask_all(calls: Mapping[str, Any], seconds: float = _ALIVE) -> dict[str, Any]:
    """The answers to calls, by the same names; an exception of Ray's in the place of an answer
    that does not come in time, or from an actor that is gone."""
    ray = ray_package()
    if not calls:
        return {}
    ray.wait(list(calls.values()), num_returns=len(calls), timeout=seconds)
    answers: dict[str, Any] = {}
    for name, call in calls.items():
        try:
            answers[name] = ray.get(call, timeout=0.1)
        except ray.exceptions.RayError as error:
            answers[name] = error
    return answers


def board() -> Any:
    """The actor that keeps what the live view shows."""
    return (
        ray_package()
        .remote(num_cpus=0)(Board)
        .options(
            name=_BOARD,
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            max_restarts=-1,
        )
        .remote()
    )


_TUNERS = 64  # whose last words are kept
_GONE = 60.0  # seconds of silence after which a tuner is taken to be gone


class Board:
    """Keeps the last word of every tuner, and what was set aside; nothing depends on it."""

    def __init__(self) -> None:
        self._tuners: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._notes: list[dict[str, Any]] = []

    def tell(self, tuner: str, data: Mapping[str, Any]) -> None:
        """Take notice of what a tuner is at; `data` are of `device.FleetDevice`."""
        self._tuners[tuner] = {**data, "told": time.time()}
        self._tuners.move_to_end(tuner)
        while len(self._tuners) > _TUNERS:
            self._tuners.popitem(last=False)

    def note(self, text: str) -> None:
        """Keep a line for those who look."""
        self._notes = [*self._notes, {"time": time.time(), "text": text}][-100:]

    def snapshot(self) -> dict[str, Any]:
        """All of it, as plain data."""
        now = time.time()
        tuners = [
            {**data, "name": name, "gone": data["ended"] or now - data["told"] > _GONE}
            for name, data in self._tuners.items()
        ]
        return {"time": now, "tuners": tuners, "notes": list(self._notes)}


def look() -> dict[str, Any]:
    """The machines, the tuners and the lines that were noted, of the cluster that this process is
    in. Machines of users' own nodes get an actor by the first tuner, and show from then on."""
    ray = ray_package()
    calls = {name: control(actor, "status") for name, actor in actors().items()}
    machines = []
    for name, told in ask_all(calls).items():
        if isinstance(told, Exception):
            told = {"name": name, "lost": True}
        machines.append(told)
    found = ray.get(board().snapshot.remote())
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
