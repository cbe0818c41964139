"""Routes to other machines: from a URL to the command that starts a shell there.

A command's standard input and output are all that is used: no port is opened. What it needs to
get in, such as keys, is its own matter, and stands in its own configuration.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from loopwright.measure.device import DeviceError

SSH = "LOOPWRIGHT_SSH"
"""Environment variable with the command that is started for `ssh`, such as "ssh -F my.config"."""

_SSH_OPTIONS = (
    *("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
)
_FORMS = '"ssh://user@host[:port]", "docker://container" or "adb://serial"'
_SSH_HOST = re.compile(r"(?:([^@:]+)@)?(\[[0-9A-Za-z:.%]+\]|[^@:\[-][^@:]*)(?::(\d{1,5}))?")
_WORD = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.:@%+-]*")


@dataclass(frozen=True)
class Route:
    """A way to a machine, whose `name` is its URL: `command` starts a shell of POSIX there, and
    `prefix` stands before the worker, such as an emulator."""

    name: str
    command: tuple[str, ...]
    prefix: tuple[str, ...] = ()

    @property
    def trial(self) -> str:
        """Command by which a user sees whether the way is open."""
        return f"echo 'uname -a' | {shlex.join(self.command)}"


def route(url: str) -> Route:
    """The route that a URL names. Raises `DeviceError` for one that is not allowed."""
    scheme, separator, rest = url.partition("://")
    make = _SCHEMES.get(scheme)
    if not separator or make is None:
        raise DeviceError(f"device {url!r}: give {_FORMS}")
    rest = rest.rstrip("/")
    if rest and not _WORD.fullmatch(rest.removeprefix("[").replace("]", "")):
        raise DeviceError(f"device {url!r}: {rest!r} is no name of a machine; give {_FORMS}")
    return Route(url, make(url, rest))


def _ssh(url: str, rest: str) -> tuple[str, ...]:
    found = _SSH_HOST.fullmatch(rest)
    if found is None:
        raise DeviceError(f"device {url!r}: give ssh://user@host or ssh://user@host:port")
    user, host, port = found.groups()
    host = host.strip("[]")
    where = host if user is None else f"{user}@{host}"
    given = os.environ.get(SSH, "")
    try:
        command = shlex.split(given) or ["ssh"]
    except ValueError as error:
        raise DeviceError(f"{SSH}={given}: write it as for a shell ({error})") from error
    return (*command, *_SSH_OPTIONS, *(("-p", port) if port else ()), "--", where, "exec sh")


def _docker(url: str, rest: str) -> tuple[str, ...]:
    if not rest:
        raise DeviceError(f"device {url!r}: name a running container: docker://container")
    return ("docker", "exec", "-i", rest, "sh")


_SCHEMES: dict[str, Callable[[str, str], tuple[str, ...]]] = {
    "ssh": _ssh,
    "docker": _docker,
    "adb": lambda _, name: ("adb", *(("-s", name) if name else ()), "shell", "-T", "exec sh"),
}
