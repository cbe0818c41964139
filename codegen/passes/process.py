"""The process that runs passes as its user sees it: started, asked, timed out, started again."""

from __future__ import annotations

import difflib
import functools
import json
import os
import re
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, TypeVar

import tvm

from loopwright.codegen.passes.pipeline import Pipeline
from loopwright.dsl.errors import BuildError
from loopwright.packages import install
from loopwright.schedule.target import Target
from loopwright.temporary import TemporaryFolder, temporary_file

PACKAGE = "karellen-llvm-core"
"""The package that brings libLLVM with its C API."""
TIMEOUT = 60.0
"""Seconds in which a list must be done; TVM's own takes a tenth of one."""
_START = 30.0  # seconds in which the process must be there
_MOST = 1 << 16  # bytes of its words that are read

_T = TypeVar("_T")


class PassError(BuildError):
    """A pass list that LLVM refuses, or that ends its process or takes too long."""


@dataclass(frozen=True)
class Passed:
    """Result of a pass list: `instructions` of LLVM IR without TVM's conversions of float16, and
    what was asked for, the object file or the text of the IR."""

    instructions: int
    given: bytes


def library() -> Path:
    """The file of libLLVM. Raises `BuildError` where its package is missing."""
    try:
        files = metadata.distribution(PACKAGE).files or []
    except metadata.PackageNotFoundError as cause:
        raise BuildError(f"passes= needs the package {PACKAGE}: {install('llvm')}") from cause
    for file in files:
        if file.name.startswith("libLLVM.so.") and (path := Path(str(file.locate()))).is_file():
            return path.resolve()
    raise BuildError(f"the package {PACKAGE} has no libLLVM.so: install it again")


@functools.cache
def switches() -> frozenset[str]:
    """Names of the switches that libLLVM knows. Raises `BuildError`."""
    try:
        listed = subprocess.run(
            [*_command(library()), "-1", "-help-list-hidden"],
            capture_output=True,
            encoding="utf-8",
            timeout=_START,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"libLLVM of {PACKAGE} cannot be used here: {error}") from error
    return frozenset(re.findall(r"^ +--?([\w-]+)", listed, re.MULTILINE))


def _command(path: Path) -> list[str]:
    return [sys.executable, "-I", str(Path(__file__).with_name("child.py")), str(path)]


class PassProcess:
    """Runs pass lists on LLVM IR in a child process, one at a time; threads may share it.

    A child that dies, or takes longer than `timeout` seconds, is named in the error, and the next
    list has a new one. Switches are for all of a process, so a child has one set of them.
    """

    def __init__(self, timeout: float = TIMEOUT) -> None:
        self._timeout, self._lock = timeout, threading.Lock()
        self._child: _Child | None = None

    def run(self, text: str, pipeline: Pipeline, target: Target, give: str = "") -> Passed:
        """Run a list on the text of LLVM IR; `give` is "object", "llvm" or nothing.

        Raises `PassError` for a bad list, `BuildError` where there is no libLLVM of TVM's version.
        """
        asked = {
            "passes": pipeline.passes,
            "mcpu": target.mcpu,
            "features": ",".join(target.features),
            "give": give,
        }
        with self._lock:
            child = self._started(pipeline)
            try:
                answer, given = child.ask(asked, text.encode(), self._timeout)
            except _LostError as lost:
                self.close()
                raise PassError(f'passes="{pipeline}": LLVM {lost}') from None
        if "error" in answer:
            raise PassError(f'passes="{pipeline}": {answer["error"].strip()}')
        return Passed(int(answer["instructions"]), given)

    def _started(self, pipeline: Pipeline) -> _Child:
        child = self._child
        if child is not None and (
            child.switches != pipeline.switches or child.owner != os.getpid()
        ):
            self.close()
        if self._child is None:
            try:
                self._child = _Child(pipeline.switches)
            except _LostError as lost:
                raise PassError(f'passes="{pipeline}": LLVM {lost}') from None
        return self._child

    def close(self) -> None:
        """End the child, if there is one."""
        if self._child is not None:
            self._child.close()
            self._child = None


