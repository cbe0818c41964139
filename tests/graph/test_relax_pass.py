"""The Relax pass: our programs inside of TVM's own pipeline."""

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import loopwright as lw
from loopwright.codegen.target import resolve
from loopwright.codegen.tvm_target import tvm_target
from loopwright.graph.compile.build import import_model
from loopwright.graph.compile.relax_pass import apply, lower
from loopwright.graph.importers.read import read_model
from loopwright.graph.importers.tir import import_function
from loopwright.measure.device import Measurement
from loopwright.measure.machine import fingerprint
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import space
from loopwright.transfer.records.record import RecordError
from loopwright.transfer.records.store import Record, RecordStore
from tests.relax import relax_of
from tests.sketches import direct
from tests.targets import HERE


@pytest.fixture
def module():
    """A scatter, which the notation lacks, a product with constant weights, and a softmax."""
    w = np.random.default_rng(0).standard_normal((13, 37)).astype(np.float32)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((7, 13), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            places, ones = np.zeros((1, 13), np.int64), np.ones((1, 13), np.float32)
            scattered = relax.op.scatter_elements(
                x, relax.const(places), relax.const(ones), axis=0, reduction="add"
            )
            y = builder.emit(relax.op.matmul(builder.emit(scattered), relax.const(w)))
            out = builder.emit_output(relax.op.nn.softmax(builder.emit(relax.op.nn.relu(y))))
        builder.emit_func_output(out)
    x = np.random.default_rng(1).standard_normal((7, 13)).astype(np.float32)
    y = np.exp(np.maximum((x + (np.arange(7) == 0)[:, None]).astype(np.float32) @ w, 0))
    return relax.get_pipeline("zero")(builder.get()), x, y / y.sum(1, keepdims=True)


def _run(module, x, tmp_path):
    executable = tvm.compile(module, tvm_target(resolve("cpu", 1)))
    executable.export_library(str(tmp_path / "model.so"))
    loaded = tvm.runtime.load_module(str(tmp_path / "model.so"))
    results = []
    for each in (executable, loaded):
        machine = relax.VirtualMachine(each, tvm.cpu())
        results.append(machine["main"](tvm.runtime.tensor(x)).numpy())
    np.testing.assert_array_equal(*results)
    return results[0]


def _tir(module):
    names = [v.name_hint for v, f in module.functions.items() if isinstance(f, tirx.PrimFunc)]
    return sorted(names)


def test_the_pass_is_where_the_documentation_says_also_once_models_are_imported():
    """A sub-module of its name would stand before it then."""
    assert lw.build_model
    assert lw.graph.apply is apply


def test_functions_that_can_be_said_become_ours_and_the_others_stay(module, tmp_path):
    before, x, wanted = module
    after = apply(threads=1, defaults=True)(before)
    assert len(_tir(after)) == 1
    assert "scatter" in _tir(after)[0]
    np.testing.assert_allclose(_run(after, x, tmp_path), wanted, rtol=1e-4, atol=1e-6)


def test_code_for_tvm_s_threads_needs_nothing_of_our_runtime(tmp_path):
    target = HERE
    wide = 3 * target.l2_bytes // 2048  # its weights fill three caches
    w = np.random.default_rng(0).standard_normal((512, wide)).astype(np.float32)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 512), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.matmul(x, relax.const(w)))
        builder.emit_func_output(out)
    after = apply(threads=2, defaults=True)(relax.get_pipeline("zero")(builder.get()))
    x = np.random.default_rng(1).standard_normal((1, 512)).astype(np.float32)
    np.testing.assert_allclose(_run(after, x, tmp_path), x @ w, rtol=1e-3, atol=1e-3)


def test_without_a_record_nothing_changes(module):
    before, _, _ = module
    assert _tir(apply(threads=1)(before)) == _tir(before)


def test_a_function_with_a_record_is_replaced(module, tmp_path):
    before, x, wanted = module
    name = next(n for n in _tir(before) if "matmul" in n)
    target = resolve("cpu", 1)
    workload = import_function(before[name], [1]).workload
    config = space(workload, target).sample(np.random.default_rng(0))
    measured = Measurement(config, (1e-5,), None, 0.0, 0.0, "warm", 1, 0.0)
    with RecordStore(tmp_path / "r.db") as store:
        store.add([Record.of(workload, target, fingerprint(), measured, seed=0, session="s")])
    after = apply(tmp_path / "r.db", threads=1)(before)
    assert set(_tir(before)) - set(_tir(after)) == {name}
    np.testing.assert_allclose(_run(after, x, tmp_path), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.torch
def test_records_of_whole_models_fit_where_the_pass_lowers(tmp_path):
    torch = pytest.importorskip("torch")
    layers = (torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    net, x = torch.nn.Sequential(*layers).eval(), torch.randn(1, 3, 9, 7)
    model = relax_of(net, x)
    target = resolve("cpu", 1)
    (task,) = import_model(model, None, target, layout="given").tasks
    measured = Measurement(
        space(task.workload, target).default, (1e-5,), None, 0.0, 0.0, "warm", 1, 0.0
    )
    with RecordStore(tmp_path / "r.db") as store:
        store.add([Record.of(task.workload, target, fingerprint(), measured, seed=0, session="s")])
    passes = tvm.transform.Sequential([lower(), apply(tmp_path / "r.db", threads=1)])
    after = passes(read_model(model).module)
    assert _tir(after) == []
    np.testing.assert_allclose(
        _run(after, x.numpy(), tmp_path), net(x).detach(), rtol=1e-4, atol=1e-5
    )


def test_a_missing_store_is_an_error_before_the_pass(tmp_path):
    with pytest.raises(RecordError, match="missing"):
        apply(tmp_path / "missing.db", threads=1)


def test_a_record_of_another_version_gives_way_to_the_default(module, tmp_path):
    before, x, wanted = module
    name = next(n for n in _tir(before) if "matmul" in n)
    target = resolve("cpu", 1)
    workload = import_function(before[name], [1]).workload
    measured = Measurement(Config(direct("of old"), ()), (1e-5,), None, 0.0, 0.0, "warm", 1, 0.0)
    with RecordStore(tmp_path / "r.db") as store:
        store.add([Record.of(workload, target, fingerprint(), measured, seed=0, session="s")])
    assert name in _tir(apply(tmp_path / "r.db", threads=1)(before))
    after = apply(tmp_path / "r.db", threads=1, defaults=True)(before)
    assert name not in _tir(after)
    np.testing.assert_allclose(_run(after, x, tmp_path), wanted, rtol=1e-4, atol=1e-6)
