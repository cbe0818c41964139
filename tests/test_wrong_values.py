"""Values that are wrong where they are given: an error of ours, which shows what was found."""

import numpy as np
import pytest
from click.testing import CliRunner

import loopwright as lw
from loopwright.__main__ import main
from loopwright.costmodel import TimeModel
from loopwright.costmodel.models.file import load_model
from loopwright.transfer.records.store import RecordStore
from tests.codegen import kernels
from tests.explore.synthetic import MadeUp

i, j = lw.indices("i j")
A = lw.tensor("A", (8, 8))
SUM = lw.ops.add(A, A)
N = lw.dim("n", 1, 64)
OPEN = lw.ops.relu(lw.tensor("X", (N, 8)))


def tune(**options):
    return lw.tune(SUM, **{"device": MadeUp(), "trials": 1, "records": None, **options})


FIVE = {
    "a shape": lambda: lw.tensor("A", 2.5),
    "extents": lambda: lw.tensor("A", np.ones((2, 2))),
    "a dtype": lambda: lw.tensor("A", (2,), 7),
    "a part of a shape": lambda: lw.tensor("A", (None, 2)),
    "widths": lambda: lw.pad(A, [(1.5, 1), (1, 1)]),
    "a factor of a size": lambda: N * 1.5,
    "an array to pad": lambda: lw.pad(np.ones((2, 2)), [(1, 1), (1, 1)]),
    "an array of an element": lambda: np.asarray(A[i, j]),
    "an index with a fraction": lambda: A[i * 1.5, j],
    "a power of an index": lambda: A[i**2, j],
    "inputs": lambda: lw.workload(SUM, inputs=5),
    "a config": lambda: lw.explain(SUM, config=5),
    "a target": lambda: lw.build(SUM, target=7),
    "a name": lambda: lw.build(SUM, name=5),
    "a path to load": lambda: lw.load(5),
    "a model": lambda: lw.SourceModel.load(5),
    "a cost model": lambda: load_model(5),
    "a store": lambda: tune(records=5),
    "a store that is another file": lambda: tune(records=__file__),
    "an effort": lambda: tune(trials=None, effort=[]),
    "a batch": lambda: tune(batch="x"),
    "a schedule": lambda: tune(schedule=5),
    "a strategy": lambda: tune(strategy=["annealing"]),
    "a strategy that makes none": lambda: tune(strategy=lambda space, rng: None),
    "a name of a model": lambda: tune(model=["gbt"]),
    "an order of loops": lambda: lw.ScheduleEnv(SUM, order=5),
    "loops that are none": lambda: lw.ScheduleEnv(SUM, order=(1, 2)),
    "callbacks": lambda: tune(callbacks=5),
    "a function as callback": lambda: tune(callbacks=[print]),
    "a transfer": lambda: tune(transfer=5),
    "an array as a transfer": lambda: tune(transfer=np.ones(3)),
    "an array as a strategy": lambda: tune(strategy=np.ones(3)),
    "whether progress is shown": lambda: tune(progress=np.ones(3)),
    "an array as a code generator": lambda: lw.build(SUM, codegen=np.ones(3)),
    "a tensor as a dtype": lambda: lw.tensor("A", (2,), A),
    "an array as a loop": lambda: lw.nest(SUM).parallel(np.ones(2)),
    "an array as a stage": lambda: lw.nest(SUM).stage(np.ones(2)),
    "an array as an operand": lambda: lw.nest(SUM).pack(np.ones(2)),
    "a way to render": lambda: lw.ScheduleEnv(SUM, render_mode=np.ones(2)),
    "options of an episode": lambda: lw.ScheduleEnv(SUM).reset(options=5),
    "records": lambda: RecordStore("records.db").merge(5),
    "whether records failed": lambda: RecordStore("records.db").query(failed=[]),
    "the file of the best records": lambda: RecordStore("records.db").export_best(None),
    "an array of one number as names": lambda: TimeModel(np.array(5)),
    "a device": lambda: tune(device=5),
    "targets": lambda: tune(device=None, targets=5),
    "sizes": lambda: lw.tune(OPEN, trials=1, records=None, sizes=5),
    "a network's name": lambda: lw.build_model("net.onnx", name=5),
    "a network's targets": lambda: lw.build_model("net.onnx", targets=5),
    "a network's sizes": lambda: lw.build_model("net.onnx", sizes=5, dims={"n": (1, 2)}),
    "whom a network's search tells": lambda: lw.tune_model("net.onnx", tell=5, records=None),
    "tasks": lambda: lw.tune_model("net.onnx", trials=1, only=5),
    "workloads": lambda: lw.tune_many(5),
    "tuners": lambda: lw.tune_many([SUM], tuners="x"),
    "an option of many": lambda: lw.tune_many([SUM], trails=5),
    "minutes of passes": lambda: lw.tune_passes(SUM, minutes="x"),
}


@pytest.mark.parametrize("what", FIVE)
def test_a_wrong_value_is_an_error_that_shows_it(what):
    with pytest.raises(lw.LoopwrightError) as caught:
        FIVE[what]()
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


def test_what_an_exported_library_is_not_told_is_refused(tmp_path):
    library = kernels.matmul()
    for call in (
        lambda: library.export(5),
        lambda: library.export(tmp_path / "a.so", extras=5),
        lambda: library.source(["llvm"]),
        lambda: library(A, A),
    ):
        with pytest.raises(lw.LoopwrightError):
            call()


def test_a_library_of_truth_values_or_of_nothing_is_run_by_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, array in (("truth", np.ones(4, bool)), ("nothing", np.ones(0, np.float32))):
        x, y = lw.tensor("x", array.shape, array.dtype), lw.tensor("y")
        y[i] = x[i]
        lw.build(y, threads=1).export(f"{name}.so")
        np.save("x.npy", array)
        done = CliRunner().invoke(main, ["run", f"{name}.so", "--input", "x.npy"])
        assert done.exit_code == 0, done.output
        assert ("from 1 to 1" if array.size else "without elements") in done.output


def test_a_file_that_is_none_of_what_a_command_takes_is_told_in_a_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ends.py").write_text("raise SystemExit(3)")
    (tmp_path / "junk.json").write_bytes(b"\x93" * 5000)
    np.savez("many.npz", x=np.ones(4))
    (tmp_path / "many.npz").rename("x.npy")
    kernels.matmul().export("m.so")
    for line, told in {
        "explain ends.py": "ends.py raised SystemExit: 3",
        "model show junk.json": "junk.json is no model file",
        "model show nosuch": "name of a shipped model: x86-avx2",
        "run m.so --input x.npy --input x.npy": "cannot read it as a .npy file",
        "tune relu x=8 --trials 1 --records junk.json": "junk.json: not a SQLite file",
    }.items():
        done = CliRunner().invoke(main, line.split())
        assert done.exit_code in (1, 2)
        assert told in done.output
        assert len(done.output) < 600
