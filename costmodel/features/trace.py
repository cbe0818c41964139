"""Feature programs: the feature extraction of one sketch, recorded once and replayed on batches.

Lowering and features are array arithmetic on columns, thousands of small operations. Here they
run once for a sketch, on `Traced` columns:

- what is the same for all configs becomes a Python number;
- what depends on few knobs, with at most `LIMIT` combinations of their choices, is computed for
  all of those: a *table*, which a batch looks up. Nests have knobs of their own, and inner loops
  know few of them, so this is nearly everything;
- the rest is recorded, equal operations once, and replayed for every batch.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.costmodel.features.batch_arithmetic import Array, rows
from loopwright.costmodel.features.context import Context, Walk
from loopwright.costmodel.features.gpu_context import GpuWalk
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Tree

LIMIT = 1 << 14  # entries of a table
_CHUNK = 1024  # configs whose columns fit the caches

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Knobs = tuple[int, ...]
Operation = Callable[..., Any]
Value = Any  # a `Traced` column, a number, or an array of shape (k, 1)


class Trace:
    """Record of the operations on traced columns."""

    def __init__(self, choices: Sequence[int]) -> None:
        """`choices` says how many each knob has."""
        self.choices = tuple(choices)
        self.recorded: list[tuple[Traced, Operation]] = []
        self._known: dict[object, Value] = {}
        self._wider: dict[tuple[Knobs, Knobs], Numbers] = {}

    def column(self, knob: int, values: Numbers) -> Value:
        """The column that has `values[c]` where a config has choice `c` of a knob."""
        key = knob, values.tobytes()
        if key not in self._known:
            self._known[key] = self._folded((knob,), values)
        return self._known[key]

    def apply(self, op: np.ufunc, inputs: Sequence[Value], options: Mapping[str, object]) -> Value:
        """The result of an operation on columns."""
        key = (op, *options.items(), *map(_key, inputs))
        if key not in self._known:
            self._known[key] = self._applied(op, inputs, options)
        return self._known[key]

    def _applied(
        self, op: np.ufunc, inputs: Sequence[Value], options: Mapping[str, object]
    ) -> Value:
        traced = [x for x in inputs if isinstance(x, Traced)]
        knobs = tuple(sorted(set(itertools.chain.from_iterable(x.knobs for x in traced))))
        if math.prod(self.choices[k] for k in knobs) <= LIMIT:
            return self._folded(knobs, op(*(self._widened(x, knobs) for x in inputs), **options))
        new = Traced(self, knobs, None, tuple(inputs))
        self.recorded.append((new, functools.partial(op, **options) if options else op))
        return new

    def _widened(self, x: Value, knobs: Knobs) -> Value:
        """A column's table over more knobs."""
        if not isinstance(x, Traced) or x.knobs == knobs:
            return x.table if isinstance(x, Traced) else x
        if (x.knobs, knobs) not in self._wider:
            counts = [self.choices[k] for k in knobs]
            found = np.unravel_index(np.arange(math.prod(counts)), counts)
            grid = dict(zip(knobs, found, strict=True))
            self._wider[x.knobs, knobs] = _positions(x.knobs, self.choices, grid)
        return x.table.take(self._wider[x.knobs, knobs], axis=-1)

    def _folded(self, knobs: Knobs, table: Any) -> Value:
        first = table[..., :1]
        if not (table == first).all():
            return Traced(self, knobs, table)
        return first if table.ndim > 1 else first.item()


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """Stands for an array of shape (n,), or (k, n), over a batch. It depends on `knobs`: `table`
    has its values for all combinations, or else it is computed from `inputs`."""

    __hash__ = object.__hash__

    def __init__(
        self, trace: Trace, knobs: Knobs, table: Any, inputs: tuple[Value, ...] = ()
    ) -> None:
        self.trace, self.knobs, self.table, self.inputs = trace, knobs, table, inputs

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Value, **options: object
    ) -> Value:
        return self.trace.apply(ufunc, inputs, options) if method == "__call__" else NotImplemented

    def __bool__(self) -> bool:
        raise TypeError("the programs of a sketch do not branch on the choices of its knobs")

    def all(self) -> bool:
        """Return whether it is known to be nowhere 0."""
        return self.table is not None and bool(self.table.all())


