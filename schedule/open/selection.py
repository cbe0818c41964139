"""Which program a call runs: rules by boxes of sizes, from what each program costs there."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

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
_SHARES = (1 / 6, 1 / 2, 5 / 6)  # of the way through a cell, where costs are compared
_ALIKE = 1.005  # times the least that the program of the cell before may cost: fewer rules

Cost = Callable[[int, Mapping[str, Array]], Floats]
"""What a program, by its number, costs at many sizes, in any unit."""


def rules(
    dims: tuple[Dim, ...],
    programs: Sequence[OpenProgram],
    cost: Cost | None = None,
    more: Mapping[str, Sequence[int]] | None = None,
) -> tuple[Rule, ...]:
    """Rules for all sizes, at most one program for each cell of a grid.

    The grid has lines where some program begins or ends to be right, behind the sizes that
    programs were made for, and before the sizes of `more`. Of the programs that are right for a
    cell, that is chosen which costs least on average; that of the cell before it if it costs next
    to nothing more.
    """
    cost, more = cost or _work(programs), more or _least(dims)
    lines = [_lines(d, at, programs, more.get(d.name, ())) for at, d in enumerate(dims)]
    boxes = [
        tuple((low, high - d.multiple) for (low, high), d in zip(cell, dims, strict=True))
        for cell in itertools.product(*map(itertools.pairwise, lines))
    ]
    ends = np.array(boxes)
    asked = [
        np.array(
            [[between(*e, d, share) for e, d in zip(box, dims, strict=True)] for box in boxes]
        )
        for share in _SHARES
    ]
    costs = np.full((len(boxes), len(programs)), np.inf)
    for k, p in enumerate(programs):
        low, high = np.array([(d.low, d.high) for d in p.dims]).T
        able = ((low <= ends[..., 0]) & (ends[..., 1] <= high)).all(axis=1)
        if able.any():
            logs = [np.log(cost(k, named(dims, [*sizes[able].T]))) for sizes in asked]
            costs[able, k] = np.exp(np.mean(logs, axis=0))
    made: list[Rule] = []
    for box, each in zip(boxes, costs, strict=True):
        chosen = int(each.argmin())
        if not math.isfinite(each[chosen]):
            raise ConfigError(f"no program is right for all sizes of {box}")
        if made and each[made[-1].program] <= _ALIKE * each[chosen]:
            chosen = made[-1].program
        rule = Rule(box, chosen)
        if made and (joined := _joined(made[-1], rule)) is not None:
            made[-1] = joined
        else:
            made.append(rule)
    return tuple(made)


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


def between(low: int, high: int, known: Dim, share: float) -> int:
    """The size at a share of the way between two sizes of a dim, in the logarithm."""
    away = int(low * (high / low) ** share + 1e-9) - low
    return low + away // known.multiple * known.multiple


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
