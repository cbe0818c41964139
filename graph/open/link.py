"""From the frames of a network to one library of open sizes."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopwright.codegen.library.library import Library
from loopwright.codegen.library.plan import ARENA, ARGUMENTS, Limit, PlannedLoop, Weights
from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.codegen.open.build import default_configs
from loopwright.codegen.open.plan import (
    Number,
    OpenCall,
    OpenCopy,
    OpenKernel,
    OpenPlace,
    OpenPlan,
    expression,
)
from loopwright.codegen.target import resolve
from loopwright.codegen.tir.emit import emit
from loopwright.codegen.tir.pipeline import compiled, object_file
from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.errors import BuildError, LoopwrightError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.workload import Workload, tensor_shape
from loopwright.graph.compile.kernels import tuned_kernel
from loopwright.graph.compile.loops import Parts, in_order, needed
from loopwright.graph.compile.memory_plan import Lifetime, shelves
from loopwright.graph.importers.tir import Imported
from loopwright.graph.loops import Loop
from loopwright.graph.network import Value, check_arrays
from loopwright.graph.open.frames import Frame
from loopwright.schedule.open.cover import cover
from loopwright.schedule.open.family import Family, numbered
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
    """The programs of a step for all sizes of a frame.

    Attributes
    ----------
    plain, constants: numbers of the inputs that are read as they are, and that are laid out.
    prepare: lays the latter out; None where there are none.
    """

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


@dataclass
class Linker:
    """Compiles the steps of frames, equal ones once, and gathers the weights of all."""

    target: Target
    numerics: Numerics
    known: Records
    weights: Weights = field(default_factory=Weights)
    _kernels: dict[Any, StepKernel] = field(default_factory=dict)
    _laid_out: dict[Any, list[OpenPlace]] = field(default_factory=dict)

    def plan(self, frame: Frame) -> OpenPlan:
        """The plan of a frame. Raises `BuildError` where a step has no programs."""
        return _FramePlan(self, frame).plan()

    def kernels(self, frame: Frame, live: Sequence[int]) -> dict[int, StepKernel]:
        """The kernel of each live step, several compiled at a time."""
        keys = {n: _key(frame.steps[n]) for n in live}
        jobs = {key: n for n, key in reversed(keys.items()) if key not in self._kernels}
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
        def choose(sizes: Mapping[str, int]) -> Iterator[Config]:
            config = self.known(family.at(**sizes))
            if config is not None:
                yield config
            yield from default_configs(family, self.target, self.numerics, sizes)

        made = cover(family, self.target, choose, _APART)
        programs = merged(family, [p.tree for p in made.programs])
        arguments = (*programs.inputs, *programs.prepared, *programs.outputs)
        names = tuple(f"{name}_{k}" for k in range(len(made.programs)))
        codes = []
        for each, p, body in zip(names, made.programs, programs.bodies, strict=True):
            function = emit(each, arguments, body, p.target, dims=made.dims)
            codes.append(object_file(compiled({each: function}, self.target, variant=True)))
        greatest = family.greatest
        shapes = {t.name: tensor_shape(t) for t in (*greatest.inputs, *greatest.outputs)}
        shapes |= {b.name: tuple(map(int, b.shape)) for b in programs.prepared}
        parameters = tuple(Parameter(b.name, shapes[b.name], b.dtype) for b in arguments)
        check_arrays("one of its functions", len(parameters) + 1)
        kernel = OpenKernel(names, tuple(codes), parameters, made.rules, sized=True)
        at = {t.name: n for n, t in enumerate(greatest.inputs)}
        plain, constants = (
            tuple(at[b.name] for b in part) for part in (programs.inputs, programs.constants)
        )
        return StepKernel(kernel, plain, constants, _preparation(programs))

    def constant(self, data: Array) -> OpenPlace:
        """The place of a constant, equal ones in one."""
        place = self.weights.add(_digest(data), np.ascontiguousarray(data))
        return OpenPlace(place.space, place.offset)

    def laid_out(self, made: StepKernel, constants: Sequence[Array]) -> list[OpenPlace]:
        """The places of what a kernel reads of constants."""
        key = (made.kernel.names, *map(_digest, constants))
        if key not in self._laid_out:
            self._laid_out[key] = [self.constant(x) for x in made.prepared(constants)]
        return self._laid_out[key]


def _digest(data: Array) -> tuple[bytes, int]:
    whole = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return hashlib.blake2b(whole.data, digest_size=16).digest(), whole.nbytes


def _key(step: Family | Workload) -> Any:
    """What equal steps have in common."""
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


@dataclass(frozen=True, eq=False)
class _Entry:
    """An entry of a plan: a step's kernel, or a copy of a value to another."""

    kernel: OpenKernel | None
    values: tuple[Value | OpenPlace, ...]
    loop: Loop[Value] | None