def _positions(knobs: Knobs, counts: Sequence[int], choices: Mapping[int, Numbers]) -> Numbers:
    """Places of configs in a table over `knobs`, of `counts` choices each, the last fastest."""
    result = choices[knobs[0]]
    for k in knobs[1:]:
        result = result * counts[k] + choices[k]
    return result


def _key(x: Value) -> object:
    if isinstance(x, np.ndarray):
        return x.shape, x.tobytes()
    return id(x) if isinstance(x, Traced) else (type(x), x)


@dataclass(frozen=True, eq=False)
class _Tables:
    """Tables over the same knobs, of one type, side by side: shape (combinations, rows). What a
    config looks up stands together."""

    knobs: Knobs
    stacked: Any
    places: tuple[tuple[int, int | slice], ...]


class Program:
    """Computes columns of a trace for batches of configs."""

    def __init__(self, trace: Trace, results: Sequence[Value]) -> None:
        self._choices = trace.choices
        self._values: list[Value] = []
        self._places: dict[int, int] = {}
        needed = {id(x): x for x in _needed(results)}
        tables: dict[tuple[Knobs, Any], list[Traced]] = {}
        for x in needed.values():
            if x.table is not None:
                tables.setdefault((x.knobs, x.table.dtype), []).append(x)
        self._tables = [self._stack(group) for group in tables.values()]
        self._steps = [
            (op, tuple(map(self._place, x.inputs)), self._place(x))
            for x, op in trace.recorded
            if id(x) in needed
        ]
        self._results = [self._place(x) for x in results]

    def __call__(self, numbers: Numbers) -> Array:
        """The columns for a batch of shape (n, knobs): shape (n, columns), those of shape (k, n)
        as k columns."""
        starts = range(0, max(len(numbers), 1), _CHUNK)
        return np.concatenate([self._run(numbers[i : i + _CHUNK]).T for i in starts])

    def _run(self, numbers: Numbers) -> Array:
        choices = dict(enumerate(numbers.T))
        values = list(self._values)
        for group in self._tables:
            at = _positions(group.knobs, self._choices, choices)
            found = np.ascontiguousarray(group.stacked.take(at, axis=0).T)
            for place, where in group.places:
                values[place] = found[where]
        for op, inputs, place in self._steps:
            values[place] = op(*[values[i] for i in inputs])
        return rows([values[i] for i in self._results], len(numbers))

    def _place(self, x: Value) -> int:
        if id(x) not in self._places or not isinstance(x, Traced):
            self._places[id(x)] = len(self._values)
            self._values.append(None if isinstance(x, Traced) else x)
        return self._places[id(x)]

    def _stack(self, group: Sequence[Traced]) -> _Tables:
        places: list[tuple[int, int | slice]] = []
        start = 0
        for x in group:
            count = len(x.table) if x.table.ndim > 1 else 1
            where = slice(start, start + count) if x.table.ndim > 1 else start
            places.append((self._place(x), where))
            start += count
        stacked = np.concatenate([np.atleast_2d(x.table) for x in group]).T.copy()
        return _Tables(group[0].knobs, stacked, tuple(places))


def _needed(results: Iterable[Value]) -> list[Traced]:
    """The traced columns that results are computed from."""
    found: dict[int, Traced] = {}
    left = [x for x in results if isinstance(x, Traced)]
    while left:
        x = left.pop()
        if id(x) not in found:
            found[id(x)] = x
            left += [y for y in x.inputs if isinstance(y, Traced)]
    return list(found.values())


def contexts(tree: Tree, target: Target) -> tuple[Context, ...]:
    """The loops and stores of a tree's body; what is prepared ahead of time costs nothing."""
    if target.gpu is not None:
        return GpuWalk(target).block(tree.body, 1.0)[0]
    return Walk(target).block(tree.body, 1.0)[0]
