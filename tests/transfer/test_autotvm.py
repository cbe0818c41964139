"""Logs of AutoTVM become rows, and damaged lines are counted."""

import json
import math

import pytest

from loopwright.transfer.records.autotvm import import_autotvm
from loopwright.transfer.records.record import RecordError


def line(**changes):
    tensors = [["TENSOR", [1, 3, 8, 8], "float32"], ["TENSOR", [4, 3, 3, 3], "float32"]]
    entity = [["tile_oc", "sp", [-1, 4]], ["reorder_0", "re", [0, 2, 1]], ["unroll", "ot", True]]
    data = {
        "input": ["llvm -keys=cpu", "conv2d.x86", [*tensors, [1, 1], "NCHW"], {}],
        "config": {"index": 172, "code_hash": None, "entity": entity},
        "result": [[0.002, 0.001, 0.004], 0, 0.5, 1676344759.5],
        "version": 0.2,
        "tvm_version": "0.10.0",
    }
    return json.dumps({**data, **changes})


def rows(tmp_path, *lines):
    path = tmp_path / "tuning.log"
    path.write_text("\n".join(lines))
    return import_autotvm(path)


def test_a_line_becomes_a_row(tmp_path):
    (row,) = rows(tmp_path, line()).rows
    assert (row.target, row.task, row.index) == ("llvm -keys=cpu", "conv2d.x86", 172)
    assert row.args[0] == ["TENSOR", [1, 3, 8, 8], "float32"]
    assert row.args[3] == "NCHW"
    assert row.entity[0] == ("tile_oc", "sp", [-1, 4])
    assert row.entity[2] == ("unroll", "ot", True)
    assert (row.costs, row.cost, row.error) == ((0.002, 0.001, 0.004), 0.002, "none")
    assert (row.seconds_spent, row.timestamp, row.tvm) == (0.5, 1676344759.5, "0.10.0")


def test_a_failure_has_no_cost_though_the_log_says_a_billion_seconds(tmp_path):
    log = rows(tmp_path, line(result=[[1e9], 7, 0.5, 1.0]), line(result=[[1e9], 42, 0.5, 1.0]))
    assert [(r.costs, r.cost, r.error) for r in log.rows] == [
        ((), math.inf, "run timeout"),
        ((), math.inf, "error 42"),
    ]


def test_damaged_lines_are_skipped_and_counted_by_reason(tmp_path):
    whole = line()
    log = rows(
        tmp_path,
        whole,
        "",
        whole[: len(whole) // 2],
        "\xff\x00 half of a line",
        "[" * 99999,
        "[]",
        '{"i": [], "r": [], "v": 0.1}',
        line(version=0.1),
        line(version=[]),
        line(result=[[0.1], 0]),
        line(result=[["fast"], 0, 0.5, 1.0]),
        line(result=[[0.1], "0", 0.5, 1.0]),
        line(input=["llvm"]),
        line(input=[5, "task", []]),
        line(config={"index": 1, "entity": [["tile", "sp"]]}),
        line(config=None),
        whole,
    )
    assert len(log.rows) == 2
    assert log.skipped == {
        "not JSON": 3,
        "not a line of AutoTVM": 2,
        "version 0.1": 1,
        "version []": 1,
        "a field is missing or of another type": 7,
    }


def test_a_log_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(RecordError, match="there is no such file"):
        import_autotvm(tmp_path / "none.log")
