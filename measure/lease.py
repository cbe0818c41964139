"""The lease of a machine: one tuner at a time measures on it.

A lease is a lock on a file, which the system undoes at the end of the process that holds it. The
worker of a remote device (`measure/remote/worker/lease.h`) locks the same files, so that local and
remote tuners exclude each other. It is held while something runs, not while candidates are built.
Waiters hold a second lock, so the last holder cannot overtake them.
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
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Protocol

from loopwright.measure.device import DeviceError, TimeUpError

VARIABLE = "LOOPWRIGHT_LEASE"
"""Environment variable with the path of the lease; by default it is in /tmp."""

BOUND = 900.0
"""Seconds that a tuner waits for one holder of a machine: others hold it for moments."""

_PATH = "/tmp/loopwright.lease"
_LOOK = 0.01  # seconds between two tries
_TELL = 2.0  # seconds of waiting after which that is said
_MOST_HOLDER = 200
_log = logging.getLogger(__name__)


class Lease(AbstractContextManager[object], Protocol):
    """The right to run candidates on a machine; `deadline` is by the monotonic clock."""

    deadline: float


def holder() -> str:
    """This process, in words for those who wait for it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    command = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    return f"{user}@{platform.node()}, process {os.getpid()} ({command})"[:_MOST_HOLDER]


def readable(text: bytes) -> str:
    """Text of another process, without anything that a terminal could take for a command."""
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
        machine = _opened(path)
        try:
            self._take(machine, _opened(f"{path}.next"))
        except OSError as error:
            os.close(machine)
            raise _unopened(path, str(error.strerror)) from error
        except BaseException:
            os.close(machine)
            raise

    def _take(self, machine: int, following: int) -> None:
        """Lock the machine; `following` is closed, whatever happens."""
        try:
            name = holder().encode()
            self._wait(following, machine)
            _write(following, name)
            self._wait(machine, machine)
        finally:
            os.close(following)
        _write(machine, name)
        self._file = machine

    def _wait(self, file: int, machine: int) -> None:
        """Lock a file. The bound is that of one holder: many may take turns."""
        began = since = time.monotonic()
        told, last = False, ""
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            now = time.monotonic()
            if now >= self.deadline:
                raise TimeUpError("time was up while another process measured on this machine")
            # Where the machine is free, whoever waits for it and was stopped is in the way.
            whom = _read(machine) or _read(file) or "another process"
            if whom != last:
                since, last = now, whom
            if now - since >= self._bound:
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
        file, self._file = self._file, -1
        _write(file, b"")
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)  # a fork of this process may have the file, too
        os.close(file)


def _write(file: int, name: bytes) -> None:
    """Say who holds a file, if that is possible: on a full disk nobody learns it."""
    with contextlib.suppress(OSError):
        os.ftruncate(file, 0)
        os.pwrite(file, name, 0)


def _read(file: int) -> str:
    return readable(os.pread(file, _MOST_HOLDER, 0))


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
