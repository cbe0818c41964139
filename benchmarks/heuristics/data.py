"""The published tables, read from a folder that the user has; no part of one is kept here."""

from __future__ import annotations

import csv
import gzip
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

COUNTS = ("comp", "rational", "mem", "localmem", "coalesced", "atomic", "transfer", "wgsize")


@dataclass(frozen=True)
class Kernels:
    """Kernels with their times on a CPU and a GPU; all have an entry a row.

    Attributes
    ----------
    sources: OpenCL texts.
    counts: (rows, 8), in the order of `COUNTS`.
    seconds: (rows, 2), on the CPU and on the GPU, transfers included.
    groups: names of a row's "kernel", "program" and "suite".
    """

    sources: list[str]
    counts: np.ndarray
    seconds: np.ndarray
    groups: dict[str, list[str]]

    @property
    def labels(self) -> np.ndarray:
        """1 where the GPU takes less time."""
        return (self.seconds[:, 1] < self.seconds[:, 0]).astype(int)

    @property
    def weights(self) -> np.ndarray:
        """Grow with what a wrong choice costs: roots of logarithms of the ratio of times."""
        ratio = np.abs(np.log(self.seconds[:, 0] / self.seconds[:, 1]))
        return np.sqrt(np.maximum(ratio, 0.02))

    def part(self, rows: np.ndarray) -> Kernels:
        """Some of the rows."""
        return Kernels(
            [self.sources[i] for i in rows],
            self.counts[rows],
            self.seconds[rows],
            {name: [values[i] for i in rows] for name, values in self.groups.items()},
        )


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a compressed CSV file."""
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


def _numbers(rows: list[dict[str, str]]) -> tuple[np.ndarray, np.ndarray]:
    counts = np.array([[float(row[name]) for name in COUNTS] for row in rows])
    times = [[float(row["runtime_cpu"]), float(row["runtime_gpu"])] for row in rows]
    return counts, np.array(times) / 1e3


def mapping(folder: Path, gpu: str) -> Kernels:
    """The 680 rows of device mapping beside a GPU, "amd" or "nvidia"."""
    rows = rows_of(folder / "deeptune" / f"case-study-a__cgo17-{gpu}.csv.gz")
    names = [row["benchmark"] for row in rows]
    groups = {
        "kernel": names,
        "program": [name.rpartition("-")[0] for name in names],
        "suite": [name.partition("-")[0] for name in names],
    }
    return Kernels([row["src"] for row in rows], *_numbers(rows), groups)


def clgen(folder: Path, gpu: str) -> Kernels:
    """The rows of synthetic kernels, each kernel a program of its own."""
    rows = rows_of(folder / "clgen" / f"{gpu}-clgen.csv.gz")
    with tarfile.open(folder / "clgen" / "clgen-1000.tar.bz2") as archive:
        texts = {
            Path(member.name).name: archive.extractfile(member).read().decode(errors="replace")
            for member in archive
            if member.isfile()
        }
    kernels = [row["benchmark"] for row in rows]
    sources = [texts.get(kernel.rpartition("-")[0], "") for kernel in kernels]
    return Kernels(
        sources, *_numbers(rows), {"kernel": kernels, "program": kernels, "suite": kernels}
    )


def folds(data: Kernels, protocol: str, seed: int, count: int = 10) -> np.ndarray:
    """The fold of each row: of "random" rows, or of whole kernels, programs or suites."""
    rng = np.random.default_rng(seed)
    if protocol == "random":
        order = np.lexsort((rng.random(len(data.labels)), data.labels))  # labels in equal shares
        made = np.empty(len(order), int)
        made[order] = np.arange(len(order)) % count
        return made
    names, groups = np.unique(data.groups[protocol], return_inverse=True)
    return rng.permutation(np.arange(len(names)) % count)[groups]
