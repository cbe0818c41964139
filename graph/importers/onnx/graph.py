"""A graph of ONNX operators, read node by node into definitions of the notation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopwright.codegen.library.torch_tensors import to_numpy
from loopwright.dsl.dtypes import DTYPES
from loopwright.dsl.errors import LoopwrightError
from loopwright.dsl.tensor import Tensor
from loopwright.graph.errors import ModelError, UnsupportedOperator
from loopwright.graph.importers.definitions import (
    Definitions,
    Foreign,
    Part,
    Repeated,
    Written,
    defined_by,
    read_by,
)
from loopwright.graph.importers.indexed import indexed
from loopwright.graph.importers.inputs import shape_of as shape_of_input
from loopwright.graph.importers.onnx import estimators, microsoft, operators  # noqa: F401 - fill the table
from loopwright.graph.importers.onnx.call import OPERATORS, Call, Iterations, NotKnown, Results
from loopwright.graph.importers.onnx.checks import check_node, dtype_of_input, not_as_defined
from loopwright.graph.importers.onnx.file import KnownArrays, OpenOnnx, weights_of
from loopwright.graph.importers.onnx.fold import DRAWN, Marks, folded, marked
from loopwright.graph.importers.onnx.foreign import foreign
from loopwright.graph.importers.onnx.forms import check_form
from loopwright.graph.importers.onnx.functions import body_of, default_attributes
from loopwright.graph.importers.onnx.loops import looped
from loopwright.graph.importers.onnx.operators.shapes import few, made_of, of_numbers, repeated
from loopwright.graph.importers.onnx.protos import (
    attribute,
    described,
    inner_graphs,
    needed,
    read_in,
    stated,
)
from loopwright.graph.importers.onnx.sequences import Sequences
from loopwright.graph.importers.onnx.values import Array, Value, Weights, identifier
from loopwright.packages import onnx

_OWN = ("", "ai.onnx")
_READING = ("Gather", "GatherElements", "GatherND", "Where")
"""Operators all of whose inputs are data."""
_MOST_FIXED = 64
"""Elements of an input beyond which it is data, and no shape or the like."""


@dataclass(frozen=True, eq=False)
class _Scope:
    """Values that nodes read and give, how often each is read, and the shapes that are stated."""

    values: dict[str, Value]
    uses: Mapping[str, int]
    stated: Mapping[str, tuple[int, ...]]


@dataclass(eq=False)
class Graph:
    """Definitions of the nodes of a model, as far as they were read.

    `definitions` are the tensors that each node defines, `names` the operators that they are of,
    `weights` the arrays behind constants. While it is `looping`, nodes of a loop's body are read.
    In a model of open axes `varying` are the names of known results that a call computes, and
    `folded` has those that are computed now, by their names, and `marks` which elements may vary;
    `growing` are the names of those with one element that have more at other sizes.
    """

    versions: Mapping[str, int]
    varying: Collection[str] | None = None
    growing: Collection[str] = ()
    folded: dict[str, Array] = field(default_factory=dict)
    marks: dict[str, Marks] = field(default_factory=dict)
    weights: Weights = field(default_factory=Weights)
    definitions: list[Part] = field(default_factory=list)
    scaled: dict[Tensor, Callable[[Array, Array], Value]] = field(default_factory=dict)
    seen: set[Tensor] = field(default_factory=set)
    names: dict[Tensor, str] = field(default_factory=dict)
    looping: bool = False
    sequences: Sequences = field(default_factory=Sequences)

    def run(self, graph: Any, values: dict[str, Value], outer: Mapping[str, int]) -> list[Value]:
        """The outputs of a graph, for known `values`; `outer` counts the reads around it."""
        for name, array in weights_of(graph, values).items():
            values[name] = array
            self.marks[name] = False
        uses = Counter(outer)
        uses.update(read_in(graph))
        uses.update(v.name for v in graph.output)
        uses.subtract(described(graph))
        self._read(needed(graph), _Scope(values, uses, stated(graph)))
        return [self._output(v.name, values) for v in graph.output]

    def _read(self, nodes: Sequence[Any], scope: _Scope) -> None:
        """Read nodes in order; the value of each result goes into the scope's."""
        values = scope.values
        for node in nodes:
            label = f"operator {node.op_type} {node.name}".rstrip()
            if self.sequences.has(node):
                version, first = self.versions.get("", 1), self.sequences.first(node)
                tensors = [self._input(name, label, values) for name in node.input[first:]]
                check_node(node, label, version, [None] * first + tensors)
                plain = self.sequences.plain(node, label, values, version)
                self._read(plain, scope)
                continue
            inputs = tuple(self._input(name, label, values) for name in node.input)
            results = self._results(node, label, inputs, scope)
            values.update({n: x for n, x in zip(node.output, results) if n})

    def _input(self, name: str, label: str, values: Mapping[str, Value]) -> Value | None:
        if not name:
            return None
        if name in self.sequences.names:
            raise UnsupportedOperator(
                f"{label} reads {name!r}, a sequence; a tensor may be there, as by SequenceAt"
            )
        if name not in values:
            raise ModelError(f"{label} reads {name!r}, which nothing before it gives")
        return values[name]

    def _output(self, name: str, values: Mapping[str, Value]) -> Value:
        if name in self.sequences.names:
            raise ModelError(f"output {name!r} is a sequence: make its tensors outputs")
        if name not in values:
            raise ModelError(f"output {name!r} is the result of no operator")
        return values[name]

    def _results(
        self, node: Any, label: str, inputs: tuple[Value | None, ...], scope: _Scope
    ) -> Sequence[Value]:
        domain = "" if node.domain in _OWN else node.domain
        version = self.versions.get(domain, 1)
        key = f"{domain}:{node.op_type}" if domain else node.op_type
        if node.op_type in DRAWN:
            raise UnsupportedOperator(
                f"{label} draws random numbers, which a compiled program cannot: give them to "
                "the model as an input"
            )
        check_node(node, label, version, inputs)
        known = [x for x in inputs if not isinstance(x, Tensor)]
        varies = key in OPERATORS and not set(self.varying or ()).isdisjoint(node.output)
        is_known = len(known) == len(inputs)
        # Of what reads no elements, the shape alone varies.
        is_empty = varies and any(x is not None and not x.size for x in known)
        if not inner_graphs(node) and is_known and (is_empty or not varies):
            try:
                return self._folded(node, known, version, is_empty)
            except ModelError:  # the reference lacks it, or has a fault
                if key not in OPERATORS and body_of(node, version, inputs) is None:
                    raise
        if varies:
            inputs = tuple(self._data(node.op_type, n, x) for n, x in enumerate(inputs))

        rule = OPERATORS.get(key)
        if rule is None and (inner := body_of(node, version, inputs)) is not None:
            return self._expanded(node, inner, inputs, scope, version)
        if rule is None:
            found = iter(self._step(foreign(node, label, inputs, self.versions)))
            return [next(found) if name else np.zeros(0) for name in node.output]
        call = self._call(node, label, version, inputs, scope)
        check_form(call)
        try:
            made = rule(call)
        except ModelError:
            if not (varies and is_known):
                raise
            made = folded(node, known, version)
        except LoopwrightError as error:  # of the notation's own checks
            raise UnsupportedOperator(f"{label}: {error}") from error
        except (ValueError, TypeError, LookupError, ArithmeticError) as error:
            raise UnsupportedOperator(not_as_defined(call)) from error
        results = [made] if isinstance(made, (Tensor, np.ndarray)) else list(made)
        results = [_as_known(x) for x in results]
        for name, x in zip(node.output, results):
            if varies and isinstance(x, np.ndarray):
                made_of(self.weights, name, x, known)
        self.record(node.op_type.lower(), results, inputs)
        return results

    def _call(
        self, node: Any, label: str, version: int, inputs: tuple[Value | None, ...], scope: _Scope
    ) -> Call:
        """The call of a node's rule."""

        def branch(graph: Any, given: Sequence[Value]) -> list[Value]:
            own = dict(scope.values)
            own.update(zip((v.name for v in graph.input), given, strict=True))
            return self.run(graph, own, dict.fromkeys(scope.values, 2))

        return Call(
            node.op_type,
            label,
            version,
            inputs,
            {a.name: attribute(a) for a in node.attribute},
            tuple(node.input),
            tuple(node.output),
            tuple(scope.stated.get(name) for name in node.output),
            self.weights,
            scope.uses,
            self.scaled,
            None if self.varying is None else self.marks,
            branch,
            self._step,
            lambda iterations: self._loop(node.op_type.lower(), iterations),
        )

    def _folded(
        self, node: Any, known: Sequence[Array | None], version: int, is_empty: bool
    ) -> Sequence[Value]:
        """What a node gives for known inputs; where that is empty, its shape may vary."""
        arrays = folded(node, known, version)
        if known:
            self.folded.update(zip(node.output, arrays))
        if self.varying is not None:
            self.marks[node.output[0]] = marked(node, known, self.marks, version)
        named = zip(node.output, arrays)
        results = [_as_known(repeated(n, x) if is_empty else x) for n, x in named]
        grown = {id(x): x for name, x in zip(node.output, results) if name in self.growing}
        self.weights.growing.update(grown)
        self.record(node.op_type.lower(), results)
        return results

    def _data(self, op: str, number: int, value: Value | None) -> Value | None:
        """An input of what a call computes, a tensor where it is data. Others may say a shape."""
        if not isinstance(value, np.ndarray) or not value.size or op == "ConstantOfShape":
            return value
        if (number and op not in _READING) or self.weights.is_number(value):
            return value
        return self.weights.tensor(value)

    def _step(self, part: Foreign) -> Sequence[Tensor]:
        """Keep functions of TVM's, and what their inputs need; return what they give."""
        self.keep(part)
        return part.tensors

    def _loop(self, name: str, iterations: Iterations) -> Results | None:
        """The same for a loop; None where it can be none. One in another is none."""
        return None if self.looping else looped(self, name, iterations)

    def keep(self, part: Foreign | Repeated) -> None:
        """Keep what has results without a definition, and what its inputs need."""
        self.record(part.name, part.inputs)
        self.definitions.append(part)
        self.seen.update(part.tensors)

    def record(
        self, name: str, results: Sequence[Value], inputs: Sequence[Value | None] = ()
    ) -> None:
        """Keep what a node defines. What went into the weights before it takes that name."""
        new = [t for t in defined_by(results, self.seen) if t.definition is not None]
        self.seen.update(new)
        read = {t for one in new for t in read_by(one)}
        for x in inputs:
            if isinstance(x, Tensor) and x in self.scaled and x not in read:
                name = self.names[x]
        self.names.update(dict.fromkeys(new, name))
        if new:
            self.definitions.append(Definitions(name, tuple(new)))

    def _expanded(
        self, node: Any, inner: Any, inputs: Sequence[Value | None], scope: _Scope, version: int
    ) -> list[Value]:
        """The results of an operator that is made of others."""
        own = {name: x for name, x in zip(inner.input, inputs) if x is not None}
        missing = [n for n in inner.input if n not in own]
        attributes = {**default_attributes(node, version), **{a.name: a for a in node.attribute}}
        nodes = [_given(n, missing, attributes) for n in inner.node]
        uses = Counter(name for n in nodes for name in n.input)
        uses.update(own.keys())
        uses.update(own.keys())  # what is outside may read them, too
        saved = self.versions, self.marks
        imported = {("" if o.domain in _OWN else o.domain): o.version for o in inner.opset_import}
        self.versions, self.marks = {**self.versions, **imported}, {}
        known = scope.stated
        shapes = {i: known[o] for i, o in zip(inner.output, node.output) if o in known}
        try:
            self._read(nodes, _Scope(own, uses, shapes))
        finally:
            self.versions, self.marks = saved
        return [own.get(name, np.zeros(0)) for name in inner.output][: len(node.output)]


