"""Operators on an NVIDIA GPU: Loopwright beside cuDNN, cuBLAS, torch.compile and TVM's dlight.

    python benchmarks/gpu.py --trials 512 --json gpu.json --markdown gpu.md
    python benchmarks/gpu.py --dry --arch sm_90          # where there is no GPU: builds alone

Every contender works in a process of its own, rounds interleaved, the others stopped; all results
are compared with float64 ones first. float32 is float32: no TF32. Work is timed by events, several
runs in a CUDA graph where a contender can be captured, so that no one waits for Python. Data stays
in the GPU's caches if it fits. It works in pieces: --json keeps results, the same command with
--missing goes on, and tuning records stay in --records.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np
from contenders import gpu_contract
from contenders.reference import reference
from gpu_peak import GpuLimits, NoGpuError, gpu_limits
from options import FILE, listed
from outcomes import Outcome, load, mean, merged, origin, outcome, save
from peers import Peer, Processes
from rich.console import Console
from suites.gpu import GOALS, SUITES
from suites.row import Row
from tables import table

import loopwright as lw
from loopwright.measure.local import LocalDevice

_PATIENCE = 1800.0  # seconds; torch.compile tries many kernels
_PACKAGES = ("loopwright", "numpy", "torch", "triton", "apache-tvm")


def ours(row: Row, processors: int, expected: str, trials: int, records: Path) -> Peer:
    """Our contender, tuned now unless the store has as many trials."""
    if not trials:
        return gpu_contract.peer("ours", row, processors, expected)
    found = lw.tune(row.request.workload, target="cuda", trials=trials, records=records)
    return gpu_contract.peer("ours", row, processors, expected, config=found.config.to_json())


def measure(
    rows: Sequence[Row],
    names: Sequence[str],
    trials: int,
    records: Path,
    rounds: int,
    top: GpuLimits,
) -> Iterator[Outcome]:
    """One row after the other, tuned first where that is asked for."""
    processors = len(os.sched_getaffinity(0))
    with Processes(_PATIENCE) as processes, tempfile.TemporaryDirectory() as folder:
        for row in rows:
            expected = f"{folder}/expected.npy"
            np.save(expected, reference(row))
            every = [ours(row, processors, expected, trials, records)]
            every += [gpu_contract.peer(name, row, processors, expected) for name in names]
            results = processes.compare(every, rounds)
            yield outcome(
                row, 1, trials, results, top.roofline(row.request.workload.inputs[0].dtype)
            )


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Geometric means beside their goals, then a table for each suite."""
    parts = []
    for suite in SUITES:
        group = [o for o in outcomes if o.suite == suite]
        if not group:
            continue
        goal = f", the goal {GOALS[suite]}" if suite in GOALS else ""
        lost = f"; ours failed {failed}" if (failed := sum(o.failed for o in group)) else ""
        middle = mean(o.ratio for o in group)
        parts.append(f"### {suite}: {middle:.2f} of the best peer{goal}{lost}")
        parts.append(table(group))
    parts += [f"- {o.suite} {o.row}, {n}: {t}" for o in outcomes for n, t in o.notes.items()]
    return "\n\n".join(parts) + "\n"


def shown(o: Outcome) -> str:
    share = f"{o.share:.0%} of peak {o.bound}"
    return f"{o.suite} {o.row}: {o.ratio:.2f} of {o.best}, {share}; {o.times}"


def about(top: GpuLimits) -> dict[str, object]:
    """What a file of results tells beside them."""
    with LocalDevice("cuda") as device:
        found = origin(_PACKAGES, **device.fingerprint())
    return {**found, "peaks": {"FLOP/s": top.flops, "bytes/s": top.bandwidth}}


def chosen(suites: Sequence[str], names: Sequence[str]) -> list[Row]:
    """Rows of suites, those named if any are."""
    if unknown := [s for s in suites if s not in SUITES]:
        raise click.UsageError(f"no suite is called {unknown[0]!r}: {', '.join(SUITES)}")
    rows = [row for suite in suites for row in SUITES[suite]()]
    known = {row.name for row in rows}
    if missing := [n for n in names if n not in known]:
        raise click.UsageError(f"no row is called {missing[0]!r}: {', '.join(sorted(known))}")
    return [row for row in rows if not names or row.name in names]


@click.command(help=__doc__)
@click.option("--suite", callback=listed, default=",".join(SUITES), show_default=True)
@click.option("--row", "rows", multiple=True, help="Only this one. May be given again.")
@click.option("--trials", default=512, show_default=True, help="0 is the default schedule.")
@click.option("--records", type=FILE, default="gpu.db", show_default=True)
@click.option("--peers", callback=listed, default=",".join(gpu_contract.PEERS), show_default=True)
@click.option("--rounds", default=15, show_default=True)
@click.option("--json", "json_", type=FILE, help="Keep results here.")
@click.option("--missing", is_flag=True, help="Leave out what the file of --json has.")
@click.option("--tables", is_flag=True, help="Measure nothing: tables of the file of --json.")
@click.option("--markdown", "markdown_", type=FILE, help="Write tables here, not to the screen.")
@click.option("--dry", is_flag=True, help="Build everything for --arch, run nothing.")
@click.option("--arch", default="sm_90", show_default=True, help="For --dry.")
def main(
    suite: list[str],
    rows: tuple[str, ...],
    trials: int,
    records: Path,
    peers: list[str],
    rounds: int,
    json_: Path | None,
    missing: bool,
    tables: bool,
    markdown_: Path | None,
    dry: bool,
    arch: str,
) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if unknown := [p for p in peers if p not in gpu_contract.PEERS]:
        raise click.UsageError(
            f"no peer is called {unknown[0]!r}: {', '.join(gpu_contract.PEERS)}"
        )
    work = chosen(suite, rows)
    if dry:
        import gpu_dry

        click.echo("\t".join(gpu_dry.HEAD))
        for line in gpu_dry.build(work, arch, peers):
            click.echo("\t".join(line))
        return
    found = load(json_) if json_ else []
    if not tables:
        try:
            top = gpu_limits()
        except NoGpuError as error:
            raise click.ClickException(f"{error}; --dry builds everything without one") from error
        console.print(f"{top.name}, {top.arch}", markup=False)
        known = {o.key for o in found} if missing else set()
        left = [row for row in work if row.key not in known]
        for o in measure(left, peers, trials, records, rounds, top):
            console.print(shown(o), markup=False)
            found = merged(found, [o])
            if json_:
                save(json_, found, about(top))
    if markdown_:
        markdown_.write_text(markdown(found))
    else:
        click.echo(markdown(found))


if __name__ == "__main__":
    main()
