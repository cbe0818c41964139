"""Elements that are written into parts of tensors, and places in images, equal torch's."""

import pytest

import loopwright as lw
from tests.graph.modules import Function

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytestmark = [pytest.mark.torch, pytest.mark.onnx]


def check(function, *inputs):
    built = lw.build_model(Function(function), inputs, threads=1)
    torch.testing.assert_close(built(*inputs), function(*inputs), rtol=1e-4, atol=1e-5)


def copies(x):
    rows, columns, turned = torch.zeros(4, 5), torch.ones(5, 4), torch.zeros(2, 5)
    whole = torch.zeros(3, 5, dtype=torch.int32)
    rows.select(0, 1).copy_(x)
    rows.narrow(0, 2, 2).copy_(x)
    columns[:, 1:].copy_(x[:, None])
    turned.T[1:3].copy_(x[:2])
    whole.copy_(10 * x)
    return rows, columns, turned, whole, torch.vander(x, 4)


def test_copies_of_fewer_elements_are_repeated():
    check(copies, torch.linspace(-1, 2, 5))


def diagonals(x, y, z):
    own = x.clone()
    own.diagonal(0, 1, 2).copy_(y.T[:, :3])
    return own, torch.diagonal_scatter(x, y, -1, 2, 0), torch.diagonal_scatter(x, z, 2, -1, -2)


def test_a_diagonal_is_written():
    check(diagonals, torch.randn(4, 3, 5), torch.randn(3, 4), torch.randn(4, 1))


def grids(turn, solid):
    shapes = (2, 3, 1, 4), (2, 3, 2, 1), (2, 3, 1, 1)
    flat = [torch.nn.functional.affine_grid(turn, s, align_corners=False) for s in shapes]
    return *flat, torch.nn.functional.affine_grid(solid, (2, 3, 3, 1, 2), align_corners=False)


def test_an_image_of_one_row_has_places():
    check(grids, torch.randn(2, 2, 3), torch.randn(2, 3, 4))
