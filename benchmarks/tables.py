"""Outcomes as Markdown: a table for each suite and number of threads, and what misses its goal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from contenders import OURS, OURS_LAST
from outcomes import Outcome, mean
from suites import SUITES, goal


def markdown(outcomes: Iterable[Outcome]) -> str:
    every = list(outcomes)
    parts = [summary(every), *comparisons(every)]
    for group in groups(every):
        parts += [f"### {group[0].suite}, {_threads(group[0].threads)}", table(group)]
    parts += [f"- {o.suite} {o.row}, {n}: {t}" for o in every for n, t in o.notes.items()]
    return "\n\n".join(parts) + "\n"


def groups(outcomes: list[Outcome]) -> Iterator[list[Outcome]]:
    """Outcomes of one suite and number of threads."""
    for threads in sorted({o.threads for o in outcomes}):
        for suite in SUITES:
            if found := [o for o in outcomes if (o.suite, o.threads) == (suite, threads)]:
                yield found


def summary(outcomes: list[Outcome]) -> str:
    """A line for each suite, and one for all but ResNet's."""
    head = ["suite", "threads", "rows", "geometric mean", "least", "as fast", "below the goal"]
    rows = [_summary(group[0].suite, group) for group in groups(outcomes)]
    for threads in sorted({o.threads for o in outcomes}):
        rest = [o for o in outcomes if o.threads == threads and o.suite != "resnet"]
        if len({o.suite for o in rest}) > 1:
            rows.append(_summary("all but resnet", rest))
    return lines(head, rows)


def _summary(name: str, group: list[Outcome]) -> list[str]:
    wanted = goal(group[0].suite)
    ratios = [o.ratio for o in group if math.isfinite(o.ratio)]
    failed = [o for o in group if o.failed]
    low = [o.row for o in group if o.failed or o.ratio < wanted.least]
    middle = mean(ratios)
    reached = "" if middle >= wanted.mean else f" (goal {wanted.mean})"
    compared = len(ratios) + len(failed)
    fast = sum(r >= 1 for r in ratios) / compared if compared else math.nan
    shown = ", ".join(low[:6]) + (f" and {len(low) - 6} more" if len(low) > 6 else "")
    missed = f"{len(low)} under {wanted.least}: {shown}" if low else ""
    least = min(ratios, default=math.nan)
    texts = [f"{middle:.2f}{reached}", f"{least:.2f}", f"{fast:.0%}"]
    return [name, str(group[0].threads), str(len(group)), *texts, missed]


def comparisons(outcomes: list[Outcome]) -> Iterator[str]:
    """What else has a goal: single peers, and fewer trials."""
    for group in groups(outcomes):
        where = f"{group[0].suite}, {_threads(group[0].threads)}"
        if group[0].suite == "looptune":
            ratios = _ratios(group, ("numpy", "torch"))
            share = sum(r >= 1 for r in ratios) / max(len(ratios), 1)
            yield f"{where}: as fast as the best of NumPy and torch on {share:.0%} (goal 90%)"
        yield from (f"{where}: {text}" for text in _by_trials(group))
        if ratios := _ratios(group, ("metaschedule",)):
            goal_ = " (goal 2)" if group[0].suite == "resnet" else ""
            yield f"{where}: {mean(ratios):.2f} times as fast as MetaSchedule{goal_}"


def _by_trials(group: list[Outcome]) -> Iterator[str]:
    """What fewer trials found in each layout, beside the most that were asked for."""
    for most, layout in ((OURS, ""), (OURS_LAST, " with channels last")):
        every = {n for o in group for n in o.seconds if n.startswith(f"{most}@")}
        for name in sorted(every, key=_count):
            pairs = [(o.seconds.get(most), o.seconds.get(name)) for o in group]
            speed = mean(a / b for a, b in pairs if a and b)
            more = f"{_count(name)} trials give {speed:.0%} of the speed of {group[0].trials}"
            yield f"{more}{layout} (goal 90%)"


def _count(name: str) -> int:
    """The trials of a contender called NAME@TRIALS."""
    return int(name.partition("@")[2])


def _ratios(group: list[Outcome], names: tuple[str, ...]) -> list[float]:
    """The fastest of these contenders' times over ours."""
    found = [
        ([o.seconds[n] for n in names if n in o.seconds], o.seconds.get("ours")) for o in group
    ]
    return [min(theirs) / ours for theirs, ours in found if theirs and ours]


def table(group: list[Outcome]) -> str:
    """Milliseconds of each contender, the best peer's in bold, and the ratio of that to ours."""
    names = list(dict.fromkeys(n for o in group for n in o.seconds if n != "ours"))
    head = ["row", "ours", "ratio", "95 %", "of peak", "error", *names]
    return lines(head, [_row(o, names) for o in group])


def _row(o: Outcome, names: list[str]) -> list[str]:
    low, high = o.interval
    share = f"{o.share:.0%} {o.bound}"
    cells = [o.row, _ms(o.seconds.get("ours")), f"{o.ratio:.2f}", f"{low:.2f} to {high:.2f}"]
    ours = (error for name, error in o.errors.items() if name.startswith(OURS))
    cells += [share, f"{max(ours, default=math.nan):.0e}"]
    for name in names:
        text = _ms(o.seconds.get(name))
        cells.append(f"**{text}**" if name == o.best else text)
    return cells


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.3g}"


def _threads(count: int) -> str:
    return "one thread" if count == 1 else f"{count} threads"


def lines(head: list[str], rows: Iterable[list[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
