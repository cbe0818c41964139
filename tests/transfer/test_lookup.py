"""Whose records serve whom."""

import pytest

from loopwright.schedule.target import Target
from loopwright.transfer.records.lookup import comparable, family
from loopwright.transfer.records.record import FINALS
from loopwright.transfer.records.store import RecordError, RecordStore
from tests.transfer.examples import AVX512, MACHINE, OTHER, config, matmul, record

NEWER = Target(mcpu="icelake-server", features=("+avx512f", "+avx2", "+sse3", "+movbe"), threads=2)
AVX2 = Target(mcpu="znver2", features=("+sse3", "+avx2"), threads=2)
FOUR = Target(mcpu="skylake-avx512", features=AVX512.features, threads=4)
ARM = Target(triple="aarch64-unknown-linux-gnu", features=("+neon",), threads=2)


@pytest.fixture
def store(tmp_path):
    with RecordStore(tmp_path / "tuning.db") as made:
        yield made


def found(store, target, policy, machine=MACHINE):
    best = store.best(matmul(), target, policy, machine=machine)
    return best and best.config


def test_a_family_has_one_architecture_and_the_same_vector_features():
    assert family(str(AVX512)) == family(str(NEWER))
    assert family(str(AVX512)) != family(str(AVX2))
    assert family(str(ARM)) == ("llvm", "aarch64", "+neon")
    assert family(str(Target(kind="c", mcpu="znver2"))) == ("c", "x86_64", "znver2")
    assert family("") == ("", "", "")


def test_a_few_features_beside_a_processors_name_make_no_family_with_others():
    plain = family("llvm x86_64-unknown-linux-gnu skylake-avx512")
    narrow = family("llvm x86_64-unknown-linux-gnu skylake-avx512 -avx512f")
    fused, other = (
        family(f"llvm x86_64-unknown-linux-gnu {cpu} +fma") for cpu in ("haswell", "x")
    )
    assert len({plain, narrow, fused, other}) == 4


def test_exact_wants_the_same_target_and_machine(store):
    store.add([record(0)])
    assert found(store, AVX512, "exact") == config(0)
    assert found(store, NEWER, "exact") is None
    assert found(store, FOUR, "exact") is None
    assert found(store, AVX512, "exact", OTHER) is None


def test_exact_survives_an_upgrade_of_software(store):
    store.add([record(0)])
    upgraded = {**MACHINE, "system": "Linux 7", "apache-tvm": "0.28.0"}
    assert found(store, AVX512, "exact", upgraded) == config(0)


def test_family_takes_machines_that_are_alike(store):
    store.add([record(0, target=NEWER, machine=OTHER), record(1, 0.1, target=AVX2)])
    assert found(store, AVX512, "exact") is None
    assert found(store, AVX512, "family") == config(0)
    assert found(store, ARM, "family") is None


def test_any_takes_whatever_there_is_of_the_workload(store):
    store.add([record(0, target=ARM, machine=OTHER)])
    assert found(store, AVX512, "family") is None
    assert found(store, AVX512, "any") == config(0)
    assert store.best(matmul(9, 9, 9), AVX512, "any") is None


def test_the_nearest_decides_not_the_faster_machine(store):
    store.add([record(0, 9.0), record(1, 5.0, machine=OTHER), record(2, 1.0, target=NEWER)])
    store.add([record(3, 0.1, target=ARM)])
    for policy in ("exact", "family", "any"):
        assert found(store, AVX512, policy) == config(0)


def test_of_equally_near_machines_the_best_explored_decides(store):
    third = {**MACHINE, "processor": "A third CPU"}
    store.add(record(n, 5.0 + n, machine=OTHER) for n in range(3))
    store.add([record(9, 1.0, machine=third)])
    assert found(store, AVX512, "family") == config(0)


def test_the_same_number_of_threads_is_nearer(store):
    store.add([record(0, 1.0, target=FOUR), record(1, 2.0, target=NEWER, machine=OTHER)])
    lookup = {"machine": {"processor": "Mine"}}
    two = Target(mcpu="cascadelake", features=AVX512.features, threads=2)
    assert store.best(matmul(), two, "family", **lookup).config == config(1)
    assert store.best(matmul(), two, "family", threads=4, **lookup).config == config(0)


def test_a_group_without_costs_gives_way_to_the_next(store):
    store.add([record(0, failure=_timeout(), seconds=()), record(1, machine=OTHER)])
    assert found(store, AVX512, "exact") is None
    assert found(store, AVX512, "family") == config(1)


def _timeout():
    from loopwright.measure.device import Failure

    return Failure("timeout", "no answer after 10 s")


def test_names_do_not_matter(store):
    store.add([record(0, workload=matmul(names="X Y Z"))])
    assert found(store, AVX512, "exact") == config(0)


def test_settings_that_differ_in_software_are_comparable(store):
    store.add([record(0), record(1, machine={**MACHINE, "system": "Linux 7"})])
    store.add([record(2, machine=OTHER)])
    assert [len(group) for group in comparable(store.settings())] in ([1, 2], [2, 1])


def test_exact_needs_a_machine(store):
    with pytest.raises(RecordError, match=r"machine=device.fingerprint\(\)"):
        store.best(matmul(), AVX512)


def test_an_unknown_policy_is_an_error(store):
    with pytest.raises(RecordError, match="'closest'; use one of"):
        store.best(matmul(), AVX512, "closest", machine=MACHINE)


def test_configs_that_are_not_asked_for_are_passed_over_and_decide_nothing(store):
    final = {"session": "later" + FINALS, "created": 2e9}
    store.add([record(0, 3.0), record(1, 1.0, **final), record(2, 2.0)])

    def best(*among):
        found = store.best(matmul(), AVX512, machine=MACHINE, among=among)
        return found and found.config

    assert found(store, AVX512, "exact") == config(1)
    assert best(config(0), config(2)) == config(2)  # the comparison was of none of them
    assert best(config(0)) == config(0)
    assert best(config(7)) is None
    store.add([record(3, 9.0, machine=OTHER, target=NEWER)])
    assert store.best(matmul(), AVX512, "any", among=[config(3)]).config == config(3)
