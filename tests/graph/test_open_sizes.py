"""Networks whose axes may have one element, or follow a dim in steps alone."""

import pytest

import loopwright as lw
from loopwright.dsl.errors import ShapeError
from loopwright.graph.errors import ModelError
from tests.graph.modules import Function

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
F = torch.nn.functional
pytestmark = [pytest.mark.torch, pytest.mark.onnx]


def check(network, inputs, *given):
    """Compares with torch, and returns the model."""
    built = lw.build_model(network.eval(), inputs, threads=1)
    for each in given:
        x = tuple(map(torch.as_tensor, each))
        with torch.no_grad():
            wanted = network(*x)
        torch.testing.assert_close(built(*x), wanted, rtol=1e-4, atol=1e-5)
    return built


class Pooled(torch.nn.Module):
    """A mean over an image of open size, and a softmax beside it."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3, 2, 1)

    def forward(self, x):
        y = self.conv(x)
        return y.mean((2, 3)), y * y.softmax(1)


def test_a_mean_over_an_image_of_one_element_is_a_size_like_others():
    given = [(torch.randn(1, 2, n, 5),) for n in (1, 2, 3, 8, 9)]
    built = check(Pooled(), (lw.tensor("x", (1, 2, lw.dim("h", 1, 9), 5)),), *given)
    assert len(built.frames) == 1


@pytest.mark.slow
def test_three_dims_may_all_be_one():
    n, h, w = lw.dim("n", 1, 4), lw.dim("h", 1, 9), lw.dim("w", 1, 9)
    sizes = (1, 1, 1), (4, 9, 9), (1, 2, 1), (2, 1, 7), (4, 1, 1)
    given = [(torch.randn(a, 2, b, c),) for a, b, c in sizes]
    check(Pooled(), (lw.tensor("x", (n, 2, h, w)),), *given)


def test_an_encoder_has_one_frame_for_a_batch_and_a_length_from_one():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    n, s = lw.dim("n", 1, 2), lw.dim("s", 1, 5)
    sizes = (1, 1), (2, 5), (1, 5), (2, 1), (2, 3)
    given = [(torch.randn(a, b, 8),) for a, b in sizes]
    built = check(layer, (lw.tensor("x", (n, s, 8)),), *given)
    assert len(built.frames) == 1


class Decoder(torch.nn.Module):
    """Attention over rows of a cache and new rows, which see no later ones, by their places."""

    def forward(self, past, x):
        n, m = past.shape[1], x.shape[1]
        row, column = torch.arange(m)[:, None] + n, torch.arange(n + m)
        x = x * torch.cos(row[:, 0] * 0.5)[None, :, None, None]
        rows = torch.cat([past, x], 1).transpose(1, 2)
        scores = x.transpose(1, 2) @ rows.mT
        return torch.where(column <= row, scores, -torch.inf).softmax(-1) @ rows


def test_a_decoder_has_one_frame_for_a_past_and_new_rows_from_one():
    n, m = lw.dim("n", 1, 4), lw.dim("m", 1, 3)
    sizes = (1, 1), (4, 3), (1, 3), (4, 1), (3, 2)
    given = [(torch.randn(1, a, 2, 4), torch.randn(1, b, 2, 4)) for a, b in sizes]
    inputs = lw.tensor("past", (1, n, 2, 4)), lw.tensor("x", (1, m, 2, 4))
    built = check(Decoder(), inputs, *given)
    assert len(built.frames) == 1


def test_a_mask_that_hides_nothing_from_one_row_is_a_mask():
    def causal(x):
        n = x.shape[1]
        scores = torch.where(torch.ones(n, n).tril().bool(), x @ x.mT, -1e9)
        return torch.where(torch.ones(n, 1).bool(), scores.softmax(-1) @ x, x)

    given = [(torch.randn(2, n, 4),) for n in (1, 2, 7)]
    built = check(Function(causal), (lw.tensor("x", (2, lw.dim("n", 1, 7), 4)),), *given)
    assert len(built.frames) == 1


class Pyramid(torch.nn.Module):
    """Heads over levels of which the last one may have one element."""

    def __init__(self):
        super().__init__()
        self.convs = torch.nn.ModuleList([torch.nn.Conv2d(2, 2, 3, 2, 1) for _ in range(3)])

    def forward(self, x):
        levels = []
        for conv in self.convs:
            x = F.relu(conv(x))
            levels.append(x)
        levels.append(F.max_pool2d(x, 1, 2))
        return torch.cat([y.permute(0, 2, 3, 1).reshape(y.shape[0], -1, 2) for y in levels], 1)


def test_a_pyramid_is_traced_at_sizes_whose_last_level_is_no_single_element():
    h = lw.dim("h", 8, 20)
    given = [(torch.randn(1, 2, n, 24),) for n in (8, 9, 16, 17, 20)]
    check(Pyramid(), (lw.tensor("x", (1, 2, h, 24)),), *given)


def test_an_extent_of_a_result_may_follow_one_formula_in_each_frame():
    h = lw.dim("h", 8, 17)  # the last level has one element up to 16
    given = [(torch.randn(1, 2, n, 16),) for n in (8, 9, 15, 16, 17)]
    built = check(Pyramid(), (lw.tensor("x", (1, 2, h, 16)),), *given)
    assert len(built.frames) == 2


class Translator(torch.nn.Module):
    """An encoder and decoder of two lengths, with a causal mask made in each call."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Transformer(
            8, 2, 1, 1, dim_feedforward=16, batch_first=True, dropout=0.0
        )

    def forward(self, source, target):
        n = target.shape[1]
        mask = torch.triu(torch.full((n, n), float("-inf")), 1)
        return self.inner(source, target, tgt_mask=mask)


