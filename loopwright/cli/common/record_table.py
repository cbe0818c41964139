"""Records as lines of a table, and all of one record."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterable, Iterator, Sequence

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loopwright.cli.common.command import replay_command
from loopwright.dsl.workload import Workload
from loopwright.transfer.records.location import Location
from loopwright.transfer.records.store import Record

_HEAD = (
    "id",
    "workload",
    "what",
    "target",
    "threads",
    "ms",
    "GFLOP/s",
    "numerics",
    "cache",
    "when",
    "failure",
)


def show_records(found: Iterable[Record]) -> int:
    """Print one line per record; their number."""
    return show_table(_HEAD, map(_line, found))


def show_table(head: Sequence[str], found: Iterable[Sequence[str]]) -> int:
    """Print lines of fields, of which the last one says why something failed: a table on a
    terminal, else with tabs between; their number."""
    lines = list(found)
    console = Console()
    if not console.is_terminal:
        for line in (head, *lines):
            click.echo("\t".join(line))
        return len(lines)
    table = Table(*head, box=None, header_style="bold", pad_edge=False)
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
        r.numerics,
        r.cache,
        _when(r.created),
        r.failure.kind if r.failure else "",
    )


def record_details(r: Record, store: Location) -> Iterator[tuple[str, object]]:
    """All of a record, in the order in which one wants to know."""
    yield "record", r.id
    yield "workload", f"{r.workload_key}\n{_workload(r.workload)}"
    yield "config", r.config
    yield "numerics", r.numerics
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
    """Formula of a workload: `C[4, 6] from A[4, 5] B[5, 6]`."""
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
