"""Strassen: matrix products with fewer multiplications, as a rewrite of the program.

    O[i, j] += X[i, k] * Y[k, j]
     ↦  S[p, t, q] = Σ L[p, (a, h)] X[2*t + a, h*K/2 + q]
        T[p, q, c] = Σ R[p, (h, b)] Y[h*K/2 + q, b*J/2 + c]          ahead of time
        M[p, t, c] += S[p, t, q] * T[p, q, c]                        seven products for eight
        O[2*t + a, b*J/2 + c] = Σ C[(a, b), p] M[p, t, c]

with a, b, h < 2 (Strassen 1969), where Y is known ahead of time. Blocks that are halved twice need
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
from loopwright.dsl.index import Affine, Index, IndexExpr
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload
from loopwright.schedule.assemble import known_ahead
from loopwright.schedule.bilinear import Bilinear, Matrix
from loopwright.schedule.copied import factors
from loopwright.schedule.nest import Nest, extent, stride
from loopwright.schedule.plan import (
    Base,
    Group,
    finished,
    fused,
    names_of,
    with_groups,
)
from loopwright.schedule.rewrite import (
    Program,
    drop_units,
    fresh,
    merge_axes,
    moved,
    placed,
    split_divisions,
    written,
)
from loopwright.schedule.sweep import Lanes, Place, Sweep, places_of
from loopwright.schedule.target import Target

LEVELS = (1, 2)
"""How often blocks that are worth it are halved."""

_GAIN = 5  # products that are saved for an element that is moved, at least
_FEW = 6  # rows of a register tile
_EVEN = 1.05  # times the rows of a thread, at most, where all threads have the same work
_DEEP = 32  # terms of a product's sums, and elements of its rows, at least


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


def strassen(workload: Workload, levels: int, rows: int) -> tuple[tuple[Group, ...], float] | None:
    """The groups of a workload with each matrix product that gains in blocks that are halved so
    often, so many rows of blocks at a time, and the growth of rounding errors; None if there is
    none."""
    program = fused(workload)
    found = {id(nest): product for nest, product in _found(workload, program, levels)}
    if not found:
        return None
    names = names_of(program, workload)
    made = {key: list(product.groups(rows, names)) for key, product in found.items()}
    growth = max(product.growth for product in found.values())
    return with_groups(program, made, set(), workload.outputs), growth


def rows_at_once(workload: Workload, levels: int, target: Target) -> Iterator[int]:
    """How many rows of blocks `strassen` may compute at a time, all threads being busy: those of a
    register tile, so that what they make stays in the nearest cache, and as many as the next one
    has room for, where the right operand's sums are read less often."""
    products = [product for _, product in _found(workload, fused(workload), levels)]
    if not products:
        return
    largest = max(products, key=lambda p: p.nest.steps)
    images = math.prod(map(extent, largest.around))

    def busiest(rows: int) -> int:
        """Rows that the thread with the most of them computes."""
        return -(-images * -(-largest.tiles // rows) // target.threads) * rows

    sizes = {-(-largest.tiles // count) for count in range(1, largest.tiles + 1)}
    even = [n for n in sizes if busiest(n) <= _EVEN * busiest(1)]
    fewest = min((n for n in even if n >= _FEW), default=max(even))
    fitting = (n for n in even if n * largest.bytes <= target.l2_bytes)
    yield from sorted({fewest, max((fewest, *fitting))})


def _found(workload: Workload, program: Program, levels: int) -> Iterator[tuple[Nest, _Product]]:
    """The nests that are matrix products that gain."""
    ahead = known_ahead(workload, tuple(Group((), (nest,)) for nest in program))
    for nest in program:
        product = _Product.of(nest, levels, ahead)
        if product is not None:
            yield nest, product


@dataclass(frozen=True)
class _Product:
    """A nest that is a matrix product, and the program that computes it otherwise.

    Attributes
    ----------
    left, right: its operands; along `columns` of the right one the result is contiguous.
    rows, depth, columns: the axes that are halved: of the left one, of both, of the right one.
    """

    nest: Nest
    left: Read
    right: Read
    rows: Index
    depth: Index
    columns: Index
    levels: int

    @staticmethod
    def of(nest: Nest, levels: int, ahead: frozenset[str]) -> _Product | None:
        """The product of a nest, if it is one that gains."""
        if nest.also or nest.out.name in ahead or nest.out.dtype not in ("float32", "float64"):
            return None
        nest = merge_axes(split_divisions(drop_units(nest)))
        sides = factors(nest)
        if len(sides) != 2 or not all(map(_plain, sides)):
            return None
        for left, right in (sides, sides[::-1]):
            rows = [a for a in nest.axes if a in _axes(left) and a not in _axes(right)]
            columns = [a for a in nest.axes if a in _axes(right) and a not in _axes(left)]
            every = {*_axes(left), *_axes(right)} == {*nest.axes, *nest.reduce}
            both = set(nest.reduce) <= set(_axes(left)) & set(_axes(right))
            if not (rows and columns and nest.reduce and every and both):
                continue
            known = right.tensor.name in ahead and left.tensor.name not in ahead
            if not known or _axes(left)[-1] in rows:
                continue
            row, depth, column = (max(axes, key=extent) for axes in (rows, nest.reduce, columns))
            made = _Product(nest, left, right, row, depth, column, levels)
            if stride(nest.out, nest.index, made.columns) == 1 and made._gains():
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

    @property
    def growth(self) -> float:
        """How much larger rounding errors may be than in the sums themselves."""
        # Relative to one product for each factor of a row, of which the sums here have two.
        return (ALGORITHM.growth * math.sqrt(2)) ** self.levels

    @property
    def bytes(self) -> float:
        """Of what is made for one row of blocks."""
        images = math.prod(map(extent, self.around))
        sizes = (math.prod(map(extent, axes)) for axes in (_axes(self.left), self.nest.axes))
        return sum(sizes) * self.more / (images * self.tiles) * item_bytes(self.nest.out.dtype)

    def _gains(self) -> bool:
        """Whether many more products are saved than elements are read and written for sums."""
        if any(extent(a) % self.parts for a in (self.depth, self.columns)):
            return False
        if min(map(extent, (self.depth, self.columns))) < _DEEP * self.parts:
            return False
        if extent(self.rows) < self.parts:
            return False
        moved = math.prod(map(extent, _axes(self.left))) * (1 + self.more)
        moved += self.nest.size * (1 + 2 * self.more)
        saved = self.nest.steps * (1 - (7 / 8) ** self.levels)
        return _GAIN * moved <= saved

    def groups(self, rows: int, names: set[str]) -> Iterator[Group]:
        """Transform the right operand, and for so many rows of blocks at a time the left one;
        multiply; transform the results."""
        each = tuple(Index(f"product.{n}", 7) for n in range(self.levels))
        deep, column = (
            Index(f"{a.name}.part", extent(a) // self.parts) for a in (self.depth, self.columns)
        )
        tile = Index(f"{self.rows.name}.tile", self.tiles)
        number, around = tile.affine(), self.around
        begins: tuple[Base, ...] = ()
        if rows < self.tiles:
            loop, begin = Base.of_blocks(self.rows.name, self.tiles, rows)
            tile = Index(f"{self.rows.name}.within", rows)
            number, around, begins = begin.index + tile, (*around, loop), (begin,)
        first = Index(f"{self.rows.name}.base", extent(self.rows) - self.parts + 1)
        bases = (Base(first, number, self.parts),)

        cut = {self.rows: tile, self.depth: deep, self.columns: column}
        left, right, made, reduce = (
            tuple(cut.get(a, a) for a in axes)
            for axes in (
                [a for a in _axes(self.left) if a not in self.around],
                _axes(self.right),
                [a for a in self.nest.axes if a not in self.around],
                self.nest.reduce,
            )
        )
        s, t, m = (
            self._tensor(role, (*each, *axes), names)
            for role, axes in (("left", left), ("right", right), ("products", made))
        )
        x, y = (Read(of, places_of(*each, *axes)) for of, axes in ((s, left), (t, right)))
        axes = (*each, *made)
        product = Nest(m, places_of(*axes), axes, reduce, "sum", Binary("mul", x, y), m)

        at = {self.rows: first, self.depth: deep, self.columns: column}
        yield self._summed(self.right, t, right, at, (), names)
        sums = self._summed(self.left, s, left, at, bases, names)
        results = self._results(m, made, at, bases, names)
        if around:
            yield finished(Group(around, (sums, product, results), (s, m), begins))
        else:
            yield from (sums, finished(Group((), (product,))), results)

    def _tensor(self, role: str, axes: tuple[Index, ...], names: set[str]) -> Tensor:
        name = fresh(f"{self.nest.result.name}_{role}", names)
        return Tensor(name, tuple(map(extent, axes)), self.left.dtype)

    def _at(
        self, at: Mapping[Index, Index], digits: Place, first: Index, second: Index
    ) -> dict[Index, IndexExpr]:
        """The two axes that a matrix of blocks is cut along, at the block whose number has these
        digits, each the number of one of 2 × 2."""
        high = low = Affine((), 0)
        for digit in digits:
            high, low = high * 2 + digit // 2, low * 2 + digit % 2
        step = {self.rows: 1}
        return {
            a: at[a] + place * step.get(a, extent(a) // self.parts)
            for a, place in ((first, high), (second, low))
        }

    def _summed(
        self,
        read: Read,
        out: Tensor,
        axes: tuple[Index, ...],
        at: Mapping[Index, Index],
        bases: tuple[Base, ...],
        names: set[str],
    ) -> Group:
        """The sums of blocks of an operand."""
        split = Lanes(axes[-1:])
        rest = [placed(a, split.values) for a in axes]
        left = read is self.left
        cut = (self.rows, self.depth) if left else (self.depth, self.columns)

        def source(digits: Place) -> Expr:
            return moved(moved(read, self._at(at, digits, *cut)), split.values)

        def write(number: Place, value: Expr) -> tuple[Place, Expr]:
            return (*number, *rest), value

        matrix = ALGORITHM.data if left else ALGORITHM.inner
        return self._swept(matrix, Sweep(out, source, write), split, axes[:-1], bases, names)

    def _results(
        self,
        m: Tensor,
        axes: tuple[Index, ...],
        at: Mapping[Index, Index],
        bases: tuple[Base, ...],
        names: set[str],
    ) -> Group:
        split = Lanes(axes[-1:])
        rest = [placed(a, split.values) for a in axes]

        def source(number: Place) -> Expr:
            return Read(m, (*number, *rest))

        def write(digits: Place, value: Expr) -> tuple[Place, Expr]:
            values = self._at(at, digits, self.rows, self.columns)
            moved = {a: placed(p.affine(), split.values) for a, p in values.items()}
            return written(self.nest, value, {**split.values, **moved})

        sweep = Sweep(self.nest.out, source, write)
        return self._swept(ALGORITHM.outer, sweep, split, axes[:-1], bases, names)

    def _swept(
        self,
        matrix: Matrix,
        sweep: Sweep,
        split: Lanes,
        rows: tuple[Index, ...],
        bases: tuple[Base, ...],
        names: set[str],
    ) -> Group:
        nests, local = sweep.nests([matrix] * self.levels, split.inner, names)
        return finished(Group((*rows, *split.outer), tuple(nests), tuple(local), bases))


def _plain(read: Read) -> bool:
    """Whether every subscript is a loop of its own, or a number."""
    moving = [p for p in read.index if p.terms]
    return len(_axes(read)) == len(set(_axes(read))) == len(moving)


def _axes(read: Read) -> tuple[Index, ...]:
    return tuple(i for p in read.index if (i := p.plain()) is not None)
