"""Drawn programs of several definitions, compiled by their default and a drawn config, equal the

pytestmark = pytest.mark.sampled(0.34)
oracle: whatever is inlined, fused, grouped or rewritten."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loopwright as lw
from loopwright.dsl.dtypes import numpy_dtype
from loopwright.dsl.oracle import evaluate, random_inputs, tolerance
from tests.sketches import of_each_program

SIZES = st.sampled_from([1, 2, 3, 5, 8, 11, 17, 32])


class _Program:
    """Grows a workload, one definition after the other."""

    def __init__(self, draw):
        self.draw, self.count = draw, 0
        self.tensors = [self.input(draw(st.lists(SIZES, min_size=1, max_size=3)))]

    def name(self):
        self.count += 1
        return f"T{self.count}"

    def input(self, shape, constant=False):
        return lw.tensor(self.name(), tuple(shape), constant=constant)

    def some(self, choices):
        return self.draw(st.sampled_from(choices))

    def grow(self):
        made = getattr(self, self.some(STEPS))(self.some(self.tensors))
        if made is not None and made not in self.tensors:
            self.tensors.append(made)

    def loops(self, x):
        return lw.indices(" ".join("abc"[: len(x.shape)]))

    def elementwise(self, x):
        at = self.loops(x)
        y = lw.tensor(self.name())
        f = self.some(
            [
                lw.relu,
                lambda v: lw.exp(lw.min(v, 1.0)),
                lambda v: v * 0.5 + 1.0,
                lambda v: lw.max(v, -v),
            ]
        )
        y[at] = f(x[at])
        return y

    def combine(self, x):
        """With a tensor of the same shape, or one that is broadcast."""
        at = self.loops(x)
        same = [t for t in self.tensors if t.shape == x.shape]
        kept = [d for d in range(len(at)) if self.draw(st.booleans())] or [0]
        other = self.some([*same, None])
        y = lw.tensor(self.name())
        if other is None:
            other = self.input([x.shape[d] for d in kept], constant=self.draw(st.booleans()))
            y[at] = x[at] - other[tuple(at[d] for d in kept)]
        else:
            y[at] = lw.where(x[at] > 0, x[at], other[at])
        return y

    def padded(self, x):
        widths = [self.some([(0, 0), (1, 1), (0, 2), (3, 1)]) for _ in x.shape]
        return lw.pad(x, widths, self.some([0, -1.0]))

    def transpose(self, x):
        at = self.loops(x)
        y = lw.tensor(self.name())
        y[tuple(reversed(at))] = x[at]
        return y

    def strided(self, x):
        """Every second element of the last axis, or each one twice."""
        *outer, last = self.loops(x)
        size = x.shape[-1]
        if self.draw(st.booleans()) and size > 1:
            y = lw.tensor(self.name(), (*x.shape[:-1], size // 2))
            y[(*outer, last)] = x[(*outer, 2 * last + size % 2)]
        else:
            y = lw.tensor(self.name(), (*x.shape[:-1], 2 * size))
            y[(*outer, last)] = x[(*outer, last // 2)]
        return y

    def reduced(self, x):
        if len(x.shape) < 2:
            return None
        at = self.loops(x)
        gone = self.some(at)
        y = lw.tensor(self.name())
        left = tuple(a for a in at if a is not gone)
        if self.draw(st.booleans()):
            y[left] += x[at] * 0.25
        else:
            y[left] = lw.max(x[at])
        return y

    def normalized(self, x):
        """Minus the largest of its row, read twice."""
        if len(x.shape) < 2:
            return None
        at = self.loops(x)
        top, y = lw.tensor(self.name()), lw.tensor(self.name())
        top[at[:-1]] = lw.max(x[at])
        y[at] = lw.exp(x[at] - top[at[:-1]])
        return y

    def product(self, x):
        *outer, k = self.loops(x)
        (n,) = lw.indices("n")
        w = self.input([x.shape[-1], self.draw(SIZES)], constant=self.draw(st.booleans()))
        y = lw.tensor(self.name())
        y[(*outer, n)] += x[(*outer, k)] * w[k, n]
        return y

    def window(self, x):
        *outer, last = self.loops(x)
        taps = self.some([n for n in (1, 2, 3) if n <= x.shape[-1]])
        (r,) = lw.indices("r")
        w = self.input([taps], constant=True)
        y = lw.tensor(self.name(), (*x.shape[:-1], x.shape[-1] - taps + 1))
        y[(*outer, last)] += x[(*outer, last + r)] * w[r]
        return y


STEPS = [
    "elementwise",
    "combine",
    "padded",
    "transpose",
    "strided",
    "reduced",
    "normalized",
    "product",
    "window",
]


@st.composite
def programs(draw):
    """A workload of one to five steps whose values stay small, and a seed."""
    program = _Program(draw)
    for _ in range(draw(st.integers(1, 5))):
        program.grow()
    made = [t for t in program.tensors[1:] if t.definition is not None] or [
        program.elementwise(program.tensors[0])
    ]
    outputs = [made[-1], *(t for t in made[:-1] if draw(st.integers(0, 3)) == 0)]
    return lw.workload(*outputs), draw(st.integers(0, 999))


@given(programs())
@settings(deadline=None)
def test_a_drawn_program_by_any_config_equals_the_oracle(drawn):
    workload, seed = drawn
    rng = np.random.default_rng(seed)
    space = lw.space(workload, numerics="fast")
    inputs = random_inputs(workload, rng)
    expected = evaluate(workload, dict(zip((t.name for t in workload.inputs), inputs)))
    for config in (space.default, space.sample(rng)):
        results = lw.build(workload, config)(*inputs)
        rtol, atol = tolerance(workload, space.sketch(config.sketch).error_growth)
        results = results if isinstance(results, tuple) else (results,)
        for result, wanted in zip(results, expected, strict=True):
            size = max(1.0, np.abs(wanted).max(initial=0.0))
            np.testing.assert_allclose(result, wanted, rtol, 4 * atol * size, err_msg=str(config))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("size", [64, 511, 2048])
def test_the_greatest_of_narrow_numbers_is_found_wherever_it_is(dtype, size):
    k = lw.indices("k")
    x, most = lw.tensor("x", (size,), dtype), lw.tensor("most")
    most[()] = lw.max(x[k])
    workload = lw.workload(most)
    for sketch in lw.space(workload, threads=1).sketches:
        library = lw.build(workload, sketch.config(), threads=1)
        for place in {*range(0, size, 61), *range(min(size, 130)), size - 1}:
            data = np.zeros(size, numpy_dtype(dtype))
            data[place] = 5
            assert float(library(data)) == 5, (sketch, place)


def test_padding_is_none_of_a_maximum_whatever_its_epilogue_makes_of_it():
    """False is the least truth value, and 0 not the least number."""
    x = lw.tensor("x", (1, 8, 64, 64))
    padded = lw.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), 0)
    n, c, y, u, r, s = lw.indices("n c y u", r=3, s=3)
    most, positive = lw.tensor("most"), lw.tensor("positive")
    most[n, c, y, u] = lw.max(padded[n, c, 2 * y + r, 2 * u + s])
    positive[n, c, y, u] = lw.cast(most[n, c, y, u], "bool")
    workload = lw.workload(positive)
    given = (-np.ones((1, 8, 64, 64), np.float32),)
    wanted = evaluate(workload, given)[0]
    for sketch in of_each_program(lw.space(workload, threads=1).sketches).values():
        found = lw.build(workload, sketch.config(), threads=1)(*given)
        np.testing.assert_array_equal(found, wanted, err_msg=str(sketch.name))


@pytest.mark.parametrize(
    ("extent", "size", "start", "divisor"), [(3, 3, 0, 4), (5, 5, 0, 8), (4, 6, 2, 8)]
)
def test_remainders_that_are_the_number_itself_are_read_inside(extent, size, start, divisor):
    (a,) = lw.indices(a=extent)
    x, y = lw.tensor("x", (size,)), lw.tensor("y")
    y[a] = x[(a + start) % divisor]
    data = np.arange(size, dtype=np.float32)
    np.testing.assert_array_equal(lw.build(y, threads=1)(data), data[start : start + extent])


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_constants_of_the_largest_numbers_and_beyond_are_built(target):
    a = lw.indices("a")[0]
    x, y, z = lw.tensor("x", (4,)), lw.tensor("y"), lw.tensor("z")
    y[a] = lw.max(x[a], -3.40282347e38)
    z[a] = lw.min(x[a], 1e39)
    data = np.array([1, -np.inf, np.inf, 0], np.float32)
    most = np.finfo(np.float32).max
    found = lw.build(lw.workload(y, z), target=target, threads=1)(data)
    np.testing.assert_array_equal(found[0], np.maximum(data, -most))
    np.testing.assert_array_equal(found[1], data)


def test_names_that_are_macros_of_the_generated_c_are_free():
    half, inf = lw.tensor("half", (8, 16)), lw.tensor("inf")
    a, inff = lw.indices("a inff")
    inf[a] += half[a, inff]
    data = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    found = lw.build(inf, target="c")(data)
    np.testing.assert_allclose(found, data.sum(1), rtol=1e-5, atol=1e-5)
