"""Routes for tests: a shell of this machine in place of another one's, sound or not."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

from loopwright.measure.remote.route import Route


def loopback(folder: Path, script: str = "exec sh", prefix: tuple[str, ...] = ()) -> Route:
    """A shell whose worker lives in a folder; `script` is what starts that shell."""
    where = ("env", f"XDG_CACHE_HOME={folder}")
    return Route("loopback", (*where, "sh", "-c", script), prefix)


_DROP = """
import os, subprocess, sys
left, shell = int(sys.argv[1]), subprocess.Popen(["sh"], stdout=subprocess.PIPE)
while left and (data := os.read(shell.stdout.fileno(), left)):
    left -= os.write(1, data)
shell.kill()
"""


def dropping(folder: Path, passed: int) -> Route:
    """A link that drops when so many bytes came over it."""
    sound = loopback(folder)
    return Route(sound.name, (*sound.command[:2], sys.executable, "-c", _DROP, str(passed)))


def workers(folder: Path) -> list[int]:
    """Numbers of the workers that live in a folder."""
    names = (path.name for path in (folder / "loopwright").glob("loopwright-run-*"))
    return [int(name.split("-")[2]) for name in names]


def worker(folder: Path) -> int:
    """The number of the only worker."""
    (number,) = workers(folder)
    return number


def kill(folder: Path, how: signal.Signals = signal.SIGKILL) -> None:
    os.kill(worker(folder), how)


def memory(number: int) -> int:
    """Bytes that a process has had in memory at most."""
    status = Path(f"/proc/{number}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+)", status)
    assert found is not None
    return int(found[1]) << 10


def gone(number: int, within: float = 5.0) -> bool:
    """Return whether a process is over, or is so soon."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False
