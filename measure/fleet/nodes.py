"""This machine as a node of a Ray cluster: how it is started, and how it leaves.

Ray's own command does it, by its documented options. A head listens on loopback alone unless an
address is given; then a token is asked of whoever connects, for a cluster runs what it is sent.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loopwright.measure.device import DeviceError
from loopwright.measure.fleet import cluster
from loopwright.measure.fleet.cluster import RESOURCE
from loopwright.measure.fleet.joining import listen_on_loopback, ray_package, where_file

PORT = 6379
"""Port of a head, Ray's own."""
CLIENTS = 10001
"""Port of a head for `ray://host:port`, Ray's own."""
_LEAVES = 10.0, 70.0
"""Seconds to wait for a node that drains: at first, and past the deadline that Ray is told."""
_START = 180.0  # seconds
_PROCESSES = {
    "RAY_USAGE_STATS_ENABLED": "0",  # Ray's, which go to its makers
    "RAY_worker_niceness": "0",  # else what is measured would give way to everything
}


def start_head(
    listen: str | None, port: int, builders: int | None, measures: bool, folder: Path | None = None
) -> str:
    """Start the head of a fleet on this machine; its address. `listen` is the address of this
    machine that others reach, None for loopback; `builders` as many cores as build, all by
    default; `folder` is Ray's, of logs and sockets."""
    words = ["start", "--head", f"--port={port}", "--include-dashboard=false"]
    environment = dict(_PROCESSES)
    if listen is None:
        listen_on_loopback()
    else:
        environment["RAY_AUTH_MODE"] = os.environ.get("RAY_AUTH_MODE", "token")
        if environment["RAY_AUTH_MODE"] == "token":
            _ray(["get-auth-token", "--generate"], environment)
        words += [f"--node-ip-address={listen}", f"--ray-client-server-port={CLIENTS}"]
    words += [] if folder is None else [f"--temp-dir={folder}"]
    _ray([*words, *_offers(builders, measures)], environment)
    return _note_address(f"{listen or '127.0.0.1'}:{port}")


def join_head(address: str, builders: int | None, measures: bool) -> None:
    """Make this machine a node of the fleet whose head has an address."""
    token = {} if "RAY_AUTH_MODE" in os.environ else {"RAY_AUTH_MODE": "token"}
    _ray(["start", f"--address={address}", *_offers(builders, measures)], _PROCESSES | token)
    _note_address(address)


def _note_address(address: str) -> str:
    """Note the address of the head where `auto` finds it."""
    file = where_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"address": address}), encoding="utf-8")
    return address


def leave(node: str, address: str) -> bool:
    """Let a node take no new work, and end as soon as it has none; whether Ray agreed."""
    reason = ["--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=loopwright fleet drain"]
    words = ["drain-node", f"--address={address}", f"--node-id={node}", *reason]
    try:
        _ray([*words, "--deadline-remaining-seconds=60"], {})
    except DeviceError:
        return False
    return True


def _offers(builders: int | None, measures: bool) -> list[str]:
    """Resources of a node, as options of `ray start`."""
    words = ["--disable-usage-stats"]
    words += [] if builders is None else [f"--num-cpus={builders}"]
    return words + ([f"--resources={json.dumps({RESOURCE: 1})}"] if measures else [])


def _ray(words: list[str], environment: Mapping[str, str]) -> str:
    """Run Ray's command. Raises `DeviceError` with its last words."""
    ray_package()
    command = [sys.executable, "-m", "ray.scripts.scripts", *words]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=_START,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DeviceError(f"`ray {words[0]}` did not end within {_START:g} s") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise DeviceError(f"`ray {shlex.join(words)}` failed, and says: {said[-1000:]}")
    return done.stdout


def drained(name: str, actor: Any, seconds: float) -> str:
    """Wait until a machine that drains has no work, and let it leave; what became of it, in
    words. Raises `DeviceError` where it is busy for longer than that."""
    ray, end = ray_package(), time.monotonic() + seconds
    while True:
        status = cluster.ask_all({"": cluster.control(actor, "status")})[""]
        if not isinstance(status, dict):
            return f"{name} is gone"
        if not status["for"]:
            break
        if time.monotonic() >= end:
            raise DeviceError(
                f"{name} still measures for {status['for']}; it takes no new work, so wait, and "
                "give the command again"
            )
        time.sleep(0.2)
    node = cluster.nodes().get(name)
    if node is None:  # the head drives it
        cluster.remove(name)
        return f"{name} has left"
    offers = {n["NodeID"]: n["Resources"] for n in ray.nodes()}
    head = "node:__internal_head__" in offers[node]
    address = ray.get_runtime_context().gcs_address
    if head or not leave(node, address):
        return f"{name} measures no more"
    cluster.remove(name)
    first, last = _LEAVES
    # It may miss that an actor ended.
    if _gone(name, first) or (leave(node, address) and _gone(name, last)):
        return f"{name} has left"
    return f"{name} measures no more, but Ray keeps its node: end Ray there, by `ray stop`"


def _gone(name: str, seconds: float) -> bool:
    """Return whether a machine's node leaves in time."""
    end = time.monotonic() + seconds
    while name in cluster.nodes():
        if time.monotonic() >= end:
            return False
        time.sleep(0.2)
    return True
