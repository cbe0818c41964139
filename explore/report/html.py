"""The report of a search: one HTML file that needs no other."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from loopwright.dsl.words import counted
from loopwright.explore.report.plot import curve, roofline
from loopwright.explore.result import SearchResult, speed
from loopwright.schedule.lowering import lower
from loopwright.schedule.space import find_sketch
from loopwright.schedule.tree.printer import show

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 52em; margin: 2em auto; padding: 0 1em;
       color: #222; background: #fff; }
pre { background: #f4f4f2; padding: .8em; overflow-x: auto; font-size: 13px; line-height: 1.35; }
table { border-collapse: collapse; } td, th { padding: .15em 1em .15em 0; text-align: left; }
svg { width: 100%; height: auto; } .best { font-size: 1.3em; }
"""


def html(tuned: SearchResult) -> str:
    """The whole report: result, curve, loop tree, roofline, finalists, failures, time spent."""
    peaks = _peaks(tuned)
    sections = [
        _result(tuned, peaks),
        _pre(str(tuned.workload)),
        _section("Tuning curve", curve(tuned)),
        _section(
            "The best config", f"<p><code>{escape(str(tuned.config))}</code></p>", _tree(tuned)
        ),
        _roofline(tuned, peaks),
        _section("Finalists, measured side by side", _finalists(tuned)),
        _section("Failures", _failures(tuned)),
        _section("Where the time went", _spent(tuned)),
        _section("Where and with what", _machine(tuned)),
    ]
    title = escape(", ".join(t.name for t in tuned.workload.outputs))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>Tuning of {title}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>Tuning of {title}</h1>\n" + "\n".join(sections) + "\n</body></html>\n"
    )


def _result(tuned: SearchResult, peaks: tuple[float, float] | None) -> str:
    flops, peak = tuned.workload.flops, peaks[0] if peaks else None
    best, default = (escape(speed(flops, s, peak)) for s in (tuned.seconds, tuned.default))
    return (
        f'<p class="best"><b>{best}</b>, {escape(tuned.claim)} '
        f"({default}), after {counted(len(tuned.history), 'trial')}, {tuned.resumed} of them in "
        f"earlier sessions: {escape(tuned.end)}.</p>"
    )


def _peaks(tuned: SearchResult) -> tuple[float, float] | None:
    """Operations and bytes a second that the machine reaches at most; None for a table, and for a
    GPU, of which they are not known."""
    if tuned.target.kind == "replayed" or tuned.target.gpu is not None:
        return None
    from loopwright.measure.roofline import roofline

    found = roofline(tuned.target)
    return found.flops, found.bandwidth


def _tree(tuned: SearchResult) -> str:
    if tuned.target.kind == "replayed":
        return "<p>A table of known costs has no loops to show.</p>"
    sketch = find_sketch(tuned.workload, tuned.target, tuned.config.sketch)
    loops = _pre(show(lower(sketch, tuned.target, tuned.config)))
    return f"<details><summary>Its loops</summary>{loops}</details>"


def _roofline(tuned: SearchResult, peaks: tuple[float, float] | None) -> str:
    flops, moved = tuned.workload.flops, tuned.workload.min_bytes
    if peaks is None or not flops:
        return ""
    drawn = roofline(flops / tuned.seconds, flops / moved, *peaks)
    least = max(flops / peaks[0], moved / peaks[1])
    text = (
        f"At least {flops} operations and {moved} bytes: no program needs less than "
        f"{least * 1e3:.4g} ms here; this one reaches {least / tuned.seconds:.0%} of that bound."
    )
    return _section("Roofline", drawn, f"<p>{escape(text)}</p>")


def _finalists(tuned: SearchResult) -> str:
    if not tuned.finalists:
        return f"<p>None: the best were not compared ({escape(tuned.end)}).</p>"
    rows = [
        (f"{f.cost * 1e3:.4g} ms", f"{f.p:.2g}", f.standing, str(f.config))
        for f in tuned.finalists
    ]
    return _table(("cost", "p against the fastest", "", "config"), rows)


def _failures(tuned: SearchResult) -> str:
    if not tuned.failures:
        return "<p>None.</p>"
    first = {m.failure.kind: m.failure for m in reversed(tuned.history) if m.failure}
    rows = [(kind, str(n), first[kind].message) for kind, n in tuned.failures.items()]
    return _table(("kind", "candidates", "the first of them"), rows)


def _spent(tuned: SearchResult) -> str:
    total = sum(tuned.spent.values()) or 1.0
    rows = [(part, f"{s:.2f} s", f"{s / total:.0%}") for part, s in tuned.spent.items()]
    return _table(("part", "time", "share"), rows)


def _machine(tuned: SearchResult) -> str:
    r = tuned.record
    assert r is not None  # a report is of measurements
    rows = [("target", r.target), ("threads", str(r.threads)), ("seed", str(r.seed))]
    rows += [(k, v) for k, v in (*r.machine.items(), *r.versions.items())]
    return _table(("", ""), rows)


def _section(title: str, *parts: str) -> str:
    return f"<h2>{escape(title)}</h2>\n" + "\n".join(parts)


def _pre(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(cells: Iterable[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(c)}</{tag}>" for c in cells) + "</tr>"

    return f"<table>{line(head, 'th')}{''.join(line(r, 'td') for r in rows)}</table>"
