"""Feature programs: the feature extraction of one sketch, recorded once and replayed on batches.

Lowering and features are array arithmetic on columns, thousands of small operations. Here they
run once for a sketch, on `Traced` columns:

- what is the same for all configs becomes a Python number;
- what depends on few knobs, with at most `LIMIT` combinations of their choices, is computed for
  all of those: a *table*, which a batch looks up. Nests have knobs of their own, and inner loops
  know few of them, so this is nearly everything;
- the rest is recorded, equal operations once, and replayed for every batch.

Sketches of a space share one trace: columns of lowering, and features of equal nests, are made
once. What else is computed for a sketch is forgotten, since its tables take megabytes.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.costmodel.features.batch_arithmetic import Array, rows
from loopwright.costmodel.features.context import Context, Walk
from loopwright.costmodel.features.gpu_context import GpuWalk
from loopwright.schedule.sketch.sketch import Knob
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Tree

LIMIT = 1 << 12  # entries of a table: with four times as many a task keeps four times the memory
_CHUNK = 1024  # configs whose columns fit the caches

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Knobs = tuple[int, ...]
Operation = Callable[..., Any]
Value = Any  # a `Traced` column, a number, or an array of shape (k, 1)


class Trace:
    """Record of the operations on traced columns, for sketches of one space: what they share is
    computed once."""

    def __init__(self) -> None:
        self.choices: list[int] = []
        """How many each knob has."""
        self._knobs: dict[Knob, int] = {}
        self._known: dict[object, Value] = {}
        self._joins: dict[tuple[Knobs, ...], _Join] = {}
        self._count = itertools.count()

    def knob(self, knob: Knob) -> int:
        """Number of a knob; those of one name and the same choices are one."""
        if knob not in self._knobs:
            self._knobs[knob] = len(self.choices)
            self.choices.append(len(knob.choices))
        return self._knobs[knob]

    def columns(self, knob: Knob) -> tuple[Value, ...]:
        """The numbers of a knob's choices, each a column."""
        return tuple(self._column(self.knob(knob), values) for values in knob.table.T)

    def _column(self, knob: int, values: Numbers) -> Value:
        key = knob, values.tobytes()
        if key not in self._known:
            self._known[key] = self._folded((knob,), values)
        return self._known[key]

    def apply(self, op: Operation, inputs: tuple[Value, ...], options: Mapping[str, Any]) -> Value:
        """The result of an operation on columns."""
        key = (op, *map(_key, inputs), *options.items())
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._applied(op, inputs, options)
        return found

    def _applied(
        self, op: Operation, inputs: tuple[Value, ...], options: Mapping[str, Any]
    ) -> Value:
        apart = tuple([x.knobs if isinstance(x, Traced) else () for x in inputs])
        join = self._joins.get(apart)
        if join is None:
            join = self._joins[apart] = _Join.of(apart, self.choices)
        knobs, shapes = join.knobs, join.shapes
        if join.large:
            recorded = functools.partial(op, **options) if options else op
            return Traced(self, next(self._count), knobs, None, recorded, inputs)
        tables = [x.table if isinstance(x, Traced) else x for x in inputs]
        if not shapes:
            return self._folded(knobs, op(*tables, **options))
        tables = [
            x.reshape(*x.shape[:-1], *s) if isinstance(x, np.ndarray) else x
            for x, s in zip(tables, shapes, strict=True)
        ]
        table = op(*tables, **options)
        return self._folded(knobs, table.reshape(*table.shape[: -len(knobs)], -1))

    def _folded(self, knobs: Knobs, table: Any) -> Value:
        ends = table.item(-table.shape[-1]), table.item(-1)  # most columns differ there
        if ends[0] == ends[1] and (table == (first := table[..., :1])).all():
            return first.copy() if table.ndim > 1 else first.item()
        return Traced(self, next(self._count), knobs, table)

    @contextlib.contextmanager
    def forgetting(self) -> Iterator[None]:
        """Forget what is computed inside, but for what somebody keeps."""
        known = self._known
        self._known = known.copy()
        yield
        self._known = known


@dataclass(frozen=True, eq=False)
class _Join:
    """The knobs of several columns, those of few choices first; whether their combinations are
    too many for a table; and the columns' shapes as parts of it, none if they have it already.
    What depends on no knob has ones there."""

    knobs: Knobs
    large: bool
    shapes: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(apart: Sequence[Knobs], choices: Sequence[int]) -> _Join:
        knobs = tuple(sorted(set().union(*apart), key=lambda k: (choices[k], k)))
        shapes = [tuple([choices[k] if k in own else 1 for k in knobs]) for own in apart]
        large = math.prod(choices[k] for k in knobs) > LIMIT
        alike = all(own in (knobs, ()) for own in apart)
        return _Join(knobs, large, () if alike else tuple(shapes))


