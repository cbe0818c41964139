"""Commands of the benchmarks start, and say what they take."""

import runpy
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
OPTIONAL = ["sklearn", "kernel_tuner", "gymnasium", "ray", "tensorboardX", "matplotlib"]
"""What no command needs before it runs: the tests' own installation lacks it."""


@pytest.mark.parametrize(
    "name",
    [
        "ablation",
        "budgets",
        "choices",
        "collect",
        "feedback",
        "instant",
        "methodology",
        "nnc",
        "numerics",
        "replayed",
        "sampling",
        "sampling_tables",
        "sequence",
        "ten_seconds",
        "threads",
        "paper/collect",
        "paper/figure",
    ],
)
def test_a_command_says_its_help(name, monkeypatch, capsys):
    script = BENCHMARKS / f"{name}.py"
    for optional in OPTIONAL:
        monkeypatch.setitem(sys.modules, optional, None)
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    monkeypatch.syspath_prepend(str(script.parent))
    with pytest.raises(SystemExit) as done:
        runpy.run_path(str(script), run_name="__main__")
    assert not done.value.code
    assert "--help" in capsys.readouterr().out
