"""From a network and its configs to one library: which kernel where, and where arrays lie."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from loopwright.codegen.library import plan
from loopwright.codegen.library.library import Library
from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.codegen.target import cpu_features
from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.errors import BuildError, ConfigError
from loopwright.graph.compile.entries import (
    Entry,
    bordered,
    lifetimes,
    placed,
    planned,
    step_entries,
)
from loopwright.graph.compile.kernels import TunedKernel, tuned_kernel, tvm_kernel
from loopwright.graph.compile.loops import Parts
from loopwright.graph.compile.memory_plan import place
from loopwright.graph.importers.tir import Imported
from loopwright.graph.network import Network, Value, check_arrays
from loopwright.graph.tasks import Work
from loopwright.graph.transforms.reshape import view_offset
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target


@dataclass(frozen=True, eq=False)
class Linked:
    """A network's library, with the config of every task by the workload's key. `entries` are the
    plan's, one for all turns of a loop; `place` says where a value lies. A call allocates
    `arena_bytes`, the library carries `weight_bytes`. `notes` tell what did not go as it
    should."""

    library: Library
    configs: Mapping[str, Config]
    entries: tuple[Entry, ...]
    place: Callable[[Value], plan.Place]
    arena_bytes: int
    weight_bytes: int
    notes: tuple[str, ...]

    @property
    def steps(self) -> tuple[int, ...]:
        """For each entry of the plan the number of the network's step, or -1 for a copy."""
        return tuple(entry.step for entry in self.entries)


def link(work: Work, configs: Mapping[str, Config], target: Target, name: str) -> Linked:
    """Compile every step and link them; `configs` by the workload's key, defaults elsewhere.
    Raises `BuildError`, and `NotPlannable` for TVM's run-time."""
    return _Linker(work, target).run(configs, name)


