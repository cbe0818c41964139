"""`OpenTuned`: the result of `tune` for a workload with dims."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.codegen.open.library import OpenLibrary
from loopwright.dsl.words import assigned, counted, html_table
from loopwright.dsl.workload import Workload
from loopwright.explore.budget import TuningError
from loopwright.explore.tuned import Tuned
from loopwright.paths import whole_file
from loopwright.schedule.target import Target

Sizes = Mapping[str, int]


@dataclass(frozen=True, eq=False)
class OpenTuned:
    """The result of `tune` for a workload with dims.

    Attributes
    ----------
    library: the programs that were kept, in one library.
    searches: the results of the searches, and the sizes that each was of.
    seconds: of each kept program (rows) at each of `measured` (columns); infinite where it is not
        right for a size.
    loss: how much slower the chosen programs are than the best of the kept ones, as the geometric
        mean over `measured`: 1.02 is two per cent.
    spent: seconds by part.
    end: why it ended.
    """

    workload: Workload
    target: Target
    library: OpenLibrary
    searches: tuple[tuple[Sizes, Tuned], ...]
    measured: tuple[Sizes, ...]
    seconds: np.ndarray[Any, np.dtype[np.float64]]
    loss: float
    spent: Mapping[str, float]
    end: str

    @property
    def chosen(self) -> tuple[int, ...]:
        """The program that the library chooses at each of `measured`."""
        return tuple(self.library.open_signature.program(sizes) for sizes in self.measured)

    @property
    def measured_sizes(self) -> str:
        """The number of different sizes that were measured, with its noun."""
        return counted(len({tuple(s.items()) for s in self.measured}), "measured size")

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write all of it as one HTML file that needs no other; its path. Raises `TuningError` if
        nothing was measured, or the file cannot be written."""
        from loopwright.explore.report.html import open_html

        self._check_measured()
        with whole_file(path, "the report", TuningError) as new:
            new.write_text(open_html(self), encoding="utf-8")
        return Path(path)

    def plot(self, path: str | os.PathLike[str]) -> Path:
        """Draw the times of all programs over the sizes, in the format of the suffix: .png, …

        Raises `TuningError` if nothing was measured or the file cannot be written, and for a
        format that matplotlib does not know.
        """
        from loopwright.explore.report.plot import check_format

        self._check_measured()
        with whole_file(path, "the plot", TuningError) as new:
            check_format(Path(path))
            self.figure().savefig(new, dpi=150)
        return Path(path)

    def figure(self) -> Any:
        """The drawing of `plot`, as matplotlib's figure."""
        from loopwright.explore.report.plot import open_figure

        threads = counted(self.target.threads, "thread")
        machine = f"{self.target.mcpu}, {self.target.kind}, {threads}"
        title = f"{self.library.open_signature}\n{machine}"
        return open_figure(title, self.measured, self.seconds, self.chosen)

    def _check_measured(self) -> None:
        if not self.measured:
            raise TuningError("nothing was measured, so there is nothing to show: give it trials")

    def __str__(self) -> str:
        dims = "; ".join(map(str, self.workload.dims))
        at = "; ".join(assigned(sizes) for sizes, _ in self.searches)
        loss = "nothing was measured"
        if self.measured:
            loss = f"the choice loses {self._loss} at {self.measured_sizes}"
        programs = counted(len(self.seconds), "program")
        return f"{programs} for {dims}, after searches at {at} ({self.end}); {loss}"

    __repr__ = __str__

    @property
    def _loss(self) -> str:
        return f"{100 * (self.loss - 1):.1f} %" if self.measured else "not measured"

    def _repr_html_(self) -> str:
        rows: dict[str, object] = {
            "dims": "; ".join(map(str, self.workload.dims)),
            "programs": len(self.seconds),
            "searched at": "; ".join(assigned(sizes) for sizes, _ in self.searches),
            "loss of the choice": self._loss,
            "target": self.target,
            "end": self.end,
        }
        return html_table("OpenTuned", rows)
