"""Channels last: how images lie between the steps of a network.

Models are written with channels first. Between two steps of ours, an array may lie as suits them:
with its channels last, a vector holds neighbouring channels wherever a window stands, so that
convolutions neither re-lay what they read nor write across it.

    Y[n, c, y, x] += X[n, k, y + r, x + s] * W[c, k, r, s]
     ↦  Y[n, y, x, c] += X[n, y + r, x + s, k] * W[c, k, r, s]

A network's inputs, outputs and constants stay as they are, and so does what code of TVM's touches,
and what a loop takes from one iteration to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from loopwright.dsl.expr import Expr, Gather, Read
from loopwright.dsl.ranges import infer
from loopwright.dsl.tensor import Definition, Tensor
from loopwright.dsl.traversal import rebuild
from loopwright.dsl.workload import Workload, defined, reads, tensor_shape, workload
from loopwright.graph.importers.tir import Imported
from loopwright.graph.network import Network, Step, Value
from loopwright.graph.transforms.choices import Choices, structure_of
from loopwright.graph.transforms.reshape import only_reshapes

_LAST = (0, 2, 3, 1)
_VECTOR = 16  # channels: one vector of the widest kind, two of the usual one


def channels_last(
    network: Network, imported: Sequence[Imported | str], choices: Choices
) -> tuple[Imported | str, ...]:
    """The steps of a network, as imported, with images between them laid out channels last: the
    ones that `choices` have where it is known there."""
    structure = "layout", structure_of(network)
    if structure not in choices:
        settled = _settled(network, imported, _images(network, imported))
        choices[structure] = {value.number for value in settled}
    values = (v for step in network.steps for v in (*step.args, *step.outs))
    moved = frozenset(v for v in values if v.number in choices[structure])
    known: dict[tuple[int, frozenset[str]], Imported] = {}
    made: list[Imported | str] = []
    for step, said in zip(network.steps, imported, strict=True):
        names = frozenset() if isinstance(said, str) else _named(step, said, moved)
        if isinstance(said, str) or not names:
            made.append(said)
            continue
        key = (id(said), names)
        if key not in known:
            inside = {t.name for t in said.workload.stages if t not in said.workload.outputs}
            all_moved = names | {n for n in inside if _rank(said.workload, n) == len(_LAST)}
            known[key] = replace(said, workload=_permuted(said.workload, all_moved), moved=True)
        made.append(known[key])
    return tuple(made)


def _images(network: Network, imported: Sequence[Imported | str]) -> frozenset[Value]:
    """The arrays to lay out: those of rank 4 between steps of ours, in each connected part of the
    network where more convolutions gain than lose."""
    borders = {*network.inputs, *network.outputs}
    borders.update(v for loop in network.loops for v in loop.values())
    group: dict[Value, Value] = {}

    def root(value: Value) -> Value:
        while group[value] is not value:
            value = group[value]
        return value

    votes: dict[Value, int] = {}
    for step, said in zip(network.steps, imported, strict=True):
        values = [v for v in (*step.args, *step.outs) if v.data is None]
        if isinstance(said, str) or only_reshapes(said.workload):  # a reshape is to stay free
            borders.update(values)
            continue
        values = [v for v in values if len(v.shape) == len(_LAST)]
        for value in values:
            group.setdefault(value, value)
            group[root(value)] = root(values[0])
        if values:
            votes[values[0]] = votes.get(values[0], 0) + _vote(said.workload)
    totals: dict[Value, int] = {}
    for value, vote in votes.items():
        totals[root(value)] = totals.get(root(value), 0) + vote
    return frozenset(v for v in group if totals.get(root(v), 0) > 0 and v not in borders)


def _settled(
    network: Network, imported: Sequence[Imported | str], moved: frozenset[Value]
) -> frozenset[Value]:
    """Arrays to lay out that no step between convolutions would rather have as they
    are: one that also touches images which stay (next to a reshape, say) would read across."""
    steps = [(s, i) for s, i in zip(network.steps, imported) if isinstance(i, Imported)]
    touching: dict[Value, list[tuple[Step, Imported]]] = {}
    for step, said in steps:
        for value in moved.intersection((*step.args, *step.outs)):
            touching.setdefault(value, []).append((step, said))
    changed = True
    while changed:
        changed = False
        for step, said in steps:
            own = moved.intersection((*step.args, *step.outs))
            if not own or _multiplies(said.workload) or not _across(step, said, moved):
                continue
            around = list({id(pair): pair for value in own for pair in touching[value]}.values())
            left = moved - own
            before, after = (sum(_across(*p, m) for p in around) for m in (moved, left))
            if after < before:
                moved, changed = left, True
    return moved


def _across(step: Step, said: Imported, moved: frozenset[Value]) -> int:
    """The elements that a step reads or writes across what lies one behind the other: images that
    are not laid out for a convolution; of another step those that lie otherwise than most."""
    images = [v for v in (*step.args, *step.outs) if v.data is None and len(v.shape) == len(_LAST)]
    stay = sum(math.prod(v.shape) for v in images if v not in moved)
    go = sum(math.prod(v.shape) for v in images if v in moved)
    return stay if _vote(said.workload) > 0 else min(stay, go)


def _multiplies(work: Workload) -> bool:
    """Return whether a workload sums products: its operands are packed, however they lie."""
    stages = [defined(t) for t in work.stages]
    return any(d.reducer == "sum" and len(list(reads(d.body))) > 1 for d in stages)


def _vote(work: Workload) -> int:
    """Vote of a step for channels last: 1 for a convolution that gains, as vectors of channels
    need no shuffling wherever a window stands. It is -1 for a depthwise one whose channels are no
    whole vectors."""
    return sum(_gains(defined(stage)) for stage in work.stages)


def _gains(d: Definition) -> int:
    operands = [r for r in reads(d.body) if len(r.index) == len(_LAST)]
    window = {k for k in d.reduce if k.extent != 1}
    slid = [
        r
        for r in operands
        if any(len(p.terms) > 1 and window & set(p.indices()) for p in r.index[2:])
    ]
    if d.reducer != "sum" or len(operands) < 2 or not slid:
        return 0
    data = slid[0]
    channel = data.index[1].plain()
    summed = channel in d.reduce and channel.extent != 1
    whole = tensor_shape(data.tensor)[1] % _VECTOR == 0
    return 1 if (summed or whole) else -1


def _named(step: Step, said: Imported, moved: frozenset[Value]) -> frozenset[str]:
    """The names, in a step's workload, of the arrays to lay out."""
    given = (*step.args, *step.outs)
    work = said.workload
    tensors = (*zip(work.inputs, said.inputs), *zip(work.outputs, said.outputs))
    return frozenset(t.name for t, number in tensors if given[number] in moved)


