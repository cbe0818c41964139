"""The features of one fixed program: what a model file remembers of the features it learned from.

Features change when their definition does, and a model that learned from others is wrong without
saying so. Their values for a program that no rule of scheduling touches tell: a file whose
fingerprint differs was made with another definition. Which config is a space's default is not
looked at, though features are relative to it: ratios to a better default still order programs.
"""

from __future__ import annotations

import numpy as np

from loopwright.costmodel.features.representation import (
    EARLIER,
    ContextRelation,
    FlattenedTree,
    make_representation,
)
from loopwright.costmodel.model import Floats, ModelError
from loopwright.dsl.expr import Binary, Const
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Buffer, Linear, Load, Loop, Stmt, Store, Tree, Var

_TARGET = Target(vector_bytes=32, vector_registers=16, threads=2)
_FLOPS = 2 * 96 * 200 * 64
_CLOSE = 1e-3


def fingerprint(reads: str) -> list[float]:
    """The features, of the representation of that name, of a small matrix product with a register
    tile. Raises `ModelError` for a representation that does not look at loops."""
    representation = make_representation(reads)
    if not isinstance(representation, ContextRelation | FlattenedTree):
        raise ModelError(f"{reads!r} features do not come from loops: there is nothing to compare")
    rows = representation.of_tree(_program(), _TARGET, _FLOPS)
    if isinstance(representation, ContextRelation):  # of a space that has this program alone
        rows = representation.both(rows, rows - rows, gpu=False)
    return [round(float(x), 4) for x in rows[0]]


def same_features(reads: str, remembered: object) -> bool:
    """Return whether a `fingerprint` is today's; columns that were added since do not count."""
    now = np.array(fingerprint(reads))
    try:
        then: Floats = np.array(remembered, np.float64)
    except (TypeError, ValueError):
        return False
    if reads == "relation" and then.shape in [(width,) for width in EARLIER]:
        now = now[: len(then)]
    return then.shape == now.shape and bool(np.allclose(then, now, atol=_CLOSE))


def _program() -> Tree:
    """C[96, 64] = A[96, 200] B[200, 64]: 16 parallel blocks of 6 × 64; accumulators of 6 × 16."""
    a, b = Buffer("A", (96, 200), "float32", "argument"), Buffer("B", (200, 64), "float32", "heap")
    c = Buffer("C", (96, 64), "float32", "argument")
    tile = Buffer("tile", (6, 16), "float32", "register")
    block, column, k, i, j = map(Var, ("block", "column", "k", "i", "j"))
    row = Linear(((block, 6), (i, 1)))
    wide = Linear(((column, 16), (j, 1)))
    own, step = (_just(i), _just(j)), _just(k)
    product = Binary("mul", Load(a, (row, step)), Load(b, (step, wide)))
    update = Store(tile, own, Binary("add", Load(tile, own), product))
    body = (
        _tiled(i, j, Store(tile, own, Const(0.0, "float32"))),
        Loop(k, 200, "serial", (_tiled(i, j, update),)),
        _tiled(i, j, Store(c, (row, wide), Load(tile, own))),
    )
    nest = Loop(block, 16, "parallel", (Loop(column, 4, "serial", body),))
    return Tree(1, (), (), (), (), (), (nest,))


def _tiled(i: Var, j: Var, store: Store) -> Stmt:
    return Loop(i, 6, "unrolled", (Loop(j, 16, "vectorized", (store,)),))


def _just(var: Var) -> Linear:
    return Linear(((var, 1),))
