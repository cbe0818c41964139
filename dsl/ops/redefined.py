"""A workload whose definitions are made of others, for machines that need them so."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from loopwright.dsl.expr import Expr, Read
from loopwright.dsl.index import Affine
from loopwright.dsl.tensor import Definition, Tensor
from loopwright.dsl.traversal import map_leaves
from loopwright.dsl.workload import Workload, defined, workload

Redefinition = Callable[[Tensor], None]
"""A function that defines a tensor."""


def redefined(given: Workload, how: Callable[[Definition], Redefinition | None]) -> Workload:
    """The same workload of fixed shapes, its inputs and outputs named as they were. `how` says how
    to define a stage anew; None if it stays."""
    if all(how(defined(stage)) is None for stage in given.stages):
        return given
    copies: dict[Tensor, Tensor] = {t: t for t in given.inputs}
    for stage in given.stages:
        d = defined(stage)
        d = Definition(d.axes, d.reduce, d.reducer, _moved(d, copies))
        copy = copies[stage] = Tensor(stage.name, stage.shape, stage.dtype)
        define = how(d)
        if define is None:
            copy.definition = d
        else:
            define(copy)
    return workload(*(copies[t] for t in given.outputs), inputs=given.inputs)


def _moved(d: Definition, copies: Mapping[Tensor, Tensor]) -> Expr:
    """A definition's body, of copies and with the extents that its loops have."""
    known = {i: i for i in (*d.axes, *d.reduce)}

    def position(p: Affine) -> Affine:
        return p.replace(known.__getitem__)

    def read(r: Read) -> Expr:
        return Read(copies[r.tensor], tuple(map(position, r.index)))

    return map_leaves(d.body, read, position)
