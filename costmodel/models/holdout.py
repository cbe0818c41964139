"""Records that a model does not learn from, so that they say when to stop learning."""

from __future__ import annotations

from typing import Any

import numpy as np

from loopwright.costmodel.model import Floats, Integers

Index = np.ndarray[Any, np.dtype[np.intp]]

_MANY = 10  # groups from which on whole ones are held out
_SHARE = 0.2


def split(
    features: Floats, groups: Integers, rng: np.random.Generator, least: int = 100
) -> tuple[Index, Index]:
    """The places of records to learn from, and of those that are held out: a fifth, or none of
    fewer than the `least`.

    Records of one program (equal features) stay together, since one that was seen says nothing
    about how well others are predicted. Of many groups whole ones are held out.
    """
    if len(features) < least:
        return np.arange(len(features)), np.arange(0)
    units = _first_seen(groups[:, None])
    if units.max(initial=0) + 1 < _MANY:
        units = _first_seen(features)
    order = rng.permutation(units.max(initial=-1) + 1)
    held_out = np.isin(units, order[: max(int(_SHARE * len(order)), 1)])
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def _first_seen(rows: np.ndarray[Any, Any]) -> Index:
    """Number of each row, the same for equal ones, from 0 in the order in which they come."""
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in rows], np.intp)
