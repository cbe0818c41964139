"""Which structures a space tries first, and which of too many combinations."""

import pytest

import loopwright as lw
from loopwright.schedule.cpu import sketches
from loopwright.schedule.cpu.heuristics import CPU
from loopwright.schedule.space import space
from tests.targets import TARGETS


def test_few_combinations_are_all_tried_in_their_order():
    found = sketches._combinations([range(2), range(3)])
    assert found == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_of_many_those_of_the_first_structures_of_every_nest_are_tried():
    found = sketches._combinations([range(20)] * 3)
    assert len(found) == len(set(found)) == CPU.sketches
    assert found[0] == (0, 0, 0)
    assert all(max(numbers) >= 9 for numbers in zip(*found))
    sums = [sum(numbers) for numbers in found]
    assert sums == sorted(sums)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize(
    ("units", "constant", "vector"), [(2600, True, "j"), (10, True, "k"), (2600, False, "k")]
)
def test_weights_that_are_read_once_are_laid_out_in_the_order_of_tiles(
    target, units, constant, vector
):
    """One row by weights as torch has them; where few units leave no tile, or weights come with
    the call, sums go along their rows."""
    j, k = lw.indices("j k")
    x, w = lw.tensor("x", (650,)), lw.tensor("w", (units, 650), constant=constant)
    y = lw.tensor("y")
    y[j] += x[k] * w[j, k]
    first = space(lw.workload(y), target).sketches[0].nests[0]
    assert first.vector.name == vector
    assert any(p.tensor.name == "w" for p in first.packed) == (vector == "j")
