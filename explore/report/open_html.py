"""The report of a search for all sizes of some dims: one HTML file that needs no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from loopwright.dsl.words import assigned, counted
from loopwright.explore.report.html import machine_table, page, pre, section, spent_table, table
from loopwright.explore.report.plot import svg

if TYPE_CHECKING:
    from loopwright.explore.open_tuned import OpenTuned


def open_html(tuned: OpenTuned) -> str:
    """The whole report: result, times over sizes, programs, the choice, searches, time spent."""
    record = next((t.record for _, t in tuned.searches if t.record is not None), None)
    loss = "The choice loses nothing" if tuned.loss <= 1 else f"It loses {tuned.loss - 1:.1%}"
    dims = "; ".join(map(str, tuned.workload.dims))
    result = (
        f'<p class="best"><b>{counted(len(tuned.seconds), "program")}</b> in one library, for '
        f"{escape(dims)}</p><p>{loss} against the best program of each of "
        f"{counted(len(tuned.measured), 'measured size')}: {escape(tuned.end)}.</p>"
    )
    sections = [
        result,
        pre(str(tuned.workload)),
        section("Times over sizes", svg(tuned.figure())),
        section(
            "Programs",
            table(("program", "threads", "right for", "chosen at", "config"), _programs(tuned)),
        ),
        section("The choice", table(("sizes", "program"), _choices(tuned))),
        section("Searches", table(("at", "best", "default", "trials", ""), _searches(tuned))),
        section("Where the time went", spent_table(tuned.spent)),
    ]
    if record is not None:
        sections.append(section("Where and with what", machine_table(record)))
    return page(tuned.workload, sections)


def _programs(tuned: OpenTuned) -> Iterator[tuple[str, ...]]:
    chosen, count = Counter(tuned.chosen), len(tuned.measured)
    for number, program in enumerate(tuned.library.origin.extra["programs"]):
        takes = ", ".join(
            f"{name} {low} to {high}" for name, (low, high) in program["takes"].items()
        )
        share = f"{chosen[number]} of {count} sizes"
        yield str(number), str(program["threads"]), takes, share, str(program["config"])


def _choices(tuned: OpenTuned) -> Iterator[tuple[str, str]]:
    names = [d.name for d in tuned.workload.dims]
    for rule in tuned.library.open_signature.rules:
        bounds = zip(names, rule.bounds, strict=True)
        yield ", ".join(f"{n} {low} to {high}" for n, (low, high) in bounds), str(rule.program)


def _searches(tuned: OpenTuned) -> Iterator[tuple[str, ...]]:
    for sizes, found in tuned.searches:
        best, default = (f"{s * 1e3:.4g} ms" for s in (found.seconds, found.default))
        yield assigned(sizes), best, default, str(len(found.history)), found.claim
