"""What a record store must do, however the file came about."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loopwright.dsl.errors import NotationError
from loopwright.measure.device import Failure
from loopwright.transfer.records.record import CHOSEN, FINALS, NETWORK
from loopwright.transfer.records.store import RecordError, RecordStore
from tests.transfer import layouts
from tests.transfer.examples import AVX512, MACHINE, OTHER, config, failed, matmul, record, records


class Reopened(RecordStore):
    """Closes its file after every transaction, as if each were another process's."""

    def _add(self, records):
        try:
            return super()._add(records)
        finally:
            self.close()


POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.postgresql)


@pytest.fixture(params=["fresh", "reopened", "migrated", POSTGRESQL])
def store(request, tmp_path):
    place = tmp_path / "tuning.db"
    if request.param == "postgresql":
        place = request.getfixturevalue("cluster").url()
    elif request.param == "migrated":
        layouts.write(place, 0, [], None)
    with (Reopened if request.param == "reopened" else RecordStore)(place) as made:
        yield made


def test_is_empty_at_first(store):
    assert (len(store), list(store), store.settings()) == (0, [], ())
    assert store.best("0" * 32, AVX512, "any") is None


@pytest.mark.parametrize("number", [0, -1, 10**30, "1", None])
def test_a_number_that_no_record_can_have_is_an_error(store, number):
    with pytest.raises(RecordError, match=f"has no record {number!r}; .*records list"):
        store.get(number)


def test_a_question_that_makes_no_sense_is_an_error(store):
    with pytest.raises(RecordError, match="machine = int 3: give what a record has"):
        store.query(machine=3)
    with pytest.raises(RecordError, match=r"threads = int 1000000000.*: give an integer of"):
        store.query(threads=10**30)
    with pytest.raises(RecordError, match="threads = int 0: give an integer"):
        store.query(threads=0)
    with pytest.raises(RecordError, match=r"session = list \['s'\]: give the text"):
        store.query(session=["s"])
    with pytest.raises(NotationError, match="None is no workload"):
        store.best(None, AVX512)


@pytest.mark.parametrize("records", [None, [3], "text"])
def test_what_is_no_record_is_not_stored(store, records):
    with pytest.raises(RecordError, match="is no Record: give records"):
        store.add(records)
    assert len(store) == 0


def test_gives_back_what_was_added(store):
    added = [record(0), failed(1), record(2, cache="cold", seed=None, session="")]
    ids = store.add(added)
    assert list(store) == added
    assert [store.get(i) for i in ids] == added
    assert [store.get(i).id for i in ids] == list(ids)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(st.lists(records(), max_size=5))
def test_gives_back_any_record(store, drawn):
    ids = store.add(drawn)
    assert [store.get(i) for i in ids] == drawn


def test_equal_records_are_stored_once(store):
    assert store.add([record(0), record(1), record(0)]) == (1, 2, 1)
    assert store.add([record(1), record(2)]) == (2, 3)
    assert len(store) == 3


def test_another_time_is_another_record(store):
    store.add([record(0, created=1.0), record(0, created=2.0)])
    assert len(store) == 2


def test_a_batch_is_stored_whole_or_not_at_all(store):
    with pytest.raises(RecordError, match="not a record"):
        store.add(record(n, threads=2 - n) for n in range(4))
    assert len(store) == 0


def test_an_unknown_id_is_an_error(store):
    store.add([record()])
    with pytest.raises(RecordError, match="no record 2"):
        store.get(2)


def test_queries_agree_with_everything_given(store):
    other = matmul(8, 8, 8)
    a, b, c, d = record(0), record(1, workload=other), record(2, machine=OTHER), failed(3)
    store.add([a, b, c, d])
    assert list(store.query(matmul().key)) == [a, c, d]
    assert list(store.query(matmul().key, machine=MACHINE)) == [a, d]
    assert list(store.query(target="another")) == []
    assert list(store.query(threads=2, failed=False)) == [a, b, c]
    assert list(store.query(failed=True)) == [d]
    assert list(store.query(session="a session", newest=True)) == [d, c, b, a]
    assert list(store.query(session="")) == []


def test_queries_page_through_many(store, monkeypatch):
    monkeypatch.setattr("loopwright.transfer.records.store._PAGE", 7)
    store.add(record(n) for n in range(20))
    assert [r.config for r in store] == [config(n) for n in range(20)]
    assert [r.id for r in store.query(newest=True)] == list(range(20, 0, -1))


