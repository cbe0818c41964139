"""A network in the notation as steps, each one workload of definitions that are fused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tvm_ffi

from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import tensor_shape
from loopwright.graph.importers import definitions
from loopwright.graph.importers.tir import Imported
from loopwright.graph.loops import Loop
from loopwright.graph.network import Network, Step, Value, check_arrays
from loopwright.graph.transforms.choices import Choices
from loopwright.graph.transforms.fusion import fused, names_like, workload_of


def network_of(written: definitions.Written, choices: Choices | None = None) -> Network:
    """Steps of a network in the notation, fused by `choices` where these have it. Raises
    `NotPlannable` for too many arguments."""
    check_arrays("the model", len(written.inputs) + len(written.outputs))
    live = set(definitions.defined_by(written.outputs, set()))
    results = {t for t in written.outputs if isinstance(t, Tensor)}
    known = {} if choices is None else choices
    groups = fused(written.definitions, live, results, known)
    return _Builder(written, known).network(groups, written.outputs, len(written.outputs) > 1)


class _Builder:
    """Values and steps of a network, numbered."""

    def __init__(self, written: definitions.Written, choices: Choices) -> None:
        self.choices = choices
        self.arrays, self.extents = written.arrays, written.extents
        self.count = itertools.count(1)
        self.values: dict[Tensor, Value] = {}
        self.names: dict[str, str] = {}  # of functions, by what they compute
        self.functions: dict[str, Any] = {}
        self.inputs = tuple(self.value(t, name) for name, t in written.inputs.items())

    def network(
        self,
        groups: Sequence[definitions.Part],
        outputs: Sequence[Tensor | np.ndarray[Any, Any]],
        several: bool,
    ) -> Network:
        steps = tuple(self._steps(groups, {t for t in outputs if isinstance(t, Tensor)}))
        values = tuple(
            self.value(t) if isinstance(t, Tensor) else self.constant(t) for t in outputs
        )
        return Network(self.functions, self.inputs, steps, values, several)

    def _steps(self, groups: Sequence[definitions.Part], results: set[Tensor]) -> Iterator[Step]:
        read = {t for g in groups for t in self._outside(g)} | results
        for group in groups:
            if isinstance(group, definitions.Foreign):
                yield from self._foreign(group)
            elif isinstance(group, definitions.Repeated):
                yield from self._repeated(group)
            else:
                yield self._step(group, [t for t in group.tensors if t in read])

    def _repeated(self, group: definitions.Repeated) -> Iterator[Step]:
        loop: Loop[Value] = group.loop.map(self.value)
        made = set(group.loop.made())
        groups = fused(
            group.parts, set(definitions.defined_by(list(made), set())), made, self.choices
        )
        yield from (replace(step, loop=loop) for step in self._steps(groups, made))

    def _outside(self, group: definitions.Part) -> Iterator[Tensor]:
        own = set(group.tensors)
        for t in group.tensors:
            yield from (source for source in definitions.read_by(t) if source not in own)

    def _foreign(self, group: definitions.Foreign) -> Iterator[Step]:
        """The calls of TVM's functions, on values of this network."""
        inner = group.network
        known = dict(zip(inner.inputs, (self.value(t) for t in group.inputs), strict=True))

        def own(v: Value) -> Value:
            if v not in known:
                known[v] = replace(v, number=next(self.count))
            return known[v]

        for step in inner.steps:
            function = inner.functions[step.function]
            key = f"{group.name} {tvm_ffi.structural_hash(function)}"
            if key not in self.names:
                self.names[key] = self._fresh(f"{group.name}_{step.function}")
                self.functions[self.names[key]] = function
            yield Step(self.names[key], tuple(map(own, step.args)), tuple(map(own, step.outs)))
        self.values.update(zip(group.tensors, map(own, inner.outputs), strict=True))

    def _step(self, group: definitions.Definitions, outputs: Sequence[Tensor]) -> Step:
        work, names = workload_of(group.tensors, outputs)
        args = list(dict.fromkeys(names[t.name] for t in work.inputs))
        at = {t: n for n, t in enumerate((*args, *outputs))}
        imported = Imported(
            work,
            tuple(at[names[t.name]] for t in work.inputs),
            tuple(at[names[t.name]] for t in work.outputs),
        )
        key = f"{work.key} {imported.inputs} {imported.outputs}"
        if key not in self.names:
            self.names[key] = self._fresh(group.name)
            self.functions[self.names[key]] = imported
        return Step(
            self.names[key],
            tuple(self.value(t) for t in args),
            tuple(self.value(t) for t in outputs),
        )

    def _fresh(self, name: str) -> str:
        return next(n for n in names_like(name) if n not in self.functions)

    def value(self, tensor: Tensor, name: str = "") -> Value:
        if tensor not in self.values:
            known = self.arrays.get(tensor), self.extents.get(tensor)
            number, shape = next(self.count), tensor_shape(tensor)
            self.values[tensor] = Value(number, name or tensor.name, shape, tensor.dtype, *known)
        return self.values[tensor]

    def constant(self, array: np.ndarray[Any, Any]) -> Value:
        return Value(next(self.count), "constant", array.shape, str(array.dtype), array)
