"""Whole models: in from torch, ONNX and Relax, out as one library that equals the original."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.library.linker import RUNTIME
from loopwright.codegen.target import resolve
from loopwright.dsl.errors import BuildError, ShapeError, TargetError
from loopwright.graph.build import build_model
from loopwright.graph.compile.build import import_model
from loopwright.graph.compile.link import link
from loopwright.graph.errors import ModelError
from loopwright.graph.network import MOST_ARGUMENTS
from loopwright.measure.device import Measurement
from loopwright.measure.machine import fingerprint
from loopwright.schedule.sketch.sketch import Config
from loopwright.transfer.records.store import Record, RecordStore
from tests.sketches import direct

pytestmark = [pytest.mark.torch, pytest.mark.onnx]


@pytest.fixture(scope="module")
def net():
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Net(nn.Module):
        """A bit of everything: folded batch norm, a residual, reshapes, equal work twice."""

        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(8)
            self.a, self.b = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
            self.head = nn.Linear(8 * 4 * 5, 7)

        def forward(self, x):
            x = torch.relu(self.norm(self.first(x)))
            x = torch.relu(self.a(x)) + x
            x = torch.relu(self.b(x)) + x
            x = nn.functional.max_pool2d(x, 3, 2, 1)
            y = self.head(torch.flatten(x, 1))
            return torch.softmax(y, -1), torch.reshape(y, (7,))

    torch.manual_seed(0)
    model = Net().eval()
    model.norm.running_mean.uniform_(-0.5, 0.5)
    model.norm.running_var.uniform_(0.5, 1.5)
    return model, torch.randn(1, 3, 15, 17)


@pytest.fixture(scope="module")
def built(net):
    model, x = net
    return build_model(model, (x,), threads=1)


def test_a_model_is_shown_in_one_line(built):
    assert repr(built) == "<TunedModel: 8 steps, 0 of 5 tasks tuned, standard numerics>"
    assert len(repr(built.work)) < 80
    shown = built._repr_html_()
    assert "<caption>TunedModel" in shown
    assert "object at 0x" not in shown
    assert "standard" in shown


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_and_pickles_of_a_model_compute_the_same(net, built, copied):
    _, x = net
    for one, other in zip(copied(built)(x), built(x), strict=True):
        assert (one == other).all()


def _equal(got, wanted):
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_torch_model_computes_what_torch_does(net, built):
    model, x = net
    _equal(built(x.numpy()), model(x))


def test_torch_tensors_come_out_where_they_went_in(net, built):
    import torch

    model, x = net
    result = built(x)
    assert all(isinstance(y, torch.Tensor) for y in result)
    torch.testing.assert_close(result, tuple(model(x)))


def test_equal_work_is_one_task(built):
    counts = {t.count for t in built.work.tasks if "conv" in t.name}
    assert counts == {1, 2}
    assert built.notes == ()


def test_reshapes_cost_nothing(built):
    names = [built.work.network.steps[n].function for n in built.linked.steps if n >= 0]
    assert not any(name.startswith(("reshape", "flatten")) for name in names)


def test_a_profile_has_every_step(built):
    profile = built.profile(calls=2)
    assert len(profile) == len(built.linked.steps)
    assert all(seconds >= 0 for _, seconds in profile)
    with pytest.raises(ShapeError, match=r"x has shape \(1, 3, 15, 16\)"):
        built.profile(np.zeros((1, 3, 15, 16), np.float32))
    with pytest.raises(ShapeError, match="float64"):
        built.profile(np.zeros((1, 3, 15, 17)))
    torch = pytest.importorskip("torch")
    assert built.profile(torch.zeros(1, 3, 15, 17, requires_grad=True), calls=1)


def test_one_array_is_no_list_of_inputs(net):
    model, x = net
    with pytest.raises(ModelError, match="give a tuple of arrays, one for each input"):
        build_model(model, x)


def test_an_exported_model_runs_without_tvm_and_torch(net, built, tmp_path):
    model, x = net
    path = built.export(tmp_path / "net.so")
    np.save(tmp_path / "x.npy", x.numpy())
    code = (
        "import sys, numpy as np, loopwright as lw\n"
        f"lib = lw.load({str(path)!r})\n"
        f"y = lib(np.load({str(tmp_path / 'x.npy')!r}))\n"
        "assert not {'tvm', 'torch'} & sys.modules.keys()\n"
        f"np.savez({str(tmp_path / 'y.npz')!r}, *y)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    saved = np.load(tmp_path / "y.npz")
    _equal([saved[k] for k in saved.files], model(x))
    assert "int net(const float *" in (tmp_path / "net.h").read_text()


def test_a_wrong_input_is_an_error_that_says_what_is_wanted(built):
    with pytest.raises(ShapeError, match="float64"):
        built(np.zeros((1, 3, 15, 17)))
    with pytest.raises(ShapeError, match=r"\(1, 3, 15, 17\)"):
        built(np.zeros((1, 3, 15, 18), np.float32))


def test_records_decide_how_a_task_is_compiled(net, tmp_path):
    model, x = net
    target = resolve("cpu", 1)
    task = import_model(model, (x,), target).tasks[0]
    config = lw.space(task.workload, target).sample(np.random.default_rng(1))
    measured = Measurement(config, (1e-5,), None, 0.0, 0.0, "warm", 1, 0.0)
    with RecordStore(tmp_path / "r.db") as store:
        store.add([Record.of(task.workload, target, fingerprint(), measured, seed=0, session="s")])
    tuned = build_model(model, (x,), threads=1, records=tmp_path / "r.db")
    assert tuned.linked.configs[task.workload.key] == config
    assert tuned.estimate is None  # the other tasks have no record
    _equal(tuned(x.numpy()), model(x))


def test_outputs_may_be_inputs_reshaped_and_given_twice():
    import torch

    class Same(torch.nn.Module):
        def forward(self, x):
            y = torch.relu(x)
            return x, y, y.reshape(15), torch.sin(y), y

    x = torch.randn(3, 5)
    got = build_model(Same(), (x,), threads=1)(x)
    torch.testing.assert_close(got, Same()(x))


def test_a_record_that_does_not_fit_gives_way_to_the_default_and_is_told(net):
    model, x = net
    target = resolve("cpu", 1)
    work = import_model(model, (x,), target)
    key = work.tasks[0].workload.key
    made = link(work, {key: Config(direct("of an older version"), ())}, target, "model")
    assert made.configs[key] == lw.space(work.tasks[0].workload, target).default
    (note,) = made.notes
    assert "its record cannot be built" in note


def test_a_model_in_training_mode_is_exported_for_inference_and_left_as_it_was(net):
    model, x = net
    model.train()
    try:
        made = build_model(model, (x,), threads=1)
        assert model.training
    finally:
        model.eval()
    _equal(made(x.numpy()), model(x))


def test_modules_that_merge_weights_for_inference_are_told_when_that_is_over():
    torch = pytest.importorskip("torch")

    class Merging(torch.nn.Linear):
        merged = False

        def train(self, mode=True):
            super().train(mode)
            if self.merged == mode:
                self.weight.data += -1 if mode else 1
                self.merged = not mode
            return self

    x = torch.randn(2, 8)
    model = torch.nn.Sequential(Merging(8, 8), Merging(8, 8).eval()).train()
    model[1].eval()
    modes = [(m.training, m.merged) for m in model]
    made = build_model(model, (x,), threads=1)
    assert [(m.training, m.merged) for m in model] == modes == [(True, False), (False, True)]
    torch.testing.assert_close(made(x), model.eval()(x).detach(), rtol=1e-4, atol=1e-4)


def test_outputs_that_are_numbers_are_refused_by_their_value():
    torch = pytest.importorskip("torch")

    class Numbered(torch.nn.Module):
        def forward(self, x):
            return x * 2, 3

    with pytest.raises(ModelError, match="output 1 of the model is 3: return tensors"):
        build_model(Numbered(), (torch.randn(3),), threads=1)


def test_inputs_may_be_named_as_our_own_arguments_are():
    torch = pytest.importorskip("torch")

    class Named(torch.nn.Module):
        def forward(self, x, out):
            return x + 2 * out

    x, out = torch.randn(3), torch.randn(3)
    made = build_model(Named(), (x, out), threads=1)
    for result in (made(x, out), made(x, out=out), made(x=x, out=out)):
        torch.testing.assert_close(result, x + 2 * out)


def test_a_torch_module_needs_example_inputs(net):
    with pytest.raises(ModelError, match="example inputs"):
        build_model(net[0])


def test_a_policy_that_there_is_not_is_refused_where_no_records_are_given(net):
    with pytest.raises(ModelError, match="policy is 'near'; it must be one of exact, family, any"):
        build_model(*net, policy="near")


def test_models_are_for_processors(net):
    model, x = net
    for function in (lw.build_model, lw.tune_model):
        with pytest.raises(TargetError, match="for processors"):
            function(model, (x,), target={"kind": "cuda", "arch": "sm_90"})


@pytest.mark.parametrize(
    "target",
    [
        {"kind": "llvm", "mcpu": "sapphirerapids"},
        {"kind": "llvm", "mtriple": "aarch64-unknown-linux-gnu"},
    ],
)
def test_weights_are_laid_out_here_for_any_processor(net, target):
    model, x = net
    try:
        built = build_model(model, (x,), target=target, threads=1)
    except BuildError as error:
        pytest.skip(f"a compiler for it is needed: {error}")
    assert built.library is not None


def test_a_step_whose_images_were_turned_is_none_of_tvms(net, monkeypatch):
    import loopwright.graph.compile.link as composing

    model, x = net

    def failing(*_):
        raise BuildError("not today")

    work = import_model(model, (x,), resolve("cpu", 1))
    assert any(getattr(said, "moved", False) for said in work.imported)
    monkeypatch.setattr(composing, "tuned_kernel", failing)
    with pytest.raises(BuildError, match='layout="given"'):
        link(work, {}, resolve("cpu", 1), "model")


def test_our_limit_of_arguments_is_the_run_times():
    header = (RUNTIME / "runtime.h").read_text()
    assert f"#define LW_MAX_ARGUMENTS {MOST_ARGUMENTS}\n" in header
