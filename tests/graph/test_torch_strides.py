"""Reads of storage by strides, which torch's exporter takes for reads of elements in order."""

import pytest

from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class _Strided(torch.nn.Module):
    def __init__(self, view, *more):
        super().__init__()
        self.view, self.more = view, more

    def forward(self, x):
        return torch.as_strided(self.view(x), (3, 4), (2, 1), *self.more)


@pytest.mark.parametrize(
    ("view", "more"),
    [
        (lambda x: x, (5,)),
        (lambda x: x.t(), (3,)),
        (lambda x: x[1:], ()),
        (lambda x: x[1:], (7,)),
        (lambda x: x.view(2, 1, 2, 6).permute(3, 1, 0, 2), ()),
    ],
)
def test_storage_is_read_in_its_own_order(view, more):
    x, module = torch.arange(24.0).reshape(4, 6), _Strided(view, *more)
    torch.testing.assert_close(build_model(module, (x,), threads=1)(x), module(x))


@pytest.mark.parametrize(
    ("view", "more"),
    [(lambda x: x[1:], (0,)), (lambda x: x[:, 1:], ()), (lambda x: x[:1].expand(4, 6), ())],
)
def test_what_lies_outside_of_a_view_is_refused_with_what_to_do(view, more):
    with pytest.raises(
        ModelError, match=r"outside of it among them: call \.contiguous\(\) before"
    ):
        build_model(_Strided(view, *more), (torch.ones(4, 6),), threads=1)
