"""The way of this process into the Ray cluster of a fleet."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loopwright.measure.device import DeviceError
from loopwright.packages import optional

NAMESPACE = "loopwright"
"""Ray's namespace of the actors of a fleet."""
ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Environment of processes of a fleet on one machine: Ray then listens on loopback alone, as it
does on systems where it has no clusters."""

_ADDRESS = re.compile(r"auto|(ray://)?[^/@\s:]+:\d{1,5}")


def ray_package() -> Any:
    """The package `ray`. Raises `DeviceError` where it is not installed."""
    return optional("ray", "a fleet", DeviceError)


def join(address: str) -> Callable[[], None]:
    """Connect to the cluster at an address, unless this process is in one already; what leaves it
    again. Raises `DeviceError` with what to do."""
    if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
        raise DeviceError(f'fleet = {address!r}: give "auto", "ray://host:port" or "host:port"')
    if address == "auto" and "RAY_ADDRESS" not in os.environ:
        address = _started_here() or address
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if "ray" in sys.modules and ray_package().is_initialized():
        return lambda: None
    if address.startswith("127.0.0.1:"):
        listen_on_loopback()
    ray = ray_package()
    ends = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR
        )
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
        hint = "see `ray status` there"
        if address == "auto" or address.startswith("127.0.0.1:"):
            hint = "start one by `loopwright fleet start`"
        raise DeviceError(f"no fleet answers at {address} ({error}); {hint}") from error
    finally:
        # Ray's own handlers end the process with a trace of its C++, and with another status.
        if threading.current_thread() is threading.main_thread() and ends is not None:
            signal.signal(signal.SIGTERM, ends)
    shutdown: Callable[[], None] = ray.shutdown
    return shutdown


def listen_on_loopback() -> None:
    """Let Ray in this process, and in those that it starts, use loopback alone. Ray looks at that
    when it is imported: raises `DeviceError` where that is over."""
    ((name, value),) = ON_LOOPBACK.items()
    if "ray" in sys.modules and os.environ.get(name) != value:
        raise DeviceError(
            f"Ray was imported before it knew that the fleet is on loopback: set {name}={value} "
            "in the environment, or import ray after the first use of the fleet"
        )
    os.environ[name] = value


def where_file() -> Path:
    """The file with the address of the fleet that `loopwright fleet` made this machine a part
    of. No address of another file is believed, and nothing but an address is read of it."""
    return Path.home() / ".cache" / "loopwright" / "fleet.json"


def _started_here() -> str | None:
    """Address of the fleet that this machine is a part of, if it was told."""
    try:
        address = json.loads(where_file().read_text(encoding="utf-8"))["address"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return address if isinstance(address, str) and _ADDRESS.fullmatch(address) else None
