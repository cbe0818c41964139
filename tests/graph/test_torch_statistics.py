"""Modes, covariances and correlations, as torch has them."""

import math

import pytest

from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError
from tests.graph.modules import Function, check

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_a_mode_is_the_least_of_the_most_frequent_elements(dtype):
    x = torch.randint(0, 4, (3, 9, 2)).to(dtype)
    check(lambda x: (*x.mode(1), *x.mode(0, keepdim=True), *x[0, 0, 0].mode()), x)


def test_modes_of_nan_and_of_zeros():
    x = torch.tensor([[2.0, math.nan, 2, math.nan, math.nan], [math.nan] * 5, [0, 7, 1, 1, 0]])
    check(lambda x: x.mode(-1)[0], x)


def test_covariances_may_be_weighed():
    counts, weights = torch.tensor([1, 2, 3, 1, 2]), torch.rand(5)

    def every(x, whole):
        return (
            torch.cov(x),
            x[0].cov(correction=0),
            torch.cov(x, fweights=counts, aweights=weights, correction=2),
            x.cov(aweights=weights),
            torch.cov(whole),
            torch.corrcoef(x),
            x[0].corrcoef(),
        )

    check(every, torch.randn(4, 5), torch.randint(0, 9, (3, 5)))


def test_an_operator_that_onnx_has_not_is_named_with_a_remedy():
    said = "torch's operator nextafter has no counterpart in ONNX: .* as an input or a buffer"
    with pytest.raises(ModelError, match=said):
        build_model(Function(lambda x: torch.nextafter(x, x + 1)), (torch.rand(3),), threads=1)


def test_what_torch_cannot_tell_the_writes_of_is_refused():
    with pytest.raises(ModelError, match="cannot tell what the model writes to"):
        build_model(torch.nn.CrossMapLRN2d(3), (torch.rand(2, 5, 4, 4),), threads=1)


def test_any_of_no_elements_is_false_and_all_of_them_are_true():
    def every(x):
        none = x[:, :0]
        of_none = (none.any(), none.all(), none.any(1), none.all(1, keepdim=True), none.any(0))
        return *of_none, x.any(), x.all(0), x.any((0, 1)), x[0, 0].any(), x.any(dim=())

    check(every, torch.tensor([[0.0, math.nan, 0.0], [0.0, 0.0, 0.0]]))
    check(every, torch.tensor([[256, 0], [0, 0]]))