def _given(node: Any, missing: Sequence[str], attributes: Mapping[str, Any]) -> Any:
    """A function's node as it is in a call: without the inputs that are `missing`, and with the
    attributes of the call in place of references."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for n, name in enumerate(copy.input):
        if name in missing:
            copy.input[n] = ""
    del copy.attribute[:]
    for a in node.attribute:
        if not a.ref_attr_name:
            copy.attribute.append(a)
        elif a.ref_attr_name in attributes:
            new = copy.attribute.add()
            new.CopyFrom(attributes[a.ref_attr_name])
            new.name = a.name
    return copy


def _as_known(value: Value) -> Value:
    """The value, a tensor without elements as the array that it is."""
    if isinstance(value, Tensor):
        return np.zeros(value.shape, value.dtype) if 0 in (value.shape or ()) else value
    return np.asarray(value)


def written(
    model: Any, inputs: Sequence[Any], given: Mapping[str, Any], whole: OpenOnnx | None = None
) -> Written:
    """A `ModelProto` in the notation. Its `inputs` are those that are no weights; arrays, or
    shapes, may be `given` for them. It may be the `whole` of other sizes, too.

    Integers that decide what is computed, such as a shape, are fixed as they are given. Raises
    `UnsupportedOperator`, which names the operator, and `ModelError`.
    """
    early = () if whole is None else whole.fixed
    fixed = {n: x for n, x in _arrays(given).items() if not x.size or n in early}
    while True:
        try:
            return _written(model, inputs, given, fixed, whole)
        except NotKnown as reason:
            left = set(reason.inputs).difference(fixed)
            more = {n: x for n, x in _arrays(given).items() if n in left}
            if not more or any(x.size > _MOST_FIXED for x in more.values()):
                raise
            fixed |= more


def _arrays(given: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays among what is given; other things are shapes."""
    return {n: np.asarray(to_numpy(x)) for n, x in given.items() if hasattr(x, "shape")}


