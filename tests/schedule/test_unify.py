"""Numbers that follow sizes, found at few of these."""

import pytest

from loopwright.dsl.size import Dim
from loopwright.schedule.open.samples import everywhere
from loopwright.schedule.open.unify import Unification

H, W = Dim("h", 32, 128, 1), Dim("w", 33, 200, 1)


class Known(Unification):
    """One structure everywhere, its numbers by a function."""

    def __init__(self, numbers):
        super().__init__((H, W), {"h": 128, "w": 200}, range(2, 9), 10)
        self.numbers_at, self.asked = numbers, 0

    def structure(self, sizes):
        self.asked += 1
        return "one", tuple(self.numbers_at(**sizes))


def halved(n):
    return [(n + 2**k - 1) // 2**k for k in range(1, 6)]


def images(h, w):
    """Extents of an image that is halved five times, and the elements of each."""
    return *halved(h), *halved(w), *(x * y for x, y in zip(halved(h), halved(w)))


def side_by_side(h, w):
    """The same, and where each image begins behind the ones before it."""
    areas = [x * y for x, y in zip(halved(h), halved(w))]
    return *images(h, w), *(sum(areas[:n]) for n in range(2, 6))


@pytest.mark.parametrize(("numbers", "most"), [(images, 45), (side_by_side, 90)])
def test_steps_of_two_dims_are_tried_at_once(numbers, most):
    known = Known(numbers)
    made = known.unified()
    assert made.dims == (H, W)
    assert known.asked <= most
    grid = everywhere((H, W))
    own = numbers(128, 200)
    for place, formula in made.formulas.items():
        for h, w, value in zip(grid["h"][::97], grid["w"][::97], formula.at(grid)[::97]):
            assert numbers(int(h), int(w))[place] == value
    assert len(made.formulas) == len(own)


class Edge(Unification):
    """Another structure at the least length of the least batch, whatever the past is."""

    def __init__(self):
        dims = Dim("batch", 1, 4, 1), Dim("length", 1, 8, 1), Dim("past", 1, 64, 1)
        super().__init__(dims, {d.name: d.high for d in dims}, (), 10)

    def structure(self, sizes):
        return ("edge" if sizes["batch"] == sizes["length"] == 1 else "all"), (sizes["past"],)


def test_an_edge_of_another_structure_is_cut_off_at_once():
    made = Edge().unified()
    assert [(d.low, d.high) for d in made.dims] == [(1, 4), (2, 8), (1, 64)]


class Scattered(Unification):
    """A number that follows nothing but where a dim is 0, which is where it was made for."""

    def __init__(self):
        super().__init__((Dim("past", 0, 64, 1),), {"past": 0}, (), 10)

    def structure(self, sizes):
        return "one", (pow(3, sizes["past"], 101) if sizes["past"] else 0,)


@pytest.mark.filterwarnings("error")
def test_a_number_without_a_formula_is_left_to_other_boxes_where_a_dim_is_0():
    (past,) = Scattered().unified().dims
    assert past.low == 0
    assert past.high < 4
