"""Subscripts of loops of one iteration, written as where these have more."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def as_of_many(form: Any, greatest: Any) -> Any:
    """A workload, as `to_numbered_json` has it, whose loops of one iteration stand in subscripts
    where they do in that of the greatest sizes, and only there.

    `x[0, j] ↦ x[i, j]`  where `i` counts one row here, and more there.
    """
    tensors = [
        _tensor(own, other) if "body" in own and "body" in other else own
        for own, other in zip(form["tensors"], greatest["tensors"])
    ]
    return {**form, "tensors": tensors + form["tensors"][len(tensors) :]}


def _tensor(own: Any, greatest: Any) -> Any:
    once = {name for name, n in (*own["axes"], *own["reduce"]) if n == 1}
    return {**own, "body": _part(own["body"], greatest["body"], once)} if once else own


def _part(own: Any, greatest: Any, once: Collection[str]) -> Any:
    if _is_subscript(own) and _is_subscript(greatest):
        return _subscript(own, greatest, once)
    if isinstance(own, list) and isinstance(greatest, list) and len(own) == len(greatest):
        return [_part(x, y, once) for x, y in zip(own, greatest)]
    if isinstance(own, dict) and isinstance(greatest, dict) and own.keys() == greatest.keys():
        return {key: _part(x, greatest[key], once) for key, x in own.items()}
    return own


def _is_subscript(x: Any) -> bool:
    """Return whether this is `[[[atom, coefficient], …], constant]`."""
    if not (isinstance(x, list) and len(x) == 2 and isinstance(x[0], list)):
        return False
    return isinstance(x[1], int) and all(isinstance(t, list) and len(t) == 2 for t in x[0])


def _subscript(own: Any, greatest: Any, once: Collection[str]) -> Any:
    left = [term for term in own[0] if not _in(term[0], once)]
    count = sum(not _in(atom, once) for atom, _ in greatest[0])
    if len(left) != count:
        return own
    others = iter(left)
    terms = []
    for atom, coefficient in greatest[0]:
        if _in(atom, once):
            terms.append([atom, coefficient])
            continue
        mine, factor = next(others)
        terms.append([_part(mine, atom, once), factor])
    return [terms, own[1]]


def _in(atom: Any, names: Collection[str]) -> bool:
    return isinstance(atom, str) and atom in names
