"""Reports and plots of finished searches."""

from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as ET

import pytest

from loopwright.explore.budget import TuningError
from loopwright.explore.plot import curve, roofline, ticks
from loopwright.explore.tune import tune
from loopwright.measure.peak import Peak
from tests.explore.synthetic import MadeUp, matmul


@pytest.fixture(scope="module")
def tuned():
    device = MadeUp(fails=frozenset({0}))
    return tune(matmul(), device=device, trials=50, records=None, strategy="random")


def test_the_report_is_one_file_with_everything(tuned, tmp_path, monkeypatch):
    monkeypatch.setattr("loopwright.measure.peak.peak", lambda target: Peak(1e12, 1e10, 2))
    path = tuned.report(tmp_path / "report.html")
    text = path.read_text(encoding="utf-8")
    for part in ("Tuning curve", "Roofline", "Finalists", "Failures", "Where the time went"):
        assert f"<h2>{part}" in text
    assert "parallel for" in text
    assert "never works" in text
    assert text.count("<svg") == text.count("</svg>") == 2
    for remote in ("<script", "<link", "src=", "href="):
        assert remote not in text


def test_the_curve_has_a_dot_for_every_candidate_that_worked(tuned):
    drawn = ET.fromstring(curve(tuned))
    worked = sum(not m.failure for m in tuned.history)
    assert len([e for e in drawn.iter() if e.tag.endswith("circle")]) == worked


def test_the_roofline_puts_a_program_under_its_roof():
    drawn = ET.fromstring(roofline(5e10, 10.0, 1e11, 1e10))
    (dot,) = [e for e in drawn.iter() if e.tag.endswith("circle")]
    roof = next(e for e in drawn.iter() if e.tag.endswith("polyline")).get("points").split()
    assert float(dot.get("cy")) > float(roof[-1].split(",")[1])


def test_the_best_so_far_never_rises(tuned):
    assert tuned.curve() == sorted(tuned.curve(), reverse=True)


@pytest.mark.parametrize("span", [(0.0, 51.0), (0.95, 1.2), (3e-4, 2e-3), (0.01, 5000.0)])
@pytest.mark.parametrize("log", [True, False])
def test_ticks_are_few_and_within(span, log):
    if log and span[0] == 0:
        return
    found = ticks(*span, log)
    assert 2 <= len(found) <= 9
    assert all(span[0] <= t <= span[1] for t in found)


def test_svg_plots_need_no_library(tuned, tmp_path):
    assert tuned.plot(tmp_path / "curve.svg").read_text().startswith("<svg")


def test_other_plots_need_matplotlib(tuned, tmp_path):
    path = tmp_path / "curve.png"
    if importlib.util.find_spec("matplotlib") is None:
        with pytest.raises(TuningError, match="pip install matplotlib"):
            tuned.plot(path)
        return
    assert tuned.plot(path).read_bytes().startswith(b"\x89PNG")
    with pytest.raises(TuningError, match=r"curve\.nothing"):
        tuned.plot(tmp_path / "curve.nothing")
