"""Models that need TVM's run-time: they run on Relax's virtual machine, our code inside."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

import loopwright as lw
from loopwright.codegen.target import resolve
from loopwright.dsl.errors import LibraryError, ShapeError
from loopwright.graph.build import build_model
from loopwright.graph.compile.build import import_model
from loopwright.graph.compile.vm_fallback import VmModel, VmWork
from loopwright.graph.tuning.tune import tune_model
from tests.relax import relax_of

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("brief")]


class _Sorted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(13, 7)

    def forward(self, x):
        return torch.sort(torch.relu(self.layer(x)), dim=1)[0]


@pytest.fixture(scope="module")
def made():
    torch.manual_seed(0)
    net, x = _Sorted(), torch.randn(5, 13)
    return net, x, build_model(relax_of(net, x), threads=1)


def test_a_model_that_sorts_runs_on_the_virtual_machine_and_says_why(made):
    net, x, model = made
    assert isinstance(model, VmModel)
    assert "virtual machine" in model.notes[0]
    assert "TVM's threads, as many as $TVM_NUM_THREADS says" in model.notes[1]
    np.testing.assert_allclose(model(x), net(x).detach(), rtol=1e-4, atol=1e-6)


def test_what_calls_the_run_time_keeps_a_model_from_being_a_list_of_calls():
    def foreign(x):
        def call(ins, outs):
            return tirx.Evaluate(tirx.call_packed("far.away", ins[0], outs[0]))

        return te.extern([x.shape], [x], call, dtype="float32")

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(builder.emit_te(foreign, x))
        builder.emit_func_output(out)
    work = import_model(builder.get(), None, resolve("cpu", 1))
    assert isinstance(work, VmWork)
    assert any("foreign calls TVM's run-time" in note for note in work.notes())
    assert work.tasks == ()


def test_a_model_that_sorts_is_tuned_in_what_the_notation_can_say(made, tmp_path):
    net, x, untuned = made
    lines = []
    options = {"records": tmp_path / "r.db", "threads": 1, "tell": lines.append}
    model = tune_model(relax_of(net, x), trials=4, **options)
    assert isinstance(model, VmModel)
    assert model.records
    assert model.records.keys() <= {task.workload.key for task in model.work.tasks}
    assert not untuned.records
    assert any("4 trials" in line for line in lines)
    np.testing.assert_allclose(model(x), net(x).detach(), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_model_of_very_many_inputs_runs_there(tmp_path):
    class Many(torch.nn.Module):
        def forward(self, xs):
            return [x + n for n, x in enumerate(xs)]

    xs = [torch.randn(3) for _ in range(260)]
    model = build_model(relax_of(Many(), xs), threads=1)
    assert "takes 520 arrays; 512 may be" in model.notes[0]
    assert len(model(*xs)) == 260


class _Embedding(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layer = torch.nn.Embedding(64, 64), torch.nn.Linear(64, 64)

    def forward(self, i):
        return torch.sort(self.layer(self.table(i)), dim=1)[0]


def test_later_changes_of_the_models_weights_do_not_reach_it():
    net, i = _Embedding().eval(), torch.tensor([1, 2, 3])
    made = build_model(relax_of(net, i), threads=1)
    assert isinstance(made, VmModel)
    before = made(i).clone()
    with torch.no_grad():
        for weight in net.parameters():
            weight.zero_()
    torch.testing.assert_close(made(i), before, rtol=0, atol=0)


def test_its_export_is_loaded_by_tvm(made, tmp_path):
    net, x, model = made
    loaded = tvm.runtime.load_module(str(model.export(tmp_path / "net.so")))
    machine = relax.VirtualMachine(loaded, tvm.cpu())
    got = machine["main"](tvm.runtime.tensor(x.numpy())).numpy()
    np.testing.assert_allclose(got, net(x).detach(), rtol=1e-4, atol=1e-6)


def test_an_export_leaves_no_manifest_of_what_was_there_before(made, tmp_path):
    *_, model = made
    path = lw.build(lw.ops.relu(lw.tensor("x", (4,))), threads=1).export(tmp_path / "net.so")
    assert path.with_suffix(".json").exists()
    model.export(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.so"]


def test_its_inputs_are_checked(made):
    *_, model = made
    with pytest.raises(ShapeError, match=r"built for \(5, 13\)"):
        model(np.zeros((5, 12), np.float32))
    with pytest.raises(ShapeError, match=r"cannot read list .* give float32\[5, 13\]"):
        model([[1], [2, 3]])
    with pytest.raises(ShapeError, match="2 inputs"):
        model(1, 2)
    with pytest.raises(ShapeError, match="'y' is no input"):
        model(y=1)


def test_arrays_come_out_of_the_kind_that_went_in_also_by_name(made):
    net, x, model = made
    got = model(x=x)
    assert isinstance(got, torch.Tensor)
    torch.testing.assert_close(got, net(x).detach(), rtol=1e-4, atol=1e-6)
    assert isinstance(model(x.numpy()), np.ndarray)


class _Both(torch.nn.Module):
    def forward(self, x):
        return x.cumsum(1), x.cumsum(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_several_results_are_a_tuple_of_the_same_kind(dtype):
    x = torch.randint(-9, 9, (3, 5)).to(dtype)
    model = build_model(relax_of(_Both(), x), threads=1)
    got = model(x.t().contiguous().t())
    assert isinstance(got, tuple)
    torch.testing.assert_close(got, _Both()(x))


def test_a_shape_comes_out_as_an_array():
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    graph = helper.make_graph(
        [helper.make_node("Shape", ["x"], ["s"])],
        "shape",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("s", onnx.TensorProto.INT64, [2])],
    )
    model = build_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    got = model(np.zeros((2, 3), np.float32))
    assert got.dtype == np.int64
    assert got.tolist() == [2, 3]
    torch.testing.assert_close(model(torch.zeros(2, 3)), torch.tensor([2, 3]))


def test_an_export_to_a_bad_name_or_place_says_so(made, tmp_path):
    *_, model = made
    with pytest.raises(LibraryError, match=r"ends in \.so"):
        model.export(tmp_path / "net.txt")
    with pytest.raises(LibraryError, match=r"there is no folder .*new; make it first"):
        model.export(tmp_path / "new" / "net.so")


def test_calls_from_several_threads_do_not_mix(made):
    _, _, model = made
    xs = [torch.randn(5, 13) for _ in range(8)]
    wanted = [np.asarray(model(x)) for x in xs]

    def repeated(n):
        return all(np.array_equal(np.asarray(model(xs[n])), wanted[n]) for _ in range(100))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(repeated, range(len(xs))))


def test_a_model_on_the_virtual_machine_is_shown_in_one_line(made):
    *_, model = made
    assert repr(model).startswith("<VmModel: 0 of ")
    assert "\n" not in repr(model)
