"""Representations: from configs of a space to the numbers that a cost model sees."""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from loopwright.costmodel.features.batch_arithmetic import Array, Real, most, rows
from loopwright.costmodel.features.context import Walk, loops, text, text_names, vector
from loopwright.costmodel.features.context import names as context_names
from loopwright.costmodel.features.gpu_summary import gpu_summary, gpu_summary_names
from loopwright.costmodel.features.inner_loop import InnerLoop, inner_loop, inner_loop_names
from loopwright.costmodel.features.relation import relation_names, relations
from loopwright.costmodel.features.structural_key import structural_key
from loopwright.costmodel.features.summary import Totals, summary, summary_names, totals
from loopwright.costmodel.features.trace import Program, Trace, contexts
from loopwright.costmodel.model import ModelError
from loopwright.schedule.lowering import lower, lower_columns
from loopwright.schedule.sketch.sketch import Sketch
from loopwright.schedule.space import Space
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Allocate, Stmt, Tree

Numbers = np.ndarray[Any, np.dtype[np.int64]]

T = TypeVar("T")

EARLIER = (162,)
"""Number of columns that "relation" had for processors in earlier versions: new ones are added at
the end."""

_SAME = 1e-4
"""Logarithms that differ by less do so by rounding: features are computed in two ways."""


class Representation(ABC):
    """Turns configs into feature vectors.

    A representation has no state that matters: the same config gives the same features, alone or
    in a batch. All sketches of a space give vectors of one length. `features` is called for many
    thousands of configs at a time and loops over none of them.
    """

    @abstractmethod
    def features(self, space: Space, sketch: int, numbers: Numbers) -> Array:
        """Features of configs of one sketch: float32 of shape (n, f).

        Parameters
        ----------
        sketch: the number of a sketch of the space.
        numbers: the number of a choice for every knob; shape (n, knobs).

        Raises `ModelError` for a space that has no such features.
        """

    @abstractmethod
    def names(self, space: Space) -> tuple[str, ...]:
        """Names of the columns; as many as `features` has for this space."""


@dataclass(frozen=True, eq=False)
class _Part:
    """Context relation features of a statement of the body; none if it never runs."""

    relations: list[Real]
    nests: tuple[Totals, ...]
    inner: tuple[InnerLoop, ...]


class FeatureCache:
    """Cache of features by structural key: sketches of one space share most of their nests, and
    components or layers repeat them within one."""

    def __init__(self) -> None:
        self._parts: dict[Hashable, _Part] = {}

    def part(self, stmt: Stmt, target: Target) -> _Part:
        """Features of a statement of the body."""
        key = structural_key(stmt)
        if key not in self._parts:
            nodes, _ = Walk(target).block((stmt,), 1.0)
            nests = tuple(totals(node, target) for node in nodes)
            inside = tuple(map(InnerLoop.of, nodes, nests))
            self._parts[key] = _Part(relations(nodes), nests, inside)
        return self._parts[key]


class _Recorded(Representation):
    """Features that are computed from the loop tree, by programs recorded once for a sketch."""

    def __init__(self) -> None:
        self._programs = _Remembered(lambda space: _Programs(space, self.columns))
        self._known = _Remembered(lambda space: FeatureCache())

    @abstractmethod
    def columns(self, tree: Tree, target: Target, flops: int, known: FeatureCache) -> list[Real]:
        """The features of a batched tree, as columns."""

    def of_tree(self, tree: Tree, target: Target, flops: int) -> Array:
        """Columns of a batched tree: shape (n, c)."""
        return self._rows(tree, target, flops, FeatureCache())

    def _rows(self, tree: Tree, target: Target, flops: int, known: FeatureCache) -> Array:
        return np.ascontiguousarray(rows(self.columns(tree, target, flops, known), tree.n).T)

    def features(self, space: Space, sketch: int, numbers: Numbers) -> Array:
        return self._completed(space, self._programs(space)[sketch](numbers))

    def directly(self, space: Space, sketch: int, numbers: Numbers) -> Array:
        """The same without a recording: faster for few configs. The last bits may differ."""
        return self._completed(space, self._lowered(space, sketch, numbers))

    def _lowered(self, space: Space, sketch: int, numbers: Numbers) -> Array:
        tree = lower(_with_loops(space, sketch), space.target, numbers)
        return self._rows(tree, space.target, space.workload.flops, self._known(space))

    def _completed(self, space: Space, found: Array) -> Array:
        """Features from what the columns say."""
        return found


