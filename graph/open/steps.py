"""The programs of one step of a network, for all sizes of a frame."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.codegen.library.library import Library
from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.codegen.open.build import default_configs
from loopwright.codegen.open.plan import OpenKernel
from loopwright.codegen.target import resolve
from loopwright.codegen.tir.emit import emit
from loopwright.codegen.tir.pipeline import compiled, object_file
from loopwright.dsl.errors import BuildError, LoopwrightError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.workload import Workload, tensor_shape
from loopwright.graph.compile.kernels import tuned_kernel
from loopwright.graph.compile.stored_records import best_record
from loopwright.graph.network import check_arrays
from loopwright.schedule.open.coarse import coarse
from loopwright.schedule.open.cover import Choose, covered
from loopwright.schedule.open.family import Family, Sized
from loopwright.schedule.open.merge import Programs, merged
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target
from loopwright.transfer.records.location import GivenLocation, may_exist
from loopwright.transfer.records.store import RecordStore

Array = np.ndarray[Any, np.dtype[Any]]

_APART = 4
"""Times as large: from one size that a step has a program for to the next."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Code that lays constants out. It runs when a network is linked, on this machine."""

    code: bytes
    signature: Signature

    @functools.cached_property
    def library(self) -> Library:
        """The code, loaded."""
        return Library.from_object(self.code, self.signature)


@dataclass(frozen=True, eq=False)
class StepKernel:
    """The programs of a step for all sizes of a frame: inputs read as they are (`plain`) and laid
    out (`constants`), and what lays the latter out."""

    kernel: OpenKernel
    plain: tuple[int, ...]
    constants: tuple[int, ...]
    layout: Layout | None

    def prepared(self, constants: Sequence[Array]) -> tuple[Array, ...]:
        """The constants as the programs want them."""
        if self.layout is None:
            return ()
        made = self.layout.library(*constants)
        return made if isinstance(made, tuple) else (made,)


@dataclass(frozen=True)
class StepJob:
    """A step that is to be compiled: the prefix of its symbols, and the function that it comes
    from."""

    step: Family | Workload
    name: str
    function: str


@dataclass(frozen=True)
class StepCompiler:
    """Compiles steps: at sizes that have one by the best record of a store, as a `policy` allows,
    of a machine, by default this one; else by default schedules."""

    target: Target
    numerics: Numerics
    records: GivenLocation | None = None
    policy: str = "exact"
    machine: Mapping[str, str] | None = None

    def kernel(self, job: StepJob) -> StepKernel:
        """Compile a step. Raises `BuildError` where it has no programs for all sizes."""
        step = job.step
        try:
            if isinstance(step, Workload):
                return self._fixed(step, job.name)
            return self._open(step, job.name)
        except LoopwrightError as error:
            raise BuildError(
                f"{job.function} has no programs for all sizes: {error}; build the model for the "
                "sizes that are needed, or narrower bounds"
            ) from error

    def _known(self, workload: Workload) -> Config | None:
        if self.records is None or not may_exist(self.records):
            return None
        with RecordStore(self.records, create=False) as store:
            found = best_record(
                store, workload, self.target, self.numerics, self.policy, self.machine
            )
        return None if found is None else found.config

    def _fixed(self, workload: Workload, name: str) -> StepKernel:
        made = tuned_kernel(workload, self._known(workload), self.target, name, self.numerics)
        sig = made.signature
        kernel = OpenKernel((name,), (made.kernel.code,), made.kernel.parameters, (), sized=False)
        at = {p.name: n for n, p in enumerate(sig.inputs)}
        plain = tuple(at[p.name] for p in sig.plain_inputs)
        ours = made.prepare
        layout = None if ours is None else Layout(ours.origin.objects[0], ours.signature)
        return StepKernel(kernel, plain, tuple(at[c] for c in sig.constants), layout)

    def _open(self, whole: Family, name: str) -> StepKernel:
        steps = coarse(whole)
        family = steps.family

        def choosing(given: Sized) -> Choose:
            def choose(sizes: Mapping[str, int]) -> Iterator[Config]:
                config = self._known(family.at(**sizes))
                if config is not None:
                    yield config
                yield from default_configs(given, self.target, self.numerics, sizes)

            return choose

        made = covered(family, self.target, choosing, _APART)
        programs = merged(family, [steps.tree(p.tree) for p in made.programs])
        arguments = (*programs.inputs, *programs.prepared, *programs.outputs)
        names = tuple(f"{name}_{k}" for k in range(len(made.programs)))
        functions = {
            each: emit(each, arguments, body, p.target, dims=whole.dims)
            for each, p, body in zip(names, made.programs, programs.bodies, strict=True)
        }
        code = object_file(compiled(functions, self.target, variant=True))
        greatest = family.greatest
        shapes = {t.name: tensor_shape(t) for t in (*greatest.inputs, *greatest.outputs)}
        shapes |= {b.name: tuple(map(int, b.shape)) for b in programs.prepared}
        parameters = tuple(Parameter(b.name, shapes[b.name], b.dtype) for b in arguments)
        check_arrays("one of its functions", len(parameters) + 1)
        rules = tuple(map(steps.rule, made.rules))
        kernel = OpenKernel(names, (code,), parameters, rules, sized=True)
        at = {t.name: n for n, t in enumerate(greatest.inputs)}
        plain, constants = (
            tuple(at[b.name] for b in part) for part in (programs.inputs, programs.constants)
        )
        return StepKernel(kernel, plain, constants, _layout(programs))


def _layout(programs: Programs) -> Layout | None:
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
    return Layout(code, Signature("prepare", inputs, outputs))
