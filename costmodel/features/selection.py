"""The 28 numbers by which Hayashi et al. 2015 choose a device, counted in a loop tree.

    range                                parallel iterations
    memory, arithmetic, functions,       dynamic counts of operations by kind
      branches, others
    coalesced, offset, strided, other    accesses to memory by kind; their sum is `memory`
    input 0 … input 8                    bytes of the arrays that a call reads
    output 0 … output 8                  bytes of the arrays that it writes

An access is judged by its distance from that of the neighbour: of the next thread of a GPU, or of
the next iteration of the innermost loop on a processor. At one element, or one vector, it is
`coalesced`, or `offset` where it does not begin at the array's first element. At another fixed
distance it is `strided`. Else it is `other`: one element for all, or places that elements name.

The paper counts ten iterations for a loop whose length it does not know. Here all are known.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopwright.costmodel.features.context import is_arithmetic, is_function
from loopwright.costmodel.model import Floats
from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import Cast, Expr, Gather, Select, Unary
from loopwright.dsl.traversal import walk
from loopwright.schedule.target import Target
from loopwright.schedule.tree import grammar as g
from loopwright.schedule.tree.parts import value_of

ARRAYS = 9
"""Arrays that have a number of their own, each way; the last one has the sum of the rest."""
SELECTION_FEATURES = (
    *("range", "memory", "arithmetic", "functions", "branches", "others"),
    *("coalesced", "offset", "strided", "other"),
    *(f"{way} {place}" for way in ("input", "output") for place in range(ARRAYS)),
)
"""Names of the 28 numbers."""

_PARALLEL = ("parallel", "block", "thread")
_MEMORY = ("argument", "heap", "shared")
_LANES = 32
_MOST = 1 << 20  # iterations over which a bound is looked at
_TILE = float(g.MATRIX * g.MATRIX)


def selection_features(tree: g.Tree, target: Target) -> Floats:
    """The 28 numbers of a tree of one config, in the order of `SELECTION_FEATURES`: (28,)."""
    tree = tree.row(0)
    count = _Count(gpu=target.gpu is not None)
    count.block(tree.body, 1.0)
    most = max([1.0, *(_iterations(stmt, _PARALLEL) for stmt in tree.body)])
    found = {**count.found, "range": most}
    arrays = {"input": (*tree.inputs, *tree.constants), "output": tree.outputs}
    for way, buffers in arrays.items():
        for place, buffer in enumerate(buffers):
            name = f"{way} {min(place, ARRAYS - 1)}"
            found[name] = found.get(name, 0.0) + float(buffer.size * item_bytes(buffer.dtype))
    return np.array([found.get(name, 0.0) for name in SELECTION_FEATURES])


def group_size(tree: g.Tree) -> float:
    """Threads of a block, the most of all kernels; 1 on a processor."""
    return max((_iterations(stmt, ("thread",)) for stmt in tree.row(0).body), default=1.0)


def _iterations(stmt: g.Stmt, kinds: Sequence[str]) -> float:
    """Iterations of the loops of such kinds, the most of those inside of each other."""
    if not isinstance(stmt, g.Loop):
        return 1.0
    own = float(stmt.extent) if stmt.kind in kinds else 1.0
    return own * max((_iterations(inner, kinds) for inner in stmt.body), default=1.0)


@dataclass
class _Count:
    """A walk over a tree that counts what runs."""

    gpu: bool
    found: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    path: list[g.Loop] = field(default_factory=list)
    lets: dict[g.Var, g.Linear] = field(default_factory=dict)

    def block(self, body: Sequence[g.Stmt], runs: float) -> None:
        """Count a block that runs so many times."""
        for stmt in body:
            if isinstance(stmt, g.Let):
                self.lets[stmt.var] = stmt.value
            elif isinstance(stmt, g.Loop):
                times = runs * self._mean(stmt)
                if stmt.kind in ("serial", "parallel"):
                    self.found["branches"] += times
                self.path.append(stmt)
                self.block(stmt.body, times)
                self.path.pop()
            else:
                self._statement(stmt, runs)

    def _mean(self, loop: g.Loop) -> float:
        """Mean of min(extent, bound) over the iterations of the loops that move the bound."""
        extent = float(loop.extent)
        if loop.bound is None:
            return extent
        outer = [each for each in self.path if each.var in set(self._variables(loop.bound))]
        if math.prod(int(each.extent) for each in outer) > _MOST:
            return extent
        every = np.indices([int(each.extent) for each in outer])
        at = {each.var: places.ravel() for each, places in zip(outer, every, strict=True)}
        return float(np.clip(self._value_at(loop.bound, at), 0, extent).mean())

    def _variables(self, value: g.Linear) -> Iterator[g.Var]:
        """Loops that an index expression depends on."""
        for term, _ in value.terms:
            if not isinstance(term, g.Var):
                yield from self._variables(term.value)
            elif term in self.lets:
                yield from self._variables(self.lets[term])
            else:
                yield term

    def _statement(self, stmt: g.Stmt, runs: float) -> None:
        if isinstance(stmt, g.Store):
            self._access(stmt.buffer, stmt.index, runs)
            self._value(stmt.value, runs)
        elif isinstance(stmt, g.AsyncCopy):
            for buffer, index in ((stmt.buffer, stmt.index), (stmt.source, stmt.at)):
                self._access(buffer, index, runs * float(stmt.count), float(stmt.count))
        elif isinstance(stmt, (g.MatrixLoad, g.MatrixStore)):
            self._add("coalesced", runs * _TILE / _LANES)  # a warp moves whole rows of a tile
        elif isinstance(stmt, g.MatrixMultiply):
            self.found["arithmetic"] += runs * 2.0 * _TILE * g.MATRIX / _LANES
        elif isinstance(stmt, (g.Barrier, g.AsyncWait)):
            self.found["others"] += runs

    def _value(self, value: Expr, runs: float) -> None:
        parts = list(walk(value))
        named = [part.table for part in parts if isinstance(part, Gather)]
        for part in parts:
            if isinstance(part, g.Load):
                if any(part is table for table in named):
                    if part.buffer.scope in _MEMORY:
                        self._add("other", runs)
                else:
                    self._access(part.buffer, part.index, runs)
            elif is_arithmetic(part):
                self.found["arithmetic"] += runs
            elif is_function(part):
                self.found["functions"] += runs
            elif isinstance(part, Select):
                self.found["branches"] += runs
            elif isinstance(part, (Cast, Unary)):
                self.found["others"] += runs

    def _access(
        self, buffer: g.Buffer, index: Sequence[g.Linear], runs: float, unit: float = 1.0
    ) -> None:
        if buffer.scope in _MEMORY:
            self._add(self._kind(g.flat(buffer, tuple(index)), unit), runs)

    def _add(self, kind: str, runs: float) -> None:
        self.found[kind] += runs
        self.found["memory"] += runs

    def _kind(self, place: g.Linear, unit: float) -> str:
        """Kind of an access to an element of an array."""
        inner = self.path[-1] if self.path else None
        neighbour = inner
        if self.gpu:
            threads = [loop for loop in self.path if loop.kind == "thread"]
            neighbour = threads[-1] if threads else None
            if (
                inner is not None
                and inner.kind == "vectorized"
                and self._steps(place, inner) == {1}
            ):
                unit = float(inner.extent)
        if neighbour is None:
            return "other"
        steps = self._steps(place, neighbour)
        if len(steps) != 1 or 0 in steps:
            return "other"
        if steps != {unit}:
            return "strided"
        return "coalesced" if self._value_at(place, {}) == 0 else "offset"

    def _steps(self, place: g.Linear, loop: g.Loop) -> set[int]:
        """Distances of neighbours at both ends of a loop, others at their first iteration."""
        last = max(int(loop.extent) - 1, 1)
        starts = {0, last - 1}
        return {
            self._value_at(place, {loop.var: at + 1}) - self._value_at(place, {loop.var: at})
            for at in starts
        }

    def _value_at(self, value: g.Linear, at: Mapping[g.Var, Any]) -> Any:
        """Value of an index expression; variables that are not told of are 0."""

        def known(var: g.Var) -> Any:
            return self._value_at(self.lets[var], at) if var in self.lets else at.get(var, 0)

        return value_of(value, known)
