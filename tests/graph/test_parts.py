"""Which part of a result each thread writes."""

import math

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.build import program
from loopwright.codegen.target import resolve
from loopwright.graph import in_place
from loopwright.graph.in_place import Compared
from loopwright.graph.parts import in_order


def product():
    return lw.workload(lw.ops.matmul(lw.tensor("a", (96, 64)), lw.tensor("b", (64, 96))))


def config(order, block):
    """A product whose threads split the rows of the result, or its columns."""
    for sketch in lw.space(product(), threads=2).sketches:
        if f"vector=1 tile=0 order={order} reduce=2 pack=1" == sketch.name:
            default = dict(sketch.config().values)
            values = {"tile0": (4, 16), "block0_0": (block[0],), "block1_0": (block[1],)}
            chosen = tuple((name, values.get(name, value)) for name, value in default.items())
            return type(sketch.config())(sketch.name, chosen)
    raise AssertionError


@pytest.mark.parametrize(
    ("order", "block", "wanted"),
    [("0.1", (4, 1), True), ("1.0", (32, 1), False), ("0.1", (32, 1), False)],
    ids=["rows", "columns", "columns, since there is one block of rows"],
)
def test_threads_write_contiguous_parts_where_they_split_the_rows(order, block, wanted):
    tree = program(product(), config(order, block), resolve("cpu", 2)).tree
    assert in_order(tree, 2) == wanted


def test_the_threads_of_blocks_of_winograds_tiles_write_contiguous_parts():
    x = lw.tensor("x", (1, 28, 28, 32))
    w = lw.tensor("w", (3, 3, 32, 32), constant=True)
    workload = lw.workload(lw.ops.conv2d(x, w, padding=1, layout="NHWC"))
    space = lw.space(workload, threads=2)
    blocked = next(s for s in space.sketches if "winograd=4 tiles" in s.rewrite)
    assert in_order(program(workload, blocked.config(), resolve("cpu", 2)).tree, 2)


def test_a_candidate_wins_where_the_network_gains_by_it(monkeypatch):
    """By 1 of 10 ms, though its own step takes 0.1 ms longer."""
    columns, rows = config("1.0", (32, 1)), config("0.1", (4, 1))
    target, workload = resolve("cpu", 2), product()

    class Model:
        def __init__(self, _, configs, *__):
            assert configs["another task"] == rows
            self.chosen = configs[workload.key]

        def profile(self, calls):
            return [("step", 3e-3 if self.chosen == columns else 3.1e-3), ("next", self.next)]

        @property
        def next(self):
            return 7e-3 if self.chosen == columns else 5.9e-3

    class Searched:
        pass

    session, task = Searched(), Searched()
    session.workload, session.device = workload, Searched()
    session.device.target = target
    task.workload, task.count, task.name = workload, 1, "step"
    monkeypatch.setattr(in_place, "TunedModel", Model)
    monkeypatch.setattr(in_place, "compose", lambda work, configs, *_: configs)
    samples = {workload.key: {columns: [3e-3] * 5, rows: [3.1e-3] * 5}}
    compared = [Compared(task, session, (columns, rows))]
    others = {"another task": rows, workload.key: rows}  # what is compared is no other
    monkeypatch.setattr(in_place, "_changes", lambda *_: [(compared[0], rows)])
    (line,) = in_place._compare_whole(None, target, compared, samples, math.inf, others)
    assert "0.900 of a call's time" in line
    np.testing.assert_allclose(samples[workload.key][rows], 2e-3)
    np.testing.assert_allclose(samples[workload.key][columns], 3e-3)


def test_slow_networks_are_compared_in_few_rounds():
    assert list(in_place._turns(-math.inf)) == [0, 1, 2, 3]  # the first one does not count
    assert len(list(in_place._turns(math.inf))) == 16