def _operators(op: np.ufunc) -> tuple[Operation, Operation]:
    """An operator of two columns, and the same from the right."""

    def operator(self: Traced, other: Value) -> Value:
        return self.trace.apply(op, (self, other), {})

    def reflected(self: Traced, other: Value) -> Value:
        return self.trace.apply(op, (other, self), {})

    return operator, reflected


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """Stands for an array of shape (n,), or (k, n), over a batch. It depends on `knobs`: `table`
    has its values for all combinations, or else it is computed from `inputs` by `op`. It has a
    greater `number` than these."""

    __slots__ = ("inputs", "knobs", "number", "op", "table", "trace")
    __hash__ = object.__hash__

    def __init__(
        self,
        trace: Trace,
        number: int,
        knobs: Knobs,
        table: Any,
        op: Operation | None = None,
        inputs: tuple[Value, ...] = (),
    ) -> None:
        self.trace, self.number, self.knobs, self.table = trace, number, knobs, table
        self.op, self.inputs = op, inputs

    # The most frequent ones without the mixin's way through `__array_ufunc__`.
    __add__, __radd__ = _operators(np.add)
    __mul__, __rmul__ = _operators(np.multiply)
    __truediv__, __rtruediv__ = _operators(np.true_divide)
    __lt__, __gt__ = (_operators(op)[0] for op in (np.less, np.greater))

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Value, **options: object
    ) -> Value:
        return self.trace.apply(ufunc, inputs, options) if method == "__call__" else NotImplemented

    def __array_function__(
        self, function: Operation, types: object, inputs: tuple[Value, ...], options: object
    ) -> Value:
        return self.trace.apply(function, inputs, {}) if function is np.where else NotImplemented

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
    if isinstance(x, Traced):
        return x.number
    if isinstance(x, np.ndarray):
        return x.shape, x.tobytes()
    return type(x), x


@dataclass(frozen=True, eq=False)
class _Tables:
    """Tables over the same knobs, of one type, side by side: shape (combinations, rows). What a
    config looks up stands together."""

    knobs: Knobs
    stacked: Any
    places: tuple[tuple[int, int | slice], ...]


class Program:
    """Computes columns of a trace for batches of configs."""

    def __init__(self, trace: Trace, knobs: Iterable[Knob], results: Sequence[Value]) -> None:
        """`knobs` are the sketch's, in the order of their columns."""
        self._knobs, self._choices = tuple(map(trace.knob, knobs)), trace.choices
        self._values: list[Value] = []
        self._places: dict[int, int] = {}
        tables: dict[tuple[Knobs, Any], list[Traced]] = {}
        steps: list[tuple[Operation, Traced]] = []
        for x in _needed(results):
            if x.op is None:
                tables.setdefault((x.knobs, x.table.dtype), []).append(x)
            else:
                steps.append((x.op, x))
        self._tables = [self._stack(group) for group in tables.values()]
        self._steps = [(op, tuple(map(self._place, x.inputs)), self._place(x)) for op, x in steps]
        self._results = [self._place(x) for x in results]

    def __call__(self, numbers: Numbers) -> Array:
        """The columns for a batch of shape (n, knobs): shape (n, columns), those of shape (k, n)
        as k columns."""
        starts = range(0, max(len(numbers), 1), _CHUNK)
        return np.concatenate([self._run(numbers[i : i + _CHUNK]).T for i in starts])

    def _run(self, numbers: Numbers) -> Array:
        choices = dict(zip(self._knobs, numbers.T, strict=True))
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
        if not isinstance(x, Traced):
            self._values.append(x)
            return len(self._values) - 1
        if x.number not in self._places:
            self._places[x.number] = len(self._values)
            self._values.append(None)
        return self._places[x.number]

    def _stack(self, group: Sequence[Traced]) -> _Tables:
        counts = [len(x.table) if x.table.ndim > 1 else 1 for x in group]
        ends = list(itertools.accumulate(counts))
        stacked = np.empty((group[0].table.shape[-1], ends[-1]), group[0].table.dtype)
        places: list[tuple[int, int | slice]] = []
        for x, end, count in zip(group, ends, counts, strict=True):
            where = slice(end - count, end) if x.table.ndim > 1 else end - 1
            stacked[:, where] = x.table.T
            places.append((self._place(x), where))
        return _Tables(group[0].knobs, stacked, tuple(places))


def _needed(results: Iterable[Value]) -> list[Traced]:
    """The traced columns that results are computed from, each behind its inputs."""
    found: dict[int, Traced] = {}
    left = [x for x in results if isinstance(x, Traced)]
    while left:
        x = left.pop()
        if x.number not in found:
            found[x.number] = x
            left += [y for y in x.inputs if isinstance(y, Traced)]
    return [found[number] for number in sorted(found)]


def contexts(tree: Tree, target: Target) -> tuple[Context, ...]:
    """The loops and stores of a tree's body; what is prepared ahead of time costs nothing."""
    if target.gpu is not None:
        return GpuWalk(target).block(tree.body, 1.0)[0]
    return Walk(target).block(tree.body, 1.0)[0]
