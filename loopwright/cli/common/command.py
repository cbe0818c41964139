"""Commands that end with a message, and the files that they write."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loopwright.dsl.errors import LoopwrightError
from loopwright.paths import (
    problem_of_file,
    problem_of_new_file,
    problem_of_new_folder,
    shown,
    why,
)
from loopwright.transfer.records.location import Location, Server, is_url, location_of
from loopwright.transfer.records.record import RecordError

if TYPE_CHECKING:
    from loopwright.dsl.workload import Workload
    from loopwright.transfer.records.store import Record

STORE = Path("tuning.db")
"""The record store where none is given."""


class Command(click.Command):
    """A command that ends with a message and exit code 1 on our errors."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LoopwrightError as error:
            raise click.ClickException(str(error)) from error
        except BrokenPipeError:
            raise  # whoever read what we print has seen enough, which click knows
        except OSError as error:
            raise click.ClickException(why(error)) from error


class File(click.Path):
    """The path of a file to be read, which there need not be yet unless it `exists`."""

    def __init__(self, exists: bool = False, refused: Callable[[Any], str] | None = None) -> None:
        """`refused` gives the reason why a path is, or nothing."""
        super().__init__(exists=exists, dir_okay=False, path_type=Path)
        self._refused = refused or functools.partial(problem_of_file, exists=exists)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path. Better a usage error now than another after the work."""
        if problem := self._refused(value):
            self.fail(f"{shown(value)}: {problem}", param, ctx)
        return Path(value)


class Store(File):
    """A record store: the path of its file, or the URL of its server."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, Server) and not is_url(value):
            return super().convert(value, param, ctx)
        try:
            return location_of(value)
        except RecordError as error:
            self.fail(str(error), param, ctx)


NewFile = functools.partial(File, refused=problem_of_new_file)
"""The path of a file to be written."""
NewFolder = functools.partial(File, refused=problem_of_new_folder)
"""The path of a folder to write to, which is made if it is not there."""


def library_path(given: Path | None, default: Path) -> Path:
    """Path of a library that is yet to be made: the file that was given, or the default, its name
    made one that C takes. A usage error, or `LibraryError`, where it cannot be written."""
    from loopwright.c_names import as_identifier
    from loopwright.codegen.library.export import check_place

    path = given or default.with_name(f"{as_identifier(default.stem)}.so")
    if path.suffix != ".so":
        raise click.UsageError(f"--output {shown(path)}: the name of a library ends in .so")
    for suffix in (".so", ".h", ".json"):
        check_new("--output", path.with_suffix(suffix))
    check_place(path)
    return path


def check_records(location: Location) -> None:
    """A usage error where records cannot be added to a file: there must be room for its log, too,
    beside it. Raises `RecordError` for a server that cannot be used."""
    if not isinstance(location, Server):
        check_new("--records", location)
        if not os.access(location.parent, os.W_OK):
            folder = location.parent
            raise click.UsageError(f"--records {location}: files cannot be written to {folder}")
        if not location.exists():
            return
    from loopwright.transfer.records.store import check_store

    check_store(location)


def check_new(option: str, path: Path) -> None:
    """A usage error that names the option where a file cannot be written."""
    try:
        NewFile().convert(path, None, None)
    except click.BadParameter as error:
        raise click.UsageError(f"{option}: {error.message}") from error


def record_of(workload: Workload, records: Location, number: int) -> Record:
    """The record of that number. Raises `LoopwrightError` where it is of another workload."""
    from loopwright.transfer.records.store import RecordStore

    with RecordStore(records, create=False) as store:
        record = store.get(number)
    if record.workload_key != workload.key:
        raise LoopwrightError(f"record {number} is of another workload: {record.computation()}")
    return record


def replay_command(number: int | None, records: Location, device: str | None = None) -> str:
    """Command that runs a record of a store again, on the machine that a URL names."""
    words = ["loopwright", "replay", str(number)]
    usual = isinstance(records, Path) and records.absolute() == STORE.absolute()
    words += [] if usual else ["--records", str(records)]
    return shlex.join([*words, *(["--device", device] if device else [])])


class Group(Command, click.Group):
    """A group of such commands."""


def show_details(*details: tuple[str, object]) -> None:
    """Print names and values, one below the other."""
    for name, value in details:
        click.echo(f"{name + ':':<14}{value}".replace("\n", f"\n{'':<14}"))
