"""What torch modules compute of open sizes, compared with torch at several of them."""

import ctypes

import numpy as np
import pytest

import loopwright as lw
from loopwright.graph.errors import ModelError
from tests.graph.modules import Function

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
F = torch.nn.functional
pytestmark = [pytest.mark.torch, pytest.mark.onnx]


def check(function, shape, sizes, **options):
    """Build a function of a tensor for all sizes, and compare it with torch at some."""

    class Net(torch.nn.Module):
        def forward(self, x):
            return function(x)

    built = lw.build_model(Net(), (lw.tensor("x", shape),), threads=1, **options)
    for each in sizes:
        x = torch.randn([each.get(str(n), n) for n in shape])
        torch.testing.assert_close(built(x), function(x), rtol=1e-4, atol=1e-5)
    return built


def lengths(*sizes):
    return [{"n": n} for n in sizes]


def test_values_may_follow_a_size_that_no_axis_has():
    def values(x):
        n, rows = x.shape[0], torch.arange(3)
        shares = (rows[:, None] + 1) * n // 3
        return x.sum(0) + shares[:, 0], shares, torch.full((4,), n), torch.tensor([1.0, 2.0]) * n

    check(values, (lw.dim("n", 1, 9), 3), lengths(1, 2, 3, 8, 9))


def test_a_size_of_one_has_the_steps_of_the_others():
    def halves(x):
        y = F.relu(F.conv2d(x, torch.ones(4, 3, 3, 3), torch.arange(4.0), stride=2, padding=1))
        return y - y.mean((2, 3), keepdim=True)

    sizes = [{"n": n, "h": h} for n, h in ((1, 1), (1, 2), (2, 1), (2, 3), (2, 7))]
    built = check(halves, (lw.dim("n", 1, 2), 3, lw.dim("h", 1, 7), 8), sizes)
    assert len(built.frames) == 1


def test_values_are_divided_by_a_size():
    def shares(x):
        n = x.shape[0]
        return x / n, torch.arange(n) / n, x.std(0), x.var(0, unbiased=False), x * (1.0 / n)

    check(shares, (lw.dim("n", 2, 9), 3), lengths(2, 3, 4, 7, 8, 9))


def test_places_of_a_grid_of_two_open_sizes_are_a_result():
    def centers(x):
        rows, columns = (torch.arange(n) for n in x.shape[2:])
        places = torch.meshgrid(rows, columns, indexing="ij")
        return (torch.stack(places, -1).reshape(-1, 2) + 0.5) * 8

    sizes = [{"n": n, "m": m} for n, m in ((2, 2), (3, 4), (5, 5), (4, 5))]
    check(centers, (1, 1, lw.dim("n", 2, 5), lw.dim("m", 2, 5)), sizes)


def test_what_begins_alike_at_all_sizes_is_a_result_of_the_size_of_the_call():
    def masks(x):
        n = x.shape[0]
        causal, places = torch.tril(torch.ones(n, n)), torch.arange(n)
        return causal, causal @ x, causal[0], torch.eye(n), places[:, None].expand(-1, 3), x.T

    check(masks, (lw.dim("n", 1, 9), 3), lengths(1, 2, 7, 9))


def test_two_tensors_are_padded_each_to_the_longer_one():
    class Sums(torch.nn.Module):
        def forward(self, x, y):
            n, m = x.shape[1], y.shape[1]
            most = max(n, m)
            return F.pad(x, (0, 0, 0, most - n)) + F.pad(y, (0, 0, 0, most - m))

    given = (
        lw.tensor(name, (2, lw.dim(size, 1, 5), 4)) for name, size in (("x", "n"), ("y", "m"))
    )
    built = lw.build_model(Sums(), tuple(given), threads=1)
    for n, m in ((1, 1), (5, 5), (5, 1), (1, 5), (3, 4), (4, 3)):
        x, y = torch.randn(2, n, 4), torch.randn(2, m, 4)
        torch.testing.assert_close(built(x, y), Sums()(x, y))


