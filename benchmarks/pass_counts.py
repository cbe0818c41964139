"""LLVM pass lists by the thesis's objective: instructions of IR over those of -Oz.

python benchmarks/pass_counts.py FOLDER [--functions 2000] [--learn 2000] [--minutes 90]

Functions are the LLVM modules of drawn workloads, the kernel and what lays out its constants, by
the default config and a drawn one, marked minsize as clang -Oz marks them. A random search finds a
good list for each. In one half lists lose what changes nothing, the most useful of them are tried
on all functions, and a sequence model learns. Its samples are tried on the other half, whose
workloads it never saw.
FOLDER keeps everything: the same command goes on, and prints the table of what there is.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

import click
import kept
import numpy as np
from rich.console import Console
from rich.table import Table
from suites.drawn import drawn as drawn_rows

from loopwright.codegen.build import program
from loopwright.codegen.compile import unoptimized
from loopwright.codegen.explain import space_of
from loopwright.codegen.passes.pipeline import Pipeline
from loopwright.codegen.passes.process import PassError, PassProcess
from loopwright.codegen.passes.table import PIPELINES, Elements, text
from loopwright.codegen.processors import usable_processors
from loopwright.codegen.target import resolve
from loopwright.costmodel.sequence.model import SequenceModel
from loopwright.costmodel.sequence.pass_lists import LONGEST
from loopwright.dsl.errors import LoopwrightError
from loopwright.explore.passes.lists import STEPS, drawn, learned, minimized, proposed

OZ: Elements = ("default<Oz>",)
SHARED = 40
"""Lists that are tried on all functions."""
SAMPLES = (1, 5, 30)
SEEDS = {"learn": 11, "test": 12}
Rows = dict[str, dict[str, Any]]


class Store:
    """Lines of JSON by name and key, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._lock = folder, threading.Lock()
        (folder / "ir").mkdir(parents=True, exist_ok=True)

    def read(self, name: str) -> Rows:
        """All lines; one that was cut short by an end is left out."""
        return {row["key"]: row for row in kept.lines(self.folder / f"{name}.jsonl")}

    def add(self, name: str, row: dict[str, Any]) -> None:
        """Append a line."""
        with self._lock:
            kept.add(self.folder / f"{name}.jsonl", row)

    def ir(self, key: str) -> str:
        """LLVM IR of a function."""
        return zlib.decompress((self.folder / "ir" / key).read_bytes()).decode()

    def keep(self, ir: str) -> str:
        """The key of LLVM IR that is kept."""
        key = hashlib.sha256(ir.encode()).hexdigest()[:16]
        (self.folder / "ir" / key).write_bytes(zlib.compress(ir.encode(), 9))
        return key


class Bench:
    """The store, the processes that run lists, and the end of the time."""

    def __init__(self, folder: Path, minutes: float) -> None:
        self.store, self.end = Store(folder), monotonic() + 60 * minutes
        self.target = resolve("cpu", 2)
        self._own = threading.local()

    def count(self, ir: str, elements: Elements) -> int | None:
        """Instructions after a list; None where it fails."""
        if not hasattr(self._own, "process"):
            self._own.process = PassProcess(timeout=20.0)
        pipeline = Pipeline.of(text(elements))
        try:
            return int(self._own.process.run(ir, pipeline, self.target).instructions)
        except PassError:
            return None

    def each(self, keys: Iterable[str], work: Callable[[str], None]) -> None:
        """Do the work for every key, on all processors, as long as there is time."""

        def timely(key: str) -> None:
            if monotonic() < self.end:
                work(key)

        with ThreadPoolExecutor(usable_processors()) as threads:
            list(threads.map(timely, keys))


def draw(bench: Bench, split: str, wanted: int) -> list[str]:
    """Keys of the functions of a split."""
    known = bench.store.read(f"functions-{split}")
    names = {row["workload"] for row in known.values()}
    for row in drawn_rows(2 * wanted, SEEDS[split]) if len(known) < wanted else ():
        if len(known) >= wanted or monotonic() > bench.end:
            break
        if row.name in names:
            continue
        for ir in functions(row.request.workload, bench.target):
            found = {"key": bench.store.keep(ir), "workload": row.name}
            if found["key"] not in known:
                known[found["key"]] = found
                bench.store.add(f"functions-{split}", found)
    return list(known)[:wanted]


