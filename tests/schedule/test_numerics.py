"""What every program promises of rounding errors, on data that are hard on them."""

import functools
from dataclasses import replace

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.dsl.errors import ConfigError
from loopwright.dsl.numerics import BOUND, Numerics
from loopwright.dsl.oracle import evaluate, random_inputs
from loopwright.measure.workers.hard_data import with_scaled_features
from loopwright.schedule.registry import REWRITES
from loopwright.schedule.space import space
from tests.collection import T
from tests.targets import narrow

pytestmark = [pytest.mark.sampled(0.34), pytest.mark.optimized]

UNIT = 2.0**-24
"""The rounding unit of float32."""
TINY = 2.0**-149
"""Its smallest number: what a result that underflows may be off by."""
VANISHING = 2.0**40
"""How many times that "fast" may lose: it scales sums by what weights are scaled by."""


def last(size, channels, filters, **options):
    """A convolution with channels last."""
    x = T("x", 1, size, size, channels)
    w = T("w", 3, 3, channels, filters, constant=True)
    return ops.conv2d(x, w, layout="NHWC", **options)


def dense(rows, depth, columns):
    return ops.matmul(T("x", rows, depth), T("w", depth, columns, constant=True))


def contraction():
    a, b, c, d, e, f = lw.indices("a b c d e f")
    X, Y, Z = T("X", 9, 7, 9, 5), T("Y", 5, 7, 7, 9), lw.tensor("Z")
    Z[a, b, c, d] += X[a, e, b, f] * Y[f, d, e, c]
    return Z


def separable():
    x, d = T("x", 1, 17, 17, 16), T("d", 3, 3, 1, 16, constant=True)
    windows = ops.depthwise_conv2d(x, d, padding=1, layout="NHWC")
    p = T("p", 16, 24, constant=True)
    n, y, u, c, k = lw.indices("n y u c k")
    Z = lw.tensor("Z")
    Z[n, y, u, k] += windows[n, y, u, c] * p[c, k]
    return Z


def scan_of_products():
    x, w, p, i = T("x", 4096), T("w", 4096), lw.tensor("p"), lw.indices("i")
    p[i] = x[i] * w[i]
    return ops.cumsum(p)


SMALL = replace(narrow(2), l1_bytes=4 << 10, l2_bytes=16 << 10)
"""Caches so small that everything is worth a rewrite."""

WORKLOADS = {
    "product": (lambda: dense(11, 53, 37), narrow(2)),
    "two products": (lambda: ops.matmul(dense(70, 20, 64), T("v", 64, 9)), SMALL),
    "long sums": (lambda: dense(3, 8192, 5), narrow(2)),
    "scan": (scan_of_products, narrow(2)),
    "dense layer": (lambda: dense(2, 300, 67), SMALL),
    "large product": (lambda: dense(256, 256, 256), narrow(2)),
    "contraction": (contraction, narrow(2)),
    "convolution": (lambda: last(17, 16, 24, padding=1), narrow(2)),
    "convolution in large tiles": (lambda: last(24, 16, 16, padding=1), SMALL),
    "strided convolution": (lambda: last(14, 16, 16, padding=1, stride=2), narrow(2)),
    "depthwise convolution": (
        lambda: ops.depthwise_conv2d(T("x", 1, 16, 13, 13), T("w", 16, 1, 3, 3), padding=1),
        narrow(2),
    ),
    "separable convolution": (separable, SMALL),
    "transposed convolution": (
        lambda: ops.conv2d_transpose(
            T("x", 1, 40, 7, 7), T("w", 40, 3, 4, 4, constant=True), stride=2, padding=1
        ),
        narrow(2),
    ),
}


def uniform(workload, rng):
    return random_inputs(workload, rng)


def normal(workload, rng):
    return tuple(rng.standard_normal(t.shape).astype("float32") for t in workload.inputs)


