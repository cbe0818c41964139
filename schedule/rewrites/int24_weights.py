"""Weights of three bytes: products with a matrix that is read once, as a rewrite of the program.

    O[i, j] += X[i, k] * W[k, j]                                          k < K, Q = ⌈K / 4⌉
     ↦  S[j] = max over k of |W[k, j]| / (2²³ - 2)                         ahead of time
        V[q, j] = round(W[K - Q + q, j] / S[j])                            ahead of time
        P_g[q, j] = 2⁸ * round(W[g * Q + q, j] / S[j] - B_g / 2⁸) + B_g    ahead of time, g < 3
        O[i, j] = S[j] / 2⁸ * Σ over q of X[i, K - Q + q] * 2⁸ * V[q, j]
                                          + Σ over g of X[i, g * Q + q] * P_g[q, j]

where W is constant, and B_g are the three bytes of V, which is what the lowest bytes of
the P_g are for: each is an integer of 32 bits whose upper 24 are a weight. Such a product takes as
long as its weights take to be read, and these have three quarters of the bytes; three of four are
made a float by one instruction. The lowest byte is no error, as the upper ones are chosen knowing
it. A weight is off by half a step of 2⁻²³ of the largest one of its sum: that is what rounding to
float32 costs the largest. A weight of the first three parts that is as large is off by half as
much again, since a float has 24 bits. This is block floating point (Wilkinson 1963, *Rounding
Errors in Algebraic Processes*). Where 4 does not divide K, some X meet a V that is 0, too. Sums
are up to 2³¹ times as large before they are scaled: they overflow for X of about 10²⁸, and where
weights are used a few times only, for which X is made smaller first, for those of 10³³.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from loopwright.dsl.dtypes import largest
from loopwright.dsl.expr import Binary, Cast, Const, Expr, IndexValue, Read, Select, Unary
from loopwright.dsl.index import Index, IndexExpr
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.traversal import map_leaves, map_reads
from loopwright.dsl.workload import Workload, tensor_bytes
from loopwright.schedule.program.canonical import moved, placed, places_of
from loopwright.schedule.program.constants import constants_of
from loopwright.schedule.program.footprint import indices, uses
from loopwright.schedule.program.nest import Nest, extent, fresh
from loopwright.schedule.program.plan import FusionGroup, finished, names_of
from loopwright.schedule.rewrites.cache_read import factors
from loopwright.schedule.rewrites.contract import Rewrite, Rewritten
from loopwright.schedule.rewrites.heuristics import REWRITE
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Target

ERROR_GROWTH = 2.0
"""Factor of rounding errors: a weight is rounded once more, by as much as the largest one of its
sum."""

_PARTS = 3  # that are whole integers; the weights of a fourth one are in their lowest bytes
_BYTE = 256
_LARGEST = (1 << 23) - 2  # not 2²³ - 1, which a scale that was rounded down would make 2²³
_STEPS = 2.0**22  # that a scale is kept as: of small weights, one step has too few digits
_LEAST = 2.0**-126  # of a scale, the least with all digits: a row of zeros has one too
_SMALL = 2.0**-16


def compress_weights(
    groups: tuple[FusionGroup, ...], workload: Workload, target: Target
) -> tuple[FusionGroup, ...] | None:
    """The groups of a workload with each product with large weights, more than a second-level
    cache holds, with weights of three bytes; None if there is none."""
    constants = constants_of(workload, groups)
    names = names_of(tuple(n for group in groups for n in group.nests), workload)
    done: list[FusionGroup] = []

    def smaller(group: FusionGroup) -> FusionGroup:
        parts: list[Nest | FusionGroup] = []
        for part in group.body:
            if isinstance(part, FusionGroup):
                parts.append(smaller(part))
                continue
            product = _Product.of(part, constants, target)
            if product is None:
                parts.append(part)
                continue
            *made_ahead, nest = product.nests(names)
            done.extend(finished(FusionGroup((), (each,))) for each in made_ahead)
            parts.append(nest)
        return replace(group, body=tuple(parts))

    for group in groups:
        made = smaller(group)  # puts what comes before it where it belongs
        done.append(made)
    return tuple(done) if len(done) > len(groups) else None


@dataclass(frozen=True)
class _Product:
    """A nest that is a product with weights, and the same with smaller ones."""

    nest: Nest
    weights: Read

    @staticmethod
    def of(nest: Nest, constants: frozenset[str], target: Target) -> _Product | None:
        """The product of a nest, if it is one that may gain."""
        sides = factors(nest)
        types = {nest.result.dtype, *(r.dtype for r in sides)}
        if len(sides) != 2 or types != {"float32"}:
            return None
        for weights, other in (sides, sides[::-1]):
            if weights.tensor.name not in constants or other.tensor.name in constants:
                continue
            moving = [p for p in weights.index if p.terms]
            axes = [p.plain() for p in moving]
            plain = None not in axes and len(axes) == len(set(axes))
            whole = set(nest.reduce) <= indices(weights) <= set(nest.extents)
            far = tensor_bytes(weights.tensor) > target.l2_bytes
            deep = any(
                extent(i) >= REWRITE.int24_depth for i in nest.reduce if i in indices(weights)
            )
            if plain and whole and far and deep:
                return _Product(nest, weights)
        return None

    def nests(self, names: set[str]) -> Iterator[Nest]:
        """The scales, the weights in four parts along the longest sum, and the product."""
        walked = [p.plain() for p in self.weights.index]
        every = tuple(i for i in walked if i is not None)
        kept = tuple(i for i in self.nest.axes if i in every)
        summed = tuple(i for i in every if i in self.nest.reduce)
        scale = Read(self._tensor("scale", kept, "float32", names), places_of(*kept))
        yield from self._scales(scale, summed, names)

        deep = max(summed, key=extent)
        part = Index(f"{deep.name}.part", -(-extent(deep) // (_PARTS + 1)))
        firsts = [{deep: part + g * extent(part)} for g in range(_PARTS)]
        last = {deep: part + (extent(deep) - extent(part))}
        inside = tuple(part if i == deep else i for i in every)
        v, *wholes = (
            Read(self._tensor(role, inside, "int32", names), places_of(*inside))
            for role in ("last", *(f"part{g}" for g in range(_PARTS)))
        )
        value: Expr = self._rounded(scale, last)
        again = (_PARTS + 1) * extent(part) - extent(deep)  # of the last ones are among the first
        if again:
            twice = Binary("lt", IndexValue(part.affine()), Const(again, "int32"))
            value = Select(twice, Const(0, "int32"), value)
        yield Nest(v.tensor, v.index, inside, (), None, value, v.tensor)
        for g, (first, whole) in enumerate(zip(firsts, wholes)):
            byte = _byte(v, _PARTS - 1 - g)
            value = _number(_BYTE, "mul", self._rounded(scale, first, byte))
            made = Binary("add", value, byte)
            yield Nest(whole.tensor, whole.index, inside, (), None, made, whole.tensor)
        values = [*zip(firsts, wholes), (last, _joined(wholes))]
        yield self._product(deep, part, values, scale)

    def _scales(self, scale: Read, summed: tuple[Index, ...], names: set[str]) -> Iterator[Nest]:
        kept = tuple(i for p in scale.index for i in p.indices())
        most = Read(self._tensor("most", kept, "float32", names), scale.index)
        size = Unary("abs", self.weights)
        yield Nest(most.tensor, most.index, kept, summed, "max", size, most.tensor)
        # A maximum passes over what is no number, a sum does not: such a weight shows.
        finite = _number(largest("float32"), "le", size)
        lost = Select(finite, Const(0.0, "float32"), self.weights)
        steps = _number(_LEAST, "max", _number(_STEPS / _LARGEST, "mul", most))
        made, s = Binary("add", scale, steps), scale.tensor
        yield Nest(s, scale.index, kept, summed, "sum", lost, s, made)

    def _rounded(
        self, scale: Read, at: Mapping[Index, IndexExpr], byte: Expr | None = None
    ) -> Expr:
        """A weight as an integer of 24 bits, behind which comes a byte."""
        step = _number(1 / _STEPS, "mul", Cast(scale, "float64"))
        wide = Binary("div", Cast(moved(self.weights, at), "float64"), step)
        if byte is not None:
            wide = Binary("sub", wide, _number(1 / _BYTE, "mul", Cast(byte, "float64")))
        return Cast(Unary("floor", _number(0.5, "add", wide)), "int32")

    def _product(
        self,
        deep: Index,
        part: Index,
        values: Sequence[tuple[Mapping[Index, IndexExpr], Expr]],
        scale: Read,
    ) -> Nest:
        nest = self.nest
        # Integers of 32 bits make sums that much larger, which may then be too large. What is used
        # once leaves the time to make the other factor smaller.
        once = uses(nest, self.weights) <= REWRITE.int24_uses_per_read

        def term(at: Mapping[Index, IndexExpr], value: Expr) -> Expr:
            def read(r: Read) -> Expr:
                if r == self.weights:
                    return Cast(value, "float32")
                return _number(_SMALL, "mul", moved(r, at)) if once else moved(r, at)

            return map_leaves(nest.body, read, lambda p: placed(p, at))

        def scaled(r: Read) -> Expr:
            if r.tensor is not nest.result:
                return r
            back = 1 / _STEPS / _BYTE / (_SMALL if once else 1)
            return Binary("mul", _number(back, "mul", r), scale)

        after: Expr = Read(nest.result, nest.index) if nest.epilogue is None else nest.epilogue
        return replace(
            nest,
            reduce=tuple(part if i == deep else i for i in nest.reduce),
            body=_sum(term(at, value) for at, value in values),
            epilogue=map_reads(after, scaled),
        )

    def _tensor(self, role: str, axes: tuple[Index, ...], dtype: str, names: set[str]) -> Tensor:
        name = fresh(f"{self.weights.tensor.name}_{role}", names)
        return Tensor(name, tuple(map(extent, axes)), dtype)


def _number(number: float, op: str, x: Expr) -> Expr:
    return Binary(op, x, Const(number, x.dtype))


def _joined(wholes: Sequence[Read]) -> Expr:
    """The lowest bytes of some integers as the upper ones of another."""
    first, *rest = (_number(_BYTE, "mod", whole) for whole in wholes)
    half = _BYTE // 2  # the first one has the sign: from 128 on it is 256 less
    signed = _number(half, "sub", _number(_BYTE, "mod", _number(half, "add", first)))
    bytes_ = enumerate((signed, *rest))
    return _sum(_number(_BYTE ** (len(wholes) - g), "mul", byte) for g, byte in bytes_)


def _sum(terms: Iterable[Expr]) -> Expr:
    return functools.reduce(functools.partial(Binary, "add"), terms)


def _byte(value: Expr, number: int) -> Expr:
    """A byte of an integer, counted from the lowest one."""
    shifted = _number(_BYTE**number, "floordiv", value) if number else value
    return _number(_BYTE, "mod", shifted)


class Int24Weights(Rewrite):
    """`V = round(W / S); O[i, j] = S[j] * Σ X[i, k] * V[k, j]`: weights of three bytes."""

    name = "int24_weights"
    needs = "a product with constant float32 weights, larger than the second-level cache"
    of = ("direct", "strassen", "winograd", "winograd_by_phase")
    numerics = Numerics.FAST
    minor = 0.3

    def make(self, base: Variant, target: Target, **parameters: int) -> Rewritten | None:
        groups = compress_weights(base.groups, base.workload, target)
        return None if groups is None else Rewritten(groups, ERROR_GROWTH, Numerics.FAST)
