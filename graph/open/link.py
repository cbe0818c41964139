"""From the frames of a network to one library of open sizes."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopwright.codegen.library.library import Library
from loopwright.codegen.library.plan import ARENA, Limit, Place, Weights
from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.codegen.open.build import default_configs
from loopwright.codegen.open.plan import Number, OpenKernel, OpenPlan, expression
from loopwright.codegen.target import resolve
from loopwright.codegen.tir.emit import emit
from loopwright.codegen.tir.pipeline import compiled, object_file
from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.errors import BuildError, LoopwrightError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.words import counted
from loopwright.dsl.workload import Workload, tensor_shape
from loopwright.graph.compile.entries import (
    Entry,
    bordered,
    lifetimes,
    placed,
    planned,
    step_entries,
)
from loopwright.graph.compile.kernels import tuned_kernel
from loopwright.graph.compile.loops import Parts
from loopwright.graph.compile.memory_plan import shelves
from loopwright.graph.importers.tir import Imported
from loopwright.graph.network import Value, check_arrays
from loopwright.graph.open.frames import Frame
from loopwright.schedule.open.cover import Choose, covered
from loopwright.schedule.open.family import Family, Sized, numbered
from loopwright.schedule.open.merge import Programs, merged
from loopwright.schedule.open.unify import drawn
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target
from loopwright.schedule.tree.formula import evaluated

Array = np.ndarray[Any, np.dtype[Any]]
Records = Callable[[Workload], Config | None]
"""The config that a workload of fixed sizes is to be compiled by, if one is known."""

_APART = 4
"""Times as large: from one size that a step has a program for to the next."""


@dataclass(frozen=True, eq=False)
class StepKernel:
    """The programs of a step for all sizes of a frame: inputs read as they are (`plain`) and laid
    out (`constants`), and what lays the latter out."""

    kernel: OpenKernel
    plain: tuple[int, ...]
    constants: tuple[int, ...]
    prepare: Library | None

    def prepared(self, constants: Sequence[Array]) -> tuple[Array, ...]:
        """The constants as the programs want them."""
        if self.prepare is None:
            return ()
        made = self.prepare(*constants)
        return made if isinstance(made, tuple) else (made,)


@dataclass(frozen=True, eq=False)
class LinkedFrame:
    """The plan of a frame, with its entries in order, and what says where a value lies."""

    plan: OpenPlan
    entries: tuple[Entry, ...]
    place: Callable[[Value], Place]


@dataclass
class Linker:
    """Compiles the steps of frames, equal ones once, and gathers the weights of all."""

    target: Target
    numerics: Numerics
    known: Records
    tell: Callable[[str], None] = lambda now: None
    weights: Weights = field(default_factory=Weights)
    _kernels: dict[Any, StepKernel] = field(default_factory=dict)
    _laid_out: dict[Any, list[Place]] = field(default_factory=dict)

    def plan(self, frame: Frame) -> LinkedFrame:
        """The plan of a frame. Raises `BuildError` where a step has no programs."""
        return _FramePlan(self, frame).plan()

    def kernels(self, frame: Frame, live: Sequence[int]) -> dict[int, StepKernel]:
        """The kernel of each live step, several compiled at a time."""
        keys = {n: _key(frame.steps[n]) for n in live}
        jobs = {key: n for n, key in reversed(keys.items()) if key not in self._kernels}
        if jobs:
            sizes = "; ".join(map(str, frame.dims))
            self.tell(f"compiling {counted(len(jobs), 'kernel')} for {sizes}")
        names = {key: f"lw_k{len(self._kernels) + k}" for k, key in enumerate(jobs)}

        def make(key: Any) -> StepKernel:
            n = jobs[key]
            try:
                return self._made(frame.steps[n], names[key])
            except LoopwrightError as error:
                function = frame.work.network.steps[n].function
                raise BuildError(
                    f"{function} has no programs for all sizes: {error}; build the model for the "
                    "sizes that are needed, or narrower bounds"
                ) from error

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            self._kernels.update(zip(jobs, threads.map(make, jobs)))
        return {n: self._kernels[key] for n, key in keys.items()}

    def _made(self, step: Family | Workload, name: str) -> StepKernel:
        return self._fixed(step, name) if isinstance(step, Workload) else self._open(step, name)

    def _fixed(self, workload: Workload, name: str) -> StepKernel:
        made = tuned_kernel(workload, self.known(workload), self.target, name, self.numerics)
        sig = made.signature
        kernel = OpenKernel((name,), (made.kernel.code,), made.kernel.parameters, (), sized=False)
        at = {p.name: n for n, p in enumerate(sig.inputs)}
        plain = tuple(at[p.name] for p in sig.plain_inputs)
        return StepKernel(kernel, plain, tuple(at[c] for c in sig.constants), made.prepare)

    def _open(self, family: Family, name: str) -> StepKernel:
        def choosing(given: Sized) -> Choose:
            def choose(sizes: Mapping[str, int]) -> Iterator[Config]:
                config = self.known(family.at(**sizes))
                if config is not None:
                    yield config
                yield from default_configs(given, self.target, self.numerics, sizes)

            return choose

        made = covered(family, self.target, choosing, _APART)
        programs = merged(family, [p.tree for p in made.programs])
        arguments = (*programs.inputs, *programs.prepared, *programs.outputs)
        names = tuple(f"{name}_{k}" for k in range(len(made.programs)))
        functions = {
            each: emit(each, arguments, body, p.target, dims=made.dims)
            for each, p, body in zip(names, made.programs, programs.bodies, strict=True)
        }
        code = object_file(compiled(functions, self.target, variant=True))
        greatest = family.greatest
        shapes = {t.name: tensor_shape(t) for t in (*greatest.inputs, *greatest.outputs)}
        shapes |= {b.name: tuple(map(int, b.shape)) for b in programs.prepared}
        parameters = tuple(Parameter(b.name, shapes[b.name], b.dtype) for b in arguments)
        check_arrays("one of its functions", len(parameters) + 1)
        kernel = OpenKernel(names, (code,), parameters, made.rules, sized=True)
        at = {t.name: n for n, t in enumerate(greatest.inputs)}
        plain, constants = (
            tuple(at[b.name] for b in part) for part in (programs.inputs, programs.constants)
        )
        return StepKernel(kernel, plain, constants, _preparation(programs))

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


def _preparation(programs: Programs) -> Library | None:
    """Library that lays constants out. It runs now, on this machine."""
    if not programs.prepared:
        return None
    here = resolve("cpu", 1)
    given = (*programs.constants, *programs.prepared)
    function = emit("main", given, programs.prepare, here)
    code = object_file(compiled({"main": function}, here, optimized=False))
    inputs, outputs = (
        tuple(Parameter(b.name, tuple(map(int, b.shape)), b.dtype) for b in part)
        for part in (programs.constants, programs.prepared)
    )
    return Library.from_object(code, Signature("prepare", inputs, outputs))


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
                n,
                expression(self.frame.elements(v)),
                v.dtype,
                expression(self.frame.extents[v]),
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
        grid = [dict(zip((d.name for d in dims), sizes)) for sizes in drawn(dims)]
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
