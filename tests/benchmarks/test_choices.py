"""What is said of the winners of several seeds."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import choices
from choices import Choices, Found
from suites import SUITES, select


def row(*found, load=False, **levels):
    """Winners (program, claim), and what the programs take; "default" among them."""
    rng = np.random.default_rng(0)
    samples = {n: tuple(level * rng.normal(1, 0.002, 20)) for n, level in levels.items()}
    searches = tuple(Found(n, {}, name, claim, "") for n, (name, claim) in enumerate(found))
    return Choices("row", 2, 48, load, searches, samples, "default", 0.0)


def test_there_are_twenty_rows():
    assert len(select(list(SUITES), choices.ROWS)) == 20


def test_pairs_of_winners_are_the_same_or_tied_or_near():
    made = row(("a", 2.0), ("a", 2.0), ("b", 2.0), ("c", 2.0), default=2.0, a=1.0, b=1.0, c=1.015)
    found = {
        (f.program, g.program): pair
        for (f, g), pair in zip(choices.itertools.combinations(made.found, 2), made.pairs())
    }
    assert found["a", "a"] == (True, True, True)
    assert found["a", "b"] == (False, True, True)
    assert found["a", "c"] == (False, False, True)
    text = choices.markdown([made])
    assert "winners within 2 % of each other: 100% (6 of 6)" in text
    assert "of the ties the same program: 33% (1 of 3)" in text


def test_a_claim_holds_within_a_tenth_and_what_is_not_claimed_is_not_counted():
    made = row(("a", 2.1), ("a", 2.5), ("default", None), ("b", None), default=2.0, a=1.0, b=2.2)
    text = choices.markdown([made])
    assert "claims: 2 of 4 searches; within 10 % of what holds: 50% (1 of 2)" in text
    assert "winners more than 2 % slower than the default: 1 of 4" in text


def test_a_row_survives_the_way_through_json():
    made = row(("a", 2.1), ("default", None), default=2.0, a=1.0)
    assert choices.read(json.loads(json.dumps(asdict(made)))) == made


def test_the_same_command_goes_on_where_it_ended(tmp_path, monkeypatch):
    asked = []

    def find(row, threads, trials, seed, load):
        asked.append((row.name, seed, load))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return Found(seed, {}, "a", 2.0, "2.00 (1.9 to 2.1) times as fast as the default")

    made = row(("a", 2.0), ("a", 2.0), default=2.0, a=1.0)
    monkeypatch.setattr(choices, "find", find)
    monkeypatch.setattr(choices, "compared", lambda *_: made)
    words = ["--row", "matmul:64", "--row", "C5", "--seeds", "2", "--threads", "1"]
    words += ["--json", str(tmp_path / "kept.json")]
    with pytest.raises(choices.click.Abort):
        choices.main(words, standalone_mode=False)
    choices.main(words, standalone_mode=False)
    assert [a[:2] for a in asked] == [("C5", 0), ("C5", 1), ("64", 0), ("64", 0), ("64", 1)]
    choices.main(words, standalone_mode=False)
    assert len(asked) == 5