class ContextRelation(_Recorded):
    """Context relation features (Chen et al. 2018, section 4) and a summary of the program: the
    modules `relation`, `summary` and `inner_loop`, or `gpu_summary` for GPUs, define the columns.
    All spaces of processors have the same ones, and all of GPUs. The default.

    Every column comes twice: as it is, and less what it is for the space's default config. The
    columns are logarithms, so these are ratios: three times the lines fetched, say, of a good
    program for the same workload, which means the same for small ones and large ones.
    """

    def __init__(self) -> None:
        super().__init__()
        self._default = _Remembered(
            lambda space: self._lowered(space, 0, np.array([space.sketches[0].default], np.int64))
        )

    def columns(self, tree: Tree, target: Target, flops: int, known: FeatureCache) -> list[Real]:
        if target.gpu is not None:
            nodes = contexts(tree, target)
            return [*relations(nodes), *gpu_summary(nodes, tree, target, flops)]
        parts = [known.part(s, target) for s in tree.body if not isinstance(s, Allocate)]
        related = zip(*(part.relations for part in parts), strict=True)
        nests = [nest for part in parts for nest in part.nests]
        return [
            *(functools.reduce(most, columns) for columns in related),
            *summary(nests, tree, target, flops),
            *inner_loop([nest for part in parts for nest in part.inner]),
        ]

    def _completed(self, space: Space, found: Array) -> Array:
        relative = found - self._default(space)
        relative[np.abs(relative) < _SAME] = 0.0
        return self.both(found, relative, space.target.gpu is not None)

    @staticmethod
    def both(found: Array, relative: Array, gpu: bool) -> Array:
        """The columns as they are and relative to the default, in the order of their names."""
        end = found.shape[1] - (0 if gpu else len(inner_loop_names()))
        parts = (found[:, :end], relative[:, :end], found[:, end:], relative[:, end:])
        return np.concatenate(parts, axis=1)

    def names(self, space: Space) -> tuple[str, ...]:
        return self.column_names(space.target.gpu is not None)

    @staticmethod
    def column_names(gpu: bool) -> tuple[str, ...]:
        """Names of the columns, on GPUs or processors."""
        parts = [(*relation_names(gpu), *(gpu_summary_names() if gpu else summary_names()))]
        if not gpu:
            parts.append(inner_loop_names())
        return tuple(c for own in parts for c in (*own, *(f"{name} to default" for name in own)))


class FlattenedTree(_Recorded):
    """The context vectors of all loops, one after the other in the order of the text, with zeros
    after the last one: the paper's baseline for the tree's shape. The length is that of the
    space's largest tree; a longer row with zeros at its end says the same.

    Order and depth say which loop stands in which, so the rows are the tree, for `TreeGRU`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._most = _Remembered(_most_loops)

    def columns(self, tree: Tree, target: Target, flops: int, known: FeatureCache) -> list[Real]:
        nodes = loops(contexts(tree, target))
        return [c for loop in nodes for c in vector(loop, target.threads)]

    def _completed(self, space: Space, found: Array) -> Array:
        return resized(found, len(self.names(space)))

    def names(self, space: Space) -> tuple[str, ...]:
        most = self._most(space)
        return tuple(f"loop {k} {name}" for k in range(most) for name in self.loop_names())

    @staticmethod
    def loop_names() -> tuple[str, ...]:
        """Names of the columns of one loop."""
        return context_names()


class TreeText(FlattenedTree):
    """Like `FlattenedTree`, but with nothing of a loop than what the text of the program says:
    extent, kind, and its variable, as a number. For the TreeGRU of Figure 3c, which learns what a
    variable stands for in one space, and knows nothing of those of others."""

    def columns(self, tree: Tree, target: Target, flops: int, known: FeatureCache) -> list[Real]:
        return [c for loop in loops(contexts(tree, target)) for c in text(loop)]

    @staticmethod
    def loop_names() -> tuple[str, ...]:
        return text_names()


class ConfigVector(Representation):
    """The numbers of the config itself: the sketch's, then the values of all knobs, by name.
    A knob that a sketch does not have is nan there. All that there is for a replayed space."""

    def __init__(self) -> None:
        self._places = _Remembered(_knob_places)

    def features(self, space: Space, sketch: int, numbers: Numbers) -> Array:
        places, width = self._places(space)
        result = np.full((len(numbers), width), np.nan, np.float32)
        result[:, 0] = sketch
        for column, knob in zip(numbers.T, space.sketches[sketch].knobs, strict=True):
            values = knob.table[column]
            result[:, places[knob.name] : places[knob.name] + values.shape[1]] = values
        return result

    def names(self, space: Space) -> tuple[str, ...]:
        places, width = self._places(space)
        result = ["sketch"] * width
        ends = [*list(places.values())[1:], width]
        for (name, start), end in zip(places.items(), ends):
            result[start:end] = [f"{name}[{d}]" for d in range(end - start)]
        return tuple(result)


def _knob_places(space: Space) -> tuple[dict[str, int], int]:
    """The first column of every knob, and the number of columns."""
    lengths: dict[str, int] = {}
    for knob in (k for sketch in space.sketches for k in sketch.knobs):
        lengths[knob.name] = max(lengths.get(knob.name, 0), knob.table.shape[1])
    ends = list(itertools.accumulate(lengths.values(), initial=1))
    return dict(zip(lengths, ends)), ends[-1]


def _most_loops(space: Space) -> int:
    """Loops of the space's largest tree."""
    return max(
        sum(1 for _ in loops(contexts(_default(space, number), space.target)))
        for number in range(len(space.sketches))
    )