def test_adding_while_reading_is_fine(store):
    store.add([record(0)])
    for r in store:
        if r.id < 10:
            store.add([record(r.id)])
    assert len(store) == 10


def test_long_texts_are_stored_once(store):
    store.add(record(n, machine={"processor": "x" * 100_000}) for n in range(50))
    store.close()
    if isinstance(store.location, Path):
        assert store.location.stat().st_size < 400_000


def test_settings_count_their_records(store):
    store.add([record(0), record(1), failed(2), record(3, machine=OTHER)])
    assert [(s.measured, s.failed) for s in store.settings()] == [(2, 1), (1, 0)]
    assert store.settings()[0].workload_key == matmul().key


def test_the_fastest_record_is_the_best(store):
    store.add([record(0, 3.0), record(1, 1.0), failed(2), record(3, 2.0)])
    best = store.best(matmul(), AVX512, machine=MACHINE)
    assert (best.config, best.id) == (config(1), 2)


def test_a_lucky_record_does_not_beat_later_ones_of_its_config(store):
    store.add([record(0, 1.0), record(0, 4.0, created=2e9), record(0, 4.0, created=3e9)])
    store.add([record(1, 2.0), record(2, 3.0)])
    assert store.best(matmul(), AVX512, machine=MACHINE).config == config(1)


def test_what_lost_the_last_comparison_is_not_the_best_however_lucky_its_record(store):
    store.add([record(0, 1.0), record(1, 0.5), record(2, 0.7), record(3, 0.4)])
    finals = {"session": f"a session{FINALS}", "created": 2e9}
    store.add([record(0, 2.0, **finals), record(1, 2.1, **finals), record(2, 2.2, **finals)])
    assert store.best(matmul(), AVX512, machine=MACHINE).config == config(0)
    later = {"session": "another", "created": 3e9}
    store.add([record(3, 1.9, **later)])
    assert store.best(matmul(), AVX512, machine=MACHINE).config == config(3)
    finals = {"session": f"another{FINALS}", "created": 4e9}
    store.add([record(0, 3.0, **finals), record(2, 2.9, **finals), record(3, 3.1, **finals)])
    assert store.best(matmul(), AVX512, machine=MACHINE).config == config(2)


def test_what_was_tied_with_the_winner_of_a_comparison_is_not_the_best_however_low_its_cost(store):
    chosen = {"session": f"a session{CHOSEN}", "created": 2e9}
    store.add([record(0, 2.0, **chosen), record(1, 1.9, **chosen), record(2, 2.2, **chosen)])
    assert best(store).config == config(0)
    assert best(store, among=[config(1), config(2)]).config == config(1)
    later = {"session": "another", "created": 3e9}
    store.add([record(1, 1.8, **later)])  # it lost when both were measured side by side
    assert best(store).config == config(0)
    store.add([record(3, 1.7, **later)])
    assert best(store).config == config(3)
    chosen = {"session": f"another{CHOSEN}", "created": 4e9}
    store.add([record(1, 3.0, **chosen), record(0, 2.9, **chosen), record(3, 3.1, **chosen)])
    assert best(store).config == config(1)
    store.add([failed(1, "wrong", created=5e9)])
    assert best(store).config == config(0)


def best(store, **options):
    return store.best(matmul(), AVX512, machine=MACHINE, **options)


def test_the_winner_of_a_store_that_was_merged_counts_beside_that_of_a_later_comparison(store):
    for session, created, costs in (("here", 2e9, (1.0, 2.0)), ("there", 3e9, (1.3, 1.4))):
        finals = {"session": f"{session}{FINALS}", "created": created}
        first = 0 if session == "here" else 2
        store.add(record(first + n, cost, **finals) for n, cost in enumerate(costs))
    assert store.best(matmul(), AVX512, machine=MACHINE).config == config(0)
    finals = {"session": f"later{FINALS}", "created": 4e9}
    store.add([record(0, 1.6, **finals), record(2, 1.5, **finals)])
    assert store.best(matmul(), AVX512, machine=MACHINE).config == config(2)


def test_a_winner_that_proved_wrong_leaves_the_others_of_its_comparison(store):
    finals = {"session": f"a session{FINALS}", "created": 2e9}
    store.add([record(0, 1.0, **finals), record(1, 2.0, **finals), record(2, 0.5)])
    store.add([failed(0, "wrong", created=3e9)])
    assert store.best(matmul(), AVX512, machine=MACHINE).config == config(1)