def _rank(work: Workload, name: str) -> int:
    return next(len(tensor_shape(t)) for t in work.stages if t.name == name)


def _permuted(work: Workload, moved: frozenset[str]) -> Workload:
    """The same work, some of its tensors with axes in another order."""
    new: dict[Tensor, Tensor] = {}

    def read(r: Read) -> Expr:
        order = _order(r.tensor, moved)
        return replace(r, tensor=new[r.tensor], index=order(r.index))

    def permuted(x: Expr) -> Expr:
        if not isinstance(x, Gather):
            return read(x) if isinstance(x, Read) else rebuild(x, permuted)
        order = _order(x.table.tensor, moved)
        at = tuple(None if e is None else permuted(e) for e in order(x.at))
        return Gather(read(x.table), at, order(x.shape))

    for old in (*work.inputs, *work.stages):
        order = _order(old, moved)
        copy = Tensor(old.name, order(tensor_shape(old)), old.dtype, old.constant)
        if old.definition is not None:
            d = old.definition
            body = permuted(d.body)
            # In the notation, axes of reductions come in the order in which the body names them:
            # configs count them, here and in other processes.
            named = list(infer(copy.name, order(d.axes), copy.shape, body))
            reduce = tuple(sorted(d.reduce, key=named.index))
            copy.definition = Definition(order(d.axes), reduce, d.reducer, body)
        new[old] = copy
    return workload(*(new[t] for t in work.outputs), inputs=[new[t] for t in work.inputs])


def _order(tensor: Tensor, moved: frozenset[str]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Puts what there is for each axis of a tensor in the order of its new axes."""
    if tensor.name not in moved:
        return lambda parts: parts
    return lambda parts: tuple(parts[n] for n in _LAST)