def _default(space: Space, sketch: int) -> Tree:
    chosen = _with_loops(space, sketch)
    return lower(chosen, space.target, np.array([chosen.default], np.int64))


class _Programs(dict[int, Program]):
    """The feature programs of a space, by the number of a sketch, made when they are needed."""

    def __init__(
        self, space: Space, columns: Callable[[Tree, Target, int, FeatureCache], Sequence[Real]]
    ) -> None:
        self.space, self.columns = space, columns
        self._trace, self._cache = Trace(), FeatureCache()

    def __missing__(self, sketch: int) -> Program:
        chosen, target = _with_loops(self.space, sketch), self.space.target
        values = {knob.name: self._trace.columns(knob) for knob in chosen.knobs}
        tree = lower_columns(chosen, target, values, chosen.size)
        with self._trace.forgetting():
            found = self.columns(tree, target, self.space.workload.flops, self._cache)
        self[sketch] = Program(self._trace, chosen.knobs, found)
        return self[sketch]


class _Remembered(Generic[T]):
    """A function of a space, computed once for as long as the same space comes back."""

    def __init__(self, function: Callable[[Space], T]) -> None:
        self._function = function
        self._last: tuple[Space, T] | None = None

    def __call__(self, space: Space) -> T:
        if self._last is None or self._last[0] is not space:
            self._last = space, self._function(space)
        return self._last[1]


def _with_loops(space: Space, sketch: int) -> Sketch:
    chosen = space.sketches[sketch]
    if not chosen.has_loops:
        raise ModelError(
            f"sketch {chosen.name!r} has no loops to take features from, as in a table of known "
            "costs: use ConfigVector"
        )
    return chosen


REPRESENTATIONS: dict[str, type[Representation]] = {
    "relation": ContextRelation,
    "tree": FlattenedTree,
    "text": TreeText,
    "config": ConfigVector,
}
"""Representations by name: what a model says it reads."""


def make_representation(name: str) -> Representation:
    """The representation of a name; `ModelError` for any other."""
    if name not in REPRESENTATIONS:
        raise ModelError(f"no representation {name!r}: use one of {', '.join(REPRESENTATIONS)}")
    return REPRESENTATIONS[name]()


def names_of(reads: str, width: int) -> tuple[str, ...]:
    """Names of `width` columns of a representation; numbers where the space decides them."""
    if reads == "relation":
        for gpu in (True, False):
            names = ContextRelation.column_names(gpu)
            if width == len(names) or (not gpu and width in EARLIER):
                return names[:width]
    if reads in ("tree", "text"):
        names = context_names() if reads == "tree" else text_names()
        return tuple(f"loop {k // len(names)} {names[k % len(names)]}" for k in range(width))
    return tuple(f"feature {k}" for k in range(width))


def as_read(features: Array, reads: str, width: int) -> Array:
    """Features as a model takes them that learned from `width` columns: those of an earlier
    version are the first ones of today. Raises `ModelError` for others."""
    if reads == "relation" and width in EARLIER:
        if features.shape[1:] == (len(ContextRelation.column_names(gpu=False)),):
            features = features[:, :width]
    if features.shape[1:] != (width,):
        raise ModelError(
            f"features of shape {features.shape}; this model was trained on {width} a config: use "
            "the representation and the space that it was trained with"
        )
    return features


def resized(rows: Array, width: int) -> Array:
    """Rows with columns cut off, or with zeros added, at the end."""
    if rows.shape[1] == width:
        return rows
    result = np.zeros((len(rows), width), np.float32)
    result[:, : rows.shape[1]] = rows[:, :width]
    return result


def joined(parts: Sequence[Array]) -> Array:
    """The rows of several spaces as one array; flattened trees are as long as the longest."""
    width = max(part.shape[1] for part in parts)
    return np.concatenate([resized(part, width) for part in parts])
