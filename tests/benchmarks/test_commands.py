"""Commands of the benchmarks start, and say what they take."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.parametrize(
    "name",
    [
        "ablation",
        "choices",
        "collect",
        "instant",
        "numerics",
        "replayed",
        "paper/collect",
        "paper/figure",
    ],
)
def test_a_command_says_its_help(name):
    script = BENCHMARKS / f"{name}.py"
    done = subprocess.run(
        [sys.executable, script, "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--help" in done.stdout
