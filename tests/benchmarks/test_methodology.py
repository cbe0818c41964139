"""The score of the auto-tuning methodology on small made tables, and how a peer is asked."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import kernel_tuner_search
import methodology
from methodology_score import Yardstick

COSTS = np.random.default_rng(0).lognormal(size=600)
YARDSTICK = Yardstick.of(COSTS)


def drawn(seed, costs=COSTS):
    return np.random.default_rng(seed).permutation(costs)


def test_random_search_scores_zero():
    assert YARDSTICK.score([drawn(seed) for seed in range(2000)]) == pytest.approx(0, abs=0.02)


def test_a_search_that_knows_the_optimum_scores_one():
    assert YARDSTICK.score([np.sort(COSTS), np.sort(COSTS)]) == 1


def test_a_search_that_finds_the_worst_first_scores_less_than_random_search():
    assert YARDSTICK.score([np.sort(COSTS)[::-1]]) < -1


def test_a_search_that_ended_stays_where_it_was():
    whole = drawn(1)
    best = np.minimum.accumulate(whole)[4]
    assert YARDSTICK.score([whole[:5]]) == YARDSTICK.score([[*whole[:5], *[best] * 500]])


def test_random_search_needs_as_many_evaluations_as_reach_a_cost():
    for share in (0.5, 0.8, 0.96):
        optimum, median = COSTS.min(), np.median(COSTS)
        target = median - share * (median - optimum)
        needed = YARDSTICK.needed(share)
        half, whole = YARDSTICK.random(np.array([needed // 2, needed]))
        assert whole <= target < half


def test_points_that_fail_are_not_drawn_by_the_reckoned_search_and_count_for_the_others():
    failing = [*COSTS, *[np.inf] * 100]
    assert np.array_equal(Yardstick.of(failing).costs, YARDSTICK.costs)
    late = [np.inf] * YARDSTICK.budget
    assert YARDSTICK.score([[*late, *np.sort(COSTS)]]) < -1


@pytest.mark.parametrize("costs", [[1, 2], [1, 1, 1, 2], [np.inf, 1, 2], [1, 2, 3]])
def test_a_table_where_no_search_can_be_told_from_another_has_no_score(costs):
    with pytest.raises(ValueError, match="no score"):
        Yardstick.of(costs)


@pytest.fixture
def data(tmp_path):
    """A folder with the same table twice."""
    rng, lines = np.random.default_rng(1), ["a,b,c,time_ms"]
    for a in range(8):
        for b in range(8):
            for c in range(4):
                cost = "" if a == b == c else 1 + (a - 5) ** 2 + (b - 2) ** 2 + c + rng.random()
                lines.append(f"{a},{b},{c},{cost}")
    for name in ("bowl_one", "bowl_two"):
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    return tmp_path


def test_the_command_goes_on_where_it_was_and_prints_the_same(data):
    file = data / "searches.jsonl"
    given = [str(data), str(file), "--seeds", "2", "--processes", "1", "--only", "random"]
    none = CliRunner().invoke(methodology.main, [*given, "--minutes", "0"])
    assert not none.exit_code
    first = CliRunner().invoke(methodology.main, given)
    assert not first.exit_code, first.output
    rows = file.read_text().splitlines()
    assert {json.loads(row)["table"] for row in rows} == {"bowl_two"}
    assert len(rows) == 2
    assert "| **random** |" in first.output
    again = CliRunner().invoke(methodology.main, given)
    assert again.output == first.output
    assert file.read_text().splitlines() == rows


def test_a_search_is_kept_by_its_steps(data):
    done = methodology.search(data / "bowl_one.csv.gz", "genetic", 0)
    assert not done.error
    kept = methodology.Search(**json.loads(json.dumps(methodology.asdict(done))))
    assert kept.costs() == done.costs()
    assert len(done.costs()) == done.budget
    assert np.all(np.diff(done.costs()[done.steps[0][0] - 1 :]) <= 0)


def test_an_unknown_strategy_is_refused(data):
    given = [str(data), str(data / "f.jsonl"), "--only", "annealer"]
    refused = CliRunner().invoke(methodology.main, given)
    assert refused.exit_code
    assert "no strategy annealer" in refused.output


@pytest.mark.parametrize("strategy", ["random_sample", "genetic_algorithm", "hybrid_vndx"])
def test_kernel_tuner_evaluates_each_point_of_a_table_once(strategy):
    pytest.importorskip("kernel_tuner")
    table = {(a, b): 1.0 + abs(a - 3) + b for a in range(8) for b in range(8) if a + b < 11}
    table[0, 0] = np.inf
    costs = kernel_tuner_search.evaluated(["a", "b"], table, strategy, 20, 0)
    assert 2 <= len(costs) <= 20
    assert set(costs) <= set(table.values())
    assert costs == kernel_tuner_search.evaluated(["a", "b"], table, strategy, 20, 0)
