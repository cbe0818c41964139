"""Numerics and networks: every door takes the word, and keeps it."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl.errors import ConfigError
from loopwright.dsl.numerics import Numerics
from loopwright.graph.build import build_model
from loopwright.graph.compile.build import build_work, import_model
from loopwright.graph.errors import ModelError
from loopwright.measure.device import Measurement
from loopwright.measure.machine import fingerprint
from loopwright.schedule.space import find_sketch, space
from loopwright.transfer.records.store import Record, RecordStore
from tests.targets import HERE

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.optimized]


def convolution():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU()).eval()


@pytest.fixture
def x():
    return torch.randn(1, 16, 20, 20, generator=torch.Generator().manual_seed(0))


def words(model):
    """The numerics of the programs of a model."""
    tasks = {task.workload.key: task.workload for task in model.work.tasks}
    return {
        find_sketch(tasks[key], model.target, config.sketch).numerics
        for key, config in model.linked.configs.items()
    }


@pytest.mark.parametrize("numerics", Numerics)
def test_models_have_only_programs_that_numerics_allow(x, numerics):
    net = convolution()
    model = build_model(net, (x,), HERE, numerics=str(numerics))
    assert max(words(model)) <= numerics
    assert f"{numerics} numerics" in repr(model)
    assert model.library.origin.extra["numerics"] == str(numerics)
    np.testing.assert_allclose(model(x.numpy()), net(x).detach().numpy(), rtol=1e-4, atol=1e-4)


def test_the_default_is_standard_and_other_words_are_refused(x):
    assert max(words(build_model(convolution(), (x,), HERE))) <= Numerics.STANDARD
    with pytest.raises(ConfigError, match="use one of"):
        build_model(convolution(), (x,), HERE, numerics="exact")


def test_records_that_numerics_do_not_allow_are_not_used(x, tmp_path):
    path = tmp_path / "r.db"
    work = import_model(convolution(), (x,), HERE, numerics="fast")
    task = work.tasks[0]
    loose = [s for s in space(task.workload, HERE, "fast").sketches if s.numerics == Numerics.FAST]
    with RecordStore(path) as store:
        store.add(
            Record.of(
                task.workload,
                HERE,
                fingerprint(),
                Measurement(s.config(), (1e-9,), None, 0.0, 0.0, "warm", HERE.threads, 1.0),
                numerics=s.numerics,
            )
            for s in loose[:1]
        )
    assert words(build_work(work, HERE, path)) == {Numerics.FAST}
    standard = build_model(convolution(), (x,), HERE, records=path)
    assert max(words(standard)) <= Numerics.STANDARD
    assert not standard.records or all("record" in note for note in standard.notes)


def test_torch_compile_takes_numerics_and_refuses_other_words(x):
    net = convolution()
    compiled = torch.compile(net, backend="loopwright", options={"numerics": "strict"})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="must be one of strict, standard, fast"), torch.no_grad():
        torch.compile(net, backend="loopwright", options={"numerics": "loose"})(x)
    torch._dynamo.reset()


def test_the_relax_pass_refuses_other_words():
    with pytest.raises(ConfigError, match="use one of"):
        lw.graph.apply(numerics="loose")


def test_programs_whose_time_depends_on_data_are_only_used_where_they_are_asked_for(tmp_path):
    """A record of such a program, the best that there is, serves with sparse=True alone."""
    path, target = tmp_path / "r.db", HERE
    net = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)
    ).eval()
    given = torch.randn(32, 256)
    work = import_model(net, (given,), target, sparse=True)
    found = [
        (task, s) for task in work.tasks for s in space(task.workload, target).data_dependent[:1]
    ]
    if not found:
        pytest.skip("no processor with AVX")
    task, sketch = found[0]
    with RecordStore(path) as store:
        measured = Measurement(
            sketch.config(), (1e-9,), None, 0.0, 0.0, "network", target.threads, 1.0
        )
        facts = (task.workload, target, fingerprint(), measured)
        store.add([Record.of(*facts, numerics=sketch.numerics)])
    allowed = build_work(work, target, path)
    assert sketch.config() in allowed.linked.configs.values()
    usual = build_model(net, (given,), target, records=path)
    assert sketch.config() not in usual.linked.configs.values()


def test_errors_of_models_are_told_before_anything_is_imported():
    with pytest.raises((ConfigError, ModelError)):
        lw.tune_model("missing.onnx", numerics="loose", trials=1)
