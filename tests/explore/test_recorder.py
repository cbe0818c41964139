"""Searches whose record store fails: what was found is returned, and what became of it is said."""

from __future__ import annotations

import math
import shutil

import pytest
from click.testing import CliRunner

import loopwright as lw
from loopwright.cli.tune import tune as tune_command
from loopwright.transfer.records.record import RecordError
from loopwright.transfer.records.store import RecordStore
from tests.explore.synthetic import MadeUp, cost
from tests.explore.test_tune import run
from tests.transfer.examples import record


class After(MadeUp):
    """Does something to the world before a certain candidate is measured."""

    def __init__(self, number, act, **options):
        super().__init__(**options)
        self.number, self.act = number, act

    def _measured(self, config):
        if len(self.measured) == self.number:
            self.act()
        return super()._measured(config)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "r.db"


@pytest.fixture(autouse=True)
def at_once(monkeypatch, path):
    """Store every measurement as soon as it is there."""
    monkeypatch.setattr("loopwright.explore.session._STORE_EVERY", 0.0)
    path.parent.mkdir()


def limited(path, monkeypatch, pages):
    """Let SQLite find the disk full beyond so many pages, by its own means."""
    from loopwright.transfer.records.sql import sqlite

    connect = sqlite._connect

    def limit(*given):
        connection = connect(*given)
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    monkeypatch.setattr(sqlite, "_connect", limit)


def told(tuned, words):
    return [note for note in tuned.notes if words in note]


def found(tuned, device):
    assert len(tuned.history) == 80
    assert math.isfinite(tuned.seconds)
    assert cost(tuned.config) <= 1.01 * min(map(cost, device.measured))


def test_a_full_disk_costs_no_result_and_is_said(path, monkeypatch):
    with RecordStore(path) as store:
        store.add([record(0)])
    limited(path, monkeypatch, 1 + path.stat().st_size // 4096)
    device = MadeUp()
    tuned = run(device, records=path)
    found(tuned, device)
    assert len(told(tuned, "not stored for now: ")) == 1
    (said,) = told(tuned, "not all could be stored")
    assert "the disk is full" in said
    assert tuned.record.id is None


def test_a_disk_that_has_room_again_gets_everything(path, monkeypatch):
    failing = []

    def full():
        failing.append(True)

    add = RecordStore.add

    def once(self, records):
        if failing and len(failing) < 2:
            failing.append(True)
            raise RecordError("the disk is full")
        return add(self, records)

    monkeypatch.setattr(RecordStore, "add", once)
    device = After(20, full)
    tuned = run(device, records=path)
    found(tuned, device)
    assert told(tuned, "were stored at last")
    with RecordStore(path) as store:
        assert {r.config for r in store} >= set(device.measured)
        assert store.get(tuned.record.id).config == tuned.config


@pytest.mark.parametrize("when", [1, 41, 80])
def test_a_store_that_is_deleted_is_made_anew_with_all_of_the_search(path, when):
    device = After(when, lambda: path.unlink())
    tuned = run(device, records=path)
    found(tuned, device)
    assert told(tuned, "the file was deleted or replaced while it was open")
    assert told(tuned, "were stored at last")
    with RecordStore(path) as store:
        assert {r.config for r in store} == set(device.measured)
        assert store.get(tuned.record.id).config == tuned.config


def test_a_store_whose_folder_is_deleted_costs_no_result(path):
    device = After(30, lambda: shutil.rmtree(path.parent))
    tuned = run(device, records=path)
    found(tuned, device)
    assert told(tuned, "not all could be stored")


def test_an_interrupted_search_stores_again_too(path):
    device = After(30, lambda: path.unlink(), interrupt_at=45)
    with pytest.raises(lw.Interrupted) as caught:
        run(device, records=path)
    assert told(caught.value.tuned, "were stored at last")
    with RecordStore(path) as store:
        assert len(store) == 45


def test_a_store_that_another_process_replaced_is_told_once_and_then_used(path):
    with RecordStore(path) as store:
        store.add([record(0)])
        path.unlink()
        with RecordStore(path) as other:
            other.add([record(1)])
        with pytest.raises(RecordError, match="deleted or replaced while it was open"):
            store.add([record(2)])
        store.add([record(2)])
        assert [r.config for r in store] == [record(1).config, record(2).config]


def test_a_store_that_was_closed_may_be_replaced(path):
    store = RecordStore(path)
    store.add([record(0)])
    store.close()
    path.unlink()
    store.add([record(1)])
    assert len(store) == 1
    store.close()


@pytest.mark.usefixtures("brief")
def test_the_command_line_shows_the_result_though_nothing_could_be_stored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def full(self, records):
        raise RecordError("the disk is full")

    monkeypatch.setattr(RecordStore, "add", full)
    words = ["ij,jk->ik", "i=32", "j=48", "k=40", "--trials", "3", "-o", "mm.so"]
    done = CliRunner().invoke(tune_command, [*words, "--records", "r.db"])
    assert done.exit_code == 0, done.output
    assert "not all could be stored" in done.output
    assert "record     none" in done.output
    assert (tmp_path / "mm.so").exists()


# ---- a server ----


@pytest.fixture
def cluster(server, monkeypatch):
    """A server that is given up soon when it is away, and runs again afterwards."""
    monkeypatch.setattr("loopwright.transfer.records.sql.postgresql.OUTAGE", 0.2)
    server.empty()
    yield server
    if not server.runs():
        server.start()


@pytest.mark.postgresql
def test_a_server_that_restarts_meanwhile_has_all_of_the_search(cluster):
    device = After(30, cluster.restart)
    tuned = run(device, records=cluster.url())
    found(tuned, device)
    assert not told(tuned, "not stored")
    with RecordStore(cluster.url()) as store:
        assert {r.config for r in store} == set(device.measured)
        assert store.get(tuned.record.id).config == tuned.config


@pytest.mark.postgresql
@pytest.mark.parametrize("when", [1, 80])
def test_a_server_that_goes_away_costs_no_result_and_is_said(cluster, when):
    device = After(when, cluster.stop)
    tuned = run(device, records=cluster.url())
    found(tuned, device)
    (said,) = told(tuned, "not stored for now: ")
    assert "Is the server running" in said
    assert told(tuned, "not all could be stored")
    assert tuned.record.id is None


@pytest.mark.postgresql
def test_a_server_that_comes_back_gets_everything(cluster):
    def stop():
        cluster.stop()
        device.number, device.act = 60, cluster.start

    device = After(30, stop)
    tuned = run(device, records=cluster.url())
    found(tuned, device)
    assert told(tuned, "were stored at last, in postgresql://loopwright@/postgres?host=")
    with RecordStore(cluster.url()) as store:
        assert {r.config for r in store} == set(device.measured)
