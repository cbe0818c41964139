"""Ensembles of decision trees: all trees go down one level at a time.

A state holds the node of each row in each tree. Each iteration reads the node's feature and takes
a side; a leaf stays where it is. So every row takes as many steps as the deepest tree has levels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import Call, Iterations, Results, operator
from loopwright.graph.importers.onnx.estimators.scores import (
    classes,
    of_best,
    of_second,
    of_two,
    rows_of,
    transformed,
)
from loopwright.graph.importers.onnx.operators.control import repeated
from loopwright.graph.importers.onnx.values import Array, Value, define, shape_of

_TESTS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "BRANCH_LEQ": lambda x, t: x <= t,
    "BRANCH_LT": lambda x, t: x < t,
    "BRANCH_GTE": lambda x, t: x >= t,
    "BRANCH_GT": lambda x, t: x > t,
    "BRANCH_EQ": f.equal,
    "BRANCH_NEQ": f.not_equal,
}
"""Tests of branches, in the order of their numbers in ONNX."""
_TOTALS: dict[str, Callable[[Expr], Expr]] = {
    "AVERAGE": f.sum, "SUM": f.sum, "MIN": f.min, "MAX": f.max,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Trees:
    """Trees whose nodes, leaves among them, are numbered from 0.

    Attributes
    ----------
    roots: of each tree, the number of its root.
    feature, threshold, test, missing: of each node, the column that it reads, what it is compared
        with, the number of the test, and whether NaN passes it, too.
    passed, failed: of each node, the one to go on with; of a leaf, itself.
    """

    roots: Array
    feature: Array
    threshold: Array
    test: Array
    missing: Array
    passed: Array
    failed: Array

    @property
    def depth(self) -> int:
        """The number of levels below the roots. Raises `ValueError` for nodes in a circle."""
        own, levels = np.arange(len(self.feature)), 0
        reached = self.roots
        while len(branches := reached[self.passed[reached] != own[reached]]):
            below = np.zeros(len(own), bool)
            below[self.passed[branches]] = below[self.failed[branches]] = True
            reached, levels = np.flatnonzero(below), levels + 1
            if levels > len(own):
                raise ValueError("nodes in a circle")
        return levels


class _Names:
    """Names of nodes, a tree and a number in it each, and the places where they stand."""

    def __init__(self, trees: Array, nodes: Array) -> None:
        self._width = int(nodes.max(initial=0)) + 1
        keys = trees * self._width + nodes
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def places(self, trees: Array, nodes: Array) -> Array:
        """The places of some names. Raises `LookupError` for one that is none."""
        asked = trees * self._width + nodes
        found = np.searchsorted(self._keys, asked)
        is_known = (nodes < self._width) & (self._keys.take(found, mode="clip") == asked)
        if not is_known.all():
            raise LookupError("a node that is none")
        return self._order[found]


def _named(call: Call) -> tuple[_Trees, _Names]:
    """The trees of operators whose nodes are named by a tree and a number in it, and the names."""
    modes, tests = np.asarray(call.get("nodes_modes")), [*_TESTS]
    if unknown := {*modes.tolist()} - {*tests, "LEAF"}:
        allowed = ", ".join([*tests, "LEAF"])
        raise call.unsupported(f"a node of it is {min(unknown)}; it may be {allowed}")
    own, trees = _whole(call, "nodes_nodeids"), _whole(call, "nodes_treeids")
    names, leaf, places = _Names(trees, own), modes == "LEAF", np.arange(len(own))
    passed, failed = (
        names.places(trees, np.where(leaf, own, _whole(call, f"nodes_{which}nodeids")))
        for which in ("true", "false")
    )
    is_root = np.ones(len(own), bool)
    is_root[passed[~leaf]] = is_root[failed[~leaf]] = False
    found = _Trees(
        np.flatnonzero(is_root),
        np.where(leaf, 0, _whole(call, "nodes_featureids")),
        _values(call, "nodes_values"),
        (modes[:, None] == tests) @ np.arange(len(tests)),
        _whole(call, "nodes_missing_value_tracks_true", len(own)) != 0,
        np.where(leaf, places, passed),
        np.where(leaf, places, failed),
    )
    return found, names


def _whole(call: Call, name: str, default: int = 0) -> Array:
    """Whole numbers that are an attribute, or so many zeros."""
    return np.asarray(call.get(name) or [0] * default, np.int64)


def _values(call: Call, name: str) -> Array:
    """Numbers that are an attribute, of doubles as an array; none where it is left out."""
    given = call.get(f"{name}_as_tensor")
    return np.asarray(call.get(name) or [] if given is None else given)


def _numbered(call: Call) -> _Trees:
    """The trees of `TreeEnsemble`, whose nodes have numbers, and whose leaves have others: here
    they come behind the nodes."""
    splits, leaves = np.asarray(call.get("nodes_splits")), len(call.get("leaf_targetids"))
    count = len(splits)
    tests = np.asarray(call.get("nodes_modes"))
    if tests.max(initial=0) >= len(_TESTS):
        raise call.unsupported(f"a node of it is BRANCH_MEMBER; it may be {', '.join(_TESTS)}")
    behind = np.arange(count, count + leaves)
    passed, failed = (
        np.asarray(call.get(f"nodes_{which}nodeids"))
        + count * np.asarray(call.get(f"nodes_{which}leafs"))
        for which in ("true", "false")
    )
    missing = call.get("nodes_missing_value_tracks_true") or [0] * count
    nothing = np.zeros(leaves, np.int64)
    return _Trees(
        np.asarray(call.get("tree_roots")),
        np.append(call.get("nodes_featureids"), nothing),
        np.append(splits, nothing),
        np.append(tests, nothing),
        np.append(missing, nothing) != 0,
        np.append(passed, behind),
        np.append(failed, behind),
    )


def _leaves(call: Call, x: Tensor, trees: _Trees) -> Tensor:
    """The leaf of each row in each tree."""
    if not 0 <= trees.feature.min() <= trees.feature.max() < shape_of(x)[1]:
        raise call.unsupported(
            f"a node of it reads a column that data of {shape_of(x)[1]} have not"
        )
    columns = {"feature": trees.feature, "passed": trees.passed, "failed": trees.failed}
    kept = {name: call.as_tensor(a.astype(np.int32)) for name, a in columns.items()}
    limits = call.as_tensor(trees.threshold.astype(x.dtype))
    branches = trees.passed != np.arange(len(trees.test))
    used = np.flatnonzero(np.bincount(trees.test[branches]))
    tests = call.as_tensor(trees.test.astype(np.int32))
    missing = call.as_tensor(trees.missing) if trees.missing.any() else None
    shape = (shape_of(x)[0], len(trees.roots))

    def passes(value: Expr, node: Expr) -> Expr:
        limit, functions = limits[node], [*_TESTS.values()]
        first, *others = used.tolist() or [0]
        holds = functions[first](value, limit)
        for other in others:
            is_other = f.equal(tests[node], other)
            holds = f.where(is_other, functions[other](value, limit), holds)
        return holds if missing is None else holds | (f.isnan(value) & missing[node])

    def step(before: list[Value], _: list[Value]) -> Results:
        at = call.as_tensor(before[0])

        def element(row: Index, tree: Index) -> Expr:
            node = at[row, tree]
            value = x[row, kept["feature"][node]]
            passed, failed = (kept[name][node] for name in ("passed", "failed"))
            return f.where(passes(value, node), passed, failed)

        return [define("node", shape, element)], []

    roots = call.as_tensor(trees.roots.astype(np.int32))
    start = define("root", shape, lambda _, tree: roots[tree])
    (last,), _ = repeated(call, Iterations(trees.depth, [start], [], [], step))
    return call.as_tensor(last)


def _total(call: Call, at: Tensor, weights: Array, how: str) -> Tensor:
    """What the leaves of each row give together, for each target."""
    rows, trees = shape_of(at)
    kept, t = call.as_tensor(weights), Index("t", trees)

    def element(i: Index, target: Index) -> Expr:
        return _TOTALS[how](kept[at[i, t], target])

    made = define("total", (rows, weights.shape[1]), element)
    return call.broadcast([made], lambda x: x / trees) if how == "AVERAGE" else made


def _weights(
    call: Call, name: str, names: _Names, count: int, targets: int
) -> tuple[Array, Array]:
    """The weights of each node for each target, and which are said."""
    made, said = np.zeros((count, targets)), np.zeros((count, targets), bool)
    nodes = names.places(_whole(call, f"{name}_treeids"), _whole(call, f"{name}_nodeids"))
    at = nodes, _whole(call, f"{name}_ids")
    np.add.at(made, at, _values(call, f"{name}_weights"))
    said[at] = True
    return made.astype(np.float32), said


def _with_base(call: Call, scores: Tensor) -> Tensor:
    base = _values(call, "base_values").astype(np.float32)
    if not base.size:
        return scores
    return call.broadcast([scores, base[-shape_of(scores)[1] :]], lambda x, b: x + b)


@operator("ai.onnx.ml:TreeEnsembleRegressor")
def _regressor(call: Call) -> Value:
    (trees, names), x = _named(call), rows_of(call)
    targets, how = int(call.get("n_targets", 1)), str(call.get("aggregate_function", "SUM"))
    weights, said = _weights(call, "target", names, len(trees.feature), targets)
    if how in ("MIN", "MAX") and not (said.all(axis=1) | ~said.any(axis=1)).all():
        raise call.unsupported(
            f"a leaf of it has no weight for some target, and it takes the {how}"
        )
    scores = _with_base(call, _total(call, _leaves(call, x, trees), weights, how))
    return transformed(call, scores)


@operator("ai.onnx.ml:TreeEnsemble", limit="without tests for a set of values")
def _ensemble(call: Call) -> Value:
    trees, x = _numbered(call), rows_of(call)
    targets, ids = int(call.get("n_targets", 1)), np.asarray(call.get("leaf_targetids"))
    how = [*_TOTALS][int(call.get("aggregate_function", 1))]
    if how in ("MIN", "MAX") and targets > 1:
        raise call.unsupported(f"it takes the {how} of several targets; it may sum them")
    weights = np.zeros((len(trees.feature), targets), x.dtype)
    weights[np.arange(len(weights) - len(ids), len(weights)), ids] = call.get("leaf_weights")
    return transformed(call, _total(call, _leaves(call, x, trees), weights, how))


@operator("ai.onnx.ml:TreeEnsembleClassifier", limit="labels are whole numbers")
def _classifier(call: Call) -> list[Value]:
    (trees, names), x, labels = _named(call), rows_of(call), classes(call)
    weights, said = _weights(call, "class", names, len(trees.feature), len(labels))
    at, scored = _leaves(call, x, trees), np.flatnonzero(said.any(axis=0))
    if len(labels) != 2:
        return of_best(call, _with_base(call, _total(call, at, weights, "SUM")))
    # Weights for one class alone that are all positive are shares, as those of random forests.
    shares = len(scored) == 1 and bool((weights >= 0).all())
    least = 0.5 if shares else 0.0
    if scored.tolist() == [0]:
        score = _with_base(call, _total(call, at, weights[:, :1], "SUM"))
        return of_two(call, score, least, shares)
    scores = _with_base(call, _total(call, at, weights, "SUM"))
    return [of_second(call, scores, least), transformed(call, scores)]
