"""Zero-skipping: sums of products over spread tensors become phases, and equal the oracle."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.schedule.program.source import Source
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.schedule.test_rewrite import text
from tests.targets import HERE
from tests.thin import several, thinned

pytestmark = pytest.mark.sampled(0.34)

RANDOM_CONFIGS = several(3)


def tensor(name, *shape, constant=False):
    return lw.tensor(name, shape, constant=constant)


def weights(*shape):
    return tensor("w", *shape, constant=True)


def spread(x, step, size, start=0):
    """x with zeros between its elements, in one dimension."""
    s = lw.tensor("s", (size,))
    (u,) = lw.indices("u")
    inside = (u >= start) & (u < start + step * x.shape[0]) & lw.equal((u - start) % step, 0)
    s[u] = lw.where(inside, x[(u - start) // step], 0)
    return s


def windowed(s, w, size):
    out = lw.tensor("out", (size,))
    y, r = lw.indices("y r")
    out[y] += s[y + r] * w[r]
    return out


def program(*outputs):
    return [text(nest) for nest in Source.of(lw.workload(*outputs)).program]


def test_each_phase_sums_over_its_own_taps_of_what_is_not_zero():
    s = spread(tensor("x", 6), 2, 12, start=1)
    assert program(windowed(s, tensor("w", 5), 8)) == [
        "out[2*y] = sum over r < 2 of x[y + r] * w[2*r + 1], for y < 4",
        "out[2*y + 1] = sum over r < 3 of x[y + r] * w[2*r], for y < 4",
    ]


def test_what_is_read_beyond_the_ends_is_padded():
    s = spread(tensor("x", 3), 2, 13, start=4)
    assert program(windowed(s, tensor("w", 4), 9)) == [
        "s_dense[u] = where((u >= 2) & (u < 5), x[u - 2], 0.0), for u < 6",
        "out[2*y] = sum over r < 2 of s_dense[y + r] * w[2*r], for y < 5",
        "out[2*y + 1] = sum over r < 2 of s_dense[y + r + 1] * w[2*r + 1], for y < 4",
    ]


def test_the_epilogue_is_that_of_each_phase():
    s = spread(tensor("x", 6), 2, 12)
    out, shifted, (i,) = windowed(s, tensor("w", 4), 9), lw.tensor("shifted"), lw.indices("i")
    shifted[i] = out[i] + tensor("b", 9)[i]
    after = [line.split(" then ")[1] for line in program(shifted)]
    assert after == ["out[2*i] + b[2*i], for i < 5", "out[2*i + 1] + b[2*i + 1], for i < 4"]


def test_a_phase_without_taps_is_the_epilogue_of_zero():
    s = spread(tensor("x", 4), 3, 11)
    out = windowed(s, tensor("w", 2), 10)
    shifted, (i,) = lw.tensor("shifted"), lw.indices("i")
    shifted[i] = out[i] + 1
    assert "shifted[3*i + 1] = 0.0 + 1.0, for i < 3" in program(shifted)


def test_a_spread_tensor_that_is_read_elsewhere_stays():
    s = spread(tensor("x", 6), 2, 13)
    out = windowed(s, tensor("w", 4), 10)
    assert len(program(out, s)) == 2


def transposed(x, w, **options):
    return ops.conv2d_transpose(x, w, **options)


def one_dimension(step, taps):
    n, o, c, y, u, r = lw.indices("n o c y u r", r=taps)
    x, w, s, out = tensor("x", 2, 5, 7), weights(5, 9, taps), lw.tensor("s"), lw.tensor("out")
    size = 7 * step + taps
    s = lw.tensor("s", (2, 5, size))
    inside = (u >= taps - 1) & (u < taps + 6 * step) & lw.equal((u - taps + 1) % step, 0)
    s[n, c, u] = lw.where(inside, x[n, c, (u - taps + 1) // step], 0)
    out[n, o, y] += s[n, c, y + r] * w[c, o, taps - 1 - r]
    return out


def of_another():
    x = tensor("x", 1, 16, 3, 5)
    y = ops.relu(ops.conv2d_transpose(x, weights(16, 17, 4, 4), stride=2, padding=1))
    return ops.conv2d_transpose(y, tensor("v", 17, 3, 3, 3, constant=True), stride=2, padding=1)


def convolved_after():
    x = tensor("x", 1, 16, 4, 5)
    y = ops.conv2d_transpose(x, weights(16, 16, 3, 3), stride=2, padding=1)
    return ops.conv2d(y, tensor("v", 18, 16, 3, 3, constant=True))


def with_bias_relu_and_residual():
    x, b = tensor("x", 1, 16, 5, 4), tensor("b", 17)
    y = ops.conv2d_transpose(x, weights(16, 17, 4, 4), stride=2, padding=1, bias=b)
    return ops.relu(ops.add(y, tensor("r", 1, 17, 10, 8)))


def of_constants_then_added():
    x, w = tensor("x", 1, 4, 3, 3, constant=True), weights(4, 5, 2, 2)
    y = ops.conv2d_transpose(x, w, stride=3, bias=tensor("b", 5, constant=True))
    return ops.conv2d(tensor("z", 1, 5, 9, 9), ops.relu(y))


def with_a_constant_bias_and_taps_missing():
    x, w = tensor("x", 1, 4, 3, 3), tensor("w", 4, 5, 2, 2)
    return ops.conv2d_transpose(x, w, stride=3, bias=tensor("b", 5, constant=True))


CASES = {
    "a window of 4": lambda: transposed(
        tensor("x", 1, 7, 5, 4), tensor("w", 7, 18, 4, 4), stride=2, padding=1
    ),
    "odd extents, a window of 3": lambda: transposed(
        tensor("x", 1, 5, 7, 3), weights(5, 17, 3, 3), stride=2, padding=1
    ),
    "output padding, batch 2": lambda: transposed(
        tensor("x", 2, 5, 4, 3), weights(5, 9, 3, 3), stride=2, padding=1, output_padding=1
    ),
    "a phase without taps": lambda: transposed(
        tensor("x", 1, 5, 4, 5), weights(5, 9, 2, 2), stride=3
    ),
    "a phase without taps, with a constant bias": with_a_constant_bias_and_taps_missing,
    "one tap": lambda: transposed(
        tensor("x", 1, 5, 4, 5), weights(5, 9, 1, 1), stride=2, output_padding=1
    ),
    "strides that differ": lambda: transposed(
        tensor("x", 1, 5, 4, 5), tensor("w", 5, 9, 3, 4), stride=(1, 2), padding=1
    ),
    "more padding than taps": lambda: transposed(
        tensor("x", 1, 5, 5, 6), weights(5, 9, 3, 3), stride=2, padding=3
    ),
    "one element": lambda: transposed(
        tensor("x", 1, 5, 1, 3), weights(5, 9, 3, 3), stride=2, padding=1
    ),
    "channels last": lambda: transposed(
        tensor("x", 2, 4, 5, 6), weights(4, 4, 6, 17), stride=2, padding=1, layout="NHWC"
    ),
    "bias, ReLU and residual": with_bias_relu_and_residual,
    "one dimension, stride 2": lambda: one_dimension(2, 5),
    "one dimension, stride 5": lambda: one_dimension(5, 3),
    "one after another": of_another,
    "convolved after": convolved_after,
    "constants alone": of_constants_then_added,
    "wider sums": lambda: transposed(
        lw.tensor("x", (1, 5, 4, 4), "int8"),
        lw.tensor("w", (5, 9, 4, 4), "int8"),
        stride=2,
        padding=1,
        accumulate="int32",
    ),
}


@pytest.mark.parametrize("name", thinned(CASES, keep=3))
def test_phases_equal_the_oracle(name):
    workload = lw.workload(CASES[name]())
    written = [nest.out for nest in Source.of(workload).program]
    assert len(set(written)) < len(written)
    space, rng = lw.space(workload, HERE), np.random.default_rng(0)
    configs = [space.default, *(space.sample(rng) for _ in range(RANDOM_CONFIGS))]
    assert_configs_equal_oracle(workload, configs)


def test_phases_that_are_alike_share_their_choices():
    w = weights(16, 17, 4, 4)
    space = lw.space(
        lw.workload(transposed(tensor("x", 1, 16, 5, 4), w, stride=2, padding=1)), HERE
    )
    for sketch in space.sketches:
        numbers = [n for n, nest in enumerate(sketch.nests) if nest.nest.reducer]
        assert len({sketch.knobs_of[n] for n in numbers}) == 1
        assert len({str(sketch.nests[n]) for n in numbers}) == 1


def test_phases_of_a_transposed_convolution_are_computed_by_winograd():
    w = weights(16, 17, 4, 4)
    workload = lw.workload(transposed(tensor("x", 1, 16, 5, 4), w, stride=2, padding=1))
    space = lw.space(workload, HERE, numerics="fast")
    fast = {str(s.algorithm): s for s in space.sketches if s.error_growth > 1}
    assert set(fast) == {"winograd(results=4)", "winograd(results=2)"}
    configs = [s.at(s.default) for s in fast.values()]
    assert_configs_equal_oracle(workload, configs)
    relaid = [
        n.nest.out.name for n in fast["winograd(results=2)"].nests if "last" in n.nest.out.name
    ]
    assert set(relaid) == {"x_spread_dense_last"}