def scaled(workload, rng):
    """Features over twelve decades, their weights the other way round."""
    return with_scaled_features(workload, uniform(workload, rng), rng)


def huge_weights(workload, rng):
    """One weight of a row is ten thousand times the others."""
    x, w = uniform(workload, rng)[:2]
    rows = w.reshape(-1, w.shape[-1])
    rows[rng.integers(0, len(rows), rows.shape[1]), np.arange(rows.shape[1])] = 1e4
    return (x, w, *uniform(workload, rng)[2:])


def cancelling(workload, rng):
    """Sums of large terms that are nearly nothing."""
    return tuple(1e3 + value for value in uniform(workload, rng))


def large(workload, rng):
    """Products of about 1e30."""
    inputs = uniform(workload, rng)
    return tuple(np.float32(10 ** (30 / len(inputs))) * value for value in inputs)


def denormal(workload, rng):
    x, *rest = uniform(workload, rng)
    return (np.float32(1e-40) * x, *rest)


DATA = {
    f.__name__: f for f in (uniform, normal, scaled, huge_weights, cancelling, large, denormal)
}


@functools.cache
def made(name):
    define, target = WORKLOADS[name]
    return lw.workload(define()), target


@functools.cache
def programs(name):
    """The default program of every derivation, compiled."""
    workload, target = made(name)
    points = space(workload, target, "fast").whole
    strict = space(workload, target, "strict")
    first = {}
    for sketch in (*points.sketches, *strict.sketches):
        first.setdefault(sketch.derivation, sketch)
    return [
        (s, lw.build(workload, s.at(s.default), target, numerics="fast")) for s in first.values()
    ]


def terms(workload):
    """The most terms that a result adds up, over all stages."""
    depth = [int(np.prod([i.extent for i in s.definition.reduce])) for s in workload.stages]
    return sum(depth) + 8 * len(depth)


def sizes(workload, inputs):
    """The sum of the sizes of a result's terms, in float64."""
    return _wide(workload, [np.abs(value) for value in inputs])