def test_layers_of_transformers_take_masks_as_they_are():
    x, y = torch.randn(2, 5, 8), torch.randn(2, 3, 8)
    network = Translator().eval()
    built = lw.build_model(network, (x, y), threads=1)
    torch.testing.assert_close(built(x, y), network(x, y), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_an_encoder_and_decoder_of_two_lengths_is_one_library():
    s, t = lw.dim("s", 1, 9), lw.dim("t", 1, 7)
    sizes = (1, 1), (9, 7), (1, 7), (9, 1), (4, 3)
    given = [(torch.randn(1, a, 8), torch.randn(1, b, 8)) for a, b in sizes]
    inputs = lw.tensor("source", (1, s, 8)), lw.tensor("target", (1, t, 8))
    check(Translator(), inputs, *given)


class Bags(torch.nn.Module):
    """Rows that are looked up in bags, in each way to join them."""

    def __init__(self):
        super().__init__()
        ways = ("sum", "mean", "max")
        self.bags = torch.nn.ModuleList([torch.nn.EmbeddingBag(9, 4, mode=way) for way in ways])

    def forward(self, x):
        return tuple(bag(x) for bag in self.bags)


def test_bags_of_one_length_are_looked_up_for_any_batch():
    given = [(torch.arange(3 * n).reshape(n, 3) % 9,) for n in (1, 2, 5, 8)]
    check(Bags(), (lw.tensor("x", (lw.dim("n", 1, 8), 3), "int64"),), *given)


def joined(x, y, z):
    return torch.cat([x, y], 1) + z


@pytest.mark.parametrize(
    ("shapes", "inputs"),
    [
        (lambda n, m: ((2, n), (2, 1), (2, n + 1)), "a line"),
        (lambda n, m: ((2, 3 * n), (2, 2), (2, 3 * n + 2)), "no axis is the dim itself"),
        (lambda n, m: ((2, n), (2, m), (2, n + m)), "a sum"),
        (lambda n, m: ((2, n), (2, 9 - n), (2, 9)), "a rest"),
        (lambda n, m: ((2, n // 2 + 1), (2, (n + 1) // 2), (2, n + 1)), "quotients"),
    ],
)
def test_axes_of_modules_may_be_sizes_that_follow_dims(shapes, inputs):
    opened = [lw.tensor(k, s) for k, s in zip("xyz", shapes(lw.dim("n", 1, 8), lw.dim("m", 1, 5)))]
    given = [
        tuple(torch.randn(s) for s in shapes(n, m)) for n, m in ((1, 1), (8, 5), (5, 2), (2, 3))
    ]
    built = check(Function(joined), tuple(opened), *given)
    x, y, z = given[1]
    with pytest.raises(ShapeError):
        built(x, y, z[:, 1:])


def test_an_error_says_how_two_axes_of_a_module_may_agree():
    n, m = lw.dim("n", 1, 8), lw.dim("m", 1, 5)
    with pytest.raises(ModelError, match="give both the same dim, or a size of the other's"):
        lw.build_model(Function(torch.add), (lw.tensor("x", (2, n)), lw.tensor("y", (2, m))))


def test_an_error_says_how_a_size_is_a_multiple():
    parted = Function(lambda x: x.reshape(2, 3, -1))
    with pytest.raises(ModelError, match=r'say so of its dim: lw.dim\("n", 8, 512, 8\)'):
        lw.build_model(parted, (lw.tensor("x", (2, lw.dim("n", 1, 8))),))


def test_a_ratio_of_two_sizes_of_equal_bounds_is_data_of_each_call():
    stretched = Function(lambda x: x * (x.shape[1] / x.shape[0]))
    given = [(torch.randn(*s),) for s in ((1, 1), (5, 5), (2, 5), (3, 2))]
    built = check(stretched, (lw.tensor("x", (lw.dim("h", 1, 5), lw.dim("w", 1, 5))),), *given)
    assert len(built.frames) == 1


def test_a_few_sizes_in_one_tensor_are_data_of_each_call():
    def tensors(x, p):
        h, w = x.shape[2:]
        return (
            p / torch.tensor([w, h]),
            p + torch.tensor([w * h, 3])[None],
            torch.tensor([w, 0, h]).float().softmax(0),
            torch.arange(6)[torch.tensor([0, w // 2])],
            p * torch.tensor([1 / w, h / 4]),
            p * torch.tensor([w / h, h * 0.3]).sum(),
            p - torch.tensor([[w - 0.5], [h / 7]])[1],
        )

    h, w = lw.dim("h", 1, 8), lw.dim("w", 1, 8)
    sizes = (1, 1), (8, 8), (3, 7), (5, 1)
    given = [(torch.randn(1, 2, *s), torch.randn(3, 2)) for s in sizes]
    opened = lw.tensor("x", (1, 2, h, w)), lw.tensor("p", (3, 2))
    built = check(Function(tensors), opened, *given)
    assert len(built.frames) == 1
