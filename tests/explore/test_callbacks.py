"""What is shown while a search runs."""

from __future__ import annotations

import dataclasses
import io
import math
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

import loopwright as lw
from loopwright.explore.budget import Budget
from loopwright.explore.report.callbacks import (
    Callback,
    LiveDisplay,
    PlainLines,
    Progress,
    clock,
    display,
    speed,
)
from tests.explore.synthetic import MadeUp, matmul

P = Progress(
    doing="measuring",
    trials=40,
    resumed=10,
    budget=Budget(100, 2),
    elapsed=30.0,
    default=4e-3,
    best=2e-3,
    flops=200_000_000,
    failures={"build": 3, "timeout": 1},
)


def test_a_cost_is_shown_as_time_speed_and_share_of_the_peak():
    assert speed(2e8, 2e-3, 4e11) == "2 ms, 100.0 GFLOP/s (25% of peak)"
    assert speed(2e8, 2e-3, 5e10) == (
        "2 ms, 100.0 GFLOP/s (200% of peak, as the direct sum's operations)"
    )
    assert speed(2e8, 2e-3, None) == "2 ms, 100.0 GFLOP/s"
    assert speed(0, 2e-3, 4e11) == "2 ms"
    assert speed(2e8, math.inf, None) == "-"


def test_time_left_is_by_trials_or_by_minutes_whichever_ends_first():
    assert P.left == pytest.approx(60.0)
    assert dataclasses.replace(P, elapsed=110.0).left == pytest.approx(10.0)
    assert dataclasses.replace(P, budget=Budget(100)).left == pytest.approx(60.0)
    assert dataclasses.replace(P, trials=10, budget=Budget(100)).left == math.inf
    assert clock(math.inf) == "-"
    assert clock(125.4) == "2:05"


def test_plain_lines_come_with_every_new_best_and_now_and_then():
    file = io.StringIO()
    lines = PlainLines(peak=4e11, every=1e9, file=file)
    lines.update(P)
    lines.update(P)
    lines.update(dataclasses.replace(P, best=1e-3, trials=41))
    lines.note("something to know")
    first, second, note = file.getvalue().splitlines()
    assert "trial 40/100: best 2 ms, 100.0 GFLOP/s (25% of peak)" in first
    assert "failures: 3 build, 1 timeout; left 1:00" in first
    assert "trial 41/100: best 1 ms" in second
    assert note == "something to know"


def test_the_live_display_shows_all_of_it():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    live = LiveDisplay(peak=4e11, console=console)
    live.start(P)
    live.note("[not markup]")
    live.update(dataclasses.replace(P, trials=77))
    live.stop()
    text = console.file.getvalue()
    for part in ("2 ms, 100.0 GFLOP/s (25% of peak)", "77", "3 build, 1 timeout"):
        assert part in text
    assert "[not markup]" in text


@pytest.mark.parametrize(
    ("terminal", "notebook", "options", "shown"),
    [
        (False, False, {}, False),
        (True, False, {}, True),
        (False, True, {}, True),
        (True, True, {"progress": False}, False),
        (False, False, {"progress": True}, True),
        (True, False, {"callbacks": [Callback()]}, False),
    ],
)
def test_a_search_shows_its_progress_where_somebody_sees_it(
    monkeypatch, terminal, notebook, options, shown
):
    told = io.StringIO()
    shell = SimpleNamespace(kernel=object()) if notebook else object()
    monkeypatch.setattr(told, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr("sys.stderr", told)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    lw.tune(matmul(), device=MadeUp(), trials=4, records=None, strategy="random", **options)
    assert bool(told.getvalue()) == shown


def test_without_a_terminal_there_are_plain_lines():
    assert isinstance(display(), PlainLines)


def test_a_search_is_written_as_event_files(tmp_path):
    pytest.importorskip("tensorboardX")
    from loopwright.explore.report.tensorboard import TensorBoard

    log = TensorBoard(tmp_path)
    log.start(P)
    log.update(P)
    log.update(dataclasses.replace(P, trials=41, best=math.inf))
    log.note("something")
    log.stop()
    log.stop()
    (path,) = tmp_path.iterdir()
    written = path.read_bytes()
    for tag in (b"best/seconds", b"best/GFLOP_per_s", b"failures/build", b"notes"):
        assert tag in written
