"""Operations of programs of open sizes, beside loops that are run one by one."""

import math
from dataclasses import replace

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.open.build import default_configs
from loopwright.codegen.target import resolve
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.traversal import walk
from loopwright.schedule.cpu.heuristics import CPU
from loopwright.schedule.open import work
from loopwright.schedule.open.numbers import at_sizes
from loopwright.schedule.open.program import open_program
from loopwright.schedule.open.work import inputs, operations
from loopwright.schedule.tree.formula import formula_from_json, in_json
from loopwright.schedule.tree.grammar import (
    Let,
    Linear,
    Load,
    Loop,
    Quotient,
    Store,
    Var,
    variables,
)


def dense():
    n = lw.dim("n", 1, 90)
    return lw.workload(lw.ops.dense(lw.tensor("X", (n, 24)), lw.tensor("W", (40, 24))))


def attention():
    n = lw.dim("n", 1, 90)
    q, k, v = (lw.tensor(name, (1, n, 16)) for name in "QKV")
    return lw.workload(lw.ops.attention(q, k, v))


def pooled():
    n = lw.dim("n", 8, 90)
    return lw.workload(lw.ops.max_pool2d(lw.tensor("X", (1, 8, n, 20)), 3, 2))


def value(x, known):
    """The number of an index expression."""
    if isinstance(x, Var):
        return known[x]
    if isinstance(x, Linear):
        return x.const + sum(c * value(t, known) for t, c in x.terms)
    number = value(x.value, known)
    return number // x.divisor if isinstance(x, Quotient) else number % x.divisor


def counted(body, known, extents=None):
    """Operations of a tree of one size, whose loops are run one by one; `extents` are those of the
    loops around. Sums of fewer vectors than are in flight wait."""
    found, extents = 0, extents or {}
    for stmt in body:
        if isinstance(stmt, Let):
            known[stmt.var] = min(value(stmt.value, known), stmt.limit)
        elif isinstance(stmt, Store):
            parts = [*walk(stmt.value)]
            kinds = [type(x).__name__ for x in parts]
            each = 1 + sum({"Binary": 1, "Select": 1, "Unary": 8}.get(x, 0) for x in kinds)
            if any(isinstance(x, Load) and x.buffer.name == stmt.buffer.name for x in parts):
                used = {v for x in stmt.index for v in variables(x)}
                at_once = math.prod(n for v, n in extents.items() if v in used)
                each = math.ceil(each * max(1, CPU.accumulators_in_flight / at_once))
            found += each
        elif isinstance(stmt, Loop):
            count = (
                stmt.extent if stmt.bound is None else min(stmt.extent, value(stmt.bound, known))
            )
            for k in range(1 if stmt.kind == "vectorized" else count):
                runs = 1 if stmt.kind == "vectorized" else stmt.extent
                found += counted(stmt.body, {**known, stmt.var: k}, {**extents, stmt.var: runs})
    return found


def opened(workload, size, threads):
    target = resolve({"kind": "llvm", "mcpu": "znver3"}, threads)
    sizes = {"n": size}
    config = next(default_configs(workload, target, Numerics.STANDARD, sizes))
    return open_program(workload, target, config, sizes)


@pytest.mark.parametrize("make", [dense, attention, pooled])
def test_operations_are_those_that_the_loops_run_at_every_size(make):
    program = opened(make(), 32, 1)
    number = operations(program.tree, 1)
    (known,) = program.dims
    for n in [*known.values[:8], 17, 33]:
        tree = at_sizes(program.tree, {"n": np.array([n])}).row(0)
        assert inputs({"n": n}, number).tolist() == [n, counted(tree.body, {})]


@pytest.fixture
def free_launches(monkeypatch):
    monkeypatch.setattr(work, "_LAUNCH", 0)


@pytest.mark.usefixtures("free_launches")
@pytest.mark.parametrize("make", [dense, attention])
def test_of_two_threads_those_of_the_busiest_one_are_counted(make):
    program = opened(make(), 64, 2)
    alone, shared = (operations(program.tree, threads) for threads in (1, 2))
    for n in (16, 33, 64, 90):
        all_of, busiest = alone.at({"n": n}), shared.at({"n": n})
        assert all_of / 2 <= busiest <= 0.75 * all_of


@pytest.mark.usefixtures("free_launches")
def test_the_busiest_thread_has_whole_blocks():
    n = lw.dim("n", 64, 400)
    workload = lw.workload(lw.ops.dense(lw.tensor("X", (n, 24)), lw.tensor("W", (40, 24))))
    target = resolve({"kind": "llvm", "mcpu": "znver3"}, 2)
    config = next(default_configs(workload, target, Numerics.STANDARD, {"n": 384}))
    values = dict(config.values) | {"tile0": (4, 8), "block0_0": (32,), "block1_0": (5,)}
    config = replace(config, values=tuple(values.items()))
    number = operations(open_program(workload, target, config, {"n": 384}).tree, 2)
    one, ragged, two, rest, three = (number.at({"n": n}) for n in (128, 192, 256, 260, 384))
    assert one == ragged == two
    assert one < rest < 1.1 * one
    assert three == 2 * one


def test_a_launch_of_threads_counts_where_there_are_several_blocks(monkeypatch):
    program = opened(dense(), 64, 2)
    paid = operations(program.tree, 2)
    monkeypatch.setattr(work, "_LAUNCH", 0)
    free = operations(program.tree, 2)
    more = {n: paid.at({"n": n}) - free.at({"n": n}) for n in program.dims[0].values}
    assert set(more.values()) <= {0, 3000}
    assert more[90] == 3000


def test_operations_are_the_same_after_they_are_written_and_read():
    program = opened(attention(), 64, 2)
    number = operations(program.tree, 2)
    again = formula_from_json(in_json(number), {d.name: d for d in program.dims})
    assert str(again) == str(number)
