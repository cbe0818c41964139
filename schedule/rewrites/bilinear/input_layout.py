"""Input layout of convolutions: what a program computes before them, as Winograd's transforms want
to read it."""

from __future__ import annotations

from dataclasses import replace

from loopwright.dsl.expr import Expr, Read
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import tensor_shape
from loopwright.schedule.program.canonical import Program, places_of
from loopwright.schedule.program.nest import Nest, fresh, stride
from loopwright.schedule.program.plan import FusionGroup
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.bilinear.match import Convolution, folded


def fold_padding(
    done: list[Nest | FusionGroup], made: list[Convolution], program: Program, source: Source
) -> list[Nest | FusionGroup]:
    """Program before these convolutions, without a nest that pads their data. The data is one
    tensor with channels last: the transform reads what is padded, and zeros around it. Where
    channels are not last, a copy must be made anyway, which may as well be padded."""
    first, old = made[0], made[0].data.tensor
    writers = [n for n in done if isinstance(n, Nest) and n.out is old]
    readers = sum(r.tensor is old for n in program for r in n.reads())
    if len(writers) != 1 or readers != len(made) or old in source.outputs or first.folds:
        return done
    (nest,) = writers
    if not first.padded_by(nest):
        return done
    for other in made:
        other.padding = nest
    return [n for n in done if n is not nest]


def lay_out_inputs(
    done: list[Nest | FusionGroup], made: list[Convolution], program: Program, source: Source
) -> list[Nest | FusionGroup]:
    """Program before these convolutions, with their data, one tensor, channels last: written so
    where that is possible, else copied."""
    first = made[0]
    if first.folds:
        return [*done, folded(made)]
    order, old = first.order, first.data.tensor
    if first.padding is not None or stride(old, first.data.index, first.channels[-1]) == 1:
        return done

    def turned(index: tuple[Affine, ...]) -> tuple[Affine, ...]:
        return tuple(index[d] for d in order)

    shape = tuple(tensor_shape(old)[d] for d in order)
    new = Tensor(fresh(f"{old.name}_last", first.names), shape, old.dtype)
    for other in made:
        other.data = Read(new, turned(other.data.index))
    writers = [n for n in done if isinstance(n, Nest) and n.out is old]
    readers = sum(r.tensor is old for n in program for r in n.reads())
    whole = len(writers) == sum(n.out is old for n in program)
    if writers and whole and readers == len(made) and old not in source.outputs:

        def written(n: Nest) -> Nest:
            result = new if n.result is old else n.result

            def read(r: Read) -> Expr:
                return Read(new, r.index) if r.tensor is old else r

            return replace(n.with_reads(read), out=new, index=turned(n.index), result=result)

        return [written(n) if n in writers and isinstance(n, Nest) else n for n in done]
    axes = tuple(Index(f"d{d}", size) for d, size in enumerate(tensor_shape(old)))
    copy = Nest(new, turned(places_of(*axes)), axes, (), None, Read(old, places_of(*axes)), new)
    return [*done, copy]
