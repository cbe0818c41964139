"""Values as a prompt and a notebook show them."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

import loopwright as lw
from loopwright.__main__ import main
from loopwright.explore.scheduling.nest_model import Modelled
from loopwright.explore.scheduling.policy import Policy
from loopwright.transfer.records.store import RecordStore
from tests.codegen import kernels
from tests.explore.synthetic import MadeUp, matmul, matmul_space


def tuned():
    return lw.tune(matmul(), device=MadeUp(), trials=4, records=None, strategy="random")


VALUES = {
    "Workload": (matmul, "float32"),
    "Library": (lambda: kernels.matmul(packed=True), "W: float32[12, 16], constant"),
    "Space": (matmul_space, "configs"),
    "Tuned": (tuned, "4"),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_short_at_a_prompt_and_a_table_in_a_notebook(name):
    make, part = VALUES[name]
    value = make()
    assert len(repr(value)) < 500
    shown = value._repr_html_()
    assert f"<caption>{name}" in shown
    assert part in shown
    assert "object at 0x" not in shown
    assert "<lambda>" not in shown


def test_no_value_is_shown_by_its_address_or_by_all_that_is_in_it(tmp_path):
    env = lw.ScheduleEnv(matmul(), threads=1)
    learned = Modelled(1.0)
    policy = Policy([], {"method": "dqn", "minutes": 1})
    configured = matmul_space().default
    values = [env, learned, policy, configured, MadeUp(), RecordStore(tmp_path / "r.db")]
    for value in values:
        assert repr(value).startswith(f"<{type(value).__name__}")
        assert "object at 0x" not in repr(value)
        assert len(repr(value)) < 300
    explained = lw.explain(matmul())
    assert repr(explained) == str(explained)
    assert repr(configured) == f"<Config {configured}>"


def test_indices_are_shown_as_they_are_written():
    i, j = lw.indices("i j")
    assert repr((i, j)) == "(i, j)"
    assert repr(2 * i + 1) == "2*i + 1"
    assert repr(((2 * i + j) // 3).terms) == "(((2*i + j) // 3, 1),)"
    assert repr((i % 4).terms) == "((i % 4, 1),)"


def test_what_is_shown_in_a_notebook_is_escaped():
    i = lw.indices("i")
    A, B = lw.tensor("A", (8,)), lw.tensor("B")
    B[i] = lw.where(A[i] < 0, 0, A[i])
    assert "A[i] &lt; 0" in lw.workload(B)._repr_html_()


@pytest.mark.parametrize("command", ["tune", "explain", "inspect"])
def test_the_help_of_a_command_that_takes_operators_lists_all_of_them(command):
    text = CliRunner().invoke(main, [command, "--help"]).output
    listed = " ".join(text.partition("Operators:")[2].split()).rstrip(".").split(", ")
    assert listed == list(lw.ops.__all__)
