"""Records as values: what is one, what is none, and JSON and back."""

import dataclasses
import json
import math

import pytest
from hypothesis import given

from loopwright.measure.device import Failure, Measurement
from loopwright.transfer.records.record import (
    SCHEMA,
    Record,
    RecordError,
    canonical,
    current_versions,
)
from loopwright.transfer.records.rows import to_record, to_row
from tests.transfer.examples import AVX512, MACHINE, config, failed, matmul, record, records


@given(records())
def test_json_and_back(r: Record):
    assert Record.from_json(json.loads(json.dumps(r.to_json(), allow_nan=False))) == r


@given(records())
def test_row_and_back(r: Record):
    assert to_record({**to_row(r), "id": 3}) == r


def test_keeps_what_a_device_measured():
    m = Measurement(config(3), (2e-3, 1e-3, 9e-3), None, 0.5, 1.5, "cold", 2, 1e9)
    r = Record.of(matmul(), AVX512, MACHINE, m, seed=1 << 100, session="s")
    assert r.measurement == m
    assert r.cost == m.cost == 1e-3  # the lower quartile
    assert r.computation() == matmul()
    assert (r.target, r.machine, r.seed) == (str(AVX512), MACHINE, 1 << 100)


def test_a_failure_has_no_cost_even_with_timings():
    wrong = record(failure=Failure("wrong", "C[0, 0] is 1, not 2"))
    assert math.isinf(wrong.cost)
    assert math.isinf(failed().cost)


def test_what_a_dying_worker_printed_becomes_text():
    broken = Failure("crash", "half of a character: \udcc3", "\udcff")
    m = Measurement(config(0), (), broken, 0.0, 0.0, "warm", 1, 1e9)
    r = Record.of(matmul(), AVX512, MACHINE, m)
    assert r.failure == Failure("crash", "half of a character: ?", "?")
    assert Record.from_json(r.to_json()) == r


def test_the_id_is_of_no_matter_to_equality():
    assert dataclasses.replace(record(), id=5) == record()
    assert hash(dataclasses.replace(record(), id=5)) == hash(record())


def test_versions_are_those_installed():
    assert current_versions().keys() == {"loopwright", "tvm", "python"}
    assert "unknown" not in current_versions().values()


def test_facts_of_the_code_come_back_from_json():
    facts = {"code_bytes": 952, "spills": 0}
    assert Record.from_json(record(facts=facts).to_json()).facts == facts
    assert record(facts=facts).measurement.facts == facts
    assert record(facts=facts) == record()


def test_equal_mappings_have_equal_texts():
    assert canonical({"b": "1", "a": "2"}) == canonical({"a": "2", "b": "1"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seconds": ()}, "neither timings nor a failure"),
        ({"seconds": (-1.0,)}, "not a tuple of times"),
        ({"seconds": (math.nan,)}, "not a tuple of times"),
        ({"seconds": [1.0]}, "not a tuple of times"),
        ({"threads": 0}, "not a number of threads"),
        ({"threads": True}, "not a number of threads"),
        ({"cache": "lukewarm"}, "none of"),
        ({"target": "half of a character: \udcc3"}, "not text"),
        ({"workload_key": 5}, "not text"),
        ({"machine": {"cores": 2}}, "does not map text to text"),
        ({"versions": "3.11"}, "does not map text to text"),
        ({"created": math.inf}, "not a time"),
        ({"seed": 1.5}, "neither an integer nor None"),
        ({"facts": {"spills": -1}}, "does not map text to numbers"),
        ({"facts": {"spills": 0.5}}, "does not map text to numbers"),
        ({"facts": [1]}, "does not map text to numbers"),
        ({"config": "tile=4"}, "not a Config"),
        ({"failure": "crash"}, "not a Failure"),
        ({"schema": 0}, "schema is 0"),
    ],
)
def test_says_what_is_no_record(changes, message):
    with pytest.raises(RecordError, match=message):
        dataclasses.replace(record(), **changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("cache"), r"missing or unknown \['cache'\]"),
        (lambda d: d.update(colour="red"), r"missing or unknown \['colour'\]"),
        (lambda d: d.update(schema=SCHEMA + 1), "upgrade with `pip install"),
        (lambda d: d.update(schema="1"), "not a number"),
        (lambda d: d.update(workload="C = A * B"), "its workload is 'C"),
        (lambda d: d.update(seconds=5), "TypeError"),
        (lambda d: d.update(seconds=["1"]), "not a tuple of times"),
        (lambda d: d.update(config={"sketch": "s"}), "damaged config"),
        (lambda d: d.update(failure={"kind": "odd", "message": "", "traceback": ""}), "odd"),
        (lambda d: d.update(failure=["crash"]), "TypeError"),
        (lambda d: d.update(failure=0), "TypeError"),
        (lambda d: d.update(machine=None), "does not map"),
    ],
)
def test_damaged_json_is_refused(change, message):
    data = record().to_json()
    change(data)
    with pytest.raises(RecordError, match=message):
        Record.from_json(data)


@pytest.mark.parametrize("data", [None, [], 5, "x", {}, {"input": []}])
def test_other_json_is_refused(data):
    with pytest.raises(RecordError, match="not a record"):
        Record.from_json(data)


@pytest.mark.parametrize(
    ("old", "new"),
    [('"seconds": [0.001', '"seconds": [1' + "0" * 400), ('"tile0": [4,', '"tile0": [1e999,')],
)
def test_numbers_that_no_float_holds_are_refused(old, new):
    text = json.dumps(record(4).to_json())
    assert old in text
    with pytest.raises(RecordError, match=r"not a record|not a tuple of times"):
        Record.from_json(json.loads(text.replace(old, new)))
