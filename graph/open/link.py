"""From the frames of a network to one library of open sizes."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopwright.codegen.library.plan import ARENA, Limit, Place, Weights
from loopwright.codegen.open.plan import Number, OpenKernel, OpenPlan, expression
from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.size import named
from loopwright.dsl.words import counted
from loopwright.dsl.workload import Workload
from loopwright.graph.compile.entries import (
    Entry,
    bordered,
    lifetimes,
    placed,
    planned,
    step_entries,
)
from loopwright.graph.compile.loops import Parts
from loopwright.graph.compile.memory_plan import shelves
from loopwright.graph.importers.tir import Imported
from loopwright.graph.network import Value
from loopwright.graph.open.frames import Frame
from loopwright.graph.open.step_pool import StepPool
from loopwright.graph.open.steps import StepJob, StepKernel
from loopwright.schedule.open.family import Family, numbered
from loopwright.schedule.open.samples import drawn
from loopwright.schedule.tree.formula import evaluated

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class LinkedFrame:
    """The plan of a frame, with its entries in order, and what says where a value lies."""

    plan: OpenPlan
    entries: tuple[Entry, ...]
    place: Callable[[Value], Place]


@dataclass
class Linker:
    """Has the steps of frames compiled, equal ones once, and gathers the weights of all."""

    pool: StepPool
    tell: Callable[[str], None] = lambda now: None
    weights: Weights = field(default_factory=Weights)
    _kernels: dict[Any, StepKernel] = field(default_factory=dict)
    _laid_out: dict[Any, list[Place]] = field(default_factory=dict)

    def plan(self, frame: Frame) -> LinkedFrame:
        """The plan of a frame. Raises `BuildError` where a step has no programs."""
        return _FramePlan(self, frame).plan()

    def kernels(self, frame: Frame, live: Sequence[int]) -> dict[int, StepKernel]:
        """The kernel of each live step."""
        keys = {n: _key(frame.steps[n]) for n in live}
        new = {key: n for n, key in reversed(keys.items()) if key not in self._kernels}
        if new:
            sizes = "; ".join(map(str, frame.dims))
            self.tell(f"compiling {counted(len(new), 'kernel')} for {sizes}")
        functions = (frame.work.network.steps[n].function for n in new.values())
        names = (f"lw_k{n}" for n in itertools.count(len(self._kernels)))
        jobs = [
            StepJob(frame.steps[n], name, function)
            for n, name, function in zip(new.values(), names, functions)
        ]
        self._kernels.update(zip(new, self.pool.kernels(jobs), strict=True))
        return {n: self._kernels[key] for n, key in keys.items()}

    def constant(self, data: Array) -> Place:
        """The place of a constant, equal ones in one."""
        return self.weights.add(_digest(data), np.ascontiguousarray(data))

    def laid_out(self, made: StepKernel, constants: Sequence[Array]) -> list[Place]:
        """The places of what a kernel reads of constants."""
        key = (made.kernel.names, *map(_digest, constants))
        if key not in self._laid_out:
            self._laid_out[key] = [self.constant(x) for x in made.prepared(constants)]
        return self._laid_out[key]


def _digest(data: Array) -> tuple[bytes, int]:
    whole = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return hashlib.blake2b(whole.data, digest_size=16).digest(), whole.nbytes


def _key(step: Family | Workload) -> Any:
    """A key that equal steps share."""
    if isinstance(step, Workload):
        return step.key
    formulas: list[str] = []

    def number(x: Any) -> Any:
        formulas.append(str(x))
        return x

    numbered(step.form, number)
    return step.dims, step.greatest.key, tuple(formulas)


@dataclass
class _FramePlan:
    linker: Linker
    frame: Frame

    @functools.cached_property
    def parts(self) -> Parts:
        """The values that lie in others."""
        return Parts(self.frame.nbytes, self.frame.counts.__getitem__)

    def plan(self) -> LinkedFrame:
        network = self.frame.work.network
        live = self.skip_views()
        kernels = self.linker.kernels(self.frame, live)
        steps = step_entries(network, live, self.parts, lambda n: self.arguments(n, kernels[n]))
        entries, places = bordered(network, self.parts, steps, self.whole)
        slots = self.place_all(entries, places)
        limits = tuple(
            Limit(
                n, expression(self.frame.elements(v)), v.dtype, expression(self.frame.extents[v])
            )
            for n, v in enumerate(network.inputs, 1)
            if v in self.frame.extents
        )
        calls = tuple(planned(entries, self.parts, places))
        plan = OpenPlan(self.frame.dims, calls, slots, limits)
        return LinkedFrame(plan, tuple(entries), functools.partial(placed, self.parts, places))

    def imported(self, step: int) -> Imported:
        said = self.frame.work.imported[step]
        assert isinstance(said, Imported), "frames have no others"
        return said

    def skip_views(self) -> list[int]:
        """The steps that compute something; the results of the others are parts of their
        arguments."""
        live = []
        for n, step in enumerate(self.frame.work.network.steps):
            if n not in self.frame.offsets:
                live.append(n)
                continue
            source, (out,) = step.args[self.imported(n).inputs[0]], step.outs
            self.parts.add(out, source, self.frame.offsets[n] * item_bytes(out.dtype))
        network = self.frame.work.network
        for loop in network.loops:
            self.parts.add_loop(loop, network.made_in(loop))
        return live

    def arguments(self, n: int, made: StepKernel) -> tuple[OpenKernel, tuple[Value | Place, ...]]:
        """A step's kernel and its arguments in the kernel's order, prepared weights placed."""
        step, said = self.frame.work.network.steps[n], self.imported(n)
        given = (*step.args, *step.outs)
        values = [given[i] for i in said.inputs]
        constants = [self.parts.data(values[k]) for k in made.constants]
        prepared = self.linker.laid_out(made, constants)
        outs = (given[i] for i in said.outputs)
        return made.kernel, (*(values[k] for k in made.plain), *prepared, *outs)

    def whole(self, root: Value, value: Value) -> bool:
        """Return whether a value is all of an array, at every size."""
        a, b = self.frame.nbytes(root), self.frame.nbytes(value)
        dims = self.frame.dims
        grid = [named(dims, sizes) for sizes in drawn(dims)]
        return all(evaluated(a, sizes) == evaluated(b, sizes) for sizes in grid)

    def place_all(
        self, entries: Sequence[Entry], places: dict[Value, Place]
    ) -> tuple[tuple[Number, ...], ...]:
        """The slots of the arena, after every array that entries touch is given its place."""
        constants, lives = lifetimes(self.frame.work.network, self.parts, entries, places)
        places |= {v: self.linker.constant(self.parts.data(v)) for v in constants}
        found = {life.key: value for value, life in lives.items()}
        slots = []
        for number, shelf in enumerate(shelves(list(lives.values()))):
            places |= {found[life.key]: Place(ARENA, slot=number) for life in shelf}
            slots.append(tuple(self.parts.nbytes(found[life.key]) for life in shelf))
        return tuple(slots)
