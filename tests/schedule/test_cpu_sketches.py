"""Which combinations of structures a space tries where there are too many."""

from loopwright.schedule.cpu import sketches
from loopwright.schedule.cpu.heuristics import CPU


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
