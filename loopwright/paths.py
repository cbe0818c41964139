"""Paths that users give: what is wrong with one is told before the work, in a line."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loopwright.dsl.errors import LoopwrightError
from loopwright.dsl.words import brief

AnyPath = str | os.PathLike[str]

_SHOWN = 160  # characters of a path in a message
_FOLDER = "this is a folder; give a file"


def shown(path: AnyPath) -> str:
    """A path for a message, a long one cut, in characters that can be printed; what is none as
    the value that it is."""
    if not isinstance(path, str | os.PathLike):
        return brief(path)
    text = os.fsdecode(os.fspath(path))
    cut = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in cut)


def problem_of_file(path: AnyPath, exists: bool = False) -> str:
    """Reason why no file can be read at a path, in words; empty if none is known. There may be
    none yet, unless it is said that it `exists`."""
    if not isinstance(path, str | os.PathLike):
        return "this is no path; give one as text, or a pathlib.Path"
    text = os.fsdecode(os.fspath(path))
    if not text or "\0" in text:
        return "the name is empty, or has a zero byte"
    try:
        mode = os.stat(text).st_mode
    except FileNotFoundError:
        return "there is no such file" if exists else ""
    except NotADirectoryError:
        return "a file stands where it has a folder"
    except (OSError, ValueError) as error:
        return _words(error)
    if stat.S_ISDIR(mode):
        return _FOLDER
    return "you may not read it" if exists and not os.access(text, os.R_OK) else ""


def problem_of_new_file(path: AnyPath) -> str:
    """Reason why no file can be written at a path, in words; empty if none is known."""
    if problem := problem_of_file(path):
        return problem
    path = Path(path)
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {shown(folder)}; make it first"
    if path.exists():
        return "" if os.access(path, os.W_OK) else "you may not write to it"
    return "" if os.access(folder, os.W_OK) else f"files cannot be written to {shown(folder)}"


def problem_of_new_folder(path: AnyPath) -> str:
    """Reason why a folder cannot be made at a path, or used, in words; empty if none is known."""
    problem = problem_of_file(path)
    if problem == _FOLDER:
        return "" if os.access(path, os.W_OK) else "files cannot be written to it"
    if not problem and Path(path).exists():
        return "this is a file; give a folder"
    return problem or problem_of_new_file(path)


def file_at(path: AnyPath, what: str, error: type[LoopwrightError], exists: bool = True) -> Path:
    """The path of a file that is to be read, called `what` in messages. Raises `error`."""
    return _checked(path, what, error, problem_of_file(path, exists))


def new_file(path: AnyPath, what: str, error: type[LoopwrightError]) -> Path:
    """The path of a file that is to be written, called `what` in messages. Raises `error`."""
    return _checked(path, what, error, problem_of_new_file(path))


def new_folder(path: AnyPath, what: str, error: type[LoopwrightError]) -> Path:
    """The path of a folder that is to be made or used. Raises `error`, as `new_file`."""
    return _checked(path, what, error, problem_of_new_folder(path))


@contextmanager
def whole_file(path: AnyPath, what: str, error: type[LoopwrightError]) -> Iterator[Path]:
    """A path to write a file to, called `what` in messages, which takes its place at `path` once
    all is written. A device, and a file in a folder that takes no other, are written themselves.
    Raises `error`."""
    given = new_file(path, what, error)
    place = Path(os.path.realpath(given))  # a link stays one
    aside = place.is_file() or not place.exists()
    aside = aside and os.access(place.parent, os.W_OK)
    name = f".loopwright-{secrets.token_hex(8)}{given.suffix[:20]}"
    new = place.with_name(name) if aside else place
    try:
        yield new
        if aside:
            os.replace(new, place)
    except OSError as problem:
        raise error(f"cannot write {what} {shown(given)}: {_words(problem)}") from problem
    finally:
        if aside:
            new.unlink(missing_ok=True)


def why(error: OSError) -> str:
    """An error of the system in words, its file named as `shown`."""
    words = _words(error)
    return f"{shown(error.filename)}: {words}" if isinstance(error.filename, str) else words


def _checked(path: AnyPath, what: str, error: type[LoopwrightError], problem: str) -> Path:
    if problem:
        raise error(f"{what} {shown(path)}: {problem}")
    return Path(path)


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return "the name is too long for a file: give one of at most 255 bytes"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
