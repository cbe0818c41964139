"""Weights of three bytes: products with a matrix that is read once, as a rewrite of the program.

    O[i, j] += X[i, k] * W[k, j]
     ↦  S[j] = max over k of |W[k, j]| / (2²³ - 1)                         ahead of time
        V[k, j] = round(W[k, j] / S[j]),  H = ⌊V / 2⁸⌋,  L = V mod 2⁸      ahead of time
        O[i, j] = S[j] * Σ X[i, k] * (2⁸ * H[k, j] + L[k, j])

where W is known ahead of time. Such a product takes as long as its weights take to be read, and
these have three quarters of the bytes. V is an integer of 24 bits with its sign, all of which are
float32's, too. It differs from W / S by half at most, which is what rounding to float32 costs the
largest weight of a sum: the results are those of weights that are off by 2⁻²⁴ of that one (block
floating point, Wilkinson 1963, *Rounding Errors in Algebraic Processes*).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from loopwright.dsl.dtypes import largest
from loopwright.dsl.expr import Binary, Cast, Const, Expr, Read, Select, Unary, map_leaves
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload, tensor_bytes
from loopwright.schedule.assemble import known_ahead
from loopwright.schedule.context import indices, uses
from loopwright.schedule.copied import factors
from loopwright.schedule.nest import Nest, extent
from loopwright.schedule.plan import Group, finished, fused, names_of, with_groups
from loopwright.schedule.rewrite import fresh
from loopwright.schedule.target import Target

GROWTH = 2.0
"""Of rounding errors: a weight is rounded once more, by as much as the largest one of its sum."""

_LARGEST = (1 << 23) - 1
_LEAST = 1e-38  # of a scale: a row of zeros has one too
_ONCE = 4  # uses of a weight for each time that it is read


def fixed_point(workload: Workload, target: Target) -> tuple[Group, ...] | None:
    """The groups of a workload with each product whose time goes into reading weights, more than a
    second-level cache holds, with weights of three bytes; None if there is none."""
    program = fused(workload)
    ahead = known_ahead(workload, tuple(Group((), (nest,)) for nest in program))
    names = names_of(program, workload)
    made = {}
    for nest in program:
        found = _Product.of(nest, ahead, target)
        if found is not None:
            made[id(nest)] = [finished(Group((), (n,))) for n in found.nests(names)]
    return with_groups(program, made, (), workload.outputs) if made else None


@dataclass(frozen=True)
class _Product:
    """A nest that is a product with weights, and the same with smaller ones."""

    nest: Nest
    weights: Read

    @staticmethod
    def of(nest: Nest, ahead: frozenset[str], target: Target) -> _Product | None:
        """The product of a nest, if it is one that may gain."""
        sides = factors(nest)
        types = {nest.result.dtype, *(r.dtype for r in sides)}
        if len(sides) != 2 or types != {"float32"}:
            return None
        for weights, other in (sides, sides[::-1]):
            if weights.tensor.name not in ahead or other.tensor.name in ahead:
                continue
            moving = [p for p in weights.index if p.terms]
            axes = [p.plain() for p in moving]
            plain = None not in axes and len(axes) == len(set(axes))
            whole = set(nest.reduce) <= indices(weights) <= set(nest.extents)
            far = tensor_bytes(weights.tensor) > target.l2_bytes
            if plain and whole and far and uses(nest, weights) <= _ONCE:
                return _Product(nest, weights)
        return None

    def nests(self, names: set[str]) -> Iterator[Nest]:
        """The scales, both parts of the weights, and the product."""
        walked = [p.plain() for p in self.weights.index]
        every = tuple(i for i in walked if i is not None)
        kept = tuple(i for i in every if i in self.nest.axes)
        summed = tuple(i for i in every if i in self.nest.reduce)

        size = Unary("abs", self.weights)
        most, s = (self._tensor(role, kept, "float32", names) for role in ("most", "scale"))
        scale = Read(s, _places(kept))
        yield Nest(most, scale.index, kept, summed, "max", size, most)
        # A maximum passes over what is no number, a sum does not: such a weight shows.
        finite = _number(largest("float32"), "le", size)
        lost = Select(finite, Const(0.0, "float32"), self.weights)
        step = _number(_LEAST, "max", _number(1 / _LARGEST, "mul", Read(most, scale.index)))
        yield Nest(s, scale.index, kept, summed, "sum", lost, s, Binary("add", scale, step))

        parts = []
        for name, op, dtype in (("high", "floordiv", "int16"), ("low", "mod", "uint8")):
            part = self._tensor(name, every, dtype, names)
            value = Cast(Binary(op, self._rounded(scale), Const(256, "int32")), dtype)
            yield Nest(part, _places(every), every, (), None, value, part)
            parts.append(Cast(Read(part, _places(every)), "int32"))
        high, low = parts
        value = Cast(Binary("add", Binary("mul", high, Const(256, "int32")), low), "float32")
        yield self._product(value, scale)

    def _rounded(self, scale: Read) -> Expr:
        """A weight as an integer of 24 bits."""
        wide = Binary("div", Cast(self.weights, "float64"), Cast(scale, "float64"))
        return Cast(Unary("floor", _number(0.5, "add", wide)), "int32")

    def _product(self, value: Expr, scale: Read) -> Nest:
        nest = self.nest

        def weight(r: Read) -> Expr:
            return value if r == self.weights else r

        def scaled(r: Read) -> Expr:
            return Binary("mul", r, scale) if r.tensor is nest.result else r

        after: Expr = Read(nest.result, nest.index) if nest.epilogue is None else nest.epilogue
        return replace(
            nest,
            body=map_leaves(nest.body, weight, lambda p: p),
            epilogue=map_leaves(after, scaled, lambda p: p),
        )

    def _tensor(self, role: str, axes: tuple[Index, ...], dtype: str, names: set[str]) -> Tensor:
        name = fresh(f"{self.weights.tensor.name}_{role}", names)
        return Tensor(name, tuple(map(extent, axes)), dtype)


def _number(number: float, op: str, x: Expr) -> Expr:
    return Binary(op, x, Const(number, x.dtype))


def _places(axes: tuple[Index, ...]) -> tuple[Affine, ...]:
    return tuple(a.affine() for a in axes)
