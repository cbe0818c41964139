"""The lease of a machine: one tuner at a time measures on it.

A lease is a lock on a file, which the system undoes at the end of the process that holds it. The
worker of a remote device (`measure/remote/worker/lease.h`) locks the same files, so that local and
remote tuners exclude each other. It is held while something runs, not while candidates are built.
Whoever waits holds a second lock, so that he who had the machine last does not take it again
before those who wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import logging
import math
import os
import platform
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Protocol

from loopwright.measure.device import DeviceError, TimeUpError

VARIABLE = "LOOPWRIGHT_LEASE"
"""Environment variable with the path of the lease; by default it is in /tmp."""

BOUND = 900.0
"""Seconds that a tuner waits for a machine at most: others hold it for moments."""

_PATH = "/tmp/loopwright.lease"
_LOOK = 0.01  # seconds between two tries
_TELL = 2.0  # seconds of waiting after which that is said
_MOST_HOLDER = 200
_log = logging.getLogger(__name__)


class Lease(Protocol):
    """What a runner holds while it runs candidates; `deadline` is by the monotonic clock."""

    deadline: float

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def holder() -> str:
    """This process, in words for those who wait for it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    command = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    return f"{user}@{platform.node()}, process {os.getpid()} ({command})"[:_MOST_HOLDER]


def readable(text: bytes) -> str:
    """What another process wrote, without anything that a terminal could take for a command."""
    shown = text[:_MOST_HOLDER].decode(errors="replace")
    return "".join(c if c.isprintable() else " " for c in shown).strip()


class MachineLease:
    """The lease of this machine, for a `with` block.

    Raises `DeviceError` where another process holds it for longer than `bound` seconds, which
    names that, and `TimeUpError` at the deadline.
    """

    def __init__(self, bound: float = BOUND) -> None:
        self.deadline = math.inf
        self._bound = bound
        self._file = -1

    def __enter__(self) -> None:
        path = os.environ.get(VARIABLE) or _PATH
        machine, following = _opened(path), _opened(f"{path}.next")
        began = time.monotonic()
        try:
            for file in (following, machine):
                self._wait(file, machine, began)
        except BaseException:
            os.close(machine)
            raise
        finally:
            os.close(following)
        self._file = machine
        os.ftruncate(machine, 0)
        os.pwrite(machine, holder().encode(), 0)

    def _wait(self, file: int, machine: int, began: float) -> None:
        told = False
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            now = time.monotonic()
            if now >= self.deadline:
                raise TimeUpError("time was up while another process measured on this machine")
            whom = readable(os.pread(machine, _MOST_HOLDER, 0)) or "another process"
            if now - began >= self._bound:
                raise DeviceError(
                    f"this machine was held by {whom} for {self._bound:g} s: nothing can be "
                    f"measured beside that; end it, or set {VARIABLE} to another file where the "
                    "two have different processors"
                )
            if not told and now - began >= _TELL:
                _log.warning("waiting for this machine, on which %s measures", whom)
                told = True
            time.sleep(_LOOK)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.ftruncate(self._file, 0)
        os.close(self._file)
        self._file = -1


def _opened(path: str) -> int:
    """A file that every user may lock. Raises `DeviceError`."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    for _ in range(3):  # another process may make it meanwhile
        try:
            # One of another user's in /tmp may be opened, but not with O_CREAT.
            with contextlib.suppress(FileNotFoundError):
                return os.open(path, flags)
            file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(file, 0o666)
            return file
        except FileExistsError:
            continue
        except OSError as error:
            raise _unopened(path, str(error.strerror)) from error
    raise _unopened(path, "it comes and goes")


def _unopened(path: str, why: str) -> DeviceError:
    return DeviceError(
        f"{path}: the lease of this machine cannot be opened ({why}); set {VARIABLE} to a file "
        "that can be written"
    )
