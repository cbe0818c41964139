"""`loopwright records sync`: what one store lacks of another, once each and in order."""

import os
import signal
import time

import pytest
from click.testing import CliRunner

from loopwright.cli.records import records
from loopwright.transfer.records.store import RecordStore
from tests.transfer.examples import config, failed, record
from tests.transfer.test_crash import python


@pytest.fixture(
    params=["two files", *(pytest.param(p, marks=pytest.mark.postgresql) for p in ("to", "from"))]
)
def places(request, tmp_path):
    """Two stores: both files, or one of them on a server."""
    one, other = str(tmp_path / "one.db"), str(tmp_path / "other.db")
    if request.param == "two files":
        return one, other
    url = request.getfixturevalue("cluster").url()
    return (one, url) if request.param == "to" else (url, other)


def sync(*words):
    done = CliRunner().invoke(records, ["sync", *map(str, words)])
    assert done.exit_code == 0, done.output
    return [int(line.split()[0]) for line in done.output.splitlines()]


def fill(place, *made):
    with RecordStore(place) as store:
        store.add(made)


def all_of(place):
    with RecordStore(place, create=False) as store:
        return list(store)


def test_what_is_new_is_copied_in_order_and_once(places, monkeypatch):
    monkeypatch.setattr("loopwright.transfer.records.store._PAGE", 3)
    one, other = places
    fill(one, *(record(n) for n in range(10)), failed(3))
    fill(other, record(4), record(20), record(7))
    assert sync(one, other) == [9]
    rest = [record(n) for n in (0, 1, 2, 3, 5, 6, 8, 9)]
    assert all_of(other) == [record(4), record(20), record(7), *rest, failed(3)]
    assert sync(one, other) == [0]
    assert len(all_of(one)) == 11


def test_both_ways_leave_the_same_records(places):
    one, other = places
    fill(one, record(0), record(1))
    fill(other, record(1), record(2))
    assert sync(one, other, "--both") == [1, 1]
    assert all_of(one) == [record(0), record(1), record(2)]
    assert all_of(other) == [record(1), record(2), record(0)]
    assert sync(one, other, "--both") == [0, 0]


def test_a_store_that_is_not_there_is_made_but_not_looked_for(places, tmp_path):
    one, other = places
    fill(one, record(0))
    assert sync(one, other) == [1]
    done = CliRunner().invoke(records, ["sync", str(tmp_path / "none.db"), other])
    assert (done.exit_code, "no such file" in done.output) == (2, True)


def test_a_store_is_not_copied_to_itself(tmp_path):
    path = tmp_path / "r.db"
    fill(path, record(0))
    done = CliRunner().invoke(records, ["sync", str(path), f"{path.parent}/./r.db"])
    assert (done.exit_code, "the same store" in done.output) == (2, True)


SYNC = """
import sys
from loopwright.transfer.records import store
store._PAGE = 10
with store.RecordStore(sys.argv[1]) as source, store.RecordStore(sys.argv[2]) as into:
    into.merge(source.lacking(into))
"""


def test_a_copy_that_is_killed_is_gone_on_with(places):
    one, other = places
    fill(one, *(record(n) for n in range(1000)))
    fill(other)
    process = python(SYNC, one, other)
    with RecordStore(other) as store:
        while not (begun := len(store)) and process.poll() is None:
            time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    found = all_of(other)
    assert [r.config for r in found] == [config(n) for n in range(len(found))]
    assert 0 < begun <= len(found) < 1000
    assert sync(one, other) == [1000 - len(found)]
    assert [r.config for r in all_of(other)] == [config(n) for n in range(1000)]
