"""Strassen: matrix products with fewer multiplications, as a rewrite of the program.

    O[i, j] += X[i, k] * Y[k, j]
     ↦  S[p, t, q] = Σ L[p, (a, h)] X[2*t + a, h*K/2 + q]
        T[p, q, c] = Σ R[p, (h, b)] Y[h*K/2 + q, b*J/2 + c]          ahead of time
        M[p, t, c] += S[p, t, q] * T[p, q, c]                        seven products for eight
        O[2*t + a, b*J/2 + c] = Σ C[(a, b), p] M[p, t, c]

with a, b, h < 2 (Strassen 1969), where Y is constant. Blocks that are halved twice need
49 products for 64. What the sums take, against the products that are saved, falls as the extents
grow. Rows that are added to each other are neighbours, so that a block of rows goes from data to
results while it is in a thread's cache, as in `winograd`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import Binary, Expr, Read
from loopwright.dsl.index import Index, IndexExpr
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.tensor import Tensor
from loopwright.schedule.program.canonical import (
    drop_units,
    merge_axes,
    moved,
    placed,
    places_of,
    split_divisions,
    written,
)
from loopwright.schedule.program.constants import constants_of
from loopwright.schedule.program.nest import Nest, extent, fresh, stride
from loopwright.schedule.program.plan import FusionGroup, TileOrigin, finished, with_groups
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.bilinear.matrices import Bilinear, Matrix
from loopwright.schedule.rewrites.bilinear.transforms import Lanes, Place, Transform
from loopwright.schedule.rewrites.boundary_peeling import in_parts
from loopwright.schedule.rewrites.cache_read import factors
from loopwright.schedule.rewrites.contract import Rewrite, Rewritten
from loopwright.schedule.rewrites.heuristics import BILINEAR
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Target

_LEVELS = (1, 2)
"""Number of times that blocks worth it are halved."""

_LARGEST = (1 << 31) - 1  # elements of a tensor


def _matrix(*rows: tuple[int, ...]) -> Matrix:
    return tuple(tuple(map(Fraction, row)) for row in rows)


ALGORITHM = Bilinear(
    4,
    inner=_matrix(
        (1, 0, 0, 1),
        (1, 0, 0, 0),
        (0, 1, 0, -1),
        (-1, 0, 1, 0),
        (0, 0, 0, 1),
        (1, 1, 0, 0),
        (0, 0, 1, 1),
    ),
    outer=_matrix(
        (1, 0, 0, 1, -1, 0, 1),
        (0, 0, 1, 0, 1, 0, 0),
        (0, 1, 0, 1, 0, 0, 0),
        (1, -1, 1, 0, 0, 1, 0),
    ),
    data=_matrix(
        (1, 0, 0, 1),
        (0, 0, 1, 1),
        (1, 0, 0, 0),
        (0, 0, 0, 1),
        (1, 1, 0, 0),
        (-1, 0, 1, 0),
        (0, 1, 0, -1),
    ),
)
"""The product of two matrices of 2 × 2 blocks, these in rows: `data` is that of the left one."""


def _power(matrix: Matrix, levels: int) -> Matrix:
    """Matrix of blocks of blocks: the Kronecker product of so many of it."""
    if levels == 1:
        return matrix
    rest = _power(matrix, levels - 1)
    return tuple(tuple(a * b for a in outer for b in inner) for outer in matrix for inner in rest)


class Strassen(Rewrite):
    """`S = L X; T = R Y; M[p] = S[p] * T[p]; O = C M`: seven products of blocks for eight.

    Blocks are halved `levels` times, and so many `rows` of blocks are computed at a time. Rounding
    errors grow as for rows of one size: what is added up are neighbours, also of two images, so
    that an infinity, or the rounding of large numbers, reaches the row beside it. Rows that are in
    two tiles are written twice, with other last bits. Windows over padded planes are in parts.
    """

    name = "strassen"
    needs = "a large product with constant weights: five multiply-adds saved for an element moved"
    numerics = Numerics.FAST
    prior = 0.8  # it gains little: the search finds it, unless it is by far the shortest
    minor = 0.3

    def choices(self, base: Variant, target: Target) -> Iterator[Mapping[str, int]]:
        for levels in _LEVELS:
            products = _products(base.source, levels).values()
            largest = max(products, key=lambda p: p.nest.steps, default=None)
            for rows in () if largest is None else largest.rows_at_once(target):
                yield {"levels": levels, "rows": rows}

    def make(self, base: Variant, target: Target, **parameters: int) -> Rewritten | None:
        source, levels, rows = base.source, parameters["levels"], parameters["rows"]
        products = _products(source, levels)
        if not products:
            return None
        windows, padded = in_parts(source.program, source.outputs, target)
        names = source.names()
        made = {key: list(p.groups(rows, names)) for key, p in products.items()}
        groups = with_groups(source.program, windows | made, padded, source.outputs)
        # That of the algorithm is relative to one product for each factor; sums here have two.
        growth = (ALGORITHM.error_growth * math.sqrt(2)) ** levels
        return Rewritten(groups, growth, Numerics.FAST)


def _products(source: Source, levels: int) -> dict[int, _Product]:
    """The products of a program that gain, by `id` of their nests."""
    program = source.program
    constants = constants_of(source.workload, tuple(FusionGroup((), (nest,)) for nest in program))
    return {id(n): p for n in program if (p := _Product.of(n, levels, constants)) is not None}


@dataclass(frozen=True)
class _Product:
    """A nest that is a matrix product of `left` and `right`, and the program that computes it
    otherwise. `rows`, `depth` and `columns` are halved; along `columns` the result is
    contiguous."""

    nest: Nest
    left: Read
    right: Read
    rows: Index
    depth: Index
    columns: Index
    levels: int

    @staticmethod
    def of(nest: Nest, levels: int, constants: frozenset[str]) -> _Product | None:
        """The product of a nest, if it is one that gains."""
        nest = merge_axes(split_divisions(drop_units(nest)))
        sides = factors(nest)
        types = {nest.result.dtype, *(read.dtype for read in sides)}
        if len(sides) != 2 or not all(map(_plain, sides)):
            return None
        if types not in ({"float32"}, {"float64"}):
            return None
        for left, right in (sides, sides[::-1]):
            known = right.tensor.name in constants and left.tensor.name not in constants
            every = {*_axes(left), *_axes(right)} == {*nest.axes, *nest.reduce}
            both = set(nest.reduce) <= set(_axes(left)) & set(_axes(right))
            if not (known and every and both and {*_axes(left)[-1:]} & {*nest.reduce}):
                continue
            rows = [a for a in nest.axes if a not in _axes(right)]
            columns = [
                a
                for a in nest.axes
                if a not in _axes(left) and stride(nest.out, nest.index, a) == 1
            ]
            if rows and columns:
                row, depth = max(rows, key=extent), max(nest.reduce, key=extent)
                made = _Product(nest, left, right, row, depth, columns[0], levels)
                if made._gains():
                    return made
        return None

    @property
    def parts(self) -> int:
        """Into how many parts each axis is cut."""
        return 1 << self.levels

    @property
    def more(self) -> float:
        """Elements of the sums of blocks, for each element of the blocks."""
        return (7 / 4) ** self.levels

    @property
    def tiles(self) -> int:
        """Rows of blocks; the last one may overlap the one before it."""
        return -(-extent(self.rows) // self.parts)

    @property
    def around(self) -> tuple[Index, ...]:
        """The axes of the left operand, and of the result, that are not halved."""
        return tuple(a for a in self.nest.axes if a in _axes(self.left) and a != self.rows)

    def rows_at_once(self, target: Target) -> list[int]:
        """Numbers of rows of blocks at a time for which all threads are busy, from those of a
        register tile to three times as many as the second-level cache has room for: with more
        rows, the right operand's sums are read less often."""
        images = math.prod(map(extent, self.around))
        sizes = (math.prod(map(extent, axes)) for axes in (_axes(self.left), self.nest.axes))
        row = sum(sizes) * self.more / (images * self.tiles) * item_bytes(self.left.dtype)
        most = max(2 * BILINEAR.strassen_tile_rows, int(3 * target.l2_bytes / row))

        def busiest(rows: int) -> int:
            """Rows that the thread with the most of them computes."""
            return -(-images * -(-self.tiles // rows) // target.threads) * rows

        last = min(self.tiles, most)
        even = [
            n
            for n in range(min(BILINEAR.strassen_tile_rows, last), last + 1)
            if n == self._even(n)
        ]
        near: dict[int, int] = {}  # the best of each doubling
        for n in sorted(even, key=busiest):
            if not near or busiest(n) <= BILINEAR.strassen_imbalance * busiest(1):
                near.setdefault(n.bit_length(), n)
        return sorted(near.values())

    def _even(self, rows: int) -> int:
        """Rows of as many blocks, as even as they can be."""
        return -(-self.tiles // -(-self.tiles // rows))

    def _gains(self) -> bool:
        """Return whether many more products are saved than elements are moved for sums."""
        if any(extent(a) % self.parts for a in (self.depth, self.columns)):
            return False
        if min(map(extent, (self.depth, self.columns))) < BILINEAR.strassen_depth * self.parts:
            return False
        left, right = (math.prod(map(extent, _axes(r))) for r in (self.left, self.right))
        if extent(self.rows) < self.parts or right * self.more > _LARGEST:
            return False
        sums = left * (1 + self.more) + self.nest.size * (1 + 2 * self.more)
        saved = self.nest.steps * (1 - (7 / 8) ** self.levels)
        return saved >= max(
            BILINEAR.strassen_saved_per_moved * sums,
            BILINEAR.strassen_saved_per_read * right * (self.more - 1),
        )

    def groups(self, rows: int, names: set[str]) -> Iterator[FusionGroup]:
        """Transform the right operand, and for about so many rows of blocks at a time the left
        one; multiply; transform the results."""
        rows = self._even(min(rows, self.tiles))
        each = Index("products.at", 7**self.levels)
        deep, column = (
            Index(f"{a.name}.part", extent(a) // self.parts) for a in (self.depth, self.columns)
        )
        tile = Index(f"{self.rows.name}.tile", self.tiles)
        number, around = tile.affine(), self.around
        begins: tuple[TileOrigin, ...] = ()
        if rows < self.tiles:
            loop, begin = TileOrigin.of_blocks(self.rows.name, self.tiles, rows)
            tile = Index(f"{self.rows.name}.within", rows)
            number, around, begins = begin.index + tile, (*around, loop), (begin,)
        first = Index(f"{self.rows.name}.base", extent(self.rows) - self.parts + 1)
        bases = (TileOrigin(first, number, self.parts),)

        cut = {self.rows: tile, self.depth: deep, self.columns: column}
        others = (a for a in self.nest.axes if a not in (*self.around, self.columns))
        left, right, made, reduce = (
            tuple(cut.get(a, a) for a in axes)
            for axes in (
                [a for a in _axes(self.left) if a not in self.around],
                _axes(self.right),
                (*others, self.columns),
                self.nest.reduce,
            )
        )
        s, t, m = (
            self._tensor(role, (each, *axes), names)
            for role, axes in (("left", left), ("right", right), ("products", made))
        )
        x, y = (Read(of, places_of(each, *axes)) for of, axes in ((s, left), (t, right)))
        axes = (each, *made)
        product = Nest(m, places_of(*axes), axes, reduce, "sum", Binary("mul", x, y), m)

        at = {self.rows: first, self.depth: deep, self.columns: column}
        yield self._summed(self.right, t, right, at, (), names)
        sums = self._summed(self.left, s, left, at, bases, names)
        results = self._results(m, made, at, bases, names)
        if around:
            yield finished(FusionGroup(around, (sums, product, results), (s, m), begins))
        else:
            yield from (sums, finished(FusionGroup((), (product,))), results)

    def _tensor(self, role: str, axes: tuple[Index, ...], names: set[str]) -> Tensor:
        name = fresh(f"{self.nest.result.name}_{role}", names)
        return Tensor(name, tuple(map(extent, axes)), self.left.dtype)

    def _at(
        self, at: Mapping[Index, Index], block: Place, first: Index, second: Index
    ) -> dict[Index, IndexExpr]:
        """The two axes that a matrix of blocks is cut along, at the block of this number, each
        digit of which is that of one of 2 × 2."""
        ((number,), high, low) = block, 0, 0
        for level in reversed(range(self.levels)):
            digit = number.const // 4**level % 4
            high, low = high * 2 + digit // 2, low * 2 + digit % 2
        return {
            a: at[a] + place * (1 if a == self.rows else extent(a) // self.parts)
            for a, place in ((first, high), (second, low))
        }

    def _summed(
        self,
        read: Read,
        out: Tensor,
        axes: tuple[Index, ...],
        at: Mapping[Index, Index],
        bases: tuple[TileOrigin, ...],
        names: set[str],
    ) -> FusionGroup:
        """The sums of blocks of an operand."""
        split = Lanes(axes[-1:])
        rest = [placed(a, split.values) for a in axes]
        left = read is self.left
        cut = (self.rows, self.depth) if left else (self.depth, self.columns)

        def source(block: Place) -> Expr:
            return moved(moved(read, self._at(at, block, *cut)), split.values)

        def write(number: Place, value: Expr) -> tuple[Place, Expr]:
            return (*number, *rest), value

        matrix = ALGORITHM.data if left else ALGORITHM.inner
        return self._transformed(
            matrix, Transform(out, source, write), split, axes[:-1], bases, names
        )

    def _results(
        self,
        m: Tensor,
        axes: tuple[Index, ...],
        at: Mapping[Index, Index],
        bases: tuple[TileOrigin, ...],
        names: set[str],
    ) -> FusionGroup:
        split = Lanes(axes[-1:])
        rest = [placed(a, split.values) for a in axes]

        def write(block: Place, value: Expr) -> tuple[Place, Expr]:
            values = self._at(at, block, self.rows, self.columns)
            lanes = {a: placed(p.affine(), split.values) for a, p in values.items()}
            return written(self.nest, value, {**split.values, **lanes})

        transform = Transform(self.nest.out, lambda number: Read(m, (*number, *rest)), write)
        return self._transformed(ALGORITHM.outer, transform, split, axes[:-1], bases, names)

    def _transformed(
        self,
        matrix: Matrix,
        transform: Transform,
        split: Lanes,
        rows: tuple[Index, ...],
        bases: tuple[TileOrigin, ...],
        names: set[str],
    ) -> FusionGroup:
        # All levels at once: what two transforms share is less than what goes through memory
        # between.
        nests, _ = transform.nests([_power(matrix, self.levels)], split.inner, names)
        return finished(FusionGroup((*rows, *split.outer), tuple(nests), (), bases))


def _plain(read: Read) -> bool:
    """Return whether every subscript is a loop of its own, or a number."""
    moving = [p for p in read.index if p.terms]
    return len(_axes(read)) == len(set(_axes(read))) == len(moving)


def _axes(read: Read) -> tuple[Index, ...]:
    return tuple(i for p in read.index if (i := p.plain()) is not None)
