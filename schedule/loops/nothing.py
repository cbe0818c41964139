"""Tensors without elements: what is left to compute of a workload that has some.

A sum over nothing is 0, a product 1, and a result without elements takes no code:

    Y[i, j] += A[i, k] * B[k, j]    k < 0    ↦    Y[i, j] = 0
"""

from __future__ import annotations

from dataclasses import replace

from loopwright.dsl.errors import NotationError
from loopwright.dsl.expr import Expr, Read, Select
from loopwright.dsl.size import Size, least
from loopwright.dsl.tensor import Definition, Tensor
from loopwright.dsl.traversal import rebuild
from loopwright.dsl.workload import Workload, defined, reads, tensor_shape
from loopwright.schedule.loops.statements import identity
from loopwright.schedule.tree.grammar import Buffer, Tree

NOTHING = Tree(1, (), (), (), (), (), ())
"""A tree that does nothing."""


def has_elements(workload: Workload) -> bool:
    """Return whether no tensor of a workload is empty, and no sum is over nothing."""
    sizes = [*map(tensor_shape, workload.inputs)]
    sizes += [tuple(defined(t).extents.values()) for t in workload.stages]
    return not any(0 in size for size in sizes)


def refuse_nothing_at_some_size(workload: Workload) -> None:
    """Raises `NotationError` for a workload with dims of which some tensor has no elements, or
    none at some size: its programs are for all sizes alike."""
    shapes = {t.name: tensor_shape(t) for t in workload.inputs}
    shapes |= {t.name: tuple(defined(t).extents.values()) for t in workload.stages}
    if zero := next((d for d in workload.dims if d.low == 0), None):
        raise NotationError(
            f"{zero}, and a program is for sizes of at least 1: give it narrower bounds, and "
            f"build workload.at({zero.name}=0, …) by itself"
        )
    for name, shape in shapes.items():
        for extent in shape:
            if isinstance(extent, Size) and least(extent) < 1:
                raise NotationError(
                    f"{name} has an extent, {extent}, that is 0 at some size: give the dims "
                    "narrower bounds, and build workload.at(…) for the sizes that this leaves out"
                )
    if not has_elements(workload):
        raise NotationError(
            "a tensor of this workload has no elements at any size: leave it out, or choose "
            "sizes, as by workload.at(…)"
        )


def refuse_nothing(workload: Workload) -> None:
    """Raises `NotationError` for a workload of which some tensor has no elements."""
    if not has_elements(workload):
        raise NotationError(
            "a tensor of this workload has no elements, so there is nothing to choose: lw.build "
            "makes its library"
        )


def without_nothing(workload: Workload) -> Workload:
    """The part of a workload that has elements, of the same names."""
    new: dict[Tensor, Tensor] = {t: t for t in workload.inputs if 0 not in tensor_shape(t)}
    for stage in workload.stages:
        if 0 not in tensor_shape(stage):
            new[stage] = Tensor(stage.name, stage.shape, stage.dtype, stage.constant)
            new[stage].definition = _definition(defined(stage), stage.dtype, new)
    stages = tuple(new[t] for t in workload.stages if t in new)
    used = {r.tensor for t in stages for r in reads(defined(t).body)}
    inputs = tuple(t for t in workload.inputs if t in used)
    return Workload(inputs, stages, tuple(new[t] for t in workload.outputs if t in new))


def _definition(d: Definition, dtype: str, new: dict[Tensor, Tensor]) -> Definition:
    if 0 in d.extents.values():
        return Definition(d.axes, (), None, identity(d.reducer, dtype))

    def full(x: Expr) -> bool:
        return all(r.tensor in new for r in reads(x))

    def change(x: Expr) -> Expr:
        if isinstance(x, Select) and not (full(x.x) and full(x.y)):
            return change(x.x if full(x.x) else x.y)  # the other side is never taken
        return Read(new[x.tensor], x.index) if isinstance(x, Read) else rebuild(x, change)

    return replace(d, body=change(d.body))


def with_nothing(tree: Tree, workload: Workload) -> Tree:
    """A tree of what is left, with the arguments of the whole workload."""
    left = {b.name: b for b in (*tree.inputs, *tree.outputs)}
    constants = {b.name for b in tree.constants}

    def argument(t: Tensor) -> Buffer:
        return left.get(t.name, Buffer(t.name, (1,), t.dtype, "argument"))

    return replace(
        tree,
        inputs=tuple(argument(t) for t in workload.inputs if t.name not in constants),
        outputs=tuple(argument(t) for t in workload.outputs),
    )