def test_means_of_images_grow_to_their_size_where_some_fit_on_the_stack():
    def beside(x):
        means = x.mean((2, 3), keepdim=True)
        return torch.cat([x, F.interpolate(means, size=x.shape[2:], mode="bilinear")], 1)

    sizes = [{"h": h, "w": w} for h, w in ((4, 4), (64, 6), (60, 5), (64, 4), (21, 6))]
    check(beside, (2, 4, lw.dim("h", 4, 64), lw.dim("w", 4, 6)), sizes)


def test_rows_are_padded_to_a_multiple_and_cut_again():
    def windows(x):
        n = x.shape[1]
        padded = F.pad(x, (0, 0, 0, (8 - n % 8) % 8))
        stacked = x[:, : n // 2 * 2].reshape(2, n // 2, 6)
        return padded.reshape(2, -1, 8, 3).softmax(2).reshape(2, -1, 3)[:, :n], stacked

    built = check(windows, (2, lw.dim("n", 9, 40), 3), lengths(9, 15, 16, 17, 24, 33, 40))
    assert len(built.frames) == 1


def test_a_result_may_have_the_product_of_two_rounded_sizes():
    def windows(x):
        rows, columns = ((4 - n % 4) % 4 for n in x.shape[1:])
        y = F.pad(x, (0, columns, 0, rows))
        return y.view(1, y.shape[1] // 4, 4, y.shape[2] // 4, 4).transpose(2, 3).reshape(-1, 16)

    sizes = [{"n": n, "m": m} for n, m in ((5, 5), (8, 8), (13, 7), (12, 16))]
    check(windows, (1, lw.dim("n", 5, 16), lw.dim("m", 5, 16)), sizes)


def test_windows_slide_by_steps():
    def windows(x):
        return x.unfold(1, 4, 2), x.unfold(1, 4, 1).sum(2)

    built = check(windows, (2, lw.dim("n", 6, 40)), lengths(6, 7, 8, 13, 40))
    assert len(built.frames) == 1


def test_a_result_may_have_the_product_of_two_sizes_or_the_lesser_of_two(tmp_path):
    def results(x):
        return x.flatten(0, 1), x[:, :6], x.flatten(0, 1)[-5:], x[:, : x.shape[0]] + 1

    shape = (lw.dim("b", 3, 5), lw.dim("n", 4, 8), 3)
    sizes = [{"b": b, "n": n} for b, n in ((3, 4), (5, 4), (3, 8), (5, 5))]
    built = check(results, shape, sizes)
    loaded = lw.load(built.export(tmp_path / "net.so"))
    x = np.random.default_rng(0).standard_normal((5, 7, 3)).astype(np.float32)
    for a, b in zip(loaded(x), results(torch.tensor(x)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert "float32[(b * n), 3]" in str(loaded)
    assert "min(n, 6)" in str(loaded)
    assert "min(b, n)" in str(loaded)
    assert "float32[(b * n)][3]" in (tmp_path / "net.h").read_text()
    x = x[:, :4].copy()
    outputs = view, cut, last, less = [
        np.zeros(s, np.float32) for s in ((20, 3), (5, 4, 3), (5, 3), (5, 4, 3))
    ]
    pointers = (ctypes.c_void_p(a.ctypes.data) for a in (x, *outputs))
    sizes = (ctypes.c_int64(n) for n in (5, 4))
    assert ctypes.CDLL(tmp_path / "net.so").net(*sizes, *pointers) == 0
    np.testing.assert_array_equal(cut, x[:, :6])
    np.testing.assert_array_equal(view, x.reshape(20, 3))
    np.testing.assert_array_equal(last, view[-5:])
    np.testing.assert_array_equal(less, x + 1)


def test_images_grow_by_the_fractions_that_torch_takes():
    def images(x):
        y = F.interpolate(x, scale_factor=2.1, mode="linear")
        return F.interpolate(x, scale_factor=2.1), F.interpolate(x, scale_factor=0.3), y

    check(images, (1, 2, lw.dim("n", 10, 40)), lengths(10, 20, 21, 30, 37, 40))
    x = torch.randn(1, 2, 21, 8)
    built = lw.build_model(torch.nn.Upsample(size=(3, 17)), (x,), threads=1)
    torch.testing.assert_close(built(x), F.interpolate(x, size=(3, 17)))


def test_quotients_of_negative_sizes_are_rounded_down():
    def blocks(x):
        n = x.shape[1]
        count = -(-n // 8)
        wide = F.pad(x, (0, count * 8 - n))
        return wide.reshape(2, -1, 8).sum(2), x * ((3 - n) // 4), x[:, 0] * count

    check(blocks, (2, lw.dim("n", 9, 40)), lengths(9, 15, 16, 17, 24, 39, 40))


def test_a_number_that_python_makes_of_a_size_is_refused():
    class Half(torch.nn.Module):
        def forward(self, x):
            return x[:, : int(x.shape[1] * 0.5)]

    with pytest.raises(ModelError, match=r"at n=8 the module does something else: .*write n // 2"):
        lw.build_model(Half(), (lw.tensor("x", (2, lw.dim("n", 2, 40))),), threads=1)


def test_sizes_are_numbers_of_remainders_powers_and_parts():
    def numbers(x):
        n = x.shape[0]
        places = (x * 100).long()
        return places % n, places // n, x.abs() ** (1 / n), *x.split([1, n - 1]), x.squeeze(0)

    check(numbers, (lw.dim("n", 3, 40), 3), lengths(3, 4, 17, 40))


def test_an_axis_that_squeeze_removes_at_one_size_is_refused():
    class Squeeze(torch.nn.Module):
        def forward(self, x):
            return x.squeeze(0)

    with pytest.raises(ModelError, match=r"other numbers of axes at other sizes"):
        lw.build_model(Squeeze(), (lw.tensor("x", (lw.dim("n", 1, 9), 3)),), threads=1)


def test_distances_are_those_of_any_number_of_rows():
    check(lambda x: torch.cdist(x, x[:3]), (lw.dim("n", 4, 40), 3), lengths(4, 25, 26, 40))


def test_updates_of_open_number_are_scattered_and_axes_cut_into_parts():
    def parts(x, places):
        n = x.shape[1]
        turned = (torch.arange(n) + places[:, :1]) % n
        sums = torch.zeros(3, 8).scatter_add(1, places, x)
        rows = torch.zeros(8, 3).index_put((places[0] - 8,), x.T, accumulate=True)
        some = x.chunk(2, 1)[1], torch.tensor_split(x, 3, 1)[1]
        return sums, rows, x.scatter(1, turned, x), *some, F.pad(x, (0, n % 4))

    n = lw.dim("n", 4, 12)
    given = lw.tensor("x", (3, n)), lw.tensor("places", (3, n), "int64")
    built = lw.build_model(Function(parts), given, threads=1)
    for size in range(4, 13):
        x, places = torch.randn(3, size), torch.randint(0, 8, (3, size))
        torch.testing.assert_close(built(x, places), parts(x, places), rtol=1e-5, atol=1e-5)
    with pytest.raises(ModelError, match="n=4"):  # of which torch makes two parts
        lw.build_model(Function(lambda x: x.chunk(3, 1)[0]), given[:1], threads=1)


@pytest.mark.sampled(0.5)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("is_causal", [False, True])
def test_the_size_of_a_head_may_be_open(dtype, is_causal):
    def attended(x):
        x = x.to(dtype)
        made = F.scaled_dot_product_attention(x, x.flip(2), x * 2, is_causal=is_causal)
        return made.float()

    built = lw.build_model(
        Function(attended), (lw.tensor("x", (1, 2, 5, lw.dim("n", 2, 9))),), threads=1
    )
    for n in (2, 3, 8, 9):
        x = torch.randn(1, 2, 5, n)
        off = 1e-4 if dtype == torch.float32 else 5e-3
        torch.testing.assert_close(built(x), attended(x), rtol=off, atol=off)


def test_a_share_of_a_size_may_be_no_whole_number():
    check(lambda x: x * (x.shape[1] / 2), (3, lw.dim("n", 2, 40)), lengths(2, 3, 13, 32, 40))


def test_a_size_may_lie_between_limits(tmp_path):
    def parts(x):
        n = x.shape[1]
        some, few = max(1, n // 4), min(max(n // 3, 2), 9)
        middle = (n - min(n, 20)) // 2
        padded = F.pad(x, (0, max(0, 16 - n)))
        return x[:, :some] * 2, x.topk(some, 1)[0], x[:, :few], x[:, middle:][:, :20], padded

    built = check(
        parts, (2, lw.dim("n", 2, 40)), lengths(2, 3, 4, 7, 8, 9, 15, 16, 17, 21, 27, 40)
    )
    loaded = lw.load(built.export(tmp_path / "net.so"))
    assert "float32[2, max((n // 4), 1)]" in str(loaded)
    x = np.random.default_rng(0).standard_normal((2, 7)).astype(np.float32)
    for a, b in zip(loaded(x), parts(torch.tensor(x)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_two_ends_may_be_padded_by_unlike_shares():
    def padded(x):
        n = x.shape[2]
        third = (8 - n % 8) % 8
        same = max((-(-n // 6) - 1) * 6 + 4 - n, 0)  # of windows of 4 that step by 6
        wide = F.pad(x, (same // 2, same - same // 2))
        sums = F.conv1d(wide, torch.ones(3, 2, 4, dtype=x.dtype), stride=6)
        return F.pad(x, (third // 3, third - third // 3)), sums

    built = check(padded, (1, 2, lw.dim("n", 1, 40)), lengths(*range(1, 41)))
    assert len(built.frames) == 1


def test_an_axis_may_be_as_long_as_the_longer_one_of_two():
    def padded(x):
        most = max(x.shape)
        return F.pad(x, (0, most - x.shape[1])), x.new_zeros(most) + x.sum()

    sizes = [{"a": a, "b": b} for a, b in ((1, 1), (1, 5), (5, 1), (3, 4), (5, 5), (4, 5))]
    check(padded, (lw.dim("a", 1, 5), lw.dim("b", 1, 5)), sizes)


def test_a_result_that_is_a_size_is_refused_with_a_remedy():
    def both(x):
        return x.relu(), x.shape[1]

    given = (lw.tensor("x", (2, lw.dim("n", 1, 9))),)
    with pytest.raises(
        ModelError, match=r"output 1 .* is a size: return tensors, as torch.tensor"
    ):
        lw.build_model(Function(both), given)
    with pytest.raises(ModelError, match="output 1 of the model is 2: return tensors, or None"):
        lw.build_model(Function(lambda x: (x.relu(), x.shape[0])), given)
    check(lambda x: torch.tensor(x.shape[1]) + x.long(), given[0].shape, lengths(1, 9))


def test_parts_of_a_known_size_may_be_of_a_known_number():
    sizes = lengths(5, 7, 8)
    check(lambda x: sum(p.sum(1) for p in x.split(4, 1)), (3, lw.dim("n", 5, 8)), sizes)
    check(lambda x: torch.cat([p * 2 for p in x.split(4)]), (6, lw.dim("n", 5, 8)), sizes)
    check(lambda x: sum(row * 2 for row in x), (6, lw.dim("n", 5, 8)), sizes)


@pytest.mark.sampled(0.5)
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [False, True])
def test_an_image_of_open_size_is_turned(align, padding):
    turn = torch.tensor([[[0.8, 0.7, 0.0], [-0.1, 1.4, 0.1]]])

    def turned(x):
        grid = F.affine_grid(turn, x.shape, align_corners=align)
        return F.grid_sample(x, grid, padding_mode=padding, align_corners=align)

    dims = lw.dim("h", 2, 5), lw.dim("w", 2, 5) if padding == "zeros" else 5
    sizes = [{"h": 2, "w": 2}, {"h": 3, "w": 5}, {"h": 5, "w": 4}]
    check(turned, (1, 2, *dims), sizes)
