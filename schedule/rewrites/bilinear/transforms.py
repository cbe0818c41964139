"""The nests by which Winograd's programs transform what they multiply.

An array is multiplied by a matrix along each of its first axes. The matrices are known numbers, so
every sum is written out, and products by 0 and 1 vanish. Names of new loops have a point, which no
name in the notation has: loops are told apart by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from loopwright.dsl.expr import Binary, Const, Expr, Read
from loopwright.dsl.index import Affine, Index, IndexExpr
from loopwright.dsl.tensor import Tensor
from loopwright.schedule.program.canonical import places_of
from loopwright.schedule.program.nest import Nest, extent, fresh
from loopwright.schedule.rewrites.bilinear.matrices import Matrix

Place = tuple[Affine, ...]
_LANES = (32, 16, 8)


@dataclass(frozen=True)
class Transform:
    """Products of an array with matrices, one for each of its first axes: `source` reads an
    element, and `write` says where an element of `out` stands, and what is written there."""

    out: Tensor
    source: Callable[[Place], Expr]
    write: Callable[[Place, Expr], tuple[Place, Expr]]

    def nests(
        self, matrices: list[Matrix], inner: tuple[Index, ...], names: set[str]
    ) -> tuple[list[Nest], list[Tensor]]:
        """Nests that multiply by matrices, the last one first, and their local tensors."""
        nests: list[Nest] = []
        local: list[Tensor] = []
        source = self.source
        for window in reversed(range(len(matrices))):
            loops = tuple(
                Index(
                    f"{'to' if other > window else 'from'}.{other}",
                    _rows_of(matrix, other > window),
                )
                for other, matrix in enumerate(matrices)
                if other != window
            )
            axes = (*loops, *inner)

            def places(at: int, window: int = window, loops: tuple[Index, ...] = loops) -> Place:
                found = list(places_of(*loops))
                found.insert(window, Affine((), at))
                return tuple(found)

            target = self.out
            if window:
                shape = [_rows_of(m, other >= window) for other, m in enumerate(matrices)]
                shape += [extent(a) for a in inner]
                name, dtype = fresh(f"{target.name}_rows", names), source(places(0)).dtype
                target = Tensor(name, tuple(shape), dtype)
                local.append(target)
            writes = []
            for number, row in enumerate(matrices[window]):
                terms = [(factor, source(places(at))) for at, factor in enumerate(row) if factor]
                value = weighted(terms)
                if window:
                    writes.append(((*places(number), *places_of(*inner)), value))
                else:
                    writes.append(self.write(places(number), value))
            (index, body), *also = writes
            nests.append(Nest(target, index, axes, (), None, body, target, None, tuple(also)))

            def source(at: Place, made: Tensor = target) -> Expr:
                return Read(made, (*at, *places_of(*inner)))

        return nests, local


class Lanes:
    """Some axes in two: common loops outside, the lanes of vectors inside. These are all of the
    axes if they are so few, else a part of the last."""

    def __init__(self, axes: tuple[Index, ...], most: int = _LANES[0]) -> None:
        self.outer: tuple[Index, ...] = ()
        self.inner = axes
        self.values: dict[Index, IndexExpr] = {}
        if math.prod(map(extent, axes)) <= most:
            return
        *before, last = axes
        fitting = (n for n in _LANES if n <= most and extent(last) % n == 0)
        lanes = next(fitting, extent(last))
        high = Index(f"{last.name}.high", extent(last) // lanes)
        low = Index(f"{last.name}.low", lanes)
        self.outer = (*before, high)
        self.inner = (low,)
        self.values = {last: high * lanes + low}


def weighted(terms: list[tuple[Fraction, Expr]]) -> Expr:
    """Σ factor · value, without needless products."""
    total: Expr | None = None
    for factor, value in sorted(terms, key=lambda term: term[0] < 0):
        size = abs(factor)
        part = value if size == 1 else Binary("mul", value, Const(float(size), value.dtype))
        if total is None:
            total = part if factor > 0 else Binary("mul", value, Const(float(factor), value.dtype))
        else:
            total = Binary("add" if factor > 0 else "sub", total, part)
    assert total is not None
    return total


def _rows_of(matrix: Matrix, transformed: bool) -> int:
    return len(matrix) if transformed else len(matrix[0])
