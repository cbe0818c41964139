"""Convolutions by Winograd's algorithms equal the oracle, whatever their shape."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.dsl.index import Index
from loopwright.schedule.lowering import lower
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.bilinear.winograd import blocks_of
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Allocate, Loop
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.sketches import default_configs, derived, of_each_program, random_configs
from tests.targets import HERE
from tests.thin import thinned

pytestmark = pytest.mark.sampled(0.34)


def tensor(name, *shape, constant=False):
    return lw.tensor(name, shape, constant=constant)


def weights(*shape):
    return tensor("w", *shape, constant=True)


def with_bias_relu_and_residual():
    x = tensor("x", 1, 16, 11, 17)
    y = ops.conv2d(x, weights(32, 16, 3, 3), padding=1, bias=tensor("b", 32, constant=True))
    return ops.relu(ops.add(y, tensor("r", 1, 32, 11, 17)))


def two_in_a_row():
    y = ops.relu(ops.conv2d(tensor("x", 1, 16, 9, 9), weights(24, 16, 3, 3), padding=1))
    return ops.conv2d(y, tensor("v", 17, 24, 3, 3, constant=True), padding=1)


def of_an_input_that_two_read():
    x = tensor("x", 1, 16, 8, 9)
    y = ops.conv2d(x, weights(16, 16, 3, 3))
    return y, ops.relu(x)


def rows_that_are_summed():
    n, k, c, x, r = lw.indices("n k c x r")
    data, w = tensor("d", 3, 31, 40), weights(5, 40, 18)
    out = lw.tensor("out")
    out[n, x, k] += data[n, x + r, c] * w[r, c, k]
    return out


def transposed_by_2():
    x, b = tensor("x", 1, 16, 7, 6), tensor("b", 24, constant=True)
    return ops.relu(ops.conv2d_transpose(x, weights(16, 24, 4, 4), stride=2, padding=1, bias=b))


def two_by_2_of_one_image():
    x, v = tensor("x", 1, 3, 13, 12), tensor("v", 8, 3, 3, 3, constant=True)
    return ops.conv2d(x, weights(8, 3, 3, 3), stride=2), ops.conv2d(x, v, stride=2)


def rows_by_2(tap, size):
    """Three taps of a tensor of `size`, `tap(r)` the one for r."""
    i, k, c, r = Index("i", 12), Index("k", 8), Index("c", 8), Index("r", 3)
    out = lw.tensor("out")
    out[i, k] += tensor("d", 27, 8)[2 * i + r, c] * weights(size, 8, 8)[tap(r), c, k]
    return out


def by_2_from_the_second_column():
    """Phases of one window begin beside those of the other."""
    k, y, x, c, r, q = lw.indices("k y x c r q")
    data, taps, out = tensor("data", 3, 21, 20), weights(16, 3, 7, 7), lw.tensor("out")
    out[k, y, x] += data[c, 2 * y + r, 2 * x + q + 1] * taps[k, c, r, q]
    return out


def two_windows():
    """Padded with something else than zeros, and read by steps of 1 and of 2."""
    u, v, c, k, y, x, r, q = lw.indices("u v c k y x r q")
    data, padded = tensor("data", 12, 10, 32), tensor("padded", 14, 12, 32)
    inside = (u >= 1) & (u < 13) & (v >= 1) & (v < 11)
    padded[u, v, c] = lw.where(inside, data[u - 1, v - 1, c], 0.5)
    one, two, out = tensor("one", 12, 10, 16), tensor("two", 6, 5, 16), tensor("out", 6, 5, 16)
    taps, others = weights(3, 3, 32, 16), lw.tensor("v", (3, 3, 32, 16), constant=True)
    one[y, x, k] += padded[y + r, x + q, c] * taps[r, q, c, k]
    two[y, x, k] += padded[2 * y + r, 2 * x + q, c] * others[r, q, c, k]
    out[y, x, k] = one[2 * y, 2 * x, k] + two[y, x, k]
    return out


CASES = {
    "odd extents, with bias, ReLU and residual": with_bias_relu_and_residual,
    "two in a row": two_in_a_row,
    "an input that something else reads too": of_an_input_that_two_read,
    "one dimension, five taps, channels last": rows_that_are_summed,
    "batch 2, stride 2": lambda: ops.conv2d(
        tensor("x", 2, 16, 13, 12), weights(20, 16, 3, 3), stride=2, padding=1
    ),
    "by 2, to the very edge": lambda: ops.conv2d(
        tensor("x", 1, 8, 9, 13), weights(16, 8, 3, 3), stride=2
    ),
    "7×7 by 2, three channels": lambda: ops.conv2d(
        tensor("x", 1, 3, 23, 21), weights(16, 3, 7, 7), stride=2, padding=3
    ),
    "7×7 by 2, three channels last": lambda: ops.conv2d(
        tensor("x", 2, 20, 23, 3), weights(7, 7, 3, 16), stride=2, padding=3, layout="NHWC"
    ),
    "4×4 by 2: phases of equal taps": lambda: ops.conv2d(
        tensor("x", 1, 8, 13, 12), weights(16, 8, 4, 4), stride=2, padding=1
    ),
    "5×5 by 3": lambda: ops.conv2d(
        tensor("x", 1, 4, 22, 18), weights(16, 4, 5, 5), stride=3, padding=1
    ),
    "two by 2 of one image": two_by_2_of_one_image,
    "by 2, a kernel that is turned": lambda: rows_by_2(lambda r: 2 - r, 3),
    "by 2, a part of longer weights": lambda: rows_by_2(lambda r: r + 1, 5),
    "7×7 by 2, three channels, from the second column": by_2_from_the_second_column,
    "by 2 one way alone": lambda: ops.conv2d(
        tensor("x", 1, 16, 13, 12), weights(16, 16, 3, 3), stride=(2, 1), padding=1
    ),
    "channels last, by 2": lambda: ops.conv2d(
        tensor("x", 2, 13, 11, 32), weights(3, 3, 32, 24), stride=2, padding=1, layout="NHWC"
    ),
    "channels last, two windows over one padded image": two_windows,
    "channels last": lambda: ops.conv2d(
        tensor("x", 1, 10, 9, 32), weights(3, 3, 32, 24), padding=1, layout="NHWC"
    ),
    "several images": lambda: ops.conv2d(
        tensor("x", 3, 16, 14, 9), weights(16, 16, 3, 3), padding=1
    ),
    "5×5": lambda: ops.conv2d(tensor("x", 1, 16, 12, 9), weights(16, 16, 5, 5), padding=2),
    "transposed, by 2": transposed_by_2,
    "40 phases of unequal taps, cut into vectors": lambda: ops.conv1d(
        tensor("x", 1, 1, 1800), weights(9, 1, 100), stride=40
    ),
    "transposed, with phases of unequal size": lambda: ops.conv2d_transpose(
        tensor("x", 1, 16, 7, 6), weights(16, 16, 5, 5), stride=2, padding=1
    ),
    "transposed, with phases of unequal extents": lambda: ops.conv2d_transpose(
        tensor("x", 1, 16, 6, 5), weights(16, 16, 4, 4), stride=2, padding=1, output_padding=1
    ),
    "as many results as one tile": lambda: ops.conv2d(
        tensor("x", 1, 16, 6, 6), weights(16, 16, 3, 3)
    ),
    "channels that are no multiple of a vector": lambda: ops.conv2d(
        tensor("x", 1, 19, 9, 9), weights(21, 19, 3, 3), padding=1
    ),
}


def workload_of(outputs):
    return lw.workload(*outputs) if isinstance(outputs, tuple) else lw.workload(outputs)


def fast(workload):
    sketches = lw.space(workload, HERE, numerics="fast").sketches
    return [s for s in sketches if s.derivation.names[:1] == ("winograd",)]


@pytest.mark.parametrize("name", thinned(CASES, keep=3))
def test_winograd_equals_the_oracle(name):
    workload = workload_of(CASES[name]())
    sketches = fast(workload)
    assert sketches
    configs = [*default_configs(sketches), *random_configs(sketches, 1)]
    assert_configs_equal_oracle(workload, configs)


def test_phases_of_one_result_are_one_program():
    (sketch, *_) = fast(workload_of(transposed_by_2()))
    assert len([n for n in sketch.nests if n.nest.reducer == "sum"]) == 1


def test_phases_of_a_window_are_channels_of_one_product():
    out = ops.conv2d(tensor("x", 1, 16, 18, 18), weights(16, 16, 3, 3), stride=2, padding=1)
    sketch = of_each_program(fast(out))["winograd(results=2)"]
    products = [n.nest for n in sketch.nests if n.nest.reducer == "sum"]
    steps = [int(np.prod([*n.extents.values()])) for n in products]
    tiles, filters, channels = 5 * 5, 16, 16  # 9 results across: a tile reaches over the edge
    # Two taps are 3 products by each of 16 channels, one tap 2: (3 + 2)² instead of 9 · 2².
    assert sum(steps) == (3 + 2) ** 2 * channels * filters * tiles


def test_three_channels_and_their_phases_lie_side_by_side():
    out = ops.conv2d(tensor("x", 1, 3, 32, 32), weights(16, 3, 7, 7), stride=2, padding=3)
    (sketch, *_) = fast(out)
    shapes = [n.nest.out.shape for n in sketch.nests if n.nest.out.name.endswith("_folded")]
    assert {shape[-1] for shape in shapes} == {2 * 2 * 3}


def test_a_block_of_rows_of_tiles_goes_from_data_to_results_in_one_parallel_loop():
    sketches = fast(workload_of(with_bias_relu_and_residual()))
    sketch = next(s for s in sketches if "rows=" in str(s.derivation))
    tree = lower(sketch, HERE, sketch.at(sketch.default))
    (loop,) = [s for s in tree.body if isinstance(s, Loop) and "block" in s.var.name][-1:]
    assert loop.kind == "parallel"
    made = {s.buffer.name for s in loop.body if isinstance(s, Allocate)}
    assert {name.rpartition("_")[2] for name in made} == {"data", "products"}
    assert not made & {s.buffer.name for s in tree.body if isinstance(s, Allocate)}


@pytest.mark.parametrize(
    ("threads", "l2_bytes", "blocks"),
    [
        (1, 1 << 21, ["rows=1", "rows=7"]),  # all but the whole image, which is no block
        (2, 1 << 21, ["rows=1", "rows=7"]),  # the same work for both threads
        (2, 1 << 19, ["rows=1"]),  # seven rows are far larger than the cache
        (16, 1 << 21, ["rows=1"]),  # no thread has more than one row
    ],
    ids=["one thread", "two", "a small cache", "many threads"],
)
def test_blocks_keep_all_threads_busy_and_are_not_far_larger_than_the_cache(
    threads, l2_bytes, blocks
):
    out = ops.conv2d(tensor("x", 1, 64, 56, 56), weights(64, 64, 3, 3), padding=1)
    target = Target(threads=threads, l2_bytes=l2_bytes)
    assert labels(out, target) == blocks


def labels(out, target):
    blocks = blocks_of(Source.of(lw.workload(out)), 4, target)
    return [f"{'tiles' if block.across else 'rows'}={block.count}" for block in blocks]


def test_blocks_end_within_a_row_where_rows_leave_a_thread_less_work():
    """49 tiles: four rows and three, or 25 tiles and 24."""
    out = ops.conv2d(tensor("x", 1, 16, 28, 28), weights(32, 16, 3, 3), padding=1)
    target = Target(threads=2, l2_bytes=1 << 21)
    assert labels(out, target) == ["rows=1", "rows=4", "tiles=25"]
    assert labels(out, Target(threads=1, l2_bytes=1 << 21)) == ["rows=1"]


def test_blocks_that_end_within_a_row_are_nearly_even_where_they_cannot_be_so():
    """784 tiles, of which one of three threads has 262; 53 at a time are 265 for each."""
    out = ops.conv2d(tensor("x", 1, 64, 112, 112), weights(64, 64, 3, 3), padding=1)
    assert labels(out, Target(threads=3, l2_bytes=1 << 19)) == ["rows=1", "rows=2", "tiles=53"]


def test_a_block_that_ends_within_a_row_computes_its_tiles_alone():
    out = ops.conv2d(tensor("x", 1, 16, 28, 28), weights(32, 16, 3, 3), padding=1)
    sketch = of_each_program(fast(out))["winograd(results=4, tiles=25)"]
    nests = zip(sketch.nests, around(sketch), strict=True)
    work = {n.nest.out.name: rows * n.nest.steps for n, rows in nests}
    assert work["conv2d_products"] == 36 * 50 * 16 * 32  # one of 49 twice


def images():
    return ops.conv2d(tensor("x", 3, 16, 28, 26), weights(16, 16, 3, 3), padding=1)


def phases():
    return ops.conv2d_transpose(tensor("x", 1, 16, 14, 14), weights(16, 16, 4, 4), 2, 1)


def strided():
    return ops.conv2d(tensor("x", 1, 16, 28, 28), weights(16, 16, 3, 3), stride=2, padding=1)


def convolutions_of_two_sizes():
    """The second one has 36 tiles, which are two blocks of 18."""
    first = ops.conv2d(tensor("x", 1, 16, 28, 28), weights(16, 16, 3, 3), padding=1)
    second = ops.conv2d(first, tensor("v", 16, 16, 5, 5, constant=True))
    return first, second


@pytest.mark.parametrize("make", [images, phases, strided, convolutions_of_two_sizes])
def test_blocks_that_end_within_a_row_equal_the_oracle(make):
    workload = workload_of(make())
    found = {r: s for r, s in of_each_program(fast(workload)).items() if "tiles=" in r}
    assert found
    configs = [s.at(s.default) for s in found.values()]
    assert_configs_equal_oracle(workload, configs)


def around(sketch):
    """Of each nest, how often the loops around it run."""
    for group in sketch.groups:
        for _, rows in group.placed():
            yield int(np.prod([index.extent for index in rows]))


def test_blocks_of_all_groups_of_channels_are_counted():
    g, k, y, x, c, r, s = lw.indices("g k y x c r s")
    data, w = tensor("x", 16, 16, 58, 58), tensor("w", 16, 16, 16, 3, 3, constant=True)
    out = lw.tensor("o")
    out[g, k, y, x] += data[g, c, y + r, x + s] * w[g, k, c, r, s]
    assert labels(out, Target(threads=2, l2_bytes=1 << 21)) == ["rows=1"]


@pytest.mark.sampled(0.3, every_value=False)
@pytest.mark.parametrize("name", ["y_block", "y_tile", "y_in"])
def test_loops_may_have_any_names(name):
    n, k, y, x, c, r, s = lw.indices(f"{name} k y x c r s")
    data, w = tensor("x", 2, 16, 22, 11), tensor("w", 16, 16, 3, 3, constant=True)
    out = lw.tensor("o")
    out[n, k, y, x] += data[n, c, y + r, x + s] * w[k, c, r, s]
    sketches = of_each_program(fast(out))
    assert any("rows=" in derivation for derivation in sketches)
    assert_configs_equal_oracle(lw.workload(out), [s.at(s.default) for s in sketches.values()])


@pytest.mark.sampled(0.3, every_value=False)
@pytest.mark.parametrize("name", ["lane", "lane1"])
def test_loops_beside_phases_may_have_any_names(name):
    k, y, x, c, r, s = lw.indices(f"{name} y x c r s")
    data, w = tensor("x", 3, 21, 19), tensor("w", 16, 3, 7, 7, constant=True)
    out = lw.tensor("o")
    out[k, y, x] += data[c, 2 * y + r, 2 * x + s] * w[k, c, r, s]
    sketches = of_each_program(fast(out))
    assert_configs_equal_oracle(lw.workload(out), [s.at(s.default) for s in sketches.values()])


def test_sketches_say_how_much_rounding_errors_grow():
    workload = workload_of(with_bias_relu_and_residual())
    growth = {str(s.algorithm): s.error_growth for s in derived(fast(workload), "winograd")}
    assert 1 < growth["winograd(results=2)"] < growth["winograd(results=4)"]


def test_standard_numerics_allow_the_smaller_tiles_alone_and_strict_ones_none():
    workload = workload_of(with_bias_relu_and_residual())
    found = {
        numerics: {
            str(s.algorithm)
            for s in lw.space(workload, HERE, numerics=numerics).sketches
            if s.error_growth > 1
        }
        for numerics in ("strict", "standard")
    }
    assert found == {"strict": set(), "standard": {"winograd(results=2)"}}


@pytest.mark.parametrize(
    "out",
    [
        ops.conv2d(tensor("x", 1, 16, 9, 9), tensor("w", 16, 16, 3, 3)),
        ops.conv2d(tensor("x", 1, 3, 9, 9), weights(16, 3, 3, 3)),
        ops.conv2d(tensor("x", 1, 16, 9, 9), weights(16, 16, 1, 1)),
        ops.depthwise_conv2d(tensor("x", 1, 32, 9, 9), weights(32, 1, 3, 3)),
        ops.relu(ops.conv2d(tensor("x", 1, 16, 9, 9, constant=True), weights(16, 16, 3, 3))),
    ],
    ids=["weights that change", "few channels", "no window", "depthwise", "nothing changes"],
)
def test_where_it_does_not_pay_there_is_none(out):
    assert not fast(out)
