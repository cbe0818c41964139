"""What a program prepares before any call: nothing of it may depend on a size of the call."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.workload import Workload
from loopwright.schedule.open.family import Family, Sized
from loopwright.schedule.tree.formula import Formula
from loopwright.schedule.tree.grammar import Load, Store, Tree


class SizedConstantsError(ConfigError):
    """Constants from which a program prepares what is another at other sizes.

    Attributes
    ----------
    names: of these constants.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.names = frozenset(names)
        super().__init__(
            f"what is prepared of {', '.join(sorted(names))} depends on a size of the call, which "
            "is not known then: give these tensors as inputs that are no constants"
        )


def check_prepared(tree: Tree) -> None:
    """Raise `SizedConstantsError` where a preparation depends on a size."""
    constants = {b.name for b in tree.constants}
    sources: dict[str, set[str]] = {name: {name} for name in constants}
    found: set[str] = set()
    for stmt in tree.prepare:
        parts = [*_parts(stmt)]
        read = (p.buffer.name for p in parts if isinstance(p, Load))
        own = set[str]().union(*(sources.get(name, ()) for name in read))
        for part in parts:
            if isinstance(part, Store):
                sources.setdefault(part.buffer.name, set()).update(own)
        if any(isinstance(p, Formula) for p in parts):
            found |= own or constants  # without a constant nothing is prepared
    if found:
        raise SizedConstantsError(found)


def _parts(x: Any) -> Iterator[Any]:
    """All that a part of a tree is made of."""
    yield x
    if isinstance(x, tuple):
        for part in x:
            yield from _parts(part)
    elif is_dataclass(x) and not isinstance(x, Formula):
        for each in fields(x):
            yield from _parts(getattr(x, each.name))


def as_inputs(workload: Sized, names: Collection[str]) -> Family | Workload:
    """The same with some constants as inputs that are known at a call only."""
    assert isinstance(workload, (Family, Workload))
    form = workload.form if isinstance(workload, Family) else workload.to_json()
    tensors = [
        {k: v for k, v in t.items() if k != "constant" or t["name"] not in names}
        for t in form["tensors"]
    ]
    form = {**form, "tensors": tensors}
    return (
        Family(workload.dims, form) if isinstance(workload, Family) else Workload.from_json(form)
    )
