"""Record stores in PostgreSQL: outages, rights, other programs' tables, zero characters."""

import os
import threading
from dataclasses import replace

import pytest

from loopwright.transfer.records.sql import postgresql
from loopwright.transfer.records.store import RecordError, RecordStore
from tests.transfer.examples import AVX512, MACHINE, config, failed, matmul, record

pytestmark = pytest.mark.postgresql


@pytest.fixture
def store(cluster):
    with RecordStore(cluster.url()) as made:
        yield made


@pytest.fixture
def soon(monkeypatch):
    """Give an outage up soon."""
    monkeypatch.setattr(postgresql, "OUTAGE", 0.3)


def test_people_read_it_by_sql(store, cluster):
    store.add([record(0), record(1, 0.5), failed(2)])
    query = f"SELECT id, cost, session FROM {postgresql.SCHEMA}.measured ORDER BY cost LIMIT 2"
    assert cluster.run(query) == [(2, 0.5e-3, "a session"), (1, 1e-3, "a session")]


def test_any_character_is_kept(store):
    odd = "\0", "\0\0", "\ue000", "\ue0000", "\ue0001\0", "é\U0001f600"
    made = [replace(record(n), session=text, target=text) for n, text in enumerate(odd)]
    store.add(made)
    assert list(store) == made
    assert list(store.query(session="\0")) == made[:1]
    assert list(store.query(target="\ue0001\0")) == made[4:5]


def test_long_texts_fit(store):
    made = [record(n, session="s" * 10_000, workload_key="k" * 10_000) for n in range(2)]
    store.add(made)
    assert list(store) == made
    assert list(store.query("k" * 10_000)) == made


def test_the_tables_of_other_programs_are_left_alone(store, cluster):
    cluster.run("CREATE TABLE IF NOT EXISTS public.records (id integer)")
    store.add([record(0)])
    assert cluster.run("SELECT * FROM public.records") == []
    cluster.run("DROP TABLE public.records")


def test_a_schema_of_another_program_is_refused_and_kept(store, cluster):
    cluster.run("CREATE SCHEMA loopwright CREATE TABLE bookmarks (url text)")
    with pytest.raises(RecordError, match="another program, with bookmarks"):
        store.add([record(0)])
    assert cluster.run("SELECT tablename FROM pg_tables WHERE schemaname = 'loopwright'") == [
        ("bookmarks",)
    ]


def test_nothing_is_created_if_not_asked(cluster):
    with pytest.raises(RecordError, match="no record store in this database; `loopwright tune`"):
        len(RecordStore(cluster.url(), create=False))
    assert not cluster.run("SELECT 1 FROM pg_namespace WHERE nspname = 'loopwright'")


def test_an_unknown_database_is_told_by_the_server(cluster):
    with pytest.raises(RecordError, match=r'\?host=.*: .*database "none" does not exist'):
        len(RecordStore(cluster.url(database="none")))


@pytest.fixture
def reader(store, cluster):
    """The URL of a user who may read alone."""
    store.add([record(0)])
    cluster.run(
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN",
        "GRANT USAGE ON SCHEMA loopwright TO reader",
        "GRANT SELECT ON ALL TABLES IN SCHEMA loopwright TO reader",
    )
    yield cluster.url("reader")
    cluster.run("DROP OWNED BY reader", "DROP ROLE reader")


def test_a_user_who_may_only_read_can_and_is_told_when_more_is_asked(reader):
    with RecordStore(reader, create=False) as store:
        assert store.best(matmul(), AVX512, machine=MACHINE).config == config(0)
        with pytest.raises(RecordError, match="your user may not do that there"):
            store.add([record(1)])


def test_a_user_who_may_not_create_a_store_is_told(cluster):
    cluster.run("DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN")
    with pytest.raises(RecordError, match=r"ask the owner for .* CREATE"):
        len(RecordStore(cluster.url("guest")))


def test_a_restart_of_the_server_is_survived(store, cluster):
    store.add([record(0)])
    cluster.restart()
    assert len(store) == 1
    cluster.restart()
    assert store.add([record(1)]) == (2,)


