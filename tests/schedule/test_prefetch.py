"""Hints about the next panel: every line of it is asked for, and evenly."""

import itertools

import pytest

from loopwright.schedule.cpu.prefetch import prefetches
from loopwright.schedule.tree.grammar import Buffer, Linear, Quotient, Var

LINE = 16  # elements


def value(x, known):
    """An index expression in numbers."""
    total = x.const
    for term, factor in x.terms:
        number = (
            value(term.value, known) // term.divisor if isinstance(term, Quotient) else known[term]
        )
        total += factor * number
    return total


def asked(lines, passes, steps):
    """The lines that each step of each pass asks for, in order."""
    time, step = Var("time"), Var("step")
    buffer = Buffer("w", (3 * lines * LINE,), "float32", "heap")
    counters = ([(Linear(((time, 1),)), passes)], [(Linear(((step, 1),)), steps)])
    (loop,) = prefetches(buffer, lines * LINE, Linear(), *counters, "o")
    (hint,) = loop.body
    return [
        [
            value(hint.index[1], {time: t, step: s, loop.var: n}) / LINE
            for n in range(int(loop.extent))
        ]
        for t, s in itertools.product(range(passes), range(steps))
    ]


@pytest.mark.parametrize(
    ("lines", "passes", "steps"),
    [(9216, 7, 2304), (100, 2, 50), (100, 3, 7), (512, 8, 16), (7, 4, 5), (1000, 13, 11)],
)
def test_every_line_is_asked_for_and_evenly(lines, passes, steps):
    found = asked(lines, passes, steps)
    assert {*itertools.chain(*found)} >= {*range(lines)}
    for n, some in enumerate(found):
        share = n / len(found)
        assert all(abs(line - share * lines) <= len(some) + passes for line in some)


def test_a_single_pass_asks_for_nothing():
    assert not any(asked(512, 1, 64))
