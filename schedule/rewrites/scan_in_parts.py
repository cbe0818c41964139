"""Scans in parts: rows whose running results are too few to keep every thread busy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from loopwright.dsl.dtypes import identity
from loopwright.dsl.expr import Binary, Const, IndexValue, Read, Select
from loopwright.dsl.index import Index
from loopwright.dsl.scans import Scan
from loopwright.dsl.tensor import Tensor
from loopwright.schedule.program.canonical import Program, substitute_axes, unused
from loopwright.schedule.program.nest import Nest, extent, fresh, scan_of, stride
from loopwright.schedule.program.plan import FusionGroup, finished, with_groups
from loopwright.schedule.rewrites.contract import Rewrite, Rewritten
from loopwright.schedule.rewrites.heuristics import REWRITE
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Target


class ScanInParts(Rewrite):
    """`T[p] += X[L·p + k]; A[p] += where(q < p, T[q], 0); Y[L·p + i] = A[p] + Σ X[L·p + k], k ≤ i`

    The parts of a row are scanned at once, each from what the parts before it come to (Hillis and
    Steele 1986; Blelloch 1990). Every element is read twice. `nest` numbers the scan.
    """

    name = "scan_in_parts"
    needs = "a scan of few rows, each so long that parts of it are worth a thread, which divide it"
    prior = 0.5  # the estimate does not see threads without work, and holds L2 for slower

    def choices(self, base: Variant, target: Target) -> Iterator[Mapping[str, int]]:
        for number, nest in enumerate(base.source.program):
            scan = scan_of(nest)
            if scan is None or stride(nest.out, nest.index, scan.axis) != 1:
                continue  # whose rows are vectors
            rows = nest.size // extent(scan.axis)
            parts = _parts(extent(scan.axis), target.threads)
            if parts is not None and rows < REWRITE.scanned_rows:
                yield {"nest": number, "parts": parts}

    def make(self, base: Variant, target: Target, **parameters: int) -> Rewritten | None:
        number, parts = parameters["nest"], parameters["parts"]
        nest = base.source.program[number]
        scan = scan_of(nest)
        if scan is None or extent(scan.axis) % parts:
            return None
        made = in_parts(nest, scan, parts, base.source.names())
        alone = [finished(FusionGroup((), (each,))) for each in made]
        groups = with_groups(base.source.program, {id(nest): alone}, (), base.source.outputs)
        return Rewritten(groups, 1.0, base.numerics)


def _parts(length: int, threads: int) -> int | None:
    """The most parts of a row that are worth it, which divide it; None if there are none. A thread
    scans a few at once, and one with others beside it takes more of them in turn."""
    few = REWRITE.scanned_rows * threads
    for parts in (few,) if threads == 1 else (4 * few, 2 * few, few):
        if length % parts == 0 and length // parts >= REWRITE.scanned_part_elements:
            return parts
    return None


def in_parts(nest: Nest, scan: Scan, parts: int, taken: set[str]) -> Program:
    """A scan of a length that `parts` divides: the results of the parts, those of the parts before
    each, and the scans of all parts."""
    (along,), length = nest.reduce, extent(scan.axis) // parts
    p, q = (Index(unused(name, tuple(nest.extents)), parts) for name in "pq")
    i, k = Index(scan.axis.name, length), Index(along.name, length)
    rows = tuple(a for a in nest.axes if a != scan.axis)
    places = {scan.axis: p * length + i, along: p * length + k}
    inside = substitute_axes(nest, (*rows, p, i), (k,), places)
    assert isinstance(inside.body, Select)
    assert nest.reducer is not None
    dtype, shape = inside.body.dtype, tuple(map(extent, (*rows, p)))
    total = Tensor(fresh(f"{nest.out.name}_parts", taken), shape, dtype)
    ahead = Tensor(fresh(f"{nest.out.name}_ahead", taken), shape, dtype)

    def place(tensor: Tensor, part: Index) -> Read:
        return Read(tensor, tuple(a.affine() for a in (*rows, part)))

    here = place(total, p).index
    each = Nest(total, here, (*rows, p), (k,), nest.reducer, inside.body.x, total)
    first, last = (p, q) if scan.backward else (q, p)
    counts = Binary("lt", IndexValue(first.affine()), IndexValue(last.affine()))
    start = Const(identity(nest.reducer, dtype), dtype)
    before = Select(counts, place(total, q), start)
    others = Nest(ahead, here, (*rows, p), (q,), nest.reducer, before, ahead)
    return each, others, replace(inside, start=place(ahead, p))
