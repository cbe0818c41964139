"""Imported networks compute what torch does, or are refused."""

import numpy as np
import pytest

from loopwright.graph.errors import ModelError
from loopwright.graph.model import build_model
from loopwright.graph.tune import tune_model
from tests.graph.modules import Function

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.torch


def assert_as_in_torch(function, *inputs):
    made = build_model(Function(function), inputs, threads=1)(*inputs)
    torch.testing.assert_close(torch.as_tensor(made), function(*inputs), equal_nan=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, -1] * 2,
        lambda x: x[..., -1],
        lambda x: x[:, [0, -1, 3]],
        lambda x: torch.roll(x, 1, 2),
    ],
    ids=["the last", "the last of the last axis", "a list", "rolled"],
)
def test_negative_indices_count_from_the_end(function):
    assert_as_in_torch(function, torch.randn(2, 5, 4, 3))


def test_indices_out_of_range_read_nothing_but_the_tensor():
    net = nn.Embedding(10, 4)
    model = build_model(net, (torch.tensor([1, 2]),), threads=1)
    found = model(torch.tensor([11, -5]))
    rows = net.weight.detach().numpy()
    assert all(any(np.array_equal(row, r) for r in rows) for row in np.asarray(found))
    model(torch.tensor([1, 10**9]))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.where(x.isnan(), 0.0, x),
        lambda x: x.isfinite().float(),
        lambda x: (x != x).float(),
    ],
    ids=["isnan", "isfinite", "not equal to itself"],
)
def test_nan_is_found(function):
    assert_as_in_torch(function, torch.tensor([1.0, float("nan"), -2.0, float("inf")]))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.amax((2, 3)),
        lambda x: x.amin(1, keepdim=True),
        lambda x: x.amax(),
        lambda x: x.prod(1),
        lambda x: x.logsumexp(1),
        lambda x: x // 2,
        lambda x: nn.functional.elu(100 * x, 0.5),
        nn.functional.selu,
        lambda x: x.min(1, keepdim=True)[0],
        lambda x: x.min(1)[1],
        lambda x: (x > 9).any(),
        lambda x: nn.functional.celu(x, 0.7),
        lambda x: nn.functional.group_norm(x, 1),
        lambda x: nn.functional.group_norm(x, 5, torch.arange(5.0), eps=0.1),
    ],
    ids=[
        *("amax", "amin that keeps its axis", "amax of all", "prod", "logsumexp", "floor"),
        *("elu", "selu", "min", "where the min is", "any", "celu"),
        *("group norm without weights", "group norm without a bias"),
    ],
)
def test_what_the_importer_lacks_is_there(function):
    assert_as_in_torch(function, torch.randn(2, 5, 4, 3))


@pytest.mark.parametrize(
    ("net", "x"),
    [
        (nn.Upsample(size=(7, 5)), torch.randn(1, 2, 4, 4)),
        (nn.AvgPool2d(3, divisor_override=4), torch.randn(1, 2, 9, 9)),
        (nn.Linear(4, 3, bias=False).double(), torch.randn(2, 4).double()),
    ],
    ids=["another rounding", "an option left out", "another type"],
)
def test_what_the_importer_reads_wrongly_is_refused(net, x, tmp_path):
    with pytest.raises(ModelError, match=r"other results than in torch.*ONNX"):
        build_model(net, (x,), threads=1)
    with pytest.raises(ModelError, match="other results than in torch"):
        tune_model(net, (x,), trials=1, records=tmp_path / "r.db", threads=1)
