"""Choices that hold: the winners of searches with several seeds, and what was claimed of them.

    python benchmarks/choices.py [--row matmul:256 --row C6] [--seeds 5] [--trials 48]
    python benchmarks/choices.py --load [--json loaded.json]

Every row is tuned once with each seed, from nothing: no search knows what another found. Then the
winners and the default are measured side by side. A pair of winners is tied where a test cannot
tell one from the other. What a search claimed of its speed-up is held against that comparison.

With --load another program keeps one core busy while searches run, for a part of the time, and not
while their winners are compared. With --json the same command again goes on where it ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from options import FILE
from suites import SUITES, select
from suites.row import Row
from tables import lines

import loopwright as lw
from loopwright.codegen.build import program
from loopwright.codegen.target import resolve
from loopwright.explore.finalize import CROWDED, TRIES
from loopwright.explore.significance import SIGNIFICANT, ratio, slower
from loopwright.measure.local import LocalDevice
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.tree.printer import show

ROWS = (
    "matmul:64", "matmul:100", "matmul:128", "matmul:256", "matmul:333",
    "C3", "C5", "C6", "C8", "C9", "C11",
    "dw 128 /1 @56", "dw 512 /2 @14", "pw 128->256 @28", "pw 64->384 @14",
    "512->1000 x32", "softmax 12,128,128", "layer norm 128,768", "max 3/2 64@112",
    "avg 3/1 192@28",
)  # fmt: skip
NEAR = 1.02
"""Winners are equally good within this ratio."""
HOLDS = 1.1
"""A claim holds if what is found afterwards is within this ratio of it."""
_LOAD = """
import itertools, time
for turn in itertools.count(1):
    end = time.monotonic() + {seconds}
    while turn % 2 and time.monotonic() < end:
        pass
    time.sleep(max(end - time.monotonic(), 0))
