"""Misses are explained by the nearest records and the fields in which they differ."""

import pytest

import loopwright as lw
from loopwright.transfer.records.compare import differences
from loopwright.transfer.records.store import RecordError, RecordStore
from tests.transfer.examples import AVX512, MACHINE, OTHER, failed, matmul, record
from tests.transfer.layouts import execute
from tests.transfer.test_lookup import ARM, AVX2, FOUR, NEWER


@pytest.fixture
def store(tmp_path):
    with RecordStore(tmp_path / "tuning.db") as made:
        yield made


def explained(store, target=AVX512, policy="exact", workload=None, machine=MACHINE):
    return store.explain_miss(workload or matmul(), target, policy, machine=machine)


def fields(one, other):
    return [str(d) for d in differences(one.to_json(), other.to_json())]


def test_an_empty_store(store):
    assert "no records with a cost; tune the workload" in explained(store)


def test_another_machine(store):
    store.add([record(0, machine=OTHER)])
    text = explained(store)
    assert "machine's processor Another CPU instead of Some CPU" in text
    assert "cores" not in text
    assert "system" not in text
    assert "use policy 'family'" in text


def test_another_number_of_threads(store):
    store.add([record(0, target=FOUR)])
    assert "1 with threads 4 instead of 2" in explained(store)


def test_another_target(store):
    store.add([record(0, target=ARM), record(1, target=NEWER)])
    lines = explained(store).splitlines()
    assert f"target (the same family) {NEWER} instead of {AVX512}" in lines[1]
    assert f"target (another family) {ARM} instead of {AVX512}" in lines[2]
    assert "use policy 'family', or tune here" in lines[3]
    assert "use policy 'any', or tune" in explained(store, AVX2, "family")


def test_nothing_but_failures(store):
    store.add([failed(0), failed(1)])
    assert "all 2 records" in explained(store)


def test_a_hit_is_no_miss(store):
    store.add([record(0)])
    assert "this is no miss" in explained(store)


def test_costs_of_what_was_wrong_another_time_are_no_hit(store):
    store.add([record(0), failed(0, "wrong", created=2e9)])
    assert store.best(matmul(), AVX512, machine=MACHINE) is None
    assert "gave wrong results or crashed another time" in explained(store)


def test_another_shape_names_the_nearest_first(store):
    shapes = [(64, 64, 64), (4, 5, 8), (4, 10, 6)]
    store.add(record(n, workload=matmul(*s, names="P Q R")) for n, s in enumerate(shapes))
    lines = explained(store).splitlines()
    assert "of its 3 workloads" in lines[0]
    assert "B's shape (5, 8) instead of (5, 6); C's shape (4, 8) instead of (4, 6)" in lines[1]
    assert "A's shape (4, 10) instead of (4, 5)" in lines[2]
    assert lines[-1] == "To get one: tune it."


def test_a_damaged_workload_is_an_error(store):
    store.add([record(0, workload_key="k")])
    execute(store.location, "UPDATE texts SET text = '{' WHERE text LIKE '%tensors%'")
    with pytest.raises(RecordError, match="damaged workload"):
        explained(store, workload=matmul(2, 2, 2))


def test_equal_workloads_do_not_differ_whatever_their_names():
    assert fields(matmul(names="X Y Z"), matmul()) == []


def test_differences_in_types_and_constants():
    i, j = lw.indices("i j")
    A, W = lw.tensor("A", (4, 4), dtype="float16"), lw.tensor("W", (4,), constant=True)
    B, V = lw.tensor("B", (4, 4)), lw.tensor("V", (4,))
    C, D = lw.tensor("C", dtype="float32"), lw.tensor("D")
    C[i, j] = lw.cast(A[i, j], "float32") * W[j]
    D[i, j] = B[i, j] * V[j]
    assert fields(lw.workload(C), lw.workload(D)) == [
        "B's dtype float16 instead of float32",
        "V's constant True instead of False",
        "D's formula is another",
    ]


def test_differences_in_the_formula_and_the_reducer():
    i, j = lw.indices("i j")
    A, B, C = lw.tensor("A", (4, 5)), lw.tensor("B"), lw.tensor("C")
    B[i] += A[i, j]
    C[i] = lw.max(A[i, j])
    assert fields(lw.workload(B), lw.workload(C)) == ["C's reducer sum instead of max"]


def test_other_outputs_of_the_same_tensors():
    i = lw.indices("i")
    A, B, C = lw.tensor("A", (4,)), lw.tensor("B"), lw.tensor("C")
    B[i] = A[i] + 1.0
    C[i] = B[i] * 2.0
    assert fields(lw.workload(C), lw.workload(B, C)) == ["outputs (C) instead of (B, C)"]


def test_another_number_of_tensors():
    i = lw.indices("i")
    A, B = lw.tensor("A", (4,)), lw.tensor("B")
    B[i] = A[i] + 1.0
    assert fields(lw.workload(B), matmul()) == ["number of tensors 2 instead of 3"]
