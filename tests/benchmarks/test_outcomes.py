"""What a comparison with other libraries says."""

import math
import sys
from pathlib import Path

from loopwright.measure.peak import Peak

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from outcomes import outcome
from suites.row import Row


def measured(**samples):
    row = Row("row", "suite", "relu", ("x=16",))
    return outcome(row, 2, 32, samples, {}, {}, Peak(1e9, 1e9, 2))


def test_a_disturbance_that_slows_all_of_a_round_does_not_change_the_ratio():
    """Ours is caught by it in more rounds than are not, the peer in fewer; each is twice as fast
    in every round."""
    ours = (1.0, 5.0, 5.0, 5.0, 1.0)
    assert measured(ours=ours, torch=tuple(2 * s for s in ours)).ratio == 2.0


def test_the_ratio_lies_within_its_interval():
    noisy = measured(ours=(1.0, 1.0, 4.0, 4.0, 4.0), torch=(2.0, 2.2, 8.0, 2.1, 2.3))
    assert noisy.interval[0] <= noisy.ratio <= noisy.interval[1]


def test_the_best_peer_is_the_one_that_ours_beats_least():
    both = measured(ours=(1.0, 1.0, 1.0), torch=(3.0, 3.0, 3.0), openvino=(2.0, 2.0, 9.0))
    assert (both.best, both.ratio) == ("openvino", 2.0)


def test_without_peers_there_is_no_ratio():
    alone = measured(ours=(1.0, 1.0))
    assert alone.best == ""
    assert math.isnan(alone.ratio)