def functions(workload: Any, target: Any) -> Iterator[str]:
    """LLVM IR of a workload's functions by its default config and a drawn one."""
    rng = np.random.default_rng(0)
    for make in (lambda: None, lambda: space_of(workload, target).sample(rng)):
        try:
            made = program(workload, make(), target)
            yield from (small(without_addresses(ir)) for ir in unoptimized(made))
        except LoopwrightError as error:
            click.echo(f"left out: {error}", err=True)


def small(ir: str) -> str:
    """LLVM IR whose functions say that they are to be small, as clang -Oz has them: passes ask for
    that, and without it -Oz itself unrolls loops."""
    return re.sub(r"^(attributes #\d+ = \{)", r"\1 minsize optsize", ir, flags=re.MULTILINE)


def without_addresses(ir: str) -> str:
    """LLVM IR whose names of types are the same in each process."""
    names: dict[str, str] = {}
    parts = ir.split('"0x')
    for n, part in enumerate(parts[1:], 1):
        address, rest = part.split('"', 1)
        parts[n] = names.setdefault(address, f'"t{len(names)}') + '"' + rest
    return "".join(parts)


def search(bench: Bench, keys: list[str], lists: int, minimize: bool) -> Rows:
    """Random lists for each function, the best of them minimized where a model learns from it."""
    done = bench.store.read("random")

    def work(key: str) -> None:
        ir, rng = bench.store.ir(key), np.random.default_rng(int(key, 16))
        every = [OZ, *((p,) for p in PIPELINES if (p,) != OZ), *(drawn(rng) for _ in range(lists))]
        counts = [bench.count(ir, e) for e in every]
        found = [(c, e) for c, e in zip(counts, every) if c is not None]
        if counts[0] is None:
            return
        best, elements = min(found, key=lambda pair: pair[0])
        if minimize and best < counts[0]:
            elements = minimized(elements, lambda fewer: bench.count(ir, fewer) == best)
        row = {"key": key, "oz": counts[0], "best": best, "list": list(elements)}
        own = [[c, *e] for c, e in found if len(e) == 1]
        bench.store.add("random", row | {"failed": counts.count(None), "own": own})

    bench.each([k for k in keys if k not in done], work)
    done = bench.store.read("random")
    return {k: done[k] for k in keys if k in done}


def shared(bench: Bench, learn: Rows) -> list[Elements]:
    """The most useful lists of the functions to learn from, fixed once all of these are done."""
    path = bench.store.folder / "shared.json"
    if not path.exists():
        gains: Counter[Elements] = Counter()
        for row in learn.values():
            elements = tuple(row["list"])
            if row["best"] < row["oz"] and len(elements) <= LONGEST:
                gains[elements] += row["oz"] / row["best"] - 1
        path.write_text(json.dumps([e for e, _ in gains.most_common(SHARED)]))
    return [tuple(e) for e in json.loads(path.read_text())]


def share(bench: Bench, rows: Rows, lists: list[Elements]) -> Rows:
    """The counts of the shared lists for each function."""
    done = bench.store.read("shared")

    def work(key: str) -> None:
        ir = bench.store.ir(key)
        bench.store.add("shared", {"key": key, "counts": [bench.count(ir, e) for e in lists]})

    bench.each([k for k in rows if k not in done], work)
    return bench.store.read("shared")


def train(
    bench: Bench, learn: Rows, counts: Rows, lists: list[Elements], steps: int
) -> SequenceModel | None:
    """The model of the good lists of what is to be learned from; made once. None where the time
    was up before."""
    path = bench.store.folder / "model.json"
    if path.exists():
        return SequenceModel.load(path)
    if monotonic() > bench.end:
        return None

    def costs(key: str, row: dict[str, Any]) -> dict[Elements, float]:
        found = {tuple(e): c for c, *e in row["own"]} | {tuple(row["list"]): row["best"]}
        return found | {e: c for e, c in zip(lists, counts[key]["counts"]) if c is not None}

    model = learned(((bench.store.ir(key), costs(key, row)) for key, row in learn.items()), steps)
    model.save(path)
    return model