"""
_BUSY = 4.0
"""Seconds for which the core is busy, and then idle, by turns."""


@dataclass(frozen=True)
class Found:
    """What one search found.

    Attributes
    ----------
    config: the winner, as JSON; `program`: a hash of its loops, since configs that differ may be
        the same program.
    claimed: the speed-up over the default, None where none was claimed; `words` tell why.
    """

    seed: int
    config: dict
    program: str
    claimed: float | None
    words: str


@dataclass(frozen=True)
class Choices:
    """A row: what its searches found, and what each winner takes afterwards.

    Attributes
    ----------
    samples: seconds by program, the default's too, all measured side by side.
    default: the default's program.
    others: cores that other programs kept busy in the comparison, beyond the free ones.
    """

    row: str
    threads: int
    trials: int
    load: bool
    found: tuple[Found, ...]
    samples: Mapping[str, tuple[float, ...]]
    default: str
    others: float

    def pairs(self) -> Iterator[tuple[bool, bool, bool]]:
        """Of each pair of winners whether it is the same program, tied, and within `NEAR`."""
        for one, other in itertools.combinations([f.program for f in self.found], 2):
            a, b = self.samples[one], self.samples[other]
            same = one == other
            tied = same or min(slower(a, b), slower(b, a)) >= SIGNIFICANT
            yield same, tied, same or within(ratio(a, b).value, 1.0, NEAR)

    def claims(self) -> Iterator[tuple[float, float]]:
        """What was claimed, and what holds."""
        for f in self.found:
            if f.claimed is not None:
                yield f.claimed, self.held(f)

    def held(self, f: Found) -> float:
        """The speed-up of a winner over the default afterwards."""
        return ratio(self.samples[self.default], self.samples[f.program]).value


def within(a: float, b: float, factor: float) -> bool:
    return abs(math.log(a / b)) <= math.log(factor)


def hashed(work: lw.Workload, config: Config, threads: int) -> str:
    """A name for the loops of a config."""
    text = show(program(work, config, resolve("cpu", threads)).tree)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@contextlib.contextmanager
def loaded(wanted: bool) -> Iterator[None]:
    """One core is busy by turns, if that is wanted."""
    if not wanted:
        yield
        return
    code = _LOAD.format(seconds=_BUSY)
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            yield
        finally:
            process.kill()


def find(row: Row, threads: int, trials: int, seed: int, load: bool) -> Found:
    """One search."""
    work = row.request.workload
    with loaded(load):
        tuned = lw.tune(work, threads=threads, trials=trials, seed=seed, records=None)
    claimed = None if tuned.speedup is None else tuned.speedup.value
    code = hashed(work, tuned.config, threads)
    return Found(seed, tuned.config.to_json(), code, claimed, tuned.claim)


def compared(row: Row, threads: int, trials: int, load: bool, found: Sequence[Found], rounds: int):
    """Measure the winners and the default side by side, again while others want the cores."""
    work = row.request.workload
    default = lw.space(work, threads=threads).default
    configs = {hashed(work, default, threads): default}
    configs |= {f.program: Config.from_json(f.config) for f in reversed(found)}
    with LocalDevice("cpu", threads) as device:
        for _ in range(TRIES):
            taken = device.compare(work, list(configs.values()), rounds)
            if taken.others <= CROWDED:
                break
    samples = dict(zip(configs, taken.samples, strict=True))
    first = next(iter(configs))
    return Choices(row.key, threads, trials, load, tuple(found), samples, first, taken.others)


def markdown(rows: Sequence[Choices]) -> str:
    """A line for each row, and what follows from all of them."""
    head = ["row", "default ms", "programs", "slowest / fastest winner", "within 2 %", "ties",
            "same program", "claimed (holds)", "others"]  # fmt: skip
    told = "\n".join(f"- {text}" for text in summary(rows))
    return f"{lines(head, map(_line, rows))}\n\n{told}\n"


def _line(c: Choices) -> list[str]:
    pairs = list(c.pairs())
    ties = [same for same, tied, _ in pairs if tied]
    speeds = [c.held(f) for f in c.found]
    default = sorted(c.samples[c.default])[(len(c.samples[c.default]) - 1) // 4]
    claims = [
        ("–" if f.claimed is None else f"{f.claimed:.2f}") + f" ({c.held(f):.2f})" for f in c.found
    ]
    return [
        c.row,
        f"{default * 1e3:.4g}",
        str(len({f.program for f in c.found})),
        f"{max(speeds) / min(speeds):.3f}",
        f"{sum(near for *_, near in pairs)} of {len(pairs)}",
        str(len(ties)),
        str(sum(ties)),
        ", ".join(claims),
        f"{c.others:.1f}",
    ]


def summary(rows: Sequence[Choices]) -> Iterator[str]:
    pairs = [pair for c in rows for pair in c.pairs()]
    ties = [same for same, tied, _ in pairs if tied]
    claims = [claim for c in rows for claim in c.claims()]
    held = sum(within(*claim, HOLDS) for claim in claims)
    searches = sum(len(c.found) for c in rows)
    near = sum(near for *_, near in pairs)
    yield f"winners within 2 % of each other: {_share(near, len(pairs))}"
    yield f"of the ties the same program: {_share(sum(ties), len(ties))}"
    yield f"claims: {len(claims)} of {searches} searches; within 10 % of what holds: " + _share(
        held, len(claims)
    )
    slow = sum(c.held(f) < 1 / NEAR for c in rows for f in c.found)
    yield f"winners more than 2 % slower than the default: {slow} of {searches}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%} ({part} of {whole})" if whole else "none"


def load(path: Path | None) -> dict:
    """What a file holds: searches and comparisons by name."""
    if path is None or not path.exists():
        return {"searches": {}, "rows": {}}
    return json.loads(path.read_text())


def save(path: Path | None, data: dict) -> None:
    if path is not None:
        partial = path.with_suffix(".part")
        partial.write_text(json.dumps(data, indent=1))
        partial.rename(path)


def read(data: dict) -> Choices:
    """What `asdict` made of a row."""
    found = tuple(Found(**f) for f in data["found"])
    samples = {name: tuple(s) for name, s in data["samples"].items()}
    return Choices(**{**data, "found": found, "samples": samples})


@click.command(help=__doc__)
@click.option(
    "--row", "rows", multiple=True, help="Only this one: ROW or SUITE:ROW. May be given again."
)
@click.option("--seeds", default=5, show_default=True)
@click.option("--trials", default=48, show_default=True, help="Of each search.")
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=20, show_default=True, help="Of the comparison of the winners.")
@click.option("--load", "loaded_", is_flag=True, help="Keep a core busy for a part of the time.")
@click.option("--json", "json_", type=FILE, help="Keep results here, and go on from them.")
@click.option("--markdown", "markdown_", type=FILE, help="Write the table here too.")
def main(
    rows: tuple[str, ...],
    seeds: int,
    trials: int,
    threads: int,
    rounds: int,
    loaded_: bool,
    json_: Path | None,
    markdown_: Path | None,
) -> None:
    if threads > len(os.sched_getaffinity(0)):
        raise click.UsageError(f"--threads {threads}: there are not as many processors")
    try:
        chosen = select(list(SUITES), rows or ROWS)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    kept, done = load(json_), []
    for row in chosen:
        about = f"{row.key} {threads} {trials} {loaded_}"
        found = []
        for seed in range(seeds):
            name = f"{about} {seed}"
            if name not in kept["searches"]:
                made = find(row, threads, trials, seed, loaded_)
                kept["searches"][name] = asdict(made)
                save(json_, kept)
                click.echo(f"{name}: {made.words}", err=True)
            found.append(Found(**kept["searches"][name]))
        name = f"{about} of {seeds}"
        if name not in kept["rows"]:
            made = compared(row, threads, trials, loaded_, found, rounds)
            kept["rows"][name] = asdict(made)
            save(json_, kept)
        done.append(read(kept["rows"][name]))
    text = markdown(done)
    if markdown_:
        markdown_.write_text(text)
    click.echo(text)


if __name__ == "__main__":
    main()