def window_sizes(workload, inputs):
    """The same where the largest element of a channel in a window stands for the channel."""
    x, w, *rest = (np.abs(value).astype(np.float64) for value in inputs)
    if rest or x.ndim != 4:
        return sizes(workload, inputs)
    if x.shape[1] == w.shape[0]:  # channels first, transposed: of the whole image
        flat = [np.broadcast_to(v.max((2, 3), keepdims=True), v.shape) for v in (x, w)]
        return _wide(workload, flat)
    if x.shape[-1] != w.shape[-2]:
        return sizes(workload, inputs)
    taps = w.shape[:2]
    padded = np.pad(x, ((0, 0), *((t - 1, t - 1) for t in taps), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, taps, axis=(1, 2)).max((-2, -1))
    # Every element as large as the largest of any window that has it.
    spread = np.lib.stride_tricks.sliding_window_view(windows, taps, axis=(1, 2)).max((-2, -1))
    flat = np.broadcast_to(w.max((0, 1)), w.shape)
    return _wide(workload, [spread, flat])


def _wide(workload, inputs):
    """Outputs in float64: scaled so that they stay inside of float32, where the oracle rounds."""
    peak = [max(float(np.abs(v).max()), 1e-300) for v in inputs]
    small = [(v / p).astype("float32") for v, p in zip(inputs, peak, strict=True)]
    return np.float64(evaluate(workload, small)[0]) * np.prod(peak)


def promised(sketch, workload, inputs):
    """How far each result may be off."""
    count = terms(workload)
    least = count * TINY * (1 + max(float(np.abs(v).max()) for v in inputs))
    if sketch.numerics == Numerics.STRICT:
        return count * UNIT * sizes(workload, inputs) + least
    if sketch.numerics == Numerics.STANDARD:
        return BOUND * count * UNIT * window_sizes(workload, inputs) + BOUND * least
    most = np.prod([float(np.abs(v).max()) for v in inputs])
    return sketch.error_growth * count * UNIT * count * most + VANISHING * least


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", WORKLOADS)
def test_errors_are_within_what_each_program_promises(name, data):
    workload, _ = made(name)
    rng = np.random.default_rng(0)
    inputs = DATA[data](workload, rng)
    exact = evaluate(workload, inputs)[0].astype(np.float64)
    for sketch, library in programs(name):
        off = np.abs(library(*inputs).astype(np.float64) - exact)
        bound = promised(sketch, workload, inputs) + UNIT * np.abs(exact)
        worst = np.unravel_index(np.argmax(off - bound), off.shape)
        assert (off <= bound).all(), f"{sketch.name}: {off[worst]} for {bound[worst]} at {worst}"


@pytest.mark.parametrize("name", WORKLOADS)
def test_strict_programs_have_infinities_and_nan_where_the_definition_has_them(name):
    workload, _ = made(name)
    rng = np.random.default_rng(1)
    for tensor in range(2):
        inputs = [np.array(value) for value in random_inputs(workload, rng)]
        flat = inputs[tensor].reshape(-1)
        flat[rng.integers(0, flat.size, 3)] = [np.inf, -np.inf, np.nan]
        (expected,) = evaluate(workload, inputs)
        assert not np.isfinite(expected).all()
        for sketch, library in programs(name):
            if sketch.numerics == Numerics.STRICT:
                found = library(*inputs)
                special = ~np.isfinite(expected)
                assert np.array_equal(np.isfinite(found), ~special), sketch.name
                assert np.array_equal(found[special], expected[special], equal_nan=True)


def test_every_rewrite_of_sums_is_tried():
    tried = {name for w in WORKLOADS for s, _ in programs(w) for name in s.derivation.names}
    assert tried >= {r.name for r in REWRITES} - {"clamped_padding", "activation_sparsity"}


def test_a_dense_layer_keeps_features_in_millionths_unless_it_is_fast():
    """The public trial: one feature divided by 10⁶, its row of weights multiplied by it."""
    rng = np.random.default_rng(0)
    x, w = T("x", 1, 512), T("w", 512, 512, constant=True)
    workload = lw.workload(ops.matmul(x, w))
    small, weights = (v.copy() for v in random_inputs(workload, rng))
    small[:, 7] *= np.float32(1e-6)
    weights[7] *= np.float32(1e6)
    exact = small.astype(np.float64) @ weights.astype(np.float64)
    target = replace(narrow(2), l2_bytes=256 << 10)
    for numerics in ("strict", "standard"):
        library = lw.build(workload, target=target, numerics=numerics)
        assert np.abs(library(small, weights) - exact).max() < 1e-4
    fast = space(workload, target, "fast")
    blocks = next(s for s in fast.sketches if "int24_weights" in s.derivation.names)
    library = lw.build(workload, blocks.at(blocks.default), target)
    assert np.abs(library(small, weights) - exact).max() > 0.1  # which is why it is not standard


def test_scaled_features_change_no_result():
    for name in WORKLOADS:
        workload, _ = made(name)
        rng = np.random.default_rng(0)
        inputs = random_inputs(workload, rng)
        other = with_scaled_features(workload, inputs, rng)
        changed = any((a != b).any() for a, b in zip(inputs, other, strict=True))
        without = ("depthwise", "separable", "transposed", "scan")  # which share no features
        assert changed or name.partition(" ")[0] in without
        for a, b in zip(evaluate(workload, inputs), evaluate(workload, other), strict=True):
            assert np.array_equal(a, b)


def test_words_of_numerics_are_ordered_and_others_refused():
    assert Numerics.of("strict") < Numerics.of("standard") < Numerics.of("fast")
    with pytest.raises(ConfigError, match='use one of "strict", "standard", "fast"'):
        lw.space(dense(4, 5, 6), numerics="loose")