@dataclass
class _Linker:
    work: Work
    target: Target
    notes: list[str] = field(default_factory=list)
    weights: plan.Weights = field(default_factory=plan.Weights)
    parts: Parts = field(default_factory=Parts)

    @property
    def network(self) -> Network:
        return self.work.network

    def run(self, configs: Mapping[str, Config], name: str) -> Linked:
        live = self.skip_views()
        kernels = self.compile(live, configs)
        steps = step_entries(
            self.network, live, self.parts, lambda n: self.arguments(n, kernels[n])
        )
        entries, places = self.with_borders(list(steps))
        arena_bytes = self.place_all(entries, places)
        calls = tuple(planned(entries, self.parts, places))
        sig = self.signature(name)
        count, triple = len(sig.main_parameters), self.target.triple
        limits = [
            plan.Limit(n, str(math.prod(v.shape)), v.dtype, str(v.extent))
            for n, v in enumerate(self.network.inputs)
            if v.extent is not None
        ]
        objects = plan.object_files(calls, self.weights, arena_bytes, count, triple, limits=limits)
        library = Library.from_object(
            objects,
            sig,
            target_triple=triple,
            target=str(self.target),
            cpu_features=cpu_features(self.target),
            extra={
                "notes": self.work.notes() + self.notes,
                "numerics": str(self.work.numerics),
                "indexed": {v.name: v.extent for v in self.network.inputs if v.extent is not None},
            },
        )
        used = {self.key(n): k.config for n, k in kernels.items() if isinstance(k, TunedKernel)}
        return Linked(
            library,
            used,
            tuple(entries),
            functools.partial(placed, self.parts, places),
            arena_bytes,
            self.weights.nbytes,
            tuple(self.notes),
        )

    # ---- which kernel ----

    def key(self, step: int) -> str:
        said = self.work.imported[step]
        assert isinstance(said, Imported)
        return said.workload.key

    def skip_views(self) -> list[int]:
        """The steps that compute something; other results are parts of their arguments."""
        live = []
        for n, (step, said) in enumerate(zip(self.network.steps, self.work.imported)):
            offset = view_offset(said.workload) if isinstance(said, Imported) else None
            if offset is None or not isinstance(said, Imported):
                live.append(n)
                continue
            source, (out,) = step.args[said.inputs[0]], step.outs
            before = offset * item_bytes(out.dtype)
            unaligned = (int(self.parts.of(source).offset) + before) % plan.ALIGNMENT
            if unaligned and self.work.fallback:  # code of TVM's wants them aligned
                live.append(n)
                continue
            self.parts.add(out, source, before)
        for loop in self.network.loops:
            self.parts.add_loop(loop, self.network.made_in(loop))
        return live

    def compile(
        self, live: list[int], configs: Mapping[str, Config]
    ) -> dict[int, TunedKernel | plan.Kernel]:
        """The kernel of each step, equal work compiled once, several at a time."""
        jobs: dict[Any, int] = {}
        for n in live:
            said = self.work.imported[n]
            ours = isinstance(said, Imported)
            jobs.setdefault(self.key(n) if ours else ("tvm", self.network.steps[n].function), n)

        def make(key: Any, n: int) -> TunedKernel | plan.Kernel:
            name, function = f"lw_k{n}", self.network.steps[n].function
            said = self.work.imported[n]
            if isinstance(said, Imported):
                for config in dict.fromkeys((configs.get(key), None)):
                    try:
                        numerics = self.work.numerics
                        return tuned_kernel(said.workload, config, self.target, name, numerics)
                    except (BuildError, ConfigError) as error:
                        what = "its default" if config is None else "its record"
                        reason = str(error).splitlines()[0]
                        self.notes.append(f"{function}: {what} cannot be built: {reason}")
                if said.moved:
                    raise BuildError(f'{self.notes[-1]}; layout="given" may help')
            if isinstance(self.network.functions[function], Imported):
                raise BuildError(self.notes[-1])
            return tvm_kernel(self.network.functions[function], self.target, name)

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            made = dict(zip(jobs, threads.map(make, jobs, jobs.values())))
        for kernel in made.values():
            parameters = (kernel if isinstance(kernel, plan.Kernel) else kernel.kernel).parameters
            check_arrays("one of its functions", len(parameters))
        found = {}
        for n in live:
            ours = isinstance(self.work.imported[n], Imported)
            found[n] = made[self.key(n) if ours else ("tvm", self.network.steps[n].function)]
        return found

    def arguments(
        self, n: int, made: TunedKernel | plan.Kernel
    ) -> tuple[plan.Kernel, tuple[Value | plan.Place, ...]]:
        """A step's kernel and its arguments in the kernel's order, prepared weights placed."""
        step = self.network.steps[n]
        given = (*step.args, *step.outs)
        if isinstance(made, plan.Kernel):
            return made, given
        said = self.work.imported[n]
        assert isinstance(said, Imported)
        sig = made.signature
        at = dict(zip((p.name for p in sig.inputs), (given[i] for i in said.inputs)))
        known = [self.parts.of(at[name]) for name in sig.constants]
        key = (made.kernel.name, *((part.root.number, part.offset) for part in known))
        prepared: list[plan.Place] = []
        if sig.prepared:
            constants = {c: self.parts.data(at[c]) for c in sig.constants}
            arrays: tuple[Any, ...] = (None,) * len(sig.prepared)
            if not self.weights.known((key, 0)):
                arrays = made.prepared(constants)
            prepared = [self.weights.add((key, i), a) for i, a in enumerate(arrays)]
        plain = [at[p.name] for p in sig.plain_inputs]
        return made.kernel, (*plain, *prepared, *(given[i] for i in said.outputs))

    # ---- which place ----

    def with_borders(self, steps: list[Entry]) -> tuple[list[Entry], dict[Value, plan.Place]]:
        """The entries with copies of inputs that code of TVM's reads, which wants them aligned,
        and of outputs that it writes or that are a part of an array."""
        touched = {
            self.parts.of(v).root
            for entry in steps
            for v in entry.values
            if entry.kernel is not None and entry.kernel.aligned and isinstance(v, Value)
        }

        def fits(root: Value, output: Value) -> bool:
            return root.nbytes == output.nbytes and root not in touched

        return bordered(self.network, self.parts, steps, fits, touched)

    def place_all(self, entries: list[Entry], places: dict[Value, plan.Place]) -> int:
        """Bytes of the arena, after every array that entries touch is given its place."""
        constants, lives = lifetimes(self.network, self.parts, entries, places)
        places |= {v: self.weights.add(v.number, self.parts.data(v)) for v in constants}
        offsets, size = place(list(lives.values()))
        places |= {v: plan.Place(plan.ARENA, offsets[life.key]) for v, life in lives.items()}
        return size

    def signature(self, name: str) -> Signature:
        inputs = tuple(Parameter(v.name, v.shape, v.dtype) for v in self.network.inputs)
        named = zip(self.work.output_names(), self.network.outputs, strict=True)
        outputs = tuple(Parameter(label, v.shape, v.dtype) for label, v in named)
        return Signature(name, inputs, outputs, threads=self.target.threads)
