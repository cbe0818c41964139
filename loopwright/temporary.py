"""Temporary folders that outlive no process for long, however it ends.

Each is locked while its process lives, by `flock`, which the system undoes at the end of it. The
first folder that a later process makes there removes those that nobody holds. Process numbers
would not do: they come again, and differ in containers that share the folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from loopwright.dsl.errors import BuildError
from loopwright.paths import why

_PREFIX = "loopwright-tmp-"
_NEW = "loopwright-new-"
_SOON = 60.0  # seconds in which a folder is locked after it was made, with certainty
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class TemporaryError(BuildError):
    """No temporary file can be written."""


class TemporaryFolder:
    """A folder of this process, removed by `cleanup`, at the end of a `with` block or of the
    process, or by the next one. Raises `TemporaryError` where none can be made, and where there
    is no room for what a `with` block writes."""

    def __init__(self) -> None:
        try:
            self._make(tempfile.gettempdir())
        except OSError as error:
            raise _unwritable(error) from error

    def _make(self, root: str) -> None:
        if root not in _swept:
            _swept.add(root)
            sweep(Path(root))
        new = tempfile.mkdtemp(prefix=_NEW, dir=root)
        held = os.open(new, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(held, fcntl.LOCK_EX)
        self.name = os.path.join(root, _PREFIX + Path(new).name.removeprefix(_NEW))
        os.rename(new, self.name)  # from now on `sweep` may look at it
        self._finalizer = weakref.finalize(self, _remove, self.name, held, os.getpid())

    def cleanup(self) -> None:
        """Remove it, with what is in it. Twice is fine."""
        self._finalizer()

    def __enter__(self) -> Path:
        return Path(self.name)

    def __exit__(self, kind: object, error: object, _trace: object) -> None:
        self.cleanup()
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise _unwritable(error) from error


def temporary_file() -> IO[bytes]:
    """An open file without a name. Raises `TemporaryError`."""
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise _unwritable(error) from error


def _unwritable(error: OSError) -> TemporaryError:
    return TemporaryError(
        f"temporary files cannot be written ({why(error)}): name a folder with room that you may "
        "write to by the environment variable TMPDIR"
    )


def sweep(root: Path) -> None:
    """Remove the folders of this user that processes left in `root` when they were killed."""
    for path in _left(root):
        with contextlib.suppress(OSError):  # it is another's, in use, or gone already
            held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(held).st_uid == os.getuid():
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(held)


def _left(root: Path) -> Iterator[Path]:
    """Folders that may have been left behind."""
    yield from root.glob(f"{_PREFIX}*")
    for path in root.glob(f"{_NEW}*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - _SOON:
                yield path


def _remove(name: str, held: int, owner: int) -> None:
    if os.getpid() == owner:  # and no fork of it that ends
        shutil.rmtree(name, ignore_errors=True)
    os.close(held)


_swept: set[str] = set()  # where this process has looked
