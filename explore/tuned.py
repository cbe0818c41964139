"""`Tuned`: the result of `tune`, with what can be made of it."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loopwright.explore.budget import TuningError
from loopwright.explore.report.html import html
from loopwright.explore.result import SearchResult
from loopwright.paths import whole_file
from loopwright.transfer.records.store import Record

if TYPE_CHECKING:
    from loopwright.codegen.library.library import Library


@dataclass(frozen=True, eq=False, repr=False)
class Tuned(SearchResult):
    """The result of `tune`: the program, and reports of how it was found."""

    @functools.cached_property
    def library(self) -> Library:
        """The best program, compiled when first asked for. Raises `BuildError`."""
        from loopwright.codegen.build import build_fixed

        return build_fixed(self.workload, self.config, self.target)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write all of it as one HTML file that needs no other; its path. Raises `TuningError` if
        nothing was measured, or the file cannot be written."""
        self._measured()
        with whole_file(path, "the report", TuningError) as new:
            new.write_text(html(self), encoding="utf-8")
        return Path(path)

    def plot(self, path: str | os.PathLike[str]) -> Path:
        """Draw the tuning curve, in the format of the suffix: .png, .svg, .pdf, …

        Raises `TuningError` if nothing was measured or the file cannot be written, and for a
        format that matplotlib does not know.
        """
        from loopwright.explore.report.plot import check_format, plot

        self._measured()
        with whole_file(path, "the plot", TuningError) as new:
            check_format(Path(path))
            plot(self, new)
        return Path(path)

    def _measured(self) -> Record:
        """The record; `TuningError` if there is none."""
        if self.record is None:
            raise TuningError("nothing was measured, so there is nothing to show: give it trials")
        return self.record
