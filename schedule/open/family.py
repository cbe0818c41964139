"""Workloads of one structure, one for each size: what differs are numbers, each a formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from loopwright.dsl.size import Dim
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload
from loopwright.schedule.open.numbers import reciprocal
from loopwright.schedule.tree.formula import Formula, evaluated


class Sized(Protocol):
    """A workload at every value of its dims: one of the notation, or a `Family`."""

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The numbers of the call, in order."""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Its inputs, of which the names count."""

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Its outputs, of which the names count."""

    def at(self, /, **sizes: int) -> Workload:
        """The workload for a value of every dim."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Family:
    """The workloads that a `form` is, `to_json` of one with formulas for numbers."""

    dims: tuple[Dim, ...]
    form: Any
    _made: dict[tuple[int, ...], Workload] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The inputs at the greatest sizes."""
        return self.greatest.inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The outputs at the greatest sizes."""
        return self.greatest.outputs

    def __reduce__(self) -> Any:
        """Pickled without the workloads that were made of it."""
        return Family, (self.dims, self.form)

    @property
    def greatest(self) -> Workload:
        """The workload for the greatest value of every dim."""
        return self.at(**{d.name: d.high for d in self.dims})

    def at(self, /, **sizes: int) -> Workload:
        """The workload for a value of every dim."""
        key = tuple(sizes[d.name] for d in self.dims)
        if key not in self._made:
            form = numbered(self.form, lambda x: int(evaluated(x, sizes)))
            self._made[key] = Workload.from_json(form)
        return self._made[key]


def numbered(data: Any, number: Callable[[Any], Any], tokens: list[Any] | None = None) -> Any:
    """JSON with each number replaced by what a function gives for it, and all else added to
    `tokens`. A float that is a whole number, or the reciprocal of one, is a number too."""
    tokens = [] if tokens is None else tokens
    if isinstance(data, Share):
        tokens.append((float, data.inverse))
        return data.of(number)
    if isinstance(data, (int, Formula)) and not isinstance(data, bool):
        tokens.append(int)
        return number(data)
    if isinstance(data, float) and (share := Share.taken(data)) is not None:
        tokens.append((float, share.inverse))
        return share.of(number)
    if isinstance(data, list):
        tokens.append(len(data))
        return [numbered(x, number, tokens) for x in data]
    if isinstance(data, dict):
        tokens.append(tuple(data))
        return {key: numbered(x, number, tokens) for key, x in data.items()}
    tokens.append(data)
    return data


@dataclass(frozen=True, eq=False)
class Share:
    """A float: a whole number, or one over it."""

    number: Formula | int
    inverse: bool

    @staticmethod
    def taken(value: float) -> Share | None:
        """A float as such, if it is one."""
        if value == int(value) if abs(value) < 1 << 31 else False:
            return Share(int(value), False)
        whole = reciprocal(value)
        return None if whole is None else Share(whole, True)

    def of(self, number: Callable[[Any], Any]) -> float | Share:
        """The same with another number; still open where that is a formula."""
        made = number(self.number)
        if isinstance(made, Formula):
            return Share(made, self.inverse)
        return 1.0 / made if self.inverse else float(made)
