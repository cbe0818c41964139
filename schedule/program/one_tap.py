"""Zero-skipping: a sum of products over a tensor that is zero but in one place of an axis.

    S[u] = where(u == a, X[0], 0);  O[y] += S[y + r] * W[r]
     ↦  O[y] = X[0] * W[a - y]

where each element of the result meets that place with one tap. The first layer of a generator, a
transposed convolution of an image of one pixel, is of this kind, and so is a padded window over
one. What remains is a matrix product.
"""

from __future__ import annotations

from dataclasses import replace

from loopwright.dsl.expr import Expr, Read, Select
from loopwright.dsl.index import Affine, Index, IndexExpr
from loopwright.dsl.tensor import Tensor
from loopwright.schedule.program.canonical import Program, substitute_axes
from loopwright.schedule.program.fusion import inlined
from loopwright.schedule.program.nest import Nest, extent
from loopwright.schedule.program.padding import Span
from loopwright.schedule.program.polyphase import factors, spans_of


def one_tap(program: Program, outputs: tuple[Tensor, ...]) -> Program:
    """The program with every sum of products over such a tensor without the loops over taps.

    `S[u] = where(u == 3, X[0], 0);  O[y] = sum over r < 4 of S[y + r] * W[r]  for y < 4
     ↦  O[y] = X[0] * W[3 - y]`
    """
    for producer in program:
        spans = None if producer.out in outputs else spans_of(producer)
        uses = [(n, r) for n in program for r in n.reads() if r.tensor is producer.out]
        writers = sum(n.out is producer.out for n in program)
        if spans is None or len(uses) != 1 or writers != 1:
            continue
        ((nest, read),) = uses
        if nest.reducer != "sum" or not any(factor is read for factor in factors(nest.body)):
            continue
        places = zip(spans, read.index, strict=True)
        taps = dict(found for span, p in places if (found := _tap(span, p, nest)) is not None)
        if taps:
            left = tuple(k for k in nest.reduce if k not in taps)
            made = _of_the_image(substitute_axes(nest, nest.axes, left, taps), producer, spans)
            program = tuple(made if n is nest else n for n in program)
    used = {r.tensor for n in program for r in n.reads()}
    return tuple(n for n in program if n.out in used or n.out in outputs)


def _tap(span: Span, position: Affine, nest: Nest) -> tuple[Index, IndexExpr] | None:
    """The tap with which a subscript is where the tensor is not zero, for each element of the
    result; None if there is none for some of them, or more than one."""
    taps = [(i, c) for i, c in position.terms if isinstance(i, Index) and i in nest.reduce]
    if span.count != 1 or len(taps) != 1 or abs(taps[0][1]) != 1:
        return None
    ((tap, sign),) = taps
    value = (position - tap * sign - span.start) * -sign
    if not set(value.indices()) <= set(nest.axes):
        return None
    low, high = value.bounds(nest.extents)
    return (tap, value) if low >= 0 and high < extent(tap) else None


def _of_the_image(nest: Nest, producer: Nest, spans: tuple[Span, ...]) -> Nest:
    """The sum reading what is not zero where that lies, if it reads nothing else."""
    body = producer.body
    assert isinstance(body, Select)
    inside = replace(producer, body=body.x)
    (place,) = (r.index for r in nest.reads() if r.tensor is producer.out)

    def read(r: Read) -> Expr:
        return inlined(r, inside) if r.tensor is producer.out else r

    simple = isinstance(body.x, Read) and all(
        span.step == 1 and span.start <= low and high < span.stop
        for span, (low, high) in zip(spans, (p.bounds(nest.extents) for p in place), strict=True)
    )
    return nest.map(nest.axes, nest.reduce, read, lambda p: p) if simple else nest
