"""kn2row: a convolution as one matrix product for all taps of its window, summed up afterwards.

    O[k, y, x] += D[c, y + r, x + s] * W[c, k, r, s]
     ↦  D_taps[k, r, s, u, v] += D[c, u, v] * W[c, k, r, s]
        O[k, y, x] += D_taps[k, r, s, y + r, x + s]

(Vasudevan, Anderson and Gregg 2017). The product meets no padding, no stride and no zeros, and
walks the weights once, whatever the size of the image; but its result has as many elements for
each of the convolution's as the window has taps. It pays where that is still little: for few
results, or small images with large weights, and most in transposed convolutions, which would
otherwise fall into phases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from loopwright.dsl.dtypes import is_float
from loopwright.dsl.expr import Binary, Const, Read, Select
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import tensor_shape
from loopwright.schedule.program.canonical import Program, indices_in, places_of, unused
from loopwright.schedule.program.footprint import indices
from loopwright.schedule.program.nest import Nest, extent, fresh, positions
from loopwright.schedule.program.plan import FusionGroup, decomposed, grouped
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.cache_read import factors
from loopwright.schedule.rewrites.contract import Rewrite, Rewritten
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Target

_DEEP = 32  # terms of a sum that repay storing it


def kn2row(source: Source) -> tuple[FusionGroup, ...] | None:
    """The groups of a workload with each convolution for which it may pay as a product for all
    taps and sums over them; None if there is none."""
    program = source.combined
    taken = source.names()
    every = (_Convolution.of(n, program, source.outputs) for n in program)
    found = {c.nest.out: c for c in every if c}
    if not found:
        return None
    fills = {c.fill.out for c in found.values() if c.fill}
    done: list[Nest] = []
    for nest in program:
        if nest.out in found:
            done += found[nest.out].parts(taken)
        elif nest.out not in fills:
            done.append(nest)
    program = decomposed(tuple(done), source.workload)
    return grouped(program, program, source.outputs)


@dataclass(frozen=True)
class _Convolution:
    """A sum of products of `data` and `weights` over taps of a window, and over more. `fill`
    copies the data into zeros, if they are padded or spread."""

    nest: Nest
    data: Read
    weights: Read
    fill: Nest | None

    @staticmethod
    def of(nest: Nest, program: Program, outputs: tuple[Tensor, ...]) -> _Convolution | None:
        """The convolution of a nest, if it is one for which it may pay."""
        sides = factors(nest)
        for data, weights in (sides, sides[::-1]) if len(sides) == 2 else ():
            found = _Convolution(nest, data, weights, _fill_of(data, program, outputs))
            if found._is_one() and found._pays():
                return found
        return None

    @property
    def deep(self) -> set[Index]:
        """The reductions that are no taps: they walk an axis of both operands alone."""
        both = [{p.plain() for p in r.index} for r in (self.data, self.weights)]
        return {k for k in self.nest.reduce if all(k in plain for plain in both)}

    def parts(self, taken: set[str]) -> Program:
        """The product, the padding or spreading of its result, and the sums over taps."""
        source, inner = self._source()
        fill = indices_in(self.fill) if self.fill else ()
        axes = _Axes((*indices_in(self.nest), *fill))
        taps = {d: axes.over(self.weights, d) for d in self._kept(self.weights.index)}
        spots = {d: axes.over(source, d) for d in self._kept(inner)}
        every = (*taps.values(), *spots.values())
        product = self._tensor("taps", every, taken)
        x = Read(source.tensor, _replaced(inner, spots))
        y = Read(self.weights.tensor, _replaced(self.weights.index, taps))
        assert isinstance(self.nest.body, Binary)
        body = Binary("mul", x, y) if self.nest.body.x is self.data else Binary("mul", y, x)
        deep = tuple(k for k in self.nest.reduce if k in self.deep)
        made = [Nest(product, places_of(*every), every, deep, "sum", body, product)]
        read = product
        if self.fill is not None:
            assert isinstance(self.fill.body, Select)
            walked = tuple(
                axis
                for d in self._kept(self.data.index)
                if (axis := self.fill.index[d].plain()) is not None
            )
            around = (*taps.values(), *walked)
            read = self._tensor("taps_filled", around, taken)
            at = (*places_of(*taps.values()), *(inner[d] for d in spots))
            zero = Const(0.0 if is_float(product.dtype) else 0, product.dtype)
            value = Select(self.fill.body.cond, Read(product, at), zero)
            made.append(Nest(read, places_of(*around), around, (), None, value, read))
        where = [r.index[d] for r in (self.weights, self.data) for d in self._kept(r.index)]
        left = tuple(k for k in self.nest.reduce if k not in self.deep)
        return (*made, replace(self.nest, body=Read(read, tuple(where)), reduce=left))

    def _source(self) -> tuple[Read, tuple[Affine, ...]]:
        """Factor without the fill, and its subscripts, in the sum's own indices."""
        if self.fill is None:
            return self.data, self.data.index
        assert isinstance(self.fill.body, Select)
        assert isinstance(self.fill.body.x, Read)
        deep = self._filled()
        source = self.fill.body.x
        return source, tuple(p.replace(lambda i: deep.get(i, i)) for p in source.index)

    def _filled(self) -> dict[Index, Index]:
        """For each axis of the fill that a sum walks, the index of the sum."""
        assert self.fill
        pairs = zip(self.fill.index, self.data.index, strict=True)
        found = {a: k for at, p in pairs if (k := p.plain()) in self.deep and (a := at.plain())}
        return {a: k for a, k in found.items() if k is not None}

    def _kept(self, index: tuple[Affine, ...]) -> list[int]:
        """The dimensions of an operand that are not summed over, and move at all."""
        return [d for d, p in enumerate(index) if p.terms and p.plain() not in self.deep]

    def _tensor(self, name: str, axes: tuple[Index, ...], taken: set[str]) -> Tensor:
        name = fresh(f"{self.data.tensor.name}_{name}", taken)
        return Tensor(name, tuple(map(extent, axes)), self.data.dtype)

    def _is_one(self) -> bool:
        """Return whether each tap is an axis of the weights, and the sum alone joins both."""
        taps, fill = set(self.nest.reduce) - self.deep, self.fill
        if not taps or math.prod(map(extent, self.deep)) < _DEEP:
            return False
        if indices(self.weights) & indices(self.data) != set(self.nest.reduce):
            return False
        shape = tensor_shape(self.weights.tensor)
        if not all(map(_walks, self.weights.index, shape)):
            return False
        terms = [i for p in self.weights.index for i in p.indices()]
        if len(terms) != len(set(terms)) or not _apart(self.data.index, self.deep):
            return False
        if fill is None:
            return True
        if any(p.plain() and not q.terms for p, q in zip(fill.index, self.data.index)):
            return False  # one place of the fill is read, and all would be multiplied
        inner = set(self._filled())
        assert isinstance(fill.body, Select)
        tests = {i for p in positions(replace(fill, body=fill.body.cond)) for i in p.indices()}
        return not inner & tests and _apart(self._source()[1], self.deep)

    def _pays(self) -> bool:
        """Return whether the product has no more elements than what is read and written anyway,
        and takes no more multiply-adds: a window that strides would leave some unused."""
        source, inner = self._source()
        shapes = [tensor_shape(self.weights.tensor), tensor_shape(source.tensor)]
        kept = [self._kept(self.weights.index), self._kept(inner)]
        made = math.prod(s[d] for s, dims in zip(shapes, kept, strict=True) for d in dims)
        steps = made * math.prod(map(extent, self.deep))
        return made <= sum(map(math.prod, shapes)) + self.nest.size and steps <= self.nest.steps


