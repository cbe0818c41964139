"""The report of a search: one HTML file that needs no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING

from loopwright.dsl.words import assigned, counted
from loopwright.explore.report.plot import curve, roofline, svg
from loopwright.explore.result import SearchResult, speed
from loopwright.schedule.lowering import lower
from loopwright.schedule.space import find_sketch
from loopwright.schedule.tree.printer import show
from loopwright.transfer.records.store import Record

if TYPE_CHECKING:
    from loopwright.dsl.workload import Workload
    from loopwright.explore.open.tuned import OpenTuned
    from loopwright.measure.bounds import Bound

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 52em; margin: 2em auto; padding: 0 1em;
       color: #222; background: #fff; }
pre { background: #f4f4f2; padding: .8em; overflow-x: auto; font-size: 13px; line-height: 1.35; }
table { border-collapse: collapse; } td, th { padding: .15em 1em .15em 0; text-align: left; }
svg { width: 100%; height: auto; } .best { font-size: 1.3em; }
"""


_CURVE = (
    "Dots are times during the search. The diamond and the dashed lines are times told above: of "
    "the best and the default, measured side by side at the end where they were compared."
)


def html(tuned: SearchResult) -> str:
    """The whole report: result, curve, loop tree, roofline, finalists, failures, time spent."""
    assert tuned.record is not None  # a report is of measurements
    found: tuple[Bound, ...] = ()
    peak = None
    if tuned.target.kind != "replayed" and tuned.target.gpu is None:  # else it cannot be measured
        from loopwright.measure.bounds import bounds
        from loopwright.measure.roofline import peak_flops

        found, peak = bounds(tuned.workload, tuned.target), peak_flops(tuned.target)
    sections = [
        _result(tuned, peak),
        pre(str(tuned.workload)),
        section("Tuning curve", curve(tuned), f"<p>{_CURVE}</p>"),
        section(
            "The best config", f"<p><code>{escape(str(tuned.config))}</code></p>", _tree(tuned)
        ),
        _standing(tuned, found, peak),
        section("Finalists, measured side by side", _finalists(tuned)),
        section("Failures", _failures(tuned)),
        section("Notes", _notes(tuned)),
        section("Where the time went", spent_table(tuned.spent)),
        section("Where and with what", machine_table(tuned.record)),
    ]
    return page(tuned.workload, sections)


def page(workload: Workload, sections: Iterable[str]) -> str:
    """A whole page about the tuning of a workload."""
    title = escape(", ".join(t.name for t in workload.outputs))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>Tuning of {title}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>Tuning of {title}</h1>\n" + "\n".join(sections) + "\n</body></html>\n"
    )


def _result(tuned: SearchResult, peak: float | None) -> str:
    flops = tuned.workload.flops
    best, default = (escape(speed(flops, s, peak)) for s in (tuned.seconds, tuned.default))
    peer = "" if tuned.peer is None else f"<p>{escape(str(tuned.peer))}</p>"
    return (
        f'<p class="best"><b>{best}</b>: {escape(tuned.claim)}</p><p>The default takes {default}. '
        f"{counted(len(tuned.history), 'trial')}, {tuned.resumed} of them in earlier sessions: "
        f"{escape(tuned.end)}.</p>{peer}"
    )


def _tree(tuned: SearchResult) -> str:
    if tuned.target.kind == "replayed":
        return "<p>A table of known costs has no loops to show.</p>"
    sketch = find_sketch(tuned.workload, tuned.target, tuned.config.sketch)
    loops = pre(show(lower(sketch, tuned.target, tuned.config)))
    return f"<details><summary>Its loops</summary>{loops}</details>"


def _standing(tuned: SearchResult, found: tuple[Bound, ...], peak: float | None) -> str:
    """The bound that the program stands at, all bounds, and the roofline."""
    if not found:
        return ""
    from loopwright.measure.bounds import standing

    rows = [
        (b.name, f"{b.seconds * 1e3:.4g} ms", f"{b.seconds / tuned.seconds:.0%}", b.reason)
        for b in found
    ]
    parts = [
        f"<p>{escape(standing(found, tuned.seconds))}</p>",
        table(("bound", "at least", "of its time", "by"), rows),
    ]
    flops, moved = tuned.workload.flops, tuned.workload.min_bytes
    if flops and peak:
        level = next(b for b in found if b.name not in ("compute", "launch"))
        bandwidth = moved / level.seconds
        drawn = roofline(flops / tuned.seconds, flops / moved, peak, bandwidth, level.name)
        parts.append(drawn)
    return section("Roofline", *parts)


def _notes(tuned: SearchResult) -> str:
    if not tuned.notes:
        return "<p>None.</p>"
    return "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in tuned.notes) + "</ul>"


def _finalists(tuned: SearchResult) -> str:
    if not tuned.finalists:
        return f"<p>None: the best were not compared ({escape(tuned.end)}).</p>"
    rows = [
        (f"{f.cost * 1e3:.4g} ms", f"{f.p:.2g}", f.standing, str(f.config))
        for f in tuned.finalists
    ]
    return table(("cost", "p against the fastest", "", "config"), rows)


def _failures(tuned: SearchResult) -> str:
    if not tuned.failures:
        return "<p>None.</p>"
    first = {m.failure.kind: m.failure for m in reversed(tuned.history) if m.failure}
    rows = [(kind, str(n), first[kind].message) for kind, n in tuned.failures.items()]
    return table(("kind", "candidates", "the first of them"), rows)


def spent_table(spent: Mapping[str, float]) -> str:
    """Seconds by part and their shares."""
    total = sum(spent.values()) or 1.0
    parts = sorted(spent.items(), key=lambda part: -part[1])
    rows = [(p, f"{s:.2f} s", f"{s / total:.0%}") for p, s in (*parts, ("all", total))]
    return table(("part", "time", "share"), rows)


def machine_table(record: Record) -> str:
    """The target, the machine and the versions of a record."""
    rows = [
        ("target", record.target),
        ("threads", str(record.threads)),
        ("seed", str(record.seed)),
    ]
    rows += [(k, v) for k, v in (*record.machine.items(), *record.versions.items())]
    return table(("", ""), rows)


def section(title: str, *parts: str) -> str:
    """A heading and what stands below it."""
    return f"<h2>{escape(title)}</h2>\n" + "\n".join(parts)


def pre(text: str) -> str:
    """Text as it is."""
    return f"<pre>{escape(text)}</pre>"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of texts."""

    def line(cells: Iterable[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(c)}</{tag}>" for c in cells) + "</tr>"

    return f"<table>{line(head, 'th')}{''.join(line(r, 'td') for r in rows)}</table>"


def open_html(tuned: OpenTuned) -> str:
    """The whole report: result, times over sizes, programs, the choice, searches, time spent."""
    record = next((t.record for _, t in tuned.searches if t.record is not None), None)
    loss = "The choice loses nothing" if tuned.loss <= 1 else f"It loses {tuned.loss - 1:.1%}"
    dims = "; ".join(map(str, tuned.workload.dims))
    result = (
        f'<p class="best"><b>{counted(len(tuned.seconds), "program")}</b> in one library, for '
        f"{escape(dims)}</p><p>{loss} against the best program of each of "
        f"{tuned.measured_sizes}: {escape(tuned.end)}.</p>"
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
