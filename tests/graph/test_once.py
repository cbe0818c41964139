"""Workloads at small sizes, written as those at the greatest."""

import loopwright as lw
from loopwright.graph.open.once import as_of_many
from loopwright.schedule.open.family import Share, numbered


def turned(n, s):
    """Rows of s by n, as one axis."""
    x, y = lw.tensor("x", (s, n, 8)), lw.tensor("y", (s * n, 8))
    i, j = lw.indices("i j")
    y[i, j] = x[i // n, i % n, j]
    return lw.workload(y).to_numbered_json()


def tokens(form):
    found = []
    numbered(form, lambda number: number, found)
    return found


def test_rows_of_one_element_are_quotients_where_those_of_more_are():
    greatest = turned(3, 9)
    for n, s in ((1, 9), (3, 1), (1, 1), (2, 1), (1, 2), (2, 5)):
        made = as_of_many(turned(n, s), greatest)
        assert tokens(made) == tokens(greatest)
        subscripts = made["tensors"][1]["body"][2]
        if s > 1:  # of one row each number is right
            value = [[["i0", 1]], 0]
            assert subscripts[0] == [[[[value, "//", n], 1]], 0]


def test_of_one_image_the_number_is_that_which_other_sizes_have_too():
    def pixels(b, h, w):
        """Pixels as rows of images, with as many channels as the greatest has rows."""
        x, y = lw.tensor("x", (b, h, 16, w)), lw.tensor("y", (b * h * w, 16))
        i, j = lw.indices("i j")
        y[i, j] = x[i // (h * w), i // w % h, j, i % w]
        return lw.workload(y).to_numbered_json()

    others = pixels(2, 16, 16), pixels(1, 16, 16), pixels(2, 8, 16), pixels(2, 16, 8)
    for h, w in ((4, 8), (16, 16), (3, 5)):
        made = as_of_many(pixels(1, h, w), *others)
        assert tokens(made) == tokens(others[0])
        value = [[["i0", 1]], 0]
        assert made["tensors"][1]["body"][2][0] == [[[[value, "//", h * w], 1]], 0]


def test_rows_side_by_side_are_read_where_each_has_some():
    def beside(n, m):
        x, y, z = lw.tensor("x", (n, 8)), lw.tensor("y", (m, 8)), lw.tensor("z", (n + m, 8))
        i, j = lw.indices("i j")
        z[i, j] = lw.where(i < n, x[i if n > 1 else 0, j], y[i - n if m > 1 else 0, j])
        return lw.workload(z).to_numbered_json()

    greatest = beside(5, 7)
    for n, m in ((1, 7), (5, 1), (1, 1), (3, 1)):
        made = as_of_many(beside(n, m), greatest)
        assert tokens(made) == tokens(greatest)
        place = made["tensors"][2]["body"][3][2][0]
        assert place == [[["i0", 1]], -n]


def test_a_factor_of_one_is_a_reciprocal_where_means_have_more_elements():
    def mean(n):
        x, y, z = lw.tensor("x", (4, n)), lw.tensor("y"), lw.tensor("z")
        i, k = lw.indices("i k")
        y[i] += x[i, k]
        z[i] = y[i] * (1 / n)
        return lw.workload(z).to_numbered_json()

    made = as_of_many(mean(1), mean(16))
    assert tokens(made) == tokens(mean(16))
    shares = [x for x in made["tensors"][-1]["body"][2] if isinstance(x, Share)]
    assert [(s.number, s.inverse) for s in shares] == [(1, True)]