@dataclass
class _Axes:
    """New axes whose names nothing else has."""

    taken: tuple[Index, ...]

    def over(self, read: Read, dimension: int) -> Index:
        """An axis over a dimension of a tensor, called like an index that walks it."""
        name = next(iter(read.index[dimension].indices())).name
        axis = Index(unused(name, self.taken), tensor_shape(read.tensor)[dimension])
        self.taken += (axis,)
        return axis


def _fill_of(data: Read, program: Program, outputs: tuple[Tensor, ...]) -> Nest | None:
    """The nest that copies what is read into zeros, if one does, and for this read alone."""
    makers = [n for n in program if n.out is data.tensor]
    uses = [r for n in program for r in n.reads() if r.tensor is data.tensor]
    if len(makers) != 1 or len(uses) != 1 or data.tensor in outputs:
        return None
    (fill,) = makers
    body = fill.body
    if fill.reducer is not None or fill.also or not isinstance(body, Select):
        return None
    if not isinstance(body.x, Read) or not isinstance(body.y, Const) or body.y.value != 0:
        return None
    return fill if all(p.plain() or not p.terms for p in fill.index) else None


def _walks(position: Affine, size: int) -> bool:
    """Return whether a subscript is one index over all of a dimension, forwards or backwards."""
    if not position.terms:
        return True
    (atom, step), *others = position.terms
    if others or not isinstance(atom, Index) or extent(atom) != size:
        return False
    return (step, position.const) in ((1, 0), (-1, size - 1))


def _apart(index: tuple[Affine, ...], deep: set[Index]) -> bool:
    """Return whether each of some indices is a subscript by itself, once, and in no other."""
    found = [i for p in index for i in p.indices() if i in deep]
    return len(found) == len(deep) and all(
        p.plain() in deep for p in index if deep & set(p.indices())
    )


def _replaced(index: tuple[Affine, ...], by: dict[int, Index]) -> tuple[Affine, ...]:
    """Subscripts with some of them replaced by an index."""
    return tuple(by[d].affine() if d in by else p for d, p in enumerate(index))


class Kn2row(Rewrite):
    """`T[k, r, u] += D[c, u] * W[c, k, r]; O[k, y] += T[k, r, y + r]`."""

    name = "kn2row"
    needs = "a convolution of few results, or of small images with large weights"
    numerics = Numerics.STANDARD

    def make(self, base: Variant, target: Target, **parameters: int) -> Rewritten | None:
        groups = kn2row(base.source)
        return None if groups is None else Rewritten(groups, numerics=Numerics.STANDARD)
