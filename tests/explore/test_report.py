"""Reports and plots of finished searches."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET

import pytest

from loopwright.explore.budget import TuningError
from loopwright.explore.report.plot import curve, roofline
from loopwright.explore.result import Peer
from loopwright.explore.tune import tune
from tests.explore.synthetic import MadeUp, matmul


@pytest.fixture(scope="module")
def tuned():
    device = MadeUp(fails=frozenset({0}))
    return tune(matmul(), device=device, trials=50, records=None, strategy="random")


def test_the_report_is_one_file_with_everything(tuned, tmp_path, monkeypatch):
    monkeypatch.setattr("loopwright.measure.roofline.peak_flops", lambda target: 1e12)
    path = tuned.report(tmp_path / "report.html")
    text = path.read_text(encoding="utf-8")
    for part in ("Tuning curve", "Roofline", "Finalists", "Failures", "Where the time went"):
        assert f"<h2>{part}" in text
    assert "parallel for" in text
    assert re.search("The program (stands at the|is far from all bounds)", text)
    assert "<td>compute</td>" in text
    assert "<td>launch</td>" in text
    assert "never works" in text
    assert tuned.claim in text
    assert text.count("<svg") == text.count("</svg>") == 2
    for remote in ("<script", "<link", "src=", 'href="http'):
        assert remote not in text


def test_a_report_claims_no_speed_up_where_the_default_is_tied(tuned, tmp_path, monkeypatch):
    monkeypatch.setattr("loopwright.measure.roofline.peak_flops", lambda target: 1e12)
    tied = dataclasses.replace(tuned, speedup=None, claim="tied with the default")
    text = tied.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert "tied with the default" in text
    assert "as fast" not in text


PEER = Peer("torch", 4e-3, 2e-3, 1000, None, "no ratio, since other programs kept 1.0 cores busy")


def text_of(svg):
    """All that a drawing says."""
    return "\n".join(e.text for e in ET.fromstring(svg).iter() if e.tag.endswith("}text"))


def test_the_curve_says_what_was_tuned_and_what_its_lines_are(tuned):
    said = text_of(curve(dataclasses.replace(tuned, peer=PEER, default=5e-3)))
    assert "A[24, 36], B[36, 48] → matmul[24, 48]" in said
    assert "made up, llvm, 2 threads" in said
    assert tuned.claim in said
    assert "time of a call (ms)" in said
    assert "trial (number of candidates)" in said
    failures = sum(tuned.failures.values())
    assert f"candidates, {failures} of {len(tuned.history)} failed" in said
    assert "default: 5 ms" in said
    assert f"best, compared at the end: {tuned.seconds * 1e3:.4g} ms" in said
    assert "torch, called from Python: 4 ms" in said
    assert "torch" not in text_of(curve(tuned))


def test_a_curve_without_a_comparison_says_so(tuned):
    assert "best, not compared: " in text_of(curve(dataclasses.replace(tuned, finalists=())))


def test_the_report_tells_of_the_other_library_notes_and_the_sum_of_times(tuned, tmp_path):
    told = dataclasses.replace(
        tuned, peer=PEER, notes=("the machine is <busy>",), spent={"running": 3.0, "building": 1.0}
    )
    text = told.report(tmp_path / "r.html").read_text(encoding="utf-8")
    assert str(PEER) in text
    assert "<li>the machine is &lt;busy&gt;</li>" in text
    assert "<td>all</td><td>4.00 s</td>" in text


def test_all_that_tell_of_a_result_make_the_same_claim(tuned, tmp_path):
    for claim in ("tied with the default", "2.00 (1.90 to 2.10) times as fast as the default"):
        told = dataclasses.replace(tuned, claim=claim)
        assert claim in repr(told)
        assert claim in told._repr_html_()
        assert claim in text_of(curve(told))
        assert claim in told.report(tmp_path / "r.html").read_text(encoding="utf-8")


def group(svg, name):
    return next(e for e in ET.fromstring(svg).iter() if e.get("id") == name)


def test_the_curve_has_a_dot_for_every_candidate_that_worked(tuned):
    dots = [e for e in group(curve(tuned), "candidates").iter() if e.tag.endswith("}use")]
    assert len(dots) == sum(not m.failure for m in tuned.history)


def test_the_roofline_puts_a_program_under_its_roof():
    svg = roofline(5e10, 10.0, 1e11, 1e10)
    dot = next(e for e in group(svg, "program").iter() if e.tag.endswith("}use"))
    roof = next(e for e in group(svg, "roof").iter() if e.tag.endswith("}path")).get("d").split()
    assert float(dot.get("y")) > float(roof[-1])


def test_the_best_so_far_never_rises(tuned):
    assert tuned.curve() == sorted(tuned.curve(), reverse=True)


@pytest.mark.parametrize(("suffix", "start"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_the_tuning_curve_is_drawn_in_the_format_of_the_suffix(tuned, tmp_path, suffix, start):
    assert tuned.plot(tmp_path / f"curve.{suffix}").read_bytes().startswith(start)


def test_a_format_that_cannot_be_drawn_is_an_error(tuned, tmp_path):
    with pytest.raises(TuningError, match=r"curve\.nothing"):
        tuned.plot(tmp_path / "curve.nothing")
