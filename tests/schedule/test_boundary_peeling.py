"""Windows over padded planes in parts without padding: what is made, and that it is right."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.dsl.index import Index
from loopwright.schedule.lowering import lower
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.boundary_peeling import peel_boundaries
from loopwright.schedule.tree.grammar import Loop
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.collection import T
from tests.sketches import derived, random_configs
from tests.targets import narrow
from tests.thin import thinned

pytestmark = pytest.mark.sampled(0.34)


def depthwise(h=35, w=37, window=3, **options):
    x, taps = T("x", 2, 5, h, w), T("w", 5, 1, window, window, constant=True)
    return ops.depthwise_conv2d(x, taps, **options)


def depthwise_last(channels=8, h=11, w=9, **options):
    x, taps = T("x", 1, h, w, channels), T("w", 3, 3, 1, channels, constant=True)
    return ops.depthwise_conv2d(x, taps, layout="NHWC", **options)


def weights_by_channel(channels=64):
    """Channels last in the image, first in the weights, as imported networks have it."""
    x, taps = T("x", 7, 9, channels), T("w", channels, 3, 3, constant=True)
    padded, total = lw.tensor("padded", (9, 11, channels)), lw.tensor("total")
    i, j, c, r, s = lw.indices("i j c r s")
    inside = (i >= 1) & (i < 8) & (j >= 1) & (j < 10)
    padded[i, j, c] = lw.where(inside, x[i - 1, j - 1, c], 0.0)
    total[i, j, c] += padded[i + r, j + s, c] * taps[c, r, s]
    return total


def with_bias_and_relu():
    return ops.relu(depthwise(stride=2, padding=1, bias=T("b", 5, constant=True)))


def inside_of_guards(stmt, kinds=None):
    """The kinds of the loops inside of the guards of a loop nest."""
    if not isinstance(stmt, Loop):
        return kinds or []
    if kinds is None and stmt.var.name.startswith("guard"):
        kinds = []
    elif kinds is not None and not stmt.var.name.startswith("guard"):
        kinds = [*kinds, stmt.kind]
    return max((inside_of_guards(inner, kinds) for inner in stmt.body), key=len)


CASES = {
    "stride 1": lambda: depthwise(padding=1),
    "stride 2, bias, ReLU": with_bias_and_relu,
    "stride 2, an even size": lambda: depthwise(h=36, w=40, stride=2, padding=1),
    "dilated": lambda: depthwise(padding=2, dilation=2),
    "padding before alone": lambda: depthwise(padding=((1, 0), (2, 0))),
    "maximum": lambda: ops.max_pool2d(T("x", 1, 3, 36, 36), 3, stride=2, padding=1),
    "maximum of integers": lambda: ops.max_pool2d(
        T("x", 1, 3, 36, 200, dtype="int8"), 2, stride=2, padding=1
    ),
    "mean without padding": lambda: ops.avg_pool2d(
        T("x", 1, 3, 20, 33), 3, stride=1, padding=1, count_include_pad=False
    ),
    "channels last": lambda: depthwise_last(channels=48, padding=1),
    "channels last, stride 2": lambda: depthwise_last(channels=24, stride=2, padding=1),
    "channels last, one vector": lambda: depthwise_last(padding=1),
    "channels last, no whole vectors": lambda: depthwise_last(channels=21, h=6, padding=1),
    "channels last, dilated": lambda: depthwise_last(channels=16, padding=2, dilation=2),
    "channels last, padding before alone": lambda: depthwise_last(
        channels=16, h=7, padding=((1, 0), (1, 0))
    ),
    "channels last, bias, ReLU": lambda: ops.relu(
        depthwise_last(channels=16, padding=1, bias=T("b", 16, constant=True))
    ),
    "channels last, weights by channel": weights_by_channel,
    "channels last, padding of rows alone": lambda: depthwise_last(
        channels=16, padding=((1, 1), (0, 0))
    ),
    "channels last, padding of columns alone": lambda: depthwise_last(
        channels=16, padding=((0, 0), (2, 1))
    ),
    "channels last, two rows": lambda: depthwise_last(channels=160, h=3, stride=2, padding=1),
    "channels last, mean without padding": lambda: ops.avg_pool2d(
        T("x", 2, 10, 9, 16), 3, stride=1, padding=1, count_include_pad=False, layout="NHWC"
    ),
    "channels last, maximum": lambda: ops.max_pool2d(
        T("x", 2, 13, 15, 32), 3, stride=2, padding=1, layout="NHWC"
    ),
    "one dimension": lambda: ops.conv1d(T("x", 1, 4, 70), T("w", 4, 1, 5), padding=2, groups=4),
}


@pytest.mark.parametrize("name", thinned(CASES))
def test_windows_in_parts_equal_the_oracle(name):
    workload = lw.workload(CASES[name]())
    target = narrow(2)
    sketches = derived(lw.space(workload, target).sketches, "boundary_peeling")
    configs = [sketches[0].at(sketches[0].default), *random_configs(sketches, 3)]
    assert_configs_equal_oracle(workload, configs, target)


def test_each_part_meets_the_taps_that_are_there():
    workload = lw.workload(depthwise(h=36, w=40, stride=2, padding=1))
    (group,) = peel_boundaries(Source.of(workload), narrow(2))
    assert [axis.extent for axis in group.outer] == [2, 5]
    sizes = [
        ([a.extent for a in nest.axes], [k.extent for k in nest.reduce]) for nest in group.nests
    ]
    assert sizes == [([17, 19], [3, 3]), ([19], [2, 3]), ([17], [3, 2]), ([], [2, 2])]
    assert not group.scratch


@pytest.mark.parametrize(
    ("channels", "threads", "loops"),
    [(64, 2, [11]), (21, 2, [11]), (64, 8, [11, 2]), (512, 64, [11, 16]), (24, 8, [11, 3])],
)
def test_rows_whose_channels_are_last_are_cut_into_slices_where_the_threads_need_them(
    channels, threads, loops
):
    workload = lw.workload(depthwise_last(channels, padding=1))
    (group,) = peel_boundaries(Source.of(workload), narrow(threads))
    assert [axis.extent for axis in group.outer] == loops
    sizes = [
        ([a.extent for a in nest.axes], [k.extent for k in nest.reduce]) for nest in group.nests
    ]
    within = channels // (loops[1] if len(loops) > 1 else 1)
    assert sizes == [([7, within], [3, 3]), ([within], [3, 2]), ([within], [3, 2])]


@pytest.mark.parametrize("threads", [2, 16])
def test_weights_are_packed_for_every_part_and_slice(threads):
    workload, target = lw.workload(weights_by_channel()), narrow(threads)
    sketch = derived(lw.space(workload, target).sketches, "boundary_peeling")[0]
    assert all(nest.packed for nest in sketch.nests)
    (group,) = sketch.groups
    assert len(group.outer) == (1 if threads == 2 else 2)
    assert_configs_equal_oracle(workload, [sketch.at(sketch.default)], target)


@pytest.mark.parametrize(("channels", "slices"), [(64, 2), (512, 2), (96, 2), (24, 3)])
def test_channels_that_are_last_are_cut_into_slices_where_there_are_no_rows(channels, slices):
    x, taps = T("x", 70, channels), T("w", 3, channels, constant=True)
    padded, total = lw.tensor("padded", (72, channels)), lw.tensor("total")
    i, c, r = lw.indices("i c r")
    padded[i, c] = lw.where((i >= 1) & (i < 71), x[i - 1, c], 0.0)
    total[i, c] += padded[i + r, c] * taps[r, c]
    (group,) = peel_boundaries(Source.of(lw.workload(total)), narrow(2))
    assert [axis.extent for axis in group.outer] == [slices]


def test_the_rows_that_a_window_meets_are_tested_once_for_a_register_tile():
    workload = lw.workload(depthwise_last(64, padding=1))
    target = narrow(2)
    sketch = derived(lw.space(workload, target).sketches, "boundary_peeling")[0]
    (rows,) = lower(sketch, target, sketch.at(sketch.default)).body
    assert [inside_of_guards(stmt) for stmt in rows.body] == [
        ["unrolled", "unrolled", "unrolled", "vectorized"],
        ["unrolled", "unrolled", "vectorized"],
        ["unrolled", "unrolled", "vectorized"],
    ]


@pytest.mark.parametrize(
    "out",
    [
        depthwise(),
        depthwise(window=5, padding=2),
        depthwise(h=9, w=9, padding=1),
        ops.conv2d(T("x", 1, 8, 33, 33), T("w", 4, 8, 3, 3), padding=1),
        depthwise_last(channels=7, padding=1),
    ],
    ids=["no padding", "many parts", "short rows", "planes meet", "few channels, last"],
)
def test_where_it_does_not_pay_there_is_none(out):
    assert peel_boundaries(Source.of(lw.workload(out)), narrow(2)) is None


def test_a_padded_tensor_that_is_a_result_too_stays():
    x, padded, total = T("x", 3, 34), lw.tensor("padded", (3, 36)), lw.tensor("total")
    c, i, r = lw.indices("c i r")
    padded[c, i] = lw.where((i >= 1) & (i < 35), x[c, i - 1], 0.0)
    total[c, i] += padded[c, i + r] * T("w", 3, 3)[c, r]
    assert peel_boundaries(Source.of(lw.workload(total)), narrow(2)) is not None
    assert peel_boundaries(Source.of(lw.workload(total, padded)), narrow(2)) is None


def test_the_largest_product_with_a_padded_tensor_keeps_the_padding():
    x, padded, top = T("x", 3, 34), lw.tensor("padded", (3, 36)), lw.tensor("top")
    c, i, r = lw.indices("c i r")
    padded[c, i] = lw.where((i >= 1) & (i < 35), x[c, i - 1], float("-inf"))
    top[c, i] = lw.max(padded[c, i + r] * T("w", 3, 3)[c, r])
    assert peel_boundaries(Source.of(lw.workload(top)), narrow(2)) is None


MAXIMA = {
    "by 2": {"stride": 2, "padding": 1},
    "by 1": {"stride": 1, "padding": 1},
    "padding of almost the window": {"stride": 2, "padding": ((2, 1), (0, 2))},
    "integers": {"stride": 3, "padding": 1},
}


@pytest.mark.parametrize("name", MAXIMA)
def test_maxima_over_images_with_channels_last_read_the_nearest_element(name):
    dtype = "int8" if name == "integers" else "float32"
    x = T("x", 2, 9, 10, 19, dtype=dtype)
    workload = lw.workload(ops.max_pool2d(x, 3, layout="NHWC", **MAXIMA[name]))
    space = lw.space(workload, narrow(2))
    (sketch,) = derived(space.sketches, "clamped_padding")
    assert [n.nest.reducer for n in sketch.nests] == ["max"]  # nothing is padded
    configs = [sketch.at(sketch.default), *random_configs([sketch], 3)]
    assert_configs_equal_oracle(workload, configs, narrow(2))


def maxima_of(body, low=-np.inf, dtype="float32"):
    """`o[y, c] = max p[2y + r, c]`, with p[u, c] = body(u, c) inside of 1 … 6, else low."""
    u, c, y, r = Index("u", 9), Index("c", 8), Index("y", 4), Index("r", 3)
    p, o = lw.tensor("p"), lw.tensor("o")
    p[u, c] = lw.where((u >= 1) & (u < 7), body(u, c), low)
    o[y, c] = lw.max(p[2 * y + r, c])
    return lw.workload(o)


@pytest.mark.parametrize(
    "workload",
    [
        lambda: maxima_of(lambda u, c: T("x", 20, 8)[u - 1, c]),
        lambda: maxima_of(lambda u, c: T("x", 6, 8, dtype="int8")[u - 1, c], -127),
    ],
    ids=["a part of an image", "integers that are less than the padding"],
)
def test_where_the_nearest_element_is_another_windows_keep_their_padding(workload):
    space = lw.space(workload(), narrow(2))
    assert not derived(space.sketches, "clamped_padding")


def test_several_maxima_in_a_row_all_lose_their_padding():
    x = T("x", 1, 9, 9, 16)
    for _ in range(3):
        x = ops.max_pool2d(x, 3, stride=1, padding=1, layout="NHWC")
    space = lw.space(lw.workload(x), narrow(2))
    (sketch,) = derived(space.sketches, "clamped_padding")
    assert [n.nest.reducer for n in sketch.nests] == ["max"] * 3
    assert_configs_equal_oracle(space.workload, [sketch.at(sketch.default)], narrow(2))


def test_images_may_be_padded_with_the_least_finite_number_as_models_have_it():
    n, y, x, c, r, s = lw.indices("n y x c r s")
    image, out = T("x", 1, 9, 10, 16), lw.tensor("out", (1, 5, 5, 16))
    padded = lw.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)), float(np.finfo(np.float32).min))
    out[n, y, x, c] = lw.max(padded[n, 2 * y + r, 2 * x + s, c])
    sketches = lw.space(lw.workload(out), narrow(2)).sketches
    assert derived(sketches, "clamped_padding")


@pytest.mark.parametrize(
    "out",
    [
        lambda: ops.max_pool2d(
            T("x", 1, 9, 9, 16), 3, stride=1, padding=2, dilation=2, layout="NHWC"
        ),
        lambda: ops.max_pool2d(T("x", 1, 16, 9, 9), 3, stride=2, padding=1),
        lambda: ops.avg_pool2d(T("x", 1, 9, 9, 16), 3, padding=1, layout="NHWC"),
    ],
    ids=["taps apart, between which the nearest may be", "channels first", "a mean"],
)
def test_other_windows_do_not_read_the_nearest_element(out):
    space = lw.space(lw.workload(out()), narrow(2))
    assert not derived(space.sketches, "clamped_padding")