def test_the_best_record_of_a_config_is_the_most_thorough(store):
    store.add([record(0, 1.0), record(0, seconds=(1e-3,) * 9, created=2e9)])
    assert len(store.best(matmul(), AVX512, machine=MACHINE).seconds) == 9


def test_a_config_that_was_ever_wrong_is_not_the_best(store):
    wrong = Failure("wrong", "C[0, 0] is 1, not 2")
    store.add([record(0, 1.0), record(1, 2.0), record(0, 1.0, failure=wrong)])
    assert store.best(matmul(), AVX512, machine=MACHINE).config == config(1)


def test_a_config_that_crashed_is_not_the_best(store):
    store.add([record(0, 1.0), record(1, 2.0), failed(0, "crash")])
    assert store.best(matmul(), AVX512, machine=MACHINE).config == config(1)


def test_a_timeout_does_not_rule_a_config_out(store):
    store.add([record(0, 1.0), record(1, 2.0), failed(0, "timeout")])
    assert store.best(matmul(), AVX512, machine=MACHINE).config == config(0)


def test_nothing_but_failures_has_no_best(store):
    store.add([failed(0), failed(1)])
    assert store.best(matmul(), AVX512, machine=MACHINE) is None


def test_the_best_may_be_asked_of_one_state_of_the_caches(store):
    store.add([record(0, 1.0), record(1, 2.0, cache="cold")])
    find = {"machine": MACHINE, "workload": matmul(), "target": AVX512}
    assert store.best(**find, cache="cold").config == config(1)
    assert store.best(**find).config == config(0)


def test_an_unknown_state_of_the_caches_is_an_error(store):
    with pytest.raises(RecordError, match="cache = 'hot'"):
        store.best(matmul(), AVX512, machine=MACHINE, cache="hot")


def test_a_search_resumes_with_what_was_measured(store):
    store.add([record(5, 1.0), failed(3), record(9, 2.0), record(8, machine=OTHER)])
    store.add([record(7, workload=matmul(8, 8, 8)), failed(9, created=2e9)])
    done = store.measured(matmul(), AVX512, MACHINE)
    assert list(done) == [config(5), config(3), config(9)]
    assert list(done.values()) == [1e-3, float("inf"), float("inf")]
    assert store.measured(matmul(), AVX512, MACHINE, threads=1) == {}


def test_merging_adds_what_is_new(store, tmp_path):
    store.add([record(0), record(1)])
    with RecordStore(tmp_path / "other.db") as other:
        other.add([record(1), record(2), failed(3)])
        assert store.merge(other) == 2
        assert store.merge(other) == 0
        assert store.merge(store) == 0
        assert other.merge(store) == 1
        assert {r.config for r in store} == {r.config for r in other}


def test_the_best_of_each_make_a_small_file(store, tmp_path):
    store.add(record(n, 1.0 + n) for n in range(300))
    store.add(record(n, 1.0 + n, matmul(8, 8, 8)) for n in range(300))
    store.add([record(7, 5.0, machine=OTHER), record(5, 9.0, cache=NETWORK)])
    path = tmp_path / "best.db"
    assert store.export_best(path) == 4
    with RecordStore(path, create=False) as small:
        assert sorted(str(r.config) for r in small) == [str(config(n)) for n in (0, 0, 5, 7)]
        network = small.best(matmul(), AVX512, machine=MACHINE, cache=NETWORK)
        assert network.config == config(5)
        assert small.best(matmul(), AVX512, machine=OTHER) == record(7, 5.0, machine=OTHER)
    store.close()
    if isinstance(store.location, Path):
        assert path.stat().st_size < store.location.stat().st_size / 2
    with pytest.raises(RecordError, match="there already"):
        store.export_best(path)


def test_a_copy_that_fails_leaves_no_file(store, tmp_path, monkeypatch):
    store.add([record(0)])

    def interrupted(self):
        yield record(0)
        raise KeyboardInterrupt

    monkeypatch.setattr(RecordStore, "best_of_each", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.export_best(tmp_path / "best.db")
    assert not (tmp_path / "best.db").exists()


def test_a_closed_store_opens_again(store):
    store.add([record(0)])
    store.close()
    store.close()
    assert len(store) == 1


def test_nothing_is_created_until_used_or_if_not_asked(tmp_path):
    path = tmp_path / "none.db"
    RecordStore(path).close()
    with pytest.raises(RecordError, match="no such file"):
        len(RecordStore(path, create=False))
    assert not path.exists()


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_store_is_a_file(path):
    with pytest.raises(RecordError, match="not a file"):
        RecordStore(path)
