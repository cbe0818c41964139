"""LLVM pass lists by measured time: each list beside -O3, nothing slower, the gain by kind.

python benchmarks/pass_times.py FILE.json [--kernels 50] [--search 2] [--minutes 180] [--threads 1]

Kernels are drawn workloads of ten kinds by their default config. `lw.tune_passes` searches for
each, `--search` minutes long, and begins with lists that served kernels before it. Then what it
returned runs beside -O3 once more, in a new process, in turns: the table has these ratios, with
ties by the signed-rank test. FILE keeps what was measured: the same command goes on, and prints
the table of what there is.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from suites.drawn import drawn
from suites.row import Row

import loopwright as lw
from loopwright.codegen.target import resolve
from loopwright.explore.significance import SIGNIFICANT, ratio, slower
from loopwright.measure.pass_device import PassDevice

KINDS = (
    "conv 3x3", "conv 1x1", "depthwise", "matmul", "dense", "softmax", "layer norm", "elementwise",
    "attention", "avg pool",
)  # fmt: skip
SEED, ROUNDS = 21, 24
SHARED = 12
"""Lists of kernels before that are tried first."""


def kernels(count: int) -> Iterator[tuple[str, Row]]:
    """So many drawn workloads with their kinds, the kinds in turns."""
    of_kind: dict[str, list[Row]] = {kind: [] for kind in KINDS}
    for row in drawn(40 * count // len(KINDS) + 400, SEED):
        kind = row.name.removesuffix(f" {' '.join(row.settings)}")
        if kind in of_kind:
            of_kind[kind].append(row)
    for n in range(-(-count // len(KINDS))):
        for kind in KINDS:
            if n * len(KINDS) + KINDS.index(kind) < count and n < len(of_kind[kind]):
                yield kind, of_kind[kind][n]


def measured(
    workload: lw.Workload, threads: int, search: float, begin: list[str], model: Path | None
) -> Any:
    """What a search finds, and samples of it beside -O3 from a process that it did not see."""
    found = lw.tune_passes(workload, threads=threads, minutes=search, begin=begin, model=model)
    row: dict[str, Any] = {
        "passes": found.passes,
        "tried": len(found.tried),
        "codes": sum(not t.same and t.failure is None for t in found.tried),
        "failed": sum(t.failure is not None for t in found.tried),
        "microseconds": 1e6 * found.default,
        "lists": [[t.seconds, t.passes] for t in found.tried if math.isfinite(t.seconds)],
    }
    if found.passes:
        with PassDevice(resolve("cpu", threads), seed=99) as device:
            both = device.build_lists(workload, found.config, ["", found.passes])
            row["samples"] = device.compare_built(workload, both, ROUNDS).samples
    return row


def standing(row: dict[str, Any]) -> tuple[str, float]:
    """Whether a list is faster than -O3, tied or slower, and by how much."""
    if not row["passes"]:
        return "-O3", 1.0
    default, own = row["samples"]
    by = ratio(default, own).value
    if slower(own, default) < SIGNIFICANT:
        return "slower", by
    return ("faster" if slower(default, own) < SIGNIFICANT else "tied"), by


def show(rows: dict[str, dict[str, Any]]) -> None:
    """The table by kind, and the elements of the lists that are faster."""
    head = ("kind", "kernels", "faster", "tied", "slower", "-O3 kept", "gain", "most", "lists")
    table = Table(*head)
    of_kind = {kind: [r for r in rows.values() if r["kind"] == kind] for kind in KINDS}
    for kind, own in (of_kind | {"all": [*rows.values()]}).items():
        if not own:
            continue
        found = [standing(r) for r in own]
        words, gains = Counter(word for word, _ in found), [by for _, by in found]
        counts = [str(words[w]) for w in ("faster", "tied", "slower", "-O3")]
        mean = statistics.geometric_mean(gains)
        tried = statistics.fmean(r["tried"] for r in own)
        table.add_row(
            kind, str(len(own)), *counts, f"{mean:.3f}", f"{max(gains):.2f}", f"{tried:.0f}"
        )
    console = Console(width=110)
    console.print(table)
    lists = [r["passes"] for r in rows.values() if standing(r)[0] == "faster"]
    parts = Counter(e for one in lists for e in one.replace(" -", ",-").split(","))
    console.print(
        "elements of faster lists:", ", ".join(f"{e} {n}" for e, n in parts.most_common(20))
    )


@click.command(help=__doc__)
@click.argument("file", type=Path)
@click.option("--kernels", "count", default=50, help="Kernels, of ten kinds in turns.")
@click.option("--search", default=2.0, help="Minutes of each search.")
@click.option("--minutes", default=180.0, help="Time after which no kernel is begun.")
@click.option("--threads", default=1, help="Threads of the kernels.")
@click.option("--model", type=Path, help="A sequence model that proposes the first lists.")
def main(
    file: Path, count: int, search: float, minutes: float, threads: int, model: Path | None
) -> None:
    """Search, compare and print, as far as the time goes."""
    rows = json.loads(file.read_text()) if file.exists() else {}
    end = monotonic() + 60 * minutes
    for kind, row in kernels(count):
        key = f"{row.name}, {threads} threads"
        if key not in rows and monotonic() < end:
            shared = Counter(r["passes"] for r in rows.values() if r["passes"])
            begin = [passes for passes, _ in shared.most_common(SHARED)]
            found = measured(row.request.workload, threads, search, begin, model)
            rows[key] = {"kind": kind, **found}
            file.write_text(json.dumps(rows, indent=1))
            click.echo(f"{key}: {standing(rows[key])} {found['passes']}", err=True)
    show(rows)


if __name__ == "__main__":
    main()
