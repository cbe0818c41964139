"""The operations that a program of open sizes does, as a formula of the sizes.

Where a tile does not divide an axis, its last tile computes elements again. So the operations of a
program rise in steps, at other sizes than those of a program with other tiles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.dsl.elements import FLOAT_FUNCTIONS
from loopwright.dsl.expr import Binary, Select, Unary
from loopwright.dsl.traversal import walk
from loopwright.schedule.cpu.heuristics import CPU
from loopwright.schedule.tree.formula import evaluated, extreme
from loopwright.schedule.tree.grammar import Load, Loop, Stmt, Store, Tree, Var, ceildiv, variables

_FUNCTION = 8  # operations of an exponential, about
_LAUNCH = 3000  # operations of which a launch of threads takes the time, about

Array = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Number = Any
"""A formula of the sizes, or a number."""


def operations(tree: Tree, threads: int) -> Number:
    """Operations on vectors of the busiest thread in one call of a program."""
    return sum(_of_nest(stmt, threads) for stmt in tree.body)


def inputs(sizes: Mapping[str, int | Array], number: Number) -> Floats:
    """Inputs of a model of a program's time, the last axis: the sizes, and c, the number of its
    operations. Sizes may be arrays, for many calls."""
    count = np.maximum(1, evaluated(number, sizes))
    return np.stack(np.broadcast_arrays(*sizes.values(), count), axis=-1).astype(np.float64)


def _of_nest(stmt: Stmt, threads: int) -> Number:
    """Operations of the busiest thread in a top-level statement. The last one has the last block,
    which may be shorter; one before it may have as many blocks."""
    total: Number = sum(_inside([stmt], {}), start=0)
    blocks: Number = 1
    body: Sequence[Stmt] = (stmt,)
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind == "parallel":
        blocks = blocks * body[0].extent
        body = body[0].body
    if threads == 1 or blocks == 1:
        return total
    block: Number = sum(_inside(body, {}), start=0)
    last = total - block * ((blocks * (threads - 1)) // threads)
    launch = extreme("min", blocks - 1, 1) * _LAUNCH
    return extreme("max", last, block * ceildiv(blocks - 1, threads)) + launch


def _inside(body: Sequence[Stmt], around: dict[Var, Number]) -> list[Number]:
    """Operations of the stores of a body, inside of loops with so many iterations."""
    found: list[Number] = []
    for stmt in body:
        if isinstance(stmt, Store):
            found.append(math.prod(around.values(), start=_each(stmt, around)))
        elif isinstance(stmt, Loop):
            found += _inside(stmt.body, around | _iterations(stmt, around))
    return found


def _iterations(loop: Loop, around: dict[Var, Number]) -> dict[Var, Number]:
    """Iterations of a loop. A bound of what is left behind a block tells those of all blocks; in
    one block, it holds for the last one alone."""
    if loop.kind == "vectorized":
        return {}
    extent: Number = loop.extent
    if loop.bound is None:
        return {loop.var: extent}
    most: Number = loop.bound.const
    if not loop.bound.terms:
        return {loop.var: extreme("min", extent, most)}
    ((block, _), *others) = loop.bound.terms
    if others or block not in around:
        return {loop.var: extent}
    return {block: 1, loop.var: most}


def _each(store: Store, around: Mapping[Var, Number]) -> int:
    """Operations of one element, its store one of them. Of a sum, those for which there is time
    while too few sums at once wait for their last summands."""
    parts = [*walk(store.value)]
    functions = sum(isinstance(p, Unary) and p.op in FLOAT_FUNCTIONS for p in parts)
    count = 1 + sum(isinstance(p, (Binary, Select)) for p in parts) + _FUNCTION * functions
    own = [p for p in parts if isinstance(p, Load) and p.buffer.name == store.buffer.name]
    if not own:
        return count
    used = {v for x in store.index for v in variables(x)}
    at_once = math.prod(n for v, n in around.items() if v in used and isinstance(n, int))
    return -(-count * max(CPU.accumulators_in_flight, at_once) // at_once)
