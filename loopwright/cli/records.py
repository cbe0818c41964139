"""`loopwright records`: record stores, looked into and moved."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click

from loopwright.cli.common.command import Group, NewFile, Store, replay_command, show_details
from loopwright.cli.common.options import EXISTING, POLICY, TARGET, THREADS, records_option
from loopwright.cli.common.record_table import record_details, show_records, show_table
from loopwright.cli.common.workload import read_workload, workload_arguments
from loopwright.dsl.words import counted
from loopwright.transfer.records.lines import to_line
from loopwright.transfer.records.location import Location, location_of
from loopwright.transfer.records.store import Record, RecordStore

_F = TypeVar("_F", bound=Callable[..., Any])
_SQLITE = b"SQLite format 3\0"


def _store(create: bool = False) -> Callable[[_F], _F]:
    """The option `--records`, which gives a command its store, closed when the command ends."""
    return records_option(
        "store", callback=lambda ctx, _, given: ctx.with_resource(RecordStore(given, create))
    )


@click.group(cls=Group)
def records() -> None:
    """Look into what was measured; move it between machines."""


@records.command("list")
@click.option("--workload", default="", help="Only workloads whose key begins like this.")
@click.option("--session", default=None, help="Only those of one tuning session.")
@click.option("--failed", is_flag=True, help="Only failures.")
@click.option("--limit", type=click.IntRange(0), default=20, show_default=True, help="0 is all.")
@_store()
def list_records(
    store: RecordStore, workload: str, session: str | None, failed: bool, limit: int
) -> None:
    """List records, the newest first."""
    found = store.query(session=session, failed=failed or None, newest=True)
    chosen = (r for r in found if r.workload_key.startswith(workload))
    shown = show_records(islice(chosen, limit or None))
    settings = store.settings()
    total = sum(s.measured + s.failed for s in settings)
    failures = sum(s.failed for s in settings)
    click.echo(
        f"{shown} of {counted(total, 'record')} shown; failures: {failures}; "
        f"{counted(len({s.workload_key for s in settings}), 'workload')}",
        err=True,
    )


@records.command()
@_store()
def best(store: RecordStore) -> None:
    """List the fastest record of every workload, target, machine and number of threads, and what
    was the fastest inside of a network."""
    show_records(store.best_of_each())


@records.command()
@click.argument("number", metavar="ID", type=click.IntRange(1))
@click.option("--json", "as_json", is_flag=True, help="As one line of JSON.")
@_store()
def show(store: RecordStore, number: int, as_json: bool) -> None:
    """Show all of one record."""
    record = store.get(number)
    if as_json:
        click.echo(to_line(record))
        return
    show_details(*record_details(record, store.location))


def _is_store(file: Path) -> bool:
    with file.open("rb") as found:
        return found.read(len(_SQLITE)) == _SQLITE


@records.command("export")
@click.argument("file", type=NewFile())
@click.option("--best", "only_best", is_flag=True, help="The fastest of each workload alone.")
@_store()
def export_records(store: RecordStore, file: Path, only_best: bool) -> None:
    """Write records to FILE: JSON lines, or a store if its name ends in .db."""
    if isinstance(store.location, Path) and file.exists() and file.samefile(store.location):
        raise click.UsageError("FILE is the store itself")
    if file.suffix != ".db" and file.is_file() and _is_store(file):
        raise click.UsageError("FILE is a record store; give one whose name ends in .db, or none")
    chosen: Iterable[Record] = store.best_of_each() if only_best else store
    if file.suffix != ".db":
        number = store.export_lines(file, chosen)
    elif only_best:
        number = store.export_best(file)
    else:
        with RecordStore(file) as other:
            number = other.merge(chosen)
    click.echo(f"{counted(number, 'record')} written to {file}")


@records.command("import")
@click.argument("file", type=EXISTING)
@click.option("--skip-damaged", is_flag=True, help="Import the rest of a damaged file.")
@_store(create=True)
def import_records(store: RecordStore, file: Path, skip_damaged: bool) -> None:
    """Add the records of FILE, as `export` wrote it: JSON lines, or a store."""
    if _is_store(file):
        _copy(file, store)
        click.echo(f"{store.location} has {len(store)}")
        return
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        new, skipped = store.import_lines(file, skip_damaged)
    for warning in warned:
        click.echo(f"warning: {warning.message}", err=True)
    for problem in skipped:
        click.echo(f"skipped {problem}", err=True)
    click.echo(f"{counted(new, 'new record')}; {store.location} has {len(store)}")


@records.command()
@click.argument("stores", nargs=-1, required=True, type=Store(exists=True))
@_store(create=True)
def merge(store: RecordStore, stores: tuple[Location, ...]) -> None:
    """Add the records of other STORES, files or URLs, to one."""
    for given in stores:
        _copy(given, store)
    click.echo(f"{store.location} has {len(store)}")


@records.command()
@click.argument("source", metavar="FROM", type=Store(exists=True))
@click.argument("into", metavar="TO", type=Store())
@click.option("--both", is_flag=True, help="Copy from TO to FROM as well.")
def sync(source: Location, into: Location, both: bool) -> None:
    """Copy what the store TO lacks of the store FROM.

    Each is a file, or postgresql://user@host/database. The records keep their order, and none is
    there twice. If it is interrupted, the same command goes on.
    """
    if location_of(source) == location_of(into):
        raise click.UsageError("FROM and TO are the same store")
    with RecordStore(into) as store:
        _copy(source, store)
    if both:
        with RecordStore(source) as store:
            _copy(into, store)


def _copy(source: Location, into: RecordStore) -> None:
    with RecordStore(source, create=False) as other:
        new = into.merge(other.lacking(into))
        click.echo(f"{counted(new, 'new record')} of {source}")


@records.command()
@workload_arguments
@TARGET
@THREADS
@POLICY
@_store()
def explain(
    store: RecordStore,
    what: str,
    settings: tuple[str, ...],
    target: str,
    threads: int | None,
    policy: str,
) -> None:
    """Say which record serves WHAT on this machine, or why none does."""
    from loopwright.codegen.target import resolve
    from loopwright.measure.local import LocalDevice

    workload = read_workload(what, settings).workload
    machine = resolve(target, threads)
    with LocalDevice(machine) as device:
        here = device.fingerprint()
    found = store.best(workload, machine, policy, machine=here)
    if found is None:
        click.echo(store.explain_miss(workload, machine, policy, machine=here))
        return
    click.echo(f"record {found.id} serves, {found.cost * 1e3:.4g} ms: {found.config}")
    click.echo(f"again: {replay_command(found.id, store.location)}")


@records.command("show-autotvm")
@click.argument("file", type=EXISTING)
def show_autotvm(file: Path) -> None:
    """List the lines of FILE, a log of AutoTVM; its configs are no records, being of templates."""
    from loopwright.transfer.records.autotvm import import_autotvm

    log = import_autotvm(file)
    shown = show_table(
        ("task", "arguments", "index", "target", "ms", "error"),
        (
            (
                row.task,
                json.dumps(row.args),
                str(row.index),
                row.target,
                f"{row.cost * 1e3:.4g}" if row.costs else "",
                "" if row.costs else row.error,
            )
            for row in log.rows
        ),
    )
    skipped = "".join(f"; skipped {n}: {reason}" for reason, n in log.skipped.items())
    click.echo(f"{counted(shown, 'line')}{skipped}", err=True)
