"""Products of dims and of formulas, which numbers may follow in lines."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from loopwright.dsl.size import Dim
from loopwright.schedule.tree.formula import Formula

Array = np.ndarray[Any, np.dtype[np.int64]]
_DEGREE = 2


def products(dims: Sequence[Dim]) -> list[Formula]:
    """The products of at most two dims, and of all."""
    leaves = [f for f in map(Formula.of, dims) if isinstance(f, Formula)]
    chosen = [
        c
        for degree in range(1, _DEGREE + 1)
        for c in itertools.combinations_with_replacement(leaves, degree)
    ]
    if len(leaves) > _DEGREE:
        chosen.append(tuple(leaves))
    return [f for f in map(math.prod, chosen) if isinstance(f, Formula)]


def even_shares(dims: Sequence[Dim], most: int) -> list[Formula]:
    """The elements of each part where as many as a dim are cut into even parts of at most `most`,
    and the products of these and dims."""
    leaves = [f for f in map(Formula.of, dims) if isinstance(f, Formula)]
    parts: list[Any] = [(n - 1) // most + 1 for n in leaves]
    shares = [(n - 1) // count + 1 for n, count in zip(leaves, parts, strict=True)]
    made = [*shares, *(share * n for share in shares for n in leaves)]
    return [f for f in made if isinstance(f, Formula)]


def divisors(numbers: Sequence[int], most: int) -> list[int]:
    """The numbers, and the products of two of them, from 2 to `most`, in order."""
    small = sorted({abs(n) for n in numbers if 2 <= abs(n) <= most})
    pairs = {x * y for x, y in itertools.combinations_with_replacement(small, 2)}
    return sorted({*small, *(p for p in pairs if p <= most)})


def threefold(
    known: Sequence[tuple[Formula, Array]], columns: Sequence[Array]
) -> Iterator[Formula]:
    """The products of three formulas, each of another dim, that a column follows as a line: the
    elements of images, of which rows and columns are counted in steps."""
    kinds: dict[str, dict[bytes, tuple[Formula, Array]]] = {}
    for f, x in known:
        name, *others = f.dims() or ("", "")
        if not others:
            plain = x // max(1, math.gcd(*x.tolist()))  # not its multiples, too
            kinds.setdefault(name, {}).setdefault(plain.tobytes(), (f, x))
    for three in itertools.combinations([[*k.values()] for k in kinds.values()], 3):
        first, second, third = (np.array([x for _, x in some]) for some in three)
        made = first[:, None, None] * second[:, None] * third
        for column in columns:
            for places in np.argwhere(_in_line(made, column)).tolist():
                product = math.prod(some[k][0] for some, k in zip(three, places, strict=True))
                if isinstance(product, Formula):
                    yield product


def _in_line(rows: Array, values: Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether values are a line of each row."""
    first, last = int(np.argmin(values)), int(np.argmax(values))
    rise, run = values - values[first], rows - rows[..., first, None]
    same = rise * run[..., last, None] == rise[last] * run
    return np.asarray(same.all(axis=-1))


def line_of(x: Array, v: Array) -> tuple[int, int] | None:
    """The slope and the shift of the line of x that values are, if they are one."""
    first, last = int(np.argmin(x)), int(np.argmax(x))
    if x[first] == x[last]:
        return None
    slope, rest = divmod(int(v[last] - v[first]), int(x[last] - x[first]))
    if rest:
        return None
    shift = int(v[first] - slope * x[first])
    return (slope, shift) if (slope * x + shift == v).all() else None