def sample(bench: Bench, model: SequenceModel, keys: Iterable[str]) -> Rows:
    """Counts of the Priority Samples of a model for each function, in their order."""
    done = bench.store.read("samples")

    def work(key: str) -> None:
        ir = bench.store.ir(key)
        lists = proposed(model, ir, max(SAMPLES))
        counts = [bench.count(ir, e) for e in lists]
        bench.store.add("samples", {"key": key, "counts": counts, "oz": lists[0] == OZ})

    bench.each([k for k in keys if k not in done], work)
    return bench.store.read("samples")


def show(test: Rows, counts: Rows, samples: Rows) -> None:
    """The table, of the functions for which everything is there."""
    keys = [k for k in test if k in counts and k in samples]
    if not keys:
        click.echo("nothing is tested yet: run the command again")
        return
    table = Table("lists", "compilations", "better", "worse", "saved", "lost", "over -Oz, %")
    whole = [[test[k]["best"], *(c for c in counts[k]["counts"] if c)] for k in keys]
    add = (
        ("random search, sharing", lambda n, k: min(whole[n])),
        ("random search alone", lambda n, k: test[k]["best"]),
        ("shared lists alone", lambda n, k: least(counts[k]["counts"], test[k]["oz"])),
    )
    for name, of in add:
        line(table, name, "", [(test[k]["oz"], of(n, k)) for n, k in enumerate(keys)])
    failing = 10**9
    for most in SAMPLES:
        own = [(test[k]["oz"], least(samples[k]["counts"][:most], failing)) for k in keys]
        kept = [(oz, oz if found == failing else found) for oz, found in own]
        extra = sum(not samples[k]["oz"] for k in keys) if most == 1 else most * len(keys)
        line(table, f"model, {most} samples", str(0 if most == 1 else extra), kept)
        line(table, "… with -Oz backup", str(extra), [(oz, min(oz, f)) for oz, f in kept])
    same = sum(samples[k]["oz"] for k in keys)
    console = Console(width=110)
    console.print(table)
    console.print(f"{len(keys)} functions; -Oz is the model's first answer for {same}")


def least(counts: list[int | None], otherwise: int) -> int:
    """The least count of those that there are."""
    return min((c for c in counts if c is not None), default=otherwise)


def line(table: Table, name: str, extra: str, pairs: list[tuple[int, int]]) -> None:
    """One line of the table, of pairs of counts by -Oz and by a list."""
    saved = sum(max(oz - found, 0) for oz, found in pairs)
    lost = sum(max(found - oz, 0) for oz, found in pairs)
    better, worse = sum(f < oz for oz, f in pairs), sum(f > oz for oz, f in pairs)
    total = sum(oz for oz, _ in pairs)
    gain = 100 * (total / max(total - saved + lost, 1) - 1)
    table.add_row(name, extra, str(better), str(worse), str(saved), str(lost), f"{gain:.2f}")


@click.command(help=__doc__)
@click.argument("folder", type=Path)
@click.option("--functions", "wanted", default=2000, help="Functions to test on.")
@click.option("--learn", "learning", default=2000, help="Functions to learn from.")
@click.option("--lists", default=100, help="Random lists of each.")
@click.option("--steps", default=STEPS, help="Of training, a part that is not interrupted.")
@click.option("--minutes", default=90.0, help="Time after which nothing is begun.")
def main(folder: Path, wanted: int, learning: int, lists: int, steps: int, minutes: float) -> None:
    """Search, learn, try and print, as far as the time goes."""
    bench = Bench(folder, minutes)
    keys = {"learn": draw(bench, "learn", learning), "test": draw(bench, "test", wanted)}
    learn, test = (search(bench, keys[s], lists, minimize=s == "learn") for s in keys)
    if len(learn) < len(keys["learn"]):
        click.echo(f"{len(learn)} of {len(keys['learn'])} are searched: run the command again")
        return
    useful = shared(bench, learn)
    counts = share(bench, learn | test, useful)
    if not set(learn) <= set(counts):
        click.echo("the shared lists are not tried on all: run the command again")
        return
    model = train(bench, learn, counts, useful, steps)
    if model is None:
        click.echo("no model is trained: run the command again")
        return
    show(test, counts, sample(bench, model, test))


if __name__ == "__main__":
    main()
