"""Which program a call runs: rules by boxes of sizes, from what each program costs there."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter

import numpy as np

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.size import Dim, named
from loopwright.schedule.open.program import OpenProgram
from loopwright.schedule.open.rule import Rule
from loopwright.schedule.open.work import Array, Floats, inputs, operations

_LARGER = 4.0  # a size above those that a program was made for is that much farther from it
_ALONE = 128  # least sizes of one dim that are cells of their own
_STEP = 1.06  # times as large: from one cell behind these to the next
_NEARER = 0.02  # of a program's cost for each unit of distance
_COMPARED = 4  # sizes of each dim in a cell at which costs are compared,
_CROWDED = 3  # where there are at most so many dims; else two
_SPLIT = 1e-4  # of the mean logarithm of cost, over all sizes, for which a cell becomes two
_ALIKE = 0.005  # by which the program of the cell before may have the greater logarithm

Cost = Callable[[int, Mapping[str, Array]], Floats]
"""What a program, by its number, costs at many sizes, in any unit."""
Bounds = tuple[tuple[int, int], ...]
"""The least and the greatest size of each dim."""


def rules(
    dims: tuple[Dim, ...],
    programs: Sequence[OpenProgram],
    cost: Cost | None = None,
    more: Mapping[str, Sequence[int]] | None = None,
) -> tuple[Rule, ...]:
    """Rules for all sizes, at most one program for each cell of a grid and its parts.

    The grid has lines where some program begins or ends to be right, behind the sizes that
    programs were made for, and before the sizes of `more`. Of the programs that are right for a
    cell, that is chosen which costs least on average; that of the cell before it if it costs next
    to nothing more. A cell of several dims in which other programs cost less here and there is
    halved.
    """
    cost, more = cost or _work(programs), more or _least(dims)
    lines = [_lines(d, at, programs, more.get(d.name, ())) for at, d in enumerate(dims)]
    ends = np.array(list(itertools.product(*map(itertools.pairwise, lines))), np.int64)
    ends[..., 1] -= [d.multiple for d in dims]
    made: list[Rule] = []
    for box, each in _parts(dims, ends, partial(_logs, dims, programs, cost)):
        chosen = int(each.argmin())
        if made and each[made[-1].program] <= each[chosen] + _ALIKE:
            chosen = made[-1].program
        rule = Rule(box, chosen)
        if made and (joined := _joined(made[-1], rule)) is not None:
            made[-1] = joined
        else:
            made.append(rule)
    return tuple(made)


def _parts(
    dims: Sequence[Dim], ends: Array, logs_of: Callable[[Array], Floats]
) -> list[tuple[Bounds, Floats]]:
    """Cells, or parts of them, and the logarithm of what each program costs there on average.
    `ends` are the least and the greatest size of each dim in each cell."""
    found: list[tuple[Bounds, Floats]] = []
    along = tuple(range(1, 1 + len(dims)))
    steps = np.array([d.multiple for d in dims])
    everywhere = math.prod(math.log((d.high + d.multiple) / d.low) for d in dims)
    while len(ends):
        logs = logs_of(ends)
        means, least = logs.mean(axis=along), logs.min(axis=-1).mean(axis=along)
        if not np.isfinite(least).all():
            raise ConfigError(
                f"no program is right for all sizes of {ends[least.argmax()].tolist()}"
            )
        low, high = ends[..., 0], ends[..., 1]
        share = np.log((high + steps) / low).prod(axis=1) / everywhere
        lost = (means.min(axis=1) - least) * share
        is_split = (len(dims) > 1) & (low < high).any(axis=1) & (lost > _SPLIT)
        kept = zip(ends[~is_split].tolist(), means[~is_split], strict=True)
        found += [(tuple((first, last) for first, last in cell), each) for cell, each in kept]
        ends = ends[is_split]
        halved = np.stack([_of_halves(logs[is_split], axis) for axis in along], axis=1)
        halved[ends[..., 0] == ends[..., 1]] = np.inf
        ends = _halves(ends, halved.argmin(axis=1), steps)
    return sorted(found, key=itemgetter(0))


def _logs(
    dims: tuple[Dim, ...], programs: Sequence[OpenProgram], cost: Cost, ends: Array
) -> Floats:
    """Logarithms of what programs, the last axis, cost in cells, the first one, at sizes of each
    dim; infinite where a program is not right for all of a cell."""
    count = _COMPARED if len(dims) <= _CROWDED else 2
    low, high = ends[..., 0, None], ends[..., 1, None]
    steps = np.array([d.multiple for d in dims])[:, None]
    shares = (np.arange(count) + 0.5) / count
    away = (low * (high / low) ** shares + 1e-9).astype(int) - low
    sizes = low + away // steps * steps  # (cells, dims, sizes)
    asked = [
        sizes[:, at].reshape(-1, *(count if axis == at else 1 for axis in range(len(dims))))
        for at in range(len(dims))
    ]
    found = np.full((*np.broadcast_shapes(*(a.shape for a in asked)), len(programs)), np.inf)
    for k, p in enumerate(programs):
        least, most = np.array([(d.low, d.high) for d in p.dims]).T
        able = ((least <= ends[..., 0]) & (ends[..., 1] <= most)).all(axis=1)
        if able.any():
            given = np.broadcast_arrays(*(a[able] for a in asked))
            seconds = cost(k, named(dims, [a.reshape(-1) for a in given]))
            found[able, ..., k] = np.log(seconds).reshape(given[0].shape)
    return found


def _of_halves(logs: Floats, axis: int) -> Floats:
    """The mean logarithm of what cells cost where each half along an axis has one program."""
    others = tuple(range(1, logs.ndim - 1))
    least = [h.mean(axis=others).min(axis=1) for h in np.array_split(logs, 2, axis=axis)]
    mean: Floats = np.mean(least, axis=0)
    return mean


def _halves(ends: Array, at: Array, steps: Array) -> Array:
    """The halves of cells, in the logarithm, each along one dim."""
    cells = np.arange(len(ends))
    low, high = ends[cells, at].T
    away = (np.sqrt(low * high) + 1e-9).astype(int) - low
    middle = low + away // steps[at] * steps[at]
    lower, upper = ends.copy(), ends.copy()
    lower[cells, at, 1], upper[cells, at, 0] = middle, middle + steps[at]
    return np.concatenate([lower, upper])


def _least(dims: Sequence[Dim]) -> dict[str, list[int]]:
    """The least sizes of one dim, each alone, and others that lie evenly in the logarithm."""
    if len(dims) > 1:
        return {}
    (known,) = dims
    first = list(known.values[:_ALONE])
    steps = math.ceil(math.log(known.high / first[-1], _STEP))
    others = np.geomspace(first[-1], known.high, steps + 1).astype(int) // known.multiple
    return {known.name: [*first, *(others * known.multiple).tolist()]}


def _work(programs: Sequence[OpenProgram]) -> Cost:
    """The operations of programs, and somewhat more the farther sizes are from those that they
    were made for: the blocks of larger ones hold all of the smaller loops."""
    numbers = [operations(p.tree, p.target.threads) for p in programs]

    def cost(k: int, sizes: Mapping[str, Array]) -> Floats:
        more: Floats = np.exp(_NEARER * distance(programs[k], sizes))
        return inputs(sizes, numbers[k])[:, -1] * more

    return cost


def distance(program: OpenProgram, sizes: Mapping[str, int | Array]) -> Floats:
    """Distance of sizes from those that a program was made for, in the logarithm; larger ones
    count more, as they do not fit its blocks."""
    apart = [[np.log(n / sizes[name]) for name, n in own.items()] for own in program.made_for]
    each = [np.sum([np.maximum(d, -_LARGER * d) for d in own], axis=0) for own in apart]
    nearest: Floats = np.min(each, axis=0)
    return nearest


def _lines(known: Dim, at: int, programs: Sequence[OpenProgram], more: Sequence[int]) -> list[int]:
    """The starts of the cells of a dim, and the first size behind the last one."""
    step = known.multiple
    own = sorted({sizes[known.name] for p in programs for sizes in p.made_for})
    between = [size + step for size in own]
    ends = (e for p in programs for e in (p.dims[at].low, p.dims[at].high + step))
    found = {known.low, known.high + step, *ends, *between, *more}
    return sorted(f for f in found if known.low <= f <= known.high + step)


def _joined(one: Rule, other: Rule) -> Rule | None:
    """One rule for both, where the boxes touch along the last dim."""
    *same, (low, _) = one.bounds
    *there, (_, high) = other.bounds
    if one.program != other.program or same != there:
        return None
    return Rule((*same, (low, high)), one.program)
