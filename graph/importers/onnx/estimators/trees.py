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
from loopwright.graph.importers.onnx.estimators.lists import in_range, same_length
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
_MOST = 2**31
"""More than any number of a tree or a node may be."""
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
    is_leaf, passed, failed: of each node, whether it is a leaf, and the ones to go on with; of a
        leaf, itself.
    """

    roots: Array
    feature: Array
    threshold: Array
    test: Array
    missing: Array
    is_leaf: Array
    passed: Array
    failed: Array

    def depth(self, call: Call) -> int:
        """The number of levels below the roots."""
        is_branch, levels = ~self.is_leaf, 0
        reached, seen = self.roots, np.zeros(len(is_branch), bool)
        while len(branches := reached[is_branch[reached]]):
            seen[branches] = True
            below = np.zeros(len(is_branch), bool)
            below[self.passed[branches]] = below[self.failed[branches]] = True
            reached, levels = np.flatnonzero(below), levels + 1
            if levels > len(is_branch):
                raise call.unsupported("its nodes go in a circle; each branch must go down")
        if (is_branch & ~seen).any():
            raise call.unsupported("a node of it is reached from no root")
        return levels


class _Names:
    """Names of nodes, a tree and a number in it each, and the places where they stand."""

    def __init__(self, call: Call, trees: Array, nodes: Array) -> None:
        in_range(call, "nodes_treeids", trees, _MOST)
        in_range(call, "nodes_nodeids", nodes, _MOST)
        self._call, self._width = call, int(nodes.max(initial=0)) + 1
        keys = trees * self._width + nodes
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        if (twice := self._keys[1:][np.diff(self._keys) == 0]).size:
            tree, node = divmod(int(twice[0]), self._width)
            raise call.unsupported(f"node {node} of its tree {tree} is there twice")

    def places(self, what: str, trees: Array, nodes: Array) -> Array:
        """The places of some names, which the attributes `what` have."""
        in_range(self._call, f"{what}_treeids", trees, _MOST)
        asked = trees * self._width + nodes
        found = np.searchsorted(self._keys, asked)
        is_known = (nodes >= 0) & (nodes < self._width)
        is_known &= self._keys.take(found, mode="clip") == asked
        for tree, node in zip(trees[~is_known], nodes[~is_known]):
            raise self._call.unsupported(
                f"its {what} attributes name node {node} of tree {tree}, which is none"
            )
        return self._order[found]


def _named(call: Call) -> tuple[_Trees, _Names]:
    """The trees of operators whose nodes are named by a tree and a number in it, and the names."""
    same_length(call, "nodes_")
    modes, tests = _given(call, "nodes_modes"), [*_TESTS]
    if unknown := {*modes.tolist()} - {*tests, "LEAF"}:
        allowed = ", ".join([*tests, "LEAF"])
        raise call.unsupported(f"a node of it is {min(unknown)}; it may be {allowed}")
    own, trees = _whole(call, "nodes_nodeids"), _whole(call, "nodes_treeids")
    names, leaf, places = _Names(call, trees, own), modes == "LEAF", np.arange(len(own))
    passed, failed = (
        names.places("nodes", trees, np.where(leaf, own, _whole(call, f"nodes_{which}nodeids")))
        for which in ("true", "false")
    )
    is_root = np.ones(len(own), bool)
    is_root[passed[~leaf]] = is_root[failed[~leaf]] = False
    every, counts = np.unique(trees[is_root], return_counts=True)
    if len(every) < len(np.unique(trees)) or counts.max(initial=1) > 1:
        raise call.unsupported("each of its trees must have one node that no other one names")
    found = _Trees(
        np.flatnonzero(is_root),
        np.where(leaf, 0, _whole(call, "nodes_featureids")),
        _values(call, "nodes_values"),
        (modes[:, None] == tests) @ np.arange(len(tests)),
        np.asarray(call.get("nodes_missing_value_tracks_true") or [0] * len(own)) != 0,
        leaf,
        np.where(leaf, places, passed),
        np.where(leaf, places, failed),
    )
    return found, names


def _whole(call: Call, name: str) -> Array:
    """Whole numbers that are an attribute."""
    return np.asarray(_given(call, name), np.int64)


def _given(call: Call, name: str) -> Array:
    """An attribute that must be given."""
    given: Array = np.asarray(call.get(name, []))
    if not given.size:
        raise call.unsupported(f"its attribute {name} is left out")
    return given


def _values(call: Call, name: str) -> Array:
    """Numbers that are an attribute, of doubles as an array."""
    given = call.get(f"{name}_as_tensor")
    return _given(call, name) if given is None else np.asarray(given)


def _numbered(call: Call) -> _Trees:
    """The trees of `TreeEnsemble`, whose nodes have numbers, and whose leaves have others: here
    they come behind the nodes."""
    same_length(call, "nodes_")
    same_length(call, "leaf_")
    splits, leaves = np.asarray(call.get("nodes_splits")), len(call.get("leaf_targetids"))
    count = len(splits)
    tests = np.asarray(call.get("nodes_modes"))
    if tests.max(initial=0) >= len(_TESTS):
        raise call.unsupported(f"a node of it is BRANCH_MEMBER; it may be {', '.join(_TESTS)}")
    behind = np.arange(count, count + leaves)

    def places(which: str) -> Array:
        is_leaf = np.asarray(call.get(f"nodes_{which}leafs")) != 0
        at = _whole(call, f"nodes_{which}nodeids")
        in_range(call, f"nodes_{which}nodeids", at, np.where(is_leaf, leaves, count))
        return np.where(is_leaf, at + count, at)

    roots = np.asarray(call.get("tree_roots"))
    in_range(call, "tree_roots", roots, count)
    missing = call.get("nodes_missing_value_tracks_true") or [0] * count
    nothing = np.zeros(leaves, np.int64)
    return _Trees(
        roots,
        np.append(call.get("nodes_featureids"), nothing),
        np.append(splits, nothing),
        np.append(tests, nothing),
        np.append(missing, nothing) != 0,
        np.arange(count + leaves) >= count,
        np.append(places("true"), behind),
        np.append(places("false"), behind),
    )


def _leaves(call: Call, x: Tensor, trees: _Trees) -> Tensor:
    """The leaf of each row in each tree."""
    in_range(call, "nodes_featureids", trees.feature, shape_of(x)[1])
    columns = {"feature": trees.feature, "passed": trees.passed, "failed": trees.failed}
    kept = {name: call.as_tensor(a.astype(np.int32)) for name, a in columns.items()}
    limits = call.as_tensor(trees.threshold.astype(x.dtype))
    used = np.flatnonzero(np.bincount(trees.test[~trees.is_leaf]))
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
    (last,), _ = repeated(call, Iterations(trees.depth(call), [start], [], [], step))
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
    same_length(call, f"{name}_")
    made, said = np.zeros((count, targets), np.float32), np.zeros((count, targets), bool)
    trees, nodes, ids = (_whole(call, f"{name}_{part}ids") for part in ("tree", "node", ""))
    in_range(call, f"{name}_ids", ids, targets)
    at = names.places(name, trees, nodes), ids
    made[at], said[at] = _values(call, f"{name}_weights"), True
    if said.sum() < len(ids):
        raise call.unsupported(f"a leaf of it has two weights for one {name}; it may have one")
    return made, said


def _with_base(call: Call, scores: Tensor) -> Tensor:
    count = shape_of(scores)[1]
    if call.get("base_values_as_tensor", call.get("base_values")) is None:
        return scores
    base = _values(call, "base_values").astype(np.float32)
    if base.size != count:
        raise call.unsupported(f"its base_values are {base.size} numbers; they may be {count}")
    return call.broadcast([scores, base], lambda x, b: x + b)


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
    in_range(call, "leaf_targetids", ids, targets)
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
