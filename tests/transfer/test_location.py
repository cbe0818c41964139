"""Where a store is: a path, or the URL of a PostgreSQL database, whose password is never shown."""

import traceback
from pathlib import Path

import pytest
from click.testing import CliRunner

import loopwright as lw
from loopwright.__main__ import main
from loopwright.cli.common.command import replay_command
from loopwright.transfer.records.location import Server, location_of
from loopwright.transfer.records.record import RecordError
from loopwright.transfer.records.store import RecordStore
from tests.explore.synthetic import MadeUp
from tests.explore.test_tune import run
from tests.transfer.examples import record

SECRET = "pass w0rd!"
URL = "postgresql://me:pass%20w0rd!@127.0.0.1:1/records"


def test_a_path_is_made_absolute():
    assert location_of("r.db") == location_of(Path("r.db")) == Path("r.db").absolute()


def test_a_url_is_taken_apart():
    found = location_of("postgresql://me:p%40ss@[::1]:5433/re%2Fcords?sslmode=require")
    assert found == Server("me", "p@ss", "::1", 5433, "re/cords", (("sslmode", "require"),))
    assert location_of("postgresql://me@%2Ftmp%2FA/db").host == "/tmp/A"
    assert location_of("postgresql:///db") == Server(None, None, None, None, "db")
    assert location_of("postgresql://?service=lab").query == (("service", "lab"),)
    assert location_of(found) is found


def test_a_password_is_hidden_wherever_it_stands():
    server = location_of(URL)
    assert str(server) == "postgresql://me:***@127.0.0.1:1/records"
    assert SECRET not in repr(server)
    other = location_of("postgresql://h/db?password=pass+w0rd!&sslmode=prefer")
    assert str(other) == "postgresql://h/db?password=***&sslmode=prefer"
    assert SECRET not in repr(other)
    assert other.hide(f"FATAL: {SECRET}") == "FATAL: ***"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgres://me:pass w0rd!@h/db", "records = postgres:…: no store is kept there"),
        ("mysql://me:pass w0rd!@h/db", "records = mysql:…: no store is kept there"),
        ("postgresql+psycopg://me:pass w0rd!@h/db", "no store is kept there"),
        ("sqlite:///tuning.db", "records = sqlite:…: no store"),
        (Path("postgresql://me:pass w0rd!@h/db"), "records = postgresql:…: no store"),
        ("postgresql://me:pass w0rd!@h", "it names no database"),
        ("postgresql://me:pass w0rd!@h/", "it names no database"),
        ("postgresql://me:pass w0rd!@b@h/db", "@ is written %40"),
        ("postgresql://me:pass w0rd!/b@h/db", "@ is written %40"),
        ("postgresql://me:pass w0rd!#b@h/db", "@ is written %40"),
        ("postgresql://me:pass w0rd!@h:x/db", "@ is written %40"),
        ("postgresql://me:pass w0rd!@h:99999/db", "@ is written %40"),
        ("postgresql://me:pass w0rd!@[h/db", "@ is written %40"),
        ("postgresql://me@h/db?pass w0rd!", "@ is written %40"),
    ],
)
def test_what_is_no_store_is_refused_with_what_is_allowed_and_without_the_password(url, problem):
    with pytest.raises(RecordError) as caught:
        RecordStore(url)
    message = str(caught.value)
    assert problem in message
    assert "give the path of a file, or postgresql://user@host:port/database as text" in message
    assert "w0rd" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.postgresql
def test_no_error_shows_the_password():
    device = MadeUp()
    for call in (
        lambda: len(RecordStore(URL)),
        lambda: run(device, records=URL),
        lambda: lw.build_model("net.onnx", records=URL),
        lambda: lw.tune_model("net.onnx", records=URL),
    ):
        with pytest.raises(lw.LoopwrightError) as caught:
            call()
        assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert not device.measured, "it is told before the search"


@pytest.mark.postgresql
@pytest.mark.parametrize(
    "words",
    [
        ("records", "list", "--records"),
        ("records", "merge"),
        ("records", "sync", "other.db"),
        ("replay", "1", "--records"),
        ("tune", "relu", "x=8", "--records"),
        ("model", "eval", "--records"),
    ],
)
def test_no_command_shows_the_password(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with RecordStore("other.db") as store:
        store.add([record()])
    done = CliRunner().invoke(main, [*words, URL])
    assert done.exit_code == 1
    assert "postgresql://me:***@127.0.0.1:1/records: " in done.output
    assert "w0rd" not in done.output
    bad = CliRunner().invoke(main, [*words, "postgresql://me:pass@w0rd@h/db"])
    assert bad.exit_code == 2
    assert "@ is written %40" in " ".join(bad.output.split())
    assert "w0rd" not in bad.output


def test_a_command_to_replay_names_the_server():
    words = "loopwright replay 3 --records 'postgresql://me:***@127.0.0.1:1/records'"
    assert replay_command(3, location_of(URL)) == words
