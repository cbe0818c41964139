"""A process that has imported what workers need, from which they are forked.

Importing TVM takes a second or more; a fork takes milliseconds and shares the memory. The parent
of both has a socket to the fork server: over it go a worker's three standard files, later a
question for its end. Until that question the ended worker keeps its number, so that nothing else
is killed in its place.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from loopwright.measure.device import DeviceError

_ANSWER = 5.0  # seconds in which it tells of a worker's end; see `worker.LINGERS`
ALIVE = 1 << 8  # in the place of a status
_ENDS = 1.0  # seconds until a process that has closed its files is over
_SHOWN = 8 << 10  # bytes of last words


@dataclass(frozen=True)
class Kind:
    """Properties that the workers of a pool share.

    Attributes
    ----------
    mode: "build" or "run"; see `loopwright.measure.workers.worker`.
    memory: bytes of address space that each may have; 0 is any number, as the drivers of GPUs
        ask for: they reserve far more than they use.
    folder: where they keep temporary files.
    answers: after so many a worker is replaced, for whatever it may have leaked.
    """

    mode: str
    memory: int
    folder: Path
    answers: int = 1000


class ForkServer:
    """The process that the workers of a pool are forked from. Raises `DeviceError` if Python
    cannot be started; whether it could import everything, its first worker tells."""

    def __init__(self, kind: Kind) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_ANSWER)
        self._printed = tempfile.TemporaryFile(dir=kind.folder)  # noqa: SIM115 - see _end
        with theirs:
            try:
                process = _start(kind, theirs.fileno(), self._printed.fileno())
            except OSError as error:
                self._socket.close()
                self._printed.close()
                raise DeviceError(f"cannot start {sys.executable}: {error}") from error
        self._process = process
        self.begun: set[int] = set()  # numbers of the workers that have told them
        self._end = weakref.finalize(
            self, _end, process, self.begun, self._socket, self._printed, os.getpid()
        )

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Return whether it can fork workers."""
        return self._process.poll() is None

    def hinders(self) -> bool:
        """Return whether a worker that has not begun waits in vain: this process has ended, or
        it or a worker that has not begun is stopped."""
        return not self.alive or is_stopped(self.pid) or bool(_stopped_early(self.pid, self.begun))

    def lost(self) -> str:
        """The way it was lost, in words: it was killed or stopped, or has had workers and has
        ended or is about to, which may take a second. Empty while it is there, and where it
        could not begin."""
        if is_stopped(self.pid):
            return "was stopped"
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDS)
        status = self._process.returncode
        if status is not None and status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        return "has ended" if self.begun and status is not None else ""

    def fork(self, files: Sequence[int]) -> None:
        """Have a worker with these standard files, which it closes when it is over. Its first
        message has its number. If the fork server has ended, they are closed at once. Raises
        `DeviceError` if it does not take the request."""
        try:
            socket.send_fds(self._socket, [b"fork"], list(files))
        except (BrokenPipeError, ConnectionError):
            return
        except OSError as error:
            raise DeviceError(f"no worker can be asked for: {error}") from error

    def status(self, pid: int) -> int | None:
        """Exit code of a worker, as `os.waitstatus_to_exitcode` says it; None if it did not end
        within a second, or nobody can tell."""
        end = time.monotonic() + _ANSWER
        if is_stopped(self.pid):
            return None
        with contextlib.suppress(OSError, ValueError):
            self._socket.send(b"status %d" % pid)
            while time.monotonic() < end:
                asked, status = map(int, self._socket.recv(64).split())
                if asked == pid:  # not an answer that nobody waited for, as after Ctrl-C
                    return None if status == ALIVE else status
        return None

    def last_words(self) -> str:
        """End of what it printed; empty once it is closed."""
        return "" if self._printed.closed else last_words(self._printed, 0)

    def close(self) -> None:
        """End it; workers that are alive are not touched. Twice is fine."""
        self._end()


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, as by SIGSTOP; a debugger's stops are none."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state == "T"


def _stopped_early(fork_server: int, begun: set[int]) -> list[int]:
    """Workers of a fork server that were stopped before they told their numbers."""
    with contextlib.suppress(OSError):
        children = (
            Path(f"/proc/{fork_server}/task/{fork_server}/children")
            .read_text(encoding="utf-8")
            .split()
        )
        return [pid for pid in map(int, children) if pid not in begun and is_stopped(pid)]
    return []


def last_words(printed: IO[bytes], mark: int) -> str:
    """The end of what is in a file from the mark on."""
    descriptor = printed.fileno()
    size = os.fstat(descriptor).st_size
    start = max(mark, size - _SHOWN)
    return os.pread(descriptor, size - start, start).decode(errors="replace")


def _start(kind: Kind, control: int, printed: int) -> subprocess.Popen[bytes]:
    # A session of its own, so that Ctrl-C in the terminal reaches the parent alone.
    begin = f"import sys; sys.path[:] = {_path()}; from loopwright.measure.workers import worker"
    run = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    # OpenCL's caches go when the device is closed.
    run |= {"POCL_CACHE_DIR": str(kind.folder / "pocl"), "PYOPENCL_NO_CACHE": "1"}
    own = {"TMPDIR": str(kind.folder)}
    return subprocess.Popen(
        [sys.executable, "-c", f"{begin}; worker.main()", kind.mode, str(kind.memory)],
        stdin=control,
        stdout=printed,
        stderr=printed,
        start_new_session=True,
        env={**os.environ, **(run if kind.mode == "run" else {}), **own},
    )


def _path() -> list[str]:
    """Folders in which the parent looks for packages, which its program may have changed. Those of
    its script and of the shell are left out, unless we lie there. Their modules are the user's: a
    worker would run a script `cuda.py`, for which TVM asks, and each of its workers once more."""
    beside = {"", os.path.dirname(getattr(sys.modules.get("__main__"), "__file__", None) or "")}
    with contextlib.suppress(OSError):  # it is removed
        beside.add(os.getcwd())
    beside.discard(str(Path(__file__).parents[3]))
    return [f for f in sys.path if isinstance(f, str) and f not in beside]


def _end(
    process: subprocess.Popen[bytes],
    begun: set[int],
    control: socket.socket,
    printed: IO[bytes],
    owner: int,
) -> None:
    if os.getpid() != owner:
        return  # a fork of the parent that ends
    if process.poll() is None:
        for worker in _stopped_early(process.pid, begun):  # nobody else knows of it
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(worker, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    control.close()
    printed.close()