def test_a_killed_server_is_waited_for_and_has_lost_nothing(store, cluster, caplog):
    store.add([record(n) for n in range(50)])
    cluster.kill()
    starting = threading.Timer(0.3, cluster.start)
    starting.start()
    assert store.add([record(50)]) == (51,)
    starting.join()
    assert [r.config for r in store] == [config(n) for n in range(51)]
    assert [r.message.split(", which went away (")[0] for r in caplog.records] == [
        f"waiting for {store.location}"
    ]


@pytest.mark.usefixtures("soon")
def test_a_server_that_stays_away_is_an_error_and_used_again_when_it_is_back(store, cluster):
    store.add([record(0)])
    cluster.stop()
    with pytest.raises(RecordError, match=r"host=.*Is the server running"):
        store.add([record(1)])
    cluster.start()
    assert store.add([record(1)]) == (2,)


def test_a_server_that_was_never_reached_is_not_waited_for():
    with pytest.raises(RecordError, match="Is the server running"):
        len(RecordStore("postgresql:///db?host=/nowhere"))


def test_a_batch_that_is_broken_by_an_outage_is_stored_once(store, cluster):
    store.add([record(0)])
    broken = []

    def work(connection):
        from loopwright.transfer.records.rows import to_row
        from loopwright.transfer.records.sql.adding import add

        found = add(connection, [to_row(record(1)), to_row(record(2))])
        if not broken:
            broken.append(True)
            cluster.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                        "application_name = 'loopwright'")  # fmt: skip
        return found

    assert store._stored.database.write(work) == ((2, 3), 2)
    assert [r.config for r in store] == [config(n) for n in range(3)]


def test_a_store_that_was_dropped_is_told_once_and_then_made_anew(store, cluster):
    store.add([record(0)])
    cluster.empty()
    cluster.restart()
    with pytest.raises(RecordError, match=r"dropped while it was in use; .* is gone"):
        store.add([record(1)])
    assert store.add([record(1)]) == (1,)


def test_a_writer_that_never_ends_is_named_in_the_end(store, cluster, monkeypatch):
    store.add([record(0)])
    impatient = postgresql._OPTIONS.replace("lock_timeout=60s", "lock_timeout=100")
    monkeypatch.setattr(postgresql, "_OPTIONS", impatient)
    with RecordStore(cluster.url()) as other:

        def work(connection):
            assert len(other) == 1  # at once, and not what is not committed
            with pytest.raises(RecordError, match="another writer has kept the store locked"):
                other.add([record(1)])

        store._stored.database.write(work)
        assert other.add([record(1)]) == (2,)


def test_many_make_the_store_at_once(cluster):
    def write(name):
        with RecordStore(cluster.url()) as store:
            for n in range(10):
                store.add([record(n, session=name), record(n)])

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with RecordStore(cluster.url(), create=False) as store:
        assert [r.id for r in store] == list(range(1, 51))
        for name in "abcd":
            assert [r.config for r in store.query(session=name)] == [config(n) for n in range(10)]


def test_it_goes_on_in_both_after_a_fork(store):
    store.add([record(0)])
    pid = os.fork()
    if pid == 0:
        store.add([record(n, session="child") for n in range(5)])
        os._exit(0)
    store.add([record(n, session="parent") for n in range(5)])
    assert os.waitpid(pid, 0)[1] == 0
    assert len(list(store.query(session="child"))) == len(list(store.query(session="parent"))) == 5


def test_a_password_goes_to_the_server_and_a_wrong_one_is_not_shown(cluster):
    cluster.run("DROP ROLE IF EXISTS someone", "CREATE ROLE someone LOGIN PASSWORD 's3cret @'")
    with pytest.raises(RecordError, match="ask the owner"):  # so it was let in
        len(RecordStore(cluster.url("someone:s3cret%20%40")))
    with pytest.raises(RecordError, match="password authentication failed") as caught:
        len(RecordStore(cluster.url("someone:wr0ng")))
    assert "wr0ng" not in str(caught.value)
