"""Programs that skip zeros are compared where a network makes its data."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.target import resolve
from loopwright.graph.build import build_model
from loopwright.graph.compile.link import link
from loopwright.graph.compile.model import TunedModel
from loopwright.graph.tuning.candidates import VARIANTS, candidates
from loopwright.graph.tuning.tune import tune_model
from loopwright.schedule.space import space
from loopwright.transfer.records.record import NETWORK
from loopwright.transfer.records.store import RecordStore

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("brief")]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(32, 96), torch.nn.Linear(96, 128)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Net().eval(), torch.randn(64, 32)


def of_networks(path):
    """The names of what was measured inside of networks."""
    with RecordStore(path) as store:
        return [r.config.sketch for r in store if r.cache == NETWORK]


@pytest.mark.parametrize("sparse", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_they_are_measured_inside_of_the_network_unless_that_is_not_wanted(net, tmp_path, sparse):
    model, x = net
    path = tmp_path / "r.db"
    made = tune_model(model, (x,), trials=4, records=path, threads=2, sparse=sparse)
    found = [name for name in of_networks(path) if "activation_sparsity" in name.derivation.names]
    assert bool(found) == sparse
    torch.testing.assert_close(made(x), model(x).detach(), rtol=1e-4, atol=1e-5)


def test_a_network_is_built_by_a_record_of_one(net):
    model, x = net
    built = build_model(model, (x,), threads=2, sparse=True)
    skipping = [t for t in built.work.tasks if space(t.workload, built.target).data_dependent]
    assert skipping
    configs = {}
    for task in skipping:
        sketch = space(task.workload, built.target).data_dependent[0]
        configs[task.workload.key] = sketch.at(sketch.default)
    composed = link(built.work, configs, built.target, "model")
    assert composed.configs == configs
    made = TunedModel(built.work, composed, built.target, {})
    np.testing.assert_allclose(made(x.numpy()), model(x).detach(), rtol=1e-4, atol=1e-5)


def test_steps_are_timed_on_the_inputs_that_a_model_came_with(net):
    model, x = net
    (given,) = build_model(model, (x,), threads=1).examples()
    np.testing.assert_array_equal(given, x.numpy())


def test_inputs_that_stand_for_their_shapes_alone_time_nothing(net):
    model, x = net
    built = build_model(model, (x,), threads=1)
    for given in ((x.double(),), (x.T,), (x, x)):
        source = replace(built.work.source, examples=given)
        (made,) = replace(built, work=replace(built.work, source=source)).examples()
        assert made.shape == (64, 32)
        assert made.dtype == np.float32


def test_the_first_ones_are_among_the_candidates_that_are_sure():
    x, w = lw.tensor("x", (64, 64)), lw.tensor("w", (64, 64), constant=True)
    points = space(lw.workload(lw.ops.matmul(x, w)), resolve("cpu", 1))

    class Searched:
        space, workload = points, points.workload
        device = SimpleNamespace(target=resolve("cpu", 1))
        costs = {points.sample(np.random.default_rng(n)): 1.0 + n for n in range(20)}

        def ranked(self):
            return sorted(self.costs, key=self.cost)

        def cost(self, config):
            return self.costs.get(config, math.inf)

        def best_known(self, cache):
            return None

    sketches = {s.name for s in points.data_dependent}
    found = candidates(Searched(), sparse=True)
    assert found[0] == Searched().ranked()[0]
    assert [n for n, c in enumerate(found) if c.sketch in sketches] == [3, 4]
    assert len(found) == VARIANTS + len(sketches)
    assert not any(c.sketch in sketches for c in candidates(Searched(), sparse=False))
