"""The command line's `records` group, which looks into record stores, and `devices`."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loopwright.cli_command import (
    STORE,
    Command,
    Group,
    NewFile,
    replay_command,
    show_details,
)
from loopwright.dsl.workload import Workload
from loopwright.transfer.records.store import Record, RecordStore

_F = TypeVar("_F", bound=Callable[..., Any])
_FILE = click.Path(dir_okay=False, path_type=Path)
_SQLITE = b"SQLite format 3\0"
_HEAD = (
    "id",
    "workload",
    "what",
    "target",
    "threads",
    "ms",
    "GFLOP/s",
    "cache",
    "when",
    "failure",
)


def _store(create: bool = False) -> Callable[[_F], _F]:
    """The option `--records`, which gives a command its store, closed when the command ends."""

    def opened(ctx: click.Context, _: click.Parameter, path: Path) -> RecordStore:
        return ctx.with_resource(RecordStore(path, create))

    return click.option(
        "--records",
        "store",
        type=_FILE,
        default=STORE,
        show_default=True,
        callback=opened,
        help="The record store.",
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
    shown = _show_table(islice(chosen, limit or None))
    settings = store.settings()
    total = sum(s.measured + s.failed for s in settings)
    click.echo(
        f"{shown} of {total} records shown; {sum(s.failed for s in settings)} are failures; "
        f"{len({s.workload_key for s in settings})} workloads",
        err=True,
    )


@records.command()
@_store()
def best(store: RecordStore) -> None:
    """List the fastest record of every workload, target, machine and number of threads, and what
    was the fastest inside of a network."""
    _show_table(store.best_of_each())


@records.command()
@click.argument("number", metavar="ID", type=click.IntRange(1))
@click.option("--json", "as_json", is_flag=True, help="As one line of JSON.")
@_store()
def show(store: RecordStore, number: int, as_json: bool) -> None:
    """Show all of one record."""
    record = store.get(number)
    if as_json:
        click.echo(json.dumps(record.to_json()))
        return
    show_details(*_details(record, store.path))


def _is_store(file: Path) -> bool:
    with file.open("rb") as found:
        return found.read(len(_SQLITE)) == _SQLITE


@records.command("export")
@click.argument("file", type=NewFile())
@click.option("--best", "only_best", is_flag=True, help="The fastest of each workload alone.")
@_store()
def export_records(store: RecordStore, file: Path, only_best: bool) -> None:
    """Write records to FILE: JSON lines, or a store if its name ends in .db."""
    if file.exists() and file.samefile(store.path):
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
    click.echo(f"{number} records written to {file}")


@records.command("import")
@click.argument("file", type=_FILE)
@click.option("--skip-damaged", is_flag=True, help="Import the rest of a damaged file.")
@_store(create=True)
def import_records(store: RecordStore, file: Path, skip_damaged: bool) -> None:
    """Add the records of FILE, as `export` wrote it."""
    new, skipped = store.import_lines(file, skip_damaged)
    for problem in skipped:
        click.echo(f"skipped {problem}", err=True)
    click.echo(f"{new} new records; {store.path} has {len(store)}")


@records.command()
@click.argument("files", nargs=-1, required=True, type=_FILE)
@_store(create=True)
def merge(store: RecordStore, files: tuple[Path, ...]) -> None:
    """Add the records of other stores."""
    for file in files:
        with RecordStore(file, create=False) as other:
            click.echo(f"{store.merge(other)} new records of {file}")
    click.echo(f"{store.path} has {len(store)}")


@click.command(cls=Command)
@click.option("--check", is_flag=True, help="Build, run and verify a trivial program on each.")
def devices(check: bool) -> None:
    """List the devices that can measure here, GPUs among them."""
    from loopwright.dsl.errors import LoopwrightError
    from loopwright.measure.local import LocalDevice

    failed = False
    for target in ("cpu", "cuda", "opencl"):
        try:
            device = LocalDevice(target)
        except LoopwrightError as error:
            show_details((f"no {target}", str(error)))
            continue
        with device:
            details = {"target": str(device.target), "threads": str(device.target.threads)}
            show_details(("device", device.name), *(details | device.fingerprint()).items())
            if not check:
                continue
            said = "a program was built, ran, and its results are right"
            try:
                device.check()
            except LoopwrightError as error:
                said, failed = str(error), True
            show_details(("check", said))
    if failed:
        raise SystemExit(1)


def _show_table(found: Iterable[Record]) -> int:
    """Print one line per record: a table on a terminal, else fields with tabs between; their
    number."""
    lines = [_line(record) for record in found]
    console = Console()
    if not console.is_terminal:
        for line in (_HEAD, *lines):
            click.echo("\t".join(line))
        return len(lines)
    table = Table(*_HEAD, box=None, header_style="bold", pad_edge=False)
    for line in lines:
        table.add_row(*map(escape, line), style="red" if line[-1] else None)
    console.print(table)
    return len(lines)


def _line(r: Record) -> tuple[str, ...]:
    return (
        str(r.id),
        r.workload_key[:8],
        _summary(r),
        _short(r.target),
        str(r.threads),
        "" if r.failure else f"{r.cost * 1e3:.4g}",
        "" if r.failure else f"{_gflops(r):.1f}",
        r.cache,
        _when(r.created),
        r.failure.kind if r.failure else "",
    )


def _details(r: Record, store: Path) -> Iterator[tuple[str, object]]:
    """All of a record, in the order in which one wants to know."""
    yield "record", r.id
    yield "workload", f"{r.workload_key}\n{_workload(r.workload)}"
    yield "config", r.config
    if r.failure is None:
        yield "cost", f"{r.cost * 1e3:.6g} ms, {_gflops(r):.1f} GFLOP/s ({r.cache} caches)"
    else:
        yield "failure", f"{r.failure}\n{r.failure.traceback}".rstrip()
    yield (
        "samples",
        ", ".join(f"{s * 1e3:.6g}" for s in r.seconds) + " ms" if r.seconds else "none",
    )
    yield "spent", f"{r.build_seconds:.3f} s building, {r.run_seconds:.3f} s running"
    yield "target", r.target
    yield "threads", r.threads
    yield "machine", _pairs(r.machine.items())
    yield "versions", _pairs(r.versions.items())
    yield "when", _when(r.created)
    yield "session", f"{r.session or 'none'}, seed {r.seed}"
    yield "again", replay_command(r.id, store)


@functools.lru_cache(maxsize=256)
def _workload(text: str) -> Workload:
    return Workload.from_json(json.loads(text))


def _pairs(items: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"{name} {value}" for name, value in items)


def _summary(r: Record) -> str:
    """What a workload computes: `C[4, 6] from A[4, 5] B[5, 6]`."""
    w = _workload(r.workload)
    names = [
        " ".join(f"{t.name}{list(t.shape or ())}" for t in ts) for ts in (w.outputs, w.inputs)
    ]
    return " from ".join(names)


def _gflops(r: Record) -> float:
    return _workload(r.workload).flops / max(r.cost, 1e-12) / 1e9


def _short(target: str) -> str:
    """Kind, architecture and processor of a target's text."""
    kind, triple, *rest = (*target.split(), "")
    return " ".join((kind, triple.split("-")[0], *rest[:1]))


def _when(created: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(created))
