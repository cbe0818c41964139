"""Draw a figure of the paper again, from recorded costs: every point of it is an exact repetition.

    python benchmarks/paper/figure.py 4 [--seeds 10] [--data DIR] [--gpus DIR] [--results DIR]

Figures 4 to 9 of Chen et al. 2018, *Learning to optimize tensor programs*; docs/paper.md shows
them beside what the paper says. Searches that RESULTS has are not run again; it is written after
every one, so a run that was cut goes on. What needs a table that is not there is left out: those
of GPUs are not in this repository (see `loopwright.measure.tabular.load_brute_forced`).
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy and torch: searches run in parallel

from drawing import draw
from figures import FIGURES, Figure, Panel
from search import TRIALS, Setting, curve, sources
from summary import Curves, summary

HERE = Path(__file__).resolve().parent
Key = tuple[str, str, int]
"""A table, the key of a setting, and a seed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("figure", choices=FIGURES)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--gpus", type=Path, help="folder of brute-forced tables, *.csv.gz")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument(
        "--draw",
        type=Path,
        default=HERE.parents[1] / "docs" / "paper",
        help="folder of the drawing, and of its numbers in Markdown",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--labels", nargs="+", help="run these settings only")
    parser.add_argument("--tables", nargs="+", help="search these tables only")
    options = parser.parse_args()
    figure = FIGURES[options.figure]
    options.results.mkdir(parents=True, exist_ok=True)
    results = options.results / "searches.jsonl"
    tables = {
        p.table: found
        for p in figure.panels
        if (found := _table(p, options)) and p.table in (options.tables or [p.table])
    }
    marks = {
        (p.table, s.key): mark(tables[p.table], s)
        for p in figure.panels
        for s in p.settings
        if p.table in tables
    }
    curves = read(results, marks)
    settings = {s.key: s for p in figure.panels for s in p.settings
                if not options.labels or s.label in options.labels}  # fmt: skip
    wanted = [j for j in dict.fromkeys(jobs(figure, options.seeds))
              if j[0] in tables and j[1] in settings and j not in curves
              and all(p.exists() for p in sources(settings[j[1]], tables[j[0]]))]  # fmt: skip
    with ProcessPoolExecutor(options.jobs) as pool, results.open("a", encoding="utf-8") as file:
        running = {
            pool.submit(curve, settings[key[1]], tables[key[0]], key[2]): key for key in wanted
        }
        for number, job in enumerate(as_completed(running), 1):
            key = running[job]
            curves[key] = [round(share, 4) for share in job.result()]
            file.write(json.dumps([marks[key[:2]], *key, compact(curves[key])]) + "\n")
            file.flush()
            print(f"\r{number} of {len(running)} searches", end="", file=sys.stderr, flush=True)
    if not any(panel.table == key[0] for panel in figure.panels for key in curves):
        parser.error(f"no table of figure {options.figure} is in {options.data} or --gpus")
    folder = options.draw
    folder.mkdir(parents=True, exist_ok=True)
    draw(figure, curves, folder / f"figure{options.figure}.png")
    text = summary(figure, curves)
    (folder / f"figure{options.figure}.md").write_text(f"# {figure.title}\n\n{text}\n", "utf-8")
    print("\n" + text)


def _table(panel: Panel, options: argparse.Namespace) -> Path | None:
    """Where the table of a panel is; None if it is not there."""
    folder = options.gpus if panel.gpu else options.data
    name = f"{panel.table}.csv.gz" if panel.gpu else f"{panel.table}.npz"
    path = None if folder is None else folder.resolve() / name
    return path if path and path.exists() else None


def jobs(figure: Figure, seeds: int) -> Iterator[Key]:
    """All searches of a figure, seed by seed, so that a cut run has as many of each."""
    for seed in range(seeds):
        for panel in figure.panels:
            for setting in panel.settings:
                yield panel.table, setting.key, seed


def mark(table: Path, setting: Setting) -> int:
    """A checksum of all that a search replays: its table, and those that it learns from first, as
    far as they are here."""
    paths = filter(Path.exists, (table, *sources(setting, table)))
    return functools.reduce(lambda crc, path: zlib.crc32(path.read_bytes(), crc), paths, 0)


def read(path: Path, marks: Mapping[tuple[str, str], int]) -> Curves:
    """Curves of an earlier run; `marks` are checksums of what searches replay, by table and
    setting, and those of other tables by the same name are left out."""
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {
        (table, key, seed): expanded(steps)[:TRIALS]
        for found, table, key, seed, steps in lines
        if marks.get((table, key), found) == found
    }


def compact(values: Sequence[float]) -> list[list[float]]:
    """A curve as its steps: [trials, value] where the value changes, and the last one."""
    steps = [[n, v] for n, v in enumerate(values) if n == 0 or v != values[n - 1]]
    return [*steps, [len(values), values[-1]]]


def expanded(steps: Sequence[Sequence[float]]) -> list[float]:
    """What `compact` made small."""
    result: list[float] = []
    for (start, value), (end, _) in itertools.pairwise(steps):
        result += [value] * int(end - start)
    return result


if __name__ == "__main__":
    main()