class _LostError(Exception):
    """The end of a child, in words."""


class _Child:
    """One child process with one set of switches."""

    def __init__(self, given: tuple[str, ...]) -> None:
        self.switches, self.owner = given, os.getpid()
        path = library()
        _check_switches(given)
        ours, theirs = socket.socketpair()
        folder = TemporaryFolder()  # some passes write files where they are
        self._said = temporary_file()  # closed with the child
        with theirs:
            self._process = subprocess.Popen(
                [*_command(path), str(theirs.fileno()), *given],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                pass_fds=(theirs.fileno(),),
                cwd=folder.name,
            )
        self._connection = Connection(ours.detach())
        self._ending = weakref.finalize(
            self, _end, self._connection, self._process, self._said, folder, self.owner
        )
        try:
            hello = json.loads(self._bounded(self._connection.recv_bytes, _START))
            _check_version(hello["version"])
            if said := self._last_words():  # LLVM goes on without a switch whose value is wrong
                raise PassError(f"{' '.join(given)}: {said}")
        except BaseException:
            self.close()
            raise

    def ask(self, asked: dict[str, Any], text: bytes, timeout: float) -> tuple[Any, bytes]:
        """The answer, and the bytes that it brings. Raises `_LostError`."""

        def exchange() -> tuple[Any, bytes]:
            self._connection.send_bytes(json.dumps(asked).encode())
            self._connection.send_bytes(text)
            answer = self._connection.recv_bytes()
            return json.loads(answer), self._connection.recv_bytes()

        return self._bounded(exchange, timeout)

    def _bounded(self, exchange: Callable[[], _T], timeout: float) -> _T:
        """Result of an exchange. After `timeout` seconds the child is killed, which ends it."""
        late = threading.Event()

        def kill() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(timeout, kill)
        timer.daemon = True
        timer.start()
        try:
            return exchange()
        except (EOFError, OSError):
            if late.is_set():
                raise _LostError(f"was not done after {timeout:g} s") from None
            raise _LostError(self._ended()) from None
        finally:
            timer.cancel()

    def _ended(self) -> str:
        """Its end, with its last words."""
        try:
            status = self._process.wait(_START)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"{how}: {self._last_words() or 'it said nothing'}"

    def _last_words(self) -> str:
        """The lines that tell most of what it printed."""
        self._said.seek(0)
        lines = self._said.read(_MOST).decode(errors="replace").strip().splitlines()
        if lines and lines[0].startswith("Traceback"):
            return lines[-1]
        return next((line for line in lines if "LLVM ERROR" in line), " ".join(lines[:3]))

    def close(self) -> None:
        """End it. Twice is fine."""
        self._ending()


def _end(
    connection: Connection,
    process: subprocess.Popen[bytes],
    said: IO[bytes],
    folder: TemporaryFolder,
    owner: int,
) -> None:
    """Kill a child, unless this is a fork of its parent, and close what it was reached by."""
    connection.close()
    said.close()
    if owner == os.getpid():
        process.kill()
        process.wait()
        folder.cleanup()


def _check_switches(given: tuple[str, ...]) -> None:
    """Raise `PassError` for a switch of another name: LLVM would go on without it."""
    for switch in given:
        name = switch.lstrip("-").partition("=")[0]
        if name not in switches():
            close = difflib.get_close_matches(name, switches())
            similar = f"; similar ones: {', '.join(f'-{n}' for n in close)}" if close else ""
            raise PassError(f"LLVM has no switch {switch}{similar}")


def _check_version(found: list[int]) -> None:
    """Raise `BuildError` where TVM's LLVM is of another version: its IR may be another."""
    wanted = int(tvm.get_global_func("target.llvm_version_major")())
    if found[0] != wanted:
        raise BuildError(
            f"TVM makes IR of LLVM {wanted}, and {PACKAGE} is LLVM {'.'.join(map(str, found))}: "
            f'pip install "{PACKAGE}=={wanted}.*"'
        )


@functools.cache
def shared_process() -> PassProcess:
    """The process of this one's builds; it starts when first needed."""
    return PassProcess()