def _written(
    model: Any,
    inputs: Sequence[Any],
    given: Mapping[str, Any],
    fixed: Mapping[str, Array],
    whole: OpenOnnx | None,
) -> Written:
    arrays = KnownArrays(weights_of(model.graph)) if whole is None else whole.known
    varying, growing = (None, ()) if whole is None else (whole.varying, whole.growing)
    versions = {("" if o.domain in _OWN else o.domain): o.version for o in model.opset_import}
    graph = Graph(versions, varying, growing, weights=Weights(arrays.scaled))
    tensors: dict[str, Tensor] = {}
    for value in inputs:
        kind = value.type.tensor_type
        shape = tuple(d.dim_value for d in kind.shape.dim)
        if value.name in given:
            shape = shape_of_input(value.name, given[value.name])
        dtype = dtype_of_input(value.name, kind.elem_type)
        if value.name not in fixed:
            tensors[value.name] = Tensor(identifier(value.name), shape, dtype)
    graph.marks.update(dict.fromkeys((*arrays.weights, *fixed), False))
    try:
        outputs = graph.run(model.graph, {**arrays.weights, **tensors, **fixed}, {})
    except NotKnown as reason:
        needed = set(defined_by([reason.value], set()))
        reason.inputs = tuple(n for n, t in tensors.items() if t in needed)
        raise
    results = {id(x): x for x in outputs}
    for n, (value, out) in enumerate(zip(model.graph.output, outputs)):
        if str(out.dtype) not in DTYPES:
            kind = "texts" if out.dtype == object else str(out.dtype)
            raise UnsupportedOperator(
                f"output {value.name} is {kind}: leave it out, as onnx.utils.extract_model does"
            )
        if isinstance(out, np.ndarray) and varying is not None:
            graph.folded[value.name] = out
            if few(out):
                outputs[n] = of_numbers(value.name, out)
            elif value.name in varying:
                outputs[n] = repeated(value.name, out)
            graph.record("numbers", [outputs[n]])
    extents = indexed(graph.definitions, set(tensors.values()))
    kept, known = graph.weights, graph.folded
    used = {name: x for name, x in known.items() if kept.has(x) or id(x) in results}
    return Written(tensors, outputs, graph.definitions, kept.arrays, fixed, extents, used)
