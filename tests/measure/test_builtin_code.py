"""A device for built-in code: what it measures, what it compares, and what a search then ships."""

from dataclasses import replace

import pytest

import loopwright as lw
from loopwright.codegen.processors import cpu_flags
from loopwright.explore.budget import TuningError
from loopwright.measure.device import Comparison
from loopwright.measure.local import LocalDevice
from loopwright.schedule.space import space
from loopwright.transfer.records.store import RecordStore
from tests.targets import narrow

pytestmark = [
    pytest.mark.usefixtures("brief"),
    pytest.mark.skipif(
        not {"avx2", "fma"} <= set(cpu_flags()), reason="a processor with AVX2 and FMA is needed"
    ),
    pytest.mark.optimized,
]


NARROW = narrow(1)


def product(dtype="float32"):
    shape = (24, 24)
    return lw.workload(lw.ops.matmul(*(lw.tensor(n, shape, dtype=dtype) for n in "AB")))


def test_built_in_code_is_measured_and_the_faster_of_two_codes_is_named():
    workload, target = product(), replace(NARROW, kind="builtin")
    config = space(workload, target).default
    with LocalDevice(target) as device:
        (measured,) = device.measure(workload, [config])
        compared = device.compare(workload, [config], 5)
        assert (measured.failure, measured.codegen) == (None, "builtin")
        assert [len(samples) for samples in compared.samples] == [5]
        assert device.verify(workload, config) is None


def test_built_in_code_is_read_when_it_is_asked_for():
    workload, target = product(), replace(NARROW, kind="builtin")
    config = space(workload, target).default
    with LocalDevice(target) as device:
        (unread,) = device.measure(workload, [config])
        (inspected,) = device.inspect(workload, [config])
        (read,) = device.measure(workload, [config])
    assert unread.facts == {}
    assert inspected.facts["loop_multiply_adds"] > 0
    assert read.facts == inspected.facts


class Timed:
    """A runner that measures made-up seconds, by what made the code."""

    def __init__(self, **seconds):
        self.seconds, self.compared = seconds, []

    def compare(self, data, built, timing, rounds):
        self.compared.append([b.codegen for b in built])
        samples = tuple((self.seconds[b.codegen],) * rounds for b in built)
        return Comparison(samples, tuple(range(len(built))))


@pytest.mark.parametrize(
    ("builtin", "llvm", "faster"), [(1.0, 2.0, "builtin"), (2.0, 1.0, "llvm")]
)
def test_the_faster_of_two_codes_counts_and_is_compared_alone_afterwards(builtin, llvm, faster):
    workload, target = product(), replace(NARROW, kind="builtin")
    config = space(workload, target).default
    with LocalDevice(target) as device:
        device.measure(workload, [config])
        device._runner, runner = Timed(builtin=builtin, llvm=llvm), device._runner
        compared = device.compare(workload, [config], 3)
        assert compared.samples == ((1.0,) * 3,)
        assert device.target_of(workload, config).kind == faster
        assert device.compare(workload, [config], 3).samples == ((1.0,) * 3,)
        assert device._runner.compared == [["builtin", "llvm"], [faster]]
        device._runner = runner


def test_a_program_that_built_in_code_does_not_cover_is_measured_as_llvms():
    workload, target = product("float64"), replace(NARROW, kind="builtin")
    with LocalDevice(target) as device:
        (measured,) = device.measure(workload, [space(workload, target).default])
    assert (measured.failure, measured.codegen) == (None, "llvm")


@pytest.mark.slow
def test_records_say_by_which_code_a_cost_was_measured(tmp_path):
    path = tmp_path / "records.db"
    tuned = lw.tune(
        product(), trials=6, records=path, target=NARROW, codegen="builtin", transfer=None
    )
    with RecordStore(path) as store:
        kinds = {record.target.split()[0] for record in store}
    assert "builtin" in kinds <= {"builtin", "llvm"}
    assert tuned.record.target.startswith(tuned.target.kind)


def test_open_sizes_are_not_searched_by_built_in_code(tmp_path):
    n = lw.dim("n", 1, 64)
    x = lw.tensor("x", (n, 8))
    with pytest.raises(TuningError, match="fixed sizes"):
        lw.tune(lw.ops.relu(x), trials=1, records=None, target=NARROW, codegen="builtin")
