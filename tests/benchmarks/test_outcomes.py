"""What a comparison with other libraries says."""

import math
import sys
from pathlib import Path

from loopwright.measure.roofline import Roofline

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from outcomes import outcome
from peers import Result
from suites.row import Row


def measured(**samples):
    row = Row("row", "suite", "relu", ("x=16",))
    results = {name: Result(seconds) for name, seconds in samples.items()}
    return outcome(row, 2, 32, results, Roofline(1e9, 1e9, 2))


def test_a_disturbance_that_slows_a_round_does_not_change_the_ratio():
    """In every round but one the peer takes twice as long; that one's disturbance began between
    the two. The medians of all rounds are 4 and 2.2."""
    ours, torch = (1.0, 1.0, 4.0, 4.0, 4.0), (2.0, 2.2, 8.0, 8.0, 2.2)
    assert measured(ours=ours, torch=torch).ratio == 2.0


def test_the_ratio_lies_within_its_interval():
    rounds = range(1, 16)
    ours = tuple(1.0 if n <= 7 else 3.0 for n in rounds)  # the median is 3
    torch = tuple(2.0 if n <= 8 else 6.0 for n in rounds)  # the median is 2, in one round less
    found = measured(ours=ours, torch=torch)
    assert found.interval == (2.0, 2.0)
    assert found.ratio == 2.0


def test_the_best_peer_is_the_one_that_ours_beats_least_round_by_round():
    """By their medians, 3 and 4, torch would be the better one."""
    both = measured(
        ours=(1.0, 1.0, 2.0, 2.0, 2.0),
        torch=(3.0, 3.0, 6.0, 6.0, 3.0),
        openvino=(2.0, 2.0, 4.0, 4.0, 4.0),
    )
    assert (both.best, both.ratio) == ("openvino", 2.0)


def test_without_peers_there_is_no_ratio():
    alone = measured(ours=(1.0, 1.0))
    assert alone.best == ""
    assert math.isnan(alone.ratio)
