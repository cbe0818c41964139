"""Mixtures of experts of torch: each row is multiplied by the matrix of its expert."""

import pytest

import loopwright as lw
from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError
from tests.graph.modules import Function

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Experts(torch.nn.Module):
    """Two experts of four for each row, as transformers computes them: rows in the order of their
    experts, so that those of one stand together."""

    def __init__(self):
        super().__init__()
        self.router = torch.nn.Linear(8, 4)
        self.weights = torch.nn.Parameter(torch.randn(4, 6, 8))

    def forward(self, x):
        share, expert = self.router(x).softmax(-1).topk(2)
        expert, order = expert.reshape(-1).sort()
        ends = torch.histc(expert.float(), bins=4, min=0, max=3).cumsum(0, dtype=torch.int32)
        matrices = self.weights.transpose(1, 2)
        made = torch.nn.functional.grouped_mm(x[order // 2], matrices, offs=ends)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.shape[0])
        return (made[back].reshape(*share.shape, 6) * share.unsqueeze(-1)).sum(1)


@pytest.mark.parametrize("rows", [1, 7])
def test_each_row_meets_the_matrices_of_its_experts(rows):
    network, x = Experts().eval(), torch.randn(rows, 8)
    with torch.no_grad():
        torch.testing.assert_close(build_model(network, (x,))(x), network(x))


def test_rows_of_open_number_meet_the_matrices_of_their_experts():
    network = Experts().eval()
    built = build_model(network, (lw.tensor("x", (lw.dim("n", 1, 5), 8)),))
    for n in (1, 2, 4, 5):
        x = torch.randn(n, 8)
        with torch.no_grad():
            torch.testing.assert_close(built(x), network(x))


def test_a_group_without_rows_is_left_out_and_rows_behind_all_groups_are_zeros():
    x, matrices = torch.randn(5, 3), torch.randn(4, 3, 2)
    ends = torch.tensor([0, 2, 2, 4], dtype=torch.int32)

    def grouped(x, matrices, ends):
        return torch.nn.functional.grouped_mm(x, matrices, offs=ends)

    built = build_model(Function(grouped), (x, matrices, ends), check=False)
    wanted = torch.cat([x[:2] @ matrices[1], x[2:4] @ matrices[3], torch.zeros(1, 2)])
    torch.testing.assert_close(built(x, matrices, ends), wanted)


def test_groups_of_columns_are_refused_with_what_is_read():
    def grouped(x, y, ends):
        return torch.nn.functional.grouped_mm(x, y, offs=ends)

    given = torch.randn(3, 4), torch.randn(4, 5), torch.tensor([1, 4], dtype=torch.int32)
    with pytest.raises(ModelError, match="grouped_mm is of 2 and 2 axes; rows in groups"):
        build_model(Function(grouped), given)


@pytest.mark.parametrize(("low", "high"), [(0, 0), (-1, 2), (0.5, 0.5)])
def test_a_histogram_counts_what_torch_counts(low, high):
    x = torch.cat([torch.linspace(-2, 3, 41), torch.tensor([-1.0, 2.0, 0.5])]).reshape(4, 11)

    def histogram(x):
        return x.histc(9, low, high)

    built = build_model(Function(histogram), (x,), check=False)
    torch.testing.assert_close(built(x), histogram(x))


def test_a_histogram_of_equal_elements_has_them_in_its_middle():
    x = torch.full((6,), 4.0)
    built = build_model(Function(lambda x: x.histc(5)), (x,), check=False)
    assert built(x).tolist() == [0, 0, 6, 0, 0]
