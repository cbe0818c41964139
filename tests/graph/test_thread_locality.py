"""Which part of a result each thread writes."""

import pytest

import loopwright as lw
from loopwright.codegen.build import program
from loopwright.graph.tuning.thread_locality import in_order
from tests.targets import HERE


def product():
    return lw.workload(lw.ops.matmul(lw.tensor("a", (96, 64)), lw.tensor("b", (64, 96))))


def config(order, block):
    """A product whose threads split the rows of the result, or its columns."""
    for sketch in lw.space(product(), HERE).sketches:
        if f"vector=1 tile=0 order={order} reduce=2 pack=1" == sketch.name.structure:
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
    tree = program(product(), config(order, block), HERE).tree
    assert in_order(tree, 2) == wanted


def test_the_threads_of_blocks_of_winograds_tiles_write_contiguous_parts():
    x = lw.tensor("x", (1, 28, 28, 32))
    w = lw.tensor("w", (3, 3, 32, 32), constant=True)
    workload = lw.workload(lw.ops.conv2d(x, w, padding=1, layout="NHWC"))
    space = lw.space(workload, HERE, numerics="fast")
    blocked = next(s for s in space.sketches if "winograd(results=4, tiles=" in str(s.name))
    assert in_order(program(workload, blocked.config(), HERE).tree, 2)