@dataclass
class _FramePlan:
    linker: Linker
    frame: Frame

    @functools.cached_property
    def parts(self) -> Parts:
        """The values that lie in others."""
        return Parts(self.frame.nbytes, self.frame.counts.__getitem__)

    def plan(self) -> OpenPlan:
        network = self.frame.work.network
        live = self.skip_views()
        kernels = self.linker.kernels(self.frame, live)
        entries = [
            _Entry(kernels[each].kernel, self.arguments(each, kernels[each]), loop)
            if isinstance(each, int)
            else _Entry(None, each, loop)
            for loop, body in in_order(network, set(live), self.parts)
            for each in body
        ]
        direct = self.direct()
        places, slots = self.place_all(entries, direct)
        calls: list[OpenCall | OpenCopy | PlannedLoop] = []
        for loop, group in itertools.groupby(entries, lambda entry: entry.loop):
            planned = [self.planned(entry, places) for entry in group]
            if loop is None:
                calls += planned
            else:
                calls.append(PlannedLoop(self.frame.counts[loop], tuple(planned)))
        for i, value in enumerate(network.outputs):
            if i not in direct:
                out = OpenPlace(ARGUMENTS + len(network.inputs) + i)
                calls.append(OpenCopy(self.at(value, places), out, self.frame.nbytes(value)))
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
        return OpenPlan(self.frame.dims, tuple(calls), slots, limits)

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

    def root(self, value: Value) -> Value:
        """The array in whose storage a value lies."""
        return self.parts.of(value).root

    def at(self, value: Value, places: Mapping[Value, OpenPlace]) -> OpenPlace:
        """Where a value lies."""
        part = self.parts.of(value)
        root = places[part.root]
        return OpenPlace(
            root.space, part.offset + root.offset, root.slot, part.stride, part.several
        )

    def planned(self, entry: _Entry, places: Mapping[Value, OpenPlace]) -> OpenCall | OpenCopy:
        """An entry with the places of its arguments."""
        at = tuple(v if isinstance(v, OpenPlace) else self.at(v, places) for v in entry.values)
        if entry.kernel is not None:
            return OpenCall(entry.kernel, at)
        source, to = at
        assert isinstance(entry.values[0], Value)
        return OpenCopy(source, to, self.frame.nbytes(entry.values[0]))

    def arguments(self, n: int, made: StepKernel) -> tuple[Value | OpenPlace, ...]:
        """A step's arguments in the kernel's order, prepared weights placed."""
        step, said = self.frame.work.network.steps[n], self.imported(n)
        given = (*step.args, *step.outs)
        values = [given[i] for i in said.inputs]
        constants = [self.data(values[k]) for k in made.constants]
        prepared = self.linker.laid_out(made, constants)
        outs = (given[i] for i in said.outputs)
        return (*(values[k] for k in made.plain), *prepared, *outs)

    def data(self, value: Value) -> Array:
        """What a constant holds."""
        part = self.parts.of(value)
        assert part.root.data is not None, value.name
        assert isinstance(part.offset, int), "constants have one size"
        first = part.offset // item_bytes(value.dtype)
        flat = part.root.data.reshape(-1)
        return flat[first : first + math.prod(value.shape)].reshape(value.shape)

    def direct(self) -> set[int]:
        """The outputs that are written where they belong."""
        network = self.frame.work.network
        made = {v for step in network.steps for v in step.outs if self.root(v) is v}
        made |= {r.whole for loop in network.loops for r in loop.writes}
        direct, taken = set(), set[Value]()
        for i, value in enumerate(network.outputs):
            root = self.root(value)
            if root in made and root not in taken and self.whole(root, value):
                direct.add(i)
                taken.add(root)
        return direct

    def whole(self, root: Value, value: Value) -> bool:
        """Return whether a value is all of an array, at every size."""
        a, b = self.frame.nbytes(root), self.frame.nbytes(value)
        dims = self.frame.dims
        grid = [dict(zip((d.name for d in dims), sizes)) for sizes in drawn(dims)]
        return all(evaluated(a, sizes) == evaluated(b, sizes) for sizes in grid)

    def place_all(
        self, entries: Sequence[_Entry], direct: set[int]
    ) -> tuple[dict[Value, OpenPlace], tuple[tuple[Number, ...], ...]]:
        """The place of every array that some step or copy touches, and the slots of the arena."""
        network = self.frame.work.network
        count = len(network.inputs)
        places = {v: OpenPlace(ARGUMENTS + i) for i, v in enumerate(network.inputs)}
        for i in sorted(direct):
            places[self.root(network.outputs[i])] = OpenPlace(ARGUMENTS + count + i)
        uses: dict[Value, list[int]] = {}
        spans: dict[Loop[Value], tuple[int, int]] = {}
        for number, entry in enumerate(entries):
            if entry.loop is not None:
                spans[entry.loop] = spans.get(entry.loop, (number, 0))[0], number
            for v in entry.values:
                if isinstance(v, Value):
                    uses.setdefault(self.root(v), []).append(number)
        for i, value in enumerate(network.outputs):
            if i not in direct:
                uses.setdefault(self.root(value), []).append(len(entries))
        lives = []
        looped = [(*span, network.made_in(loop)) for loop, span in spans.items()]
        for value, ends in needed(uses, looped).items():
            if value.data is not None:
                places[value] = self.linker.constant(value.data)
            elif value not in places:
                lives.append((Lifetime(value.number, value.nbytes, *ends), value))
        found = {life.key: value for life, value in lives}
        slots = []
        for number, shelf in enumerate(shelves([life for life, _ in lives])):
            for life in shelf:
                places[found[life.key]] = OpenPlace(ARENA, slot=number)
            slots.append(tuple(self.parts.nbytes(found[life.key]) for life in shelf))
        return places, tuple(slots)
