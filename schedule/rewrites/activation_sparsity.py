"""Sparse activations: products that leave out the steps in which a factor is 0, as a rewrite.

    O[i, j] = E(sum over k < K of X[i, k] * W[k, j])                  in blocks of D steps
     ↦  S[i, j]  = sum over k < D, X[i, k] ≠ 0, of X[i, k] * W[k, j]
        S[i, j] += sum over k in block b, X[i, k] ≠ 0, of …           for each block but the last
        O[i, j] = E(S[i, j] + sum over k in the last one, …)

where W is constant. Behind a ReLU about half of X are zeros, which is known only when
the program runs: a bit for each k of a block tells where X is not 0, and the innermost loop goes
from bit to bit. (That activations are worth it: Kurtz et al. 2020, *Inducing and Exploiting
Activation Sparsity for Fast Inference on Deep Neural Networks*.) Only what is 0 for all rows of a
register tile is left out, so tiles have one row or a few; each multiply-add loads its weights, and
a block of these must stay in the first-level cache while all rows use it. So the sum is cut, and
what it has come to waits in S.

Results are those of the definition, but for weights that are infinite or no numbers, where these
meet a 0. What such a program takes depends on the data, so no search finds it: it is compared
where a network has made the data (`graph.tuning.in_situ`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from loopwright.dsl.expr import Read
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload, tensor_bytes
from loopwright.schedule.program import plan
from loopwright.schedule.program.canonical import substitute_axes
from loopwright.schedule.program.constants import constants_of
from loopwright.schedule.program.footprint import indices
from loopwright.schedule.program.nest import Nest, extent, fresh, stride
from loopwright.schedule.rewrites.cache_read import factors
from loopwright.schedule.rewrites.contract import Rewrite, Rewritten
from loopwright.schedule.rewrites.heuristics import REWRITE
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Target

_BITS = 8
"""Steps that one instruction makes bits of."""
_VECTOR = 32  # bytes, at least: AVX
_DEPTHS = (32, 64)
"""Depth of blocks, at most: as many bits as a register has, and half of them for wider tiles."""


def depths(workload: Workload, groups: tuple[plan.FusionGroup, ...], target: Target) -> list[int]:
    """Depths of blocks that may pay."""
    products = list(_products(groups, workload, target))
    if not products:
        return []
    return max(products, key=lambda product: product.nest.steps).depths()


def skip_zeros(
    groups: tuple[plan.FusionGroup, ...], workload: Workload, target: Target, depth: int
) -> tuple[plan.FusionGroup, ...] | None:
    """The groups of a workload with each product whose depth is a multiple of this in steps that
    skip zeros; None if there is none."""
    found = {id(p.nest): p for p in _products(groups, workload, target) if depth in p.depths()}
    if not found:
        return None
    names = plan.names_of(tuple(n for group in groups for n in group.nests), workload)

    def skipping(group: plan.FusionGroup, inside: bool) -> plan.FusionGroup:
        parts: list[Nest | plan.FusionGroup] = []
        local = list(group.scratch)
        for part in group.body:
            if isinstance(part, plan.FusionGroup):
                parts.append(skipping(part, True))
            elif id(part) not in found:
                parts.append(part)
            elif inside or group.outer or not found[id(part)].rows:
                made = found[id(part)].group(depth, names)
                parts += made.body
                local += made.scratch
            else:
                return found[id(part)].in_blocks(depth, names, target)
        return replace(group, body=tuple(parts), scratch=tuple(local))

    return tuple(plan.finished(skipping(group, False)) for group in groups)


def _products(
    groups: tuple[plan.FusionGroup, ...], workload: Workload, target: Target
) -> Iterator[_Product]:
    constants = constants_of(workload, groups)
    for group in groups:
        for nest in group.nests:
            product = _Product.of(nest, constants, target)
            if product is not None and (group.outer or len(group.body) == 1):
                yield product


@dataclass(frozen=True)
class _Product:
    """A sum of products with weights over one axis, along which the other factor is contiguous."""

    nest: Nest
    data: Read

    @staticmethod
    def of(nest: Nest, constants: frozenset[str], target: Target) -> _Product | None:
        """The product of a nest, if skipping zeros may pay."""
        sides = factors(nest)
        if not target.triple.startswith("x86_64") or target.vector_bytes < _VECTOR:
            return None
        if len(sides) != 2 or {nest.result.dtype, *(r.dtype for r in sides)} != {"float32"}:
            return None
        for weights, data in (sides, sides[::-1]):
            if weights.tensor.name not in constants or data.tensor.name in constants:
                continue
            rows = [a for a in nest.axes if a not in indices(weights)]
            columns = [a for a in nest.axes if a not in indices(data)]
            if len(nest.reduce) != 1 or len(columns) != 1 or {*rows, *columns} != {*nest.axes}:
                continue
            (k,), (column,) = nest.reduce, columns
            wide = extent(column) >= REWRITE.sparse_row_vectors * target.lanes(4)
            wide &= extent(column) % target.lanes(4) == 0
            count = math.prod(map(extent, rows))
            far = tensor_bytes(weights.tensor) > target.l2_bytes
            many = count >= REWRITE.sparse_rows or (count == 1 and far)
            contiguous = stride(data.tensor, data.index, k) == 1
            if wide and many and contiguous and stride(nest.out, nest.index, column) == 1:
                return _Product(nest, data)
        return None

    def depths(self) -> list[int]:
        """Into blocks of which depths its sum may be cut: the most of each size."""
        (k,) = self.nest.reduce
        divisors = [d for d in range(_BITS, extent(k) + 1, _BITS) if extent(k) % d == 0]
        found = sorted({max(d for d in divisors if d <= most) for most in _DEPTHS if divisors})
        return found if self.rows else found[-1:]

    @property
    def rows(self) -> tuple[Index, ...]:
        """The axes along which weights are used again."""
        return tuple(a for a in self.nest.axes if a in indices(self.data))

    def group(self, depth: int, names: set[str]) -> plan.FusionGroup:
        """Its parts, inside of other loops."""
        nest, (k,) = self.nest, self.nest.reduce
        if not self.rows:
            return plan.FusionGroup((), (self._whole(depth),))
        count = extent(k) // depth
        within = Index(f"{k.name}.within", depth)
        name = fresh(f"{nest.result.name}_sums", names)
        sums = Tensor(name, tuple(map(extent, nest.axes)), nest.result.dtype)
        place = Read(sums, tuple(a.affine() for a in nest.axes))

        def part(begin: Affine, start: bool, last: bool) -> Nest:
            moved = replace(nest, sparse=self.data)
            moved = substitute_axes(moved, nest.axes, (within,), {k: begin + within})
            moved = replace(moved, start=place if start else None)
            if last:
                return moved
            return replace(moved, out=sums, index=place.index, result=sums, epilogue=None)

        if count == 1:
            return plan.FusionGroup((), (part(Affine((), 0), False, True),))
        parts: list[Nest | plan.FusionGroup] = [part(Affine((), 0), False, False)]
        if count > 2:
            middle = Index(f"{k.name}.block", count - 2)
            parts.append(plan.FusionGroup((middle,), (part(middle * depth + depth, True, False),)))
        parts.append(part(Affine((), (count - 1) * depth), True, True))
        return plan.FusionGroup((), tuple(parts), (sums,))

    def _whole(self, depth: int) -> Nest:
        """All of a single row: each weight is used once, and no sum has to wait."""
        (k,) = self.nest.reduce
        block = Index(f"{k.name}.block", extent(k) // depth)
        within = Index(f"{k.name}.within", depth)
        marked, at = replace(self.nest, sparse=self.data), {k: block * depth + within}
        return substitute_axes(marked, self.nest.axes, (block, within), at)

    def in_blocks(self, depth: int, names: set[str], target: Target) -> plan.FusionGroup:
        """All of it, a block of rows at a time, all threads being busy."""
        nest = self.nest
        row = max(self.rows, key=extent)
        count = extent(row)
        size = tensor_bytes(nest.out) / count
        even = plan.even_blocks(1, count, target.threads)
        fitting = [
            rows for rows in even if rows * size <= REWRITE.sparse_block_l2_share * target.l2_bytes
        ]
        rows = fitting[-1] if fitting else 1
        block, base = plan.TileOrigin.of_blocks(row.name, count, rows)
        within = Index(f"{row.name}.within", rows)
        axes = tuple(within if a == row else a for a in nest.axes)
        marked, at = replace(nest, sparse=self.data), {row: base.index + within}
        moved = substitute_axes(marked, axes, nest.reduce, at)
        assert moved.sparse is not None
        made = _Product(moved, moved.sparse).group(depth, names)
        return replace(made, outer=(block,), tile_origins=(base,))


class ActivationSparsity(Rewrite):
    """`for k in bits(X[i] != 0): O[i, j] += X[i, k] * W[k, j]`: zeros of the data are skipped.

    A weight that is infinite, or no number, does not show where it meets a zero.
    """

    name = "activation_sparsity"
    needs = "x86 with AVX, and a product with constant weights, data contiguous along the sum"
    of = ("direct", "boundary_peeling", "producer_at_blocks")
    numerics = Numerics.STANDARD
    minor = 0.3
    data_dependent = True

    def choices(self, base: Variant, target: Target) -> Iterator[Mapping[str, int]]:
        for depth in depths(base.workload, base.groups, target):
            yield {"depth": depth}

    def make(self, base: Variant, target: Target, **parameters: int) -> Rewritten | None:
        groups = skip_zeros(base.groups, base.workload, target, parameters["depth"])
        return None if groups is None else Rewritten(groups, numerics=Numerics.STANDARD)
