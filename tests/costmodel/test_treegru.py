"""The TreeGRU, beyond what every model must do."""

import sys

import numpy as np
import pytest

from loopwright.costmodel.features.context import names, text_names
from loopwright.costmodel.features.representation import resized
from loopwright.costmodel.model import ModelError
from loopwright.costmodel.models.gbt import GBTModel
from loopwright.costmodel.models.losses import pairwise_accuracy
from loopwright.costmodel.models.tree_batch import TreeBatch
from loopwright.costmodel.models.treegru import TreeGRU
from tests.costmodel.records import LOOPS, data

pytestmark = pytest.mark.torch

SMALL = {"hidden": 16, "slots": 4}


@pytest.fixture(params=["tree", "text"])
def reads(request):
    return request.param


@pytest.fixture(params=["rank", "regression"])
def objective(request):
    return request.param


def fitted(n, objective="rank", reads="tree", base=None, seed=0):
    x, costs, groups = data(n, seed, reads=reads)
    model = TreeGRU(objective, 1, reads, base=base, **SMALL)
    model.fit(x, costs, groups)
    return model


def accuracy(model, reads="tree", seed=9):
    x, costs, groups = data(200, seed, reads=reads)
    here = groups == 0
    return pairwise_accuracy(model.predict(x[here]), costs[here])


def test_it_learns_the_order_of_unseen_records(objective, reads):
    assert accuracy(fitted(240, objective, reads), reads) > 0.85


def test_what_fails_is_ranked_last():
    x, costs, groups = data(240, reads="tree")
    extents = x.reshape(240, LOOPS, -1)[:, 0, names().index("extent")]
    costs[extents > 4.2] = np.inf
    model = TreeGRU("rank", **SMALL)
    model.fit(x[:160], costs[:160], groups[:160])
    scores, failed = model.predict(x[160:]), np.isinf(costs[160:])
    assert np.median(scores[failed]) < np.quantile(scores[~failed], 0.2)


def test_a_tuned_base_knows_more_than_a_few_records_tell():
    base = fitted(240)
    x, costs, groups = data(24, seed=5, reads="tree")
    scratch, tuned = TreeGRU("rank", 2, **SMALL), TreeGRU("rank", 2, base=base)
    for model in (scratch, tuned):
        model.fit(x, costs, groups)
    assert accuracy(tuned) > max(accuracy(scratch) + 0.02, 0.8)
    assert tuned.hidden == base.hidden == 16


def test_programs_without_loops_are_no_error():
    x, costs, groups = data(40, reads="tree")
    model = TreeGRU(**SMALL)
    model.fit(np.zeros_like(x), costs, groups)
    assert np.isfinite(model.predict(x)).all()


def test_zeros_at_the_end_of_a_row_do_not_matter():
    model = fitted(60)
    x, *_ = data(20, reads="tree")
    assert np.allclose(model.predict(resized(x, 2 * x.shape[1])), model.predict(x), atol=1e-5)


def test_the_order_of_neighbours_does_not_matter_and_nesting_does(reads):
    model = fitted(60, reads=reads)
    rows = data(10, reads=reads)[0].reshape(10, LOOPS, -1)
    swapped = rows[:, [0, 1, 2, 3, 5, 4]]
    moved = rows.copy()
    depth = (names() if reads == "tree" else text_names()).index("depth")
    moved[:, 5, depth] = 2
    assert np.allclose(*(model.predict(r.reshape(10, -1)) for r in (rows, swapped)), atol=1e-5)
    assert not np.allclose(*(model.predict(r.reshape(10, -1)) for r in (rows, moved)), atol=1e-5)


def test_the_network_is_that_of_the_paper():
    """One tree, loop by loop, with the slots of Figure 3d written out."""
    import torch

    from loopwright.costmodel.models.tree_network import Batch, TreeNetwork

    torch.manual_seed(0)
    network = TreeNetwork(len(names()), 0, 8, 3)
    rows = data(1, reads="tree")[0]
    loops = torch.as_tensor(rows.reshape(LOOPS, -1))
    network.standardize(loops.numpy())
    inside, h = {0: [1], 1: [2], 3: [4, 5]}, {}
    slots = torch.zeros(3, 8)
    for k in reversed(range(LOOPS)):
        z = (loops[k] - loops.mean(0)) / (loops.std(0, unbiased=False) + 1e-2)
        state = sum((h[c] for c in inside.get(k, [])), torch.zeros(8))
        h[k] = network.cell(z[None], state[None])[0]
        slots += torch.softmax(network.scatter.weight @ h[k], 0)[:, None] * h[k]
    expected = (network.linear.weight * slots).sum() + network.bias
    got = network(Batch(TreeBatch.of(rows, names()), "cpu"))
    assert torch.allclose(got, expected, atol=1e-5)


def test_identifiers_have_embeddings_that_are_learned():
    model = fitted(60, reads="text")
    x = data(20, reads="text")[0].reshape(20, LOOPS, -1)
    renamed = x.copy()
    renamed[:, :, text_names().index("identifier")] += 20
    scores = [model.predict(rows.reshape(20, -1)) for rows in (x, renamed)]
    assert not np.allclose(*scores, atol=1e-3)


def test_torchs_threads_are_as_they_were():
    import torch

    before = torch.get_num_threads()
    fitted(30)
    assert torch.get_num_threads() == before


def test_without_torch_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModelError, match="needs the package torch"):
        TreeGRU()


def test_other_features_are_refused():
    with pytest.raises(ModelError, match='"tree" or "text"'):
        TreeGRU(reads="relation")
    with pytest.raises(ModelError, match="same features"):
        TreeGRU(reads="text", base=fitted(30))
    assert GBTModel(reads="tree").reads == "tree"


@pytest.mark.cuda
def test_a_gpu_learns_and_predicts_as_well():
    x, costs, groups = data(240, reads="tree")
    model = TreeGRU("rank", 1, device="cuda", **SMALL)
    model.fit(x, costs, groups)
    assert accuracy(model) > 0.85
