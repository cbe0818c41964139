"""Long rows are made in place, and equal the oracle."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.schedule import space as spaces
from loopwright.schedule.program import buffer_reuse as settle
from loopwright.schedule.program.nest import in_place
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.targets import HERE
from tests.thin import thinned

pytestmark = pytest.mark.sampled(0.34)


def row(size, rows=3):
    return lw.tensor("x", (rows, size))


def mirrored():
    """Every element is made of another one too."""
    i, j = lw.indices("i j")
    x, e, s, out = row(9000), lw.tensor("e"), lw.tensor("s"), lw.tensor("out")
    e[i, j] = lw.exp(x[i, j])
    s[i] += e[i, j]
    out[i, j] = (e[i, j] + e[i, 8999 - j]) / s[i]
    return out


def twice_read():
    i, j = lw.indices("i j")
    x, e, s, out = row(9001), lw.tensor("e"), lw.tensor("s"), lw.tensor("out")
    e[i, j] = lw.exp(x[i, j])
    s[i] += e[i, j]
    out[i, j] = e[i, j] / s[i] + e[i, j] * x[i, j]
    return out


def settled(workload):
    (sketch, *_) = lw.space(workload, HERE).sketches
    return any(in_place(n.nest) for n in sketch.nests)


MADE = {
    "a multiple of every tile": lambda: ops.softmax(row(8256)),
    "some elements left over": lambda: ops.softmax(row(8250)),
    "an odd number left over": lambda: ops.softmax(row(8233)),
    "rows of planes": lambda: ops.softmax(lw.tensor("x", (2, 2, 8200))),
    "another type": lambda: ops.softmax(lw.tensor("x", (2, 4200), "float64")),
    "read twice in its place": twice_read,
}


@pytest.mark.parametrize("name", thinned(MADE))
def test_a_long_row_is_made_in_place(name):
    workload = lw.workload(MADE[name]())
    assert settled(workload)
    space, rng = lw.space(workload, HERE), np.random.default_rng(0)
    configs = [space.default, *(space.sample(rng) for _ in range(4))]
    assert_configs_equal_oracle(workload, configs)


@pytest.mark.parametrize(
    "made",
    [lambda: ops.softmax(row(1000)), mirrored],
    ids=["a short row", "elements that others are made of"],
)
def test_other_rows_are_not(made):
    workload = lw.workload(made())
    assert not settled(workload)
    assert_configs_equal_oracle(workload, [lw.space(workload, HERE).default])


def planes(weight):
    """Exponentials over the sum of their plane, which merges the plane's axes, or does not."""
    i, y, x = lw.indices("i y x")
    X, e, s, out = lw.tensor("X", (3, 9, 17)), lw.tensor("e"), lw.tensor("s"), lw.tensor("out")
    e[i, y, x] = lw.exp(X[i, y, x])
    s[i] += e[i, y, x]
    out[i, y, x] = e[i, y, x] / s[i] * (lw.tensor("w", (17,))[x] if weight else 1.0)
    return out


def columns():
    i, y = lw.indices("i y")
    X, e, s, out = lw.tensor("X", (40, 5)), lw.tensor("e"), lw.tensor("s"), lw.tensor("out")
    e[y, i] = lw.exp(X[y, i])
    s[i] += e[y, i]
    out[y, i] = e[y, i] / s[i]
    return out


def a_number_for_each_row():
    i, j = lw.indices("i j")
    x, e, s, out = row(40), lw.tensor("e"), lw.tensor("s"), lw.tensor("out")
    e[i, j] = lw.exp(x[i, j])
    s[i] += e[i, j] * e[i, 39 - j]
    out[i] = s[i] + e[i, 3]
    return out


EVERY = {
    "softmax": lambda: ops.softmax(row(37)),
    "layer norm": lambda: ops.layer_norm(
        row(37), *(lw.tensor(n, (37,), constant=True) for n in ("g", "b"))
    ),
    "planes": lambda: planes(False),
    "planes with weights": lambda: planes(True),
    "columns": columns,
    "a number for each row": a_number_for_each_row,
    "elements that others are made of": mirrored,
    "pooling": lambda: ops.max_pool2d(lw.tensor("x", (2, 3, 9, 9)), 3, 2, 1),
}


@pytest.fixture
def everything_is_long(monkeypatch):
    monkeypatch.setattr(settle, "_LONG", 8)
    monkeypatch.setattr(settle, "_TILE", 8)
    monkeypatch.setattr(settle, "_FEW", 1)
    spaces._space.cache_clear()
    yield
    spaces._space.cache_clear()


@pytest.mark.parametrize("name", thinned(EVERY))
def test_whatever_is_made_in_place_equals_the_oracle(everything_is_long, name):
    workload = lw.workload(EVERY[name]())
    space, rng = lw.space(workload, HERE), np.random.default_rng(0)
    configs = [s.at(s.default) for s in space.sketches[:4]]
    configs += [space.sample(rng) for _ in range(4)]
    assert_configs_equal_oracle(workload, configs)
