"""Elements that are written where a mask is true."""

import pytest

import loopwright as lw
from loopwright.graph.build import build_model
from tests.graph.modules import Function

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def check(function, *inputs, given=None):
    built = build_model(Function(function), given or inputs, threads=1, check=False)
    torch.testing.assert_close(built(*inputs), function(*inputs), equal_nan=True)


def written(x, at, values):
    x = x.clone()
    x[at] = values
    return x


def test_a_mask_may_name_what_is_written():
    def every(x, rows, some, one):
        return (
            written(x, x < 0, 0.0),
            written(x, rows, -1.0),
            written(x, rows, some),
            written(x, (slice(None), some > 0), one),
            written(x, x > 0, one[None]),
            x.index_put((rows,), one, accumulate=True),
            written(x.long(), x > 0, one.long()),
        )

    rows = torch.tensor([True, False, True])
    check(every, torch.randn(3, 4), rows, torch.randn(4), torch.tensor(2.5))


def test_a_mask_of_open_rows_may_name_what_is_written():
    given = (lw.tensor("x", (lw.dim("n", 1, 9), 4)),)
    built = build_model(Function(lambda x: written(x, x < 0, 7.0)), given, threads=1)
    for n in (1, 2, 9):
        x = torch.randn(n, 4)
        torch.testing.assert_close(torch.as_tensor(built(x)), written(x, x < 0, 7.0))


def test_features_are_scattered_among_tokens():
    tokens, features = torch.randn(2, 5, 3), torch.randn(4, 3)
    image = torch.tensor([[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]], dtype=torch.bool)
    check(lambda x, m, y: x.masked_scatter(m[..., None], y), tokens, image, features)
    check(lambda x, m, y: x.masked_scatter(m, y), tokens[..., 0], image & False, features)


def test_the_place_of_an_extreme_keeps_as_many_axes():
    check(
        lambda x: (x.argmax(keepdim=True), x.argmin(keepdim=True), x.argmax()), torch.randn(3, 4)
    )


@pytest.mark.filterwarnings("ignore:The reduce argument")
def test_values_may_be_added_to_those_of_places():
    def every(x, i, y):
        return x.scatter(0, i, y, reduce="multiply"), x.scatter(0, i, 3.0, reduce="add")

    check(every, torch.randn(7), torch.tensor([1, 1, 3]), torch.randn(3))


def test_rows_of_fewer_axes_are_stacked():
    def every(x, y):
        return torch.hstack((x[0], y[0])), torch.dstack((x, y)), torch.column_stack((x, y))

    check(every, torch.randn(4), torch.randn(4))


def test_a_number_is_written_to_a_diagonal():
    def filled(x, y):
        return x * torch.ones(4, 4).fill_diagonal_(0), y.clone().fill_diagonal_(3), y

    check(filled, torch.randn(4, 4), torch.randn(7, 4))


def test_what_is_asserted_of_data_is_left_out():
    def asserted(x):
        torch._check_tensor_all(x.abs() < 100)
        torch._check((x.abs() < 100).all().item())
        return 2 * x, torch.ops.aten._is_all_true(x > 0), torch.ops.aten._is_any_true(x > 0)

    check(asserted, torch.rand(3, 4) + 1)
    given = (lw.tensor("x", (lw.dim("n", 1, 9), 4)),)
    check(asserted, torch.rand(5, 4) + 1, given=given)
