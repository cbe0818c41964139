"""From a network and its configs to one library: which kernel where, and where arrays lie."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopwright.codegen.library.library import Library
from loopwright.codegen.library.plan import (
    ALIGNMENT,
    ARENA,
    ARGUMENTS,
    Kernel,
    Limit,
    Place,
    Planned,
    PlannedCall,
    PlannedCopy,
    PlannedLoop,
    Weights,
    object_files,
)
from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.codegen.target import cpu_features
from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.errors import BuildError, ConfigError
from loopwright.graph.compile.kernels import (
    TunedKernel,
    check_arguments,
    tuned_kernel,
    tvm_kernel,
)
from loopwright.graph.compile.loops import Parts, in_order, needed
from loopwright.graph.compile.memory_plan import Lifetime, place
from loopwright.graph.importers.tir import Imported
from loopwright.graph.loops import Loop
from loopwright.graph.network import Network, Value
from loopwright.graph.tasks import Work
from loopwright.graph.transforms.reshape import view_offset
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target


@dataclass(frozen=True, eq=False)
class Linked:
    """A network's library.

    Attributes
    ----------
    configs: of every task, by the workload's key, as they were compiled.
    steps: for each entry of the plan the number of the network's step, or -1 for a copy. What a
        loop repeats is there once.
    arena_bytes, weight_bytes: what a call allocates, and what the library carries.
    notes: what did not go as it should.
    """

    library: Library
    configs: Mapping[str, Config]
    steps: tuple[int, ...]
    arena_bytes: int
    weight_bytes: int
    notes: tuple[str, ...]


def link(work: Work, configs: Mapping[str, Config], target: Target, name: str) -> Linked:
    """Compile every step and link them; `configs` by the workload's key, defaults elsewhere.

    Raises `BuildError`, and `NotPlannable` where a step needs TVM's run-time.
    """
    return _Linker(work, target).run(configs, name)


@dataclass(frozen=True, eq=False)
class _Entry:
    """An entry of the plan: a step with its kernel, or a copy of a value to another."""

    step: int
    kernel: Kernel | None
    values: tuple[Value | Place, ...]
    loop: Loop[Value] | None


@dataclass
class _Linker:
    work: Work
    target: Target
    notes: list[str] = field(default_factory=list)
    weights: Weights = field(default_factory=Weights)
    parts: Parts = field(default_factory=Parts)

    @property
    def network(self) -> Network:
        return self.work.network

    def run(self, configs: Mapping[str, Config], name: str) -> Linked:
        live = self.skip_views()
        kernels = self.compile(live, configs)
        entries = self.entries(live, kernels)
        staged, direct = self.borders(entries)
        places, arena_bytes = self.place_all(entries, staged, direct)
        calls: list[Planned] = []
        inputs = [Place(ARGUMENTS + i) for i in range(len(self.network.inputs))]
        for value, given in zip(self.network.inputs, inputs):
            if value in staged:
                calls.append(PlannedCopy(given, places[value], value.nbytes))
        numbers = [-1] * len(calls)
        numbers += [entry.step for entry in entries]
        for loop, body in itertools.groupby(entries, lambda entry: entry.loop):
            planned = [self.planned(entry, places) for entry in body]
            calls += planned if loop is None else [PlannedLoop(loop.count, tuple(planned))]
        for i, value in enumerate(self.network.outputs):
            if i not in direct:
                out = Place(ARGUMENTS + len(inputs) + i)
                calls.append(PlannedCopy(self.at(value, places), out, value.nbytes))
                numbers.append(-1)
        sig = self.signature(name)
        count, triple = len(sig.main_parameters), self.target.triple
        limits = [
            Limit(n, str(math.prod(v.shape)), v.dtype, str(v.extent))
            for n, v in enumerate(self.network.inputs)
            if v.extent is not None
        ]
        objects = object_files(calls, self.weights, arena_bytes, count, triple, limits=limits)
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
            library, used, tuple(numbers), arena_bytes, self.weights.nbytes, tuple(self.notes)
        )

    # ---- which kernel ----

    def key(self, step: int) -> str:
        said = self.work.imported[step]
        assert isinstance(said, Imported)
        return said.workload.key

    def skip_views(self) -> list[int]:
        """The steps that compute something; the results of the others are parts of their
        arguments."""
        live = []
        for n, (step, said) in enumerate(zip(self.network.steps, self.work.imported)):
            offset = view_offset(said.workload) if isinstance(said, Imported) else None
            if offset is None or not isinstance(said, Imported):
                live.append(n)
                continue
            source, (out,) = step.args[said.inputs[0]], step.outs
            before = offset * item_bytes(out.dtype)
            unaligned = (int(self.parts.of(source).offset) + before) % ALIGNMENT
            if unaligned and self.work.fallback:  # code of TVM's wants them aligned
                live.append(n)
                continue
            self.parts.add(out, source, before)
        for loop in self.network.loops:
            self.parts.add_loop(loop, self.network.made_in(loop))
        return live

    def root(self, value: Value) -> Value:
        """The array in whose storage a value lies."""
        return self.parts.of(value).root

    def at(self, value: Value, places: Mapping[Value, Place]) -> Place:
        """Where a value lies."""
        part = self.parts.of(value)
        root = places[part.root]
        offset = root.offset + int(part.offset)
        return Place(root.space, offset, int(part.stride), part.several)

    def compile(
        self, live: list[int], configs: Mapping[str, Config]
    ) -> dict[int, TunedKernel | Kernel]:
        """The kernel of each step, equal work compiled once, several at a time."""
        jobs: dict[Any, int] = {}
        for n in live:
            said = self.work.imported[n]
            ours = isinstance(said, Imported)
            jobs.setdefault(self.key(n) if ours else ("tvm", self.network.steps[n].function), n)

        def make(key: Any, n: int) -> TunedKernel | Kernel:
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
            check_arguments(kernel if isinstance(kernel, Kernel) else kernel.kernel)
        found = {}
        for n in live:
            ours = isinstance(self.work.imported[n], Imported)
            found[n] = made[self.key(n) if ours else ("tvm", self.network.steps[n].function)]
        return found

    def arguments(
        self, n: int, made: TunedKernel | Kernel
    ) -> tuple[Kernel, tuple[Value | Place, ...]]:
        """A step's kernel and its arguments in the kernel's order, prepared weights placed."""
        step = self.network.steps[n]
        given = (*step.args, *step.outs)
        if isinstance(made, Kernel):
            return made, given
        said = self.work.imported[n]
        assert isinstance(said, Imported)
        sig = made.signature
        at = dict(zip((p.name for p in sig.inputs), (given[i] for i in said.inputs)))
        known = [self.parts.of(at[name]) for name in sig.constants]
        key = (made.kernel.name, *((part.root.number, part.offset) for part in known))
        prepared: list[Place] = []
        if sig.prepared:
            constants = {c: self.data(at[c]) for c in sig.constants}
            arrays: tuple[Any, ...] = (None,) * len(sig.prepared)
            if not self.weights.known((key, 0)):
                arrays = made.prepared(constants)
            prepared = [self.weights.add((key, i), a) for i, a in enumerate(arrays)]
        plain = [at[p.name] for p in sig.plain_inputs]
        return made.kernel, (*plain, *prepared, *(given[i] for i in said.outputs))

    def data(self, value: Value) -> np.ndarray[Any, Any]:
        """What a constant holds."""
        part = self.parts.of(value)
        assert part.root.data is not None, value.name
        first = int(part.offset) // item_bytes(value.dtype)
        flat = part.root.data.reshape(-1)
        return flat[first : first + math.prod(value.shape)].reshape(value.shape)

    def entries(
        self, live: list[int], kernels: Mapping[int, TunedKernel | Kernel]
    ) -> list[_Entry]:
        """What the plan does between copies of inputs and outputs, in order."""
        made = []
        for loop, body in in_order(self.network, set(live), self.parts):
            for each in body:
                if isinstance(each, int):
                    made.append(_Entry(each, *self.arguments(each, kernels[each]), loop))
                else:
                    made.append(_Entry(-1, None, each, loop))
        return made

    def planned(self, entry: _Entry, places: Mapping[Value, Place]) -> PlannedCall | PlannedCopy:
        """An entry with the places of its arguments."""
        at = tuple(v if isinstance(v, Place) else self.at(v, places) for v in entry.values)
        if entry.kernel is not None:
            return PlannedCall(entry.kernel, at)
        source, to = at
        assert isinstance(entry.values[0], Value)
        return PlannedCopy(source, to, entry.values[0].nbytes)

    # ---- which place ----

    def borders(self, entries: list[_Entry]) -> tuple[set[Value], set[int]]:
        """The inputs that are copied into the arena, since code of TVM's reads them, which wants
        them aligned; and the outputs that are written where they belong."""
        touched = {
            self.root(v)
            for entry in entries
            for v in entry.values
            if entry.kernel is not None and entry.kernel.aligned and isinstance(v, Value)
        }
        staged = {v for v in self.network.inputs if v in touched}
        rows = {r.whole for loop in self.network.loops for r in loop.writes}
        made = {v for step in self.network.steps for v in step.outs if self.root(v) is v} | rows
        direct = set()
        taken: set[Value] = set()
        for i, value in enumerate(self.network.outputs):
            root = self.root(value)
            whole = root.nbytes == value.nbytes  # what holds more does not fit an output
            if whole and root in made and root not in touched and root not in taken:
                direct.add(i)
                taken.add(root)
        return staged, direct

    def place_all(
        self,
        entries: list[_Entry],
        staged: set[Value],
        direct: set[int],
    ) -> tuple[dict[Value, Place], int]:
        """The place of every array that some step or copy touches."""
        outputs = self.network.outputs
        count = len(self.network.inputs)
        places = {self.root(outputs[i]): Place(ARGUMENTS + count + i) for i in sorted(direct)}
        for i, value in enumerate(self.network.inputs):
            if value not in staged:
                places[value] = Place(ARGUMENTS + i)
        uses: dict[Value, list[int]] = {v: [0] for v in staged}
        spans: dict[Loop[Value], tuple[int, int]] = {}
        for number, entry in enumerate(entries):
            if entry.loop is not None:
                spans[entry.loop] = spans.get(entry.loop, (number, 0))[0], number
            for v in entry.values:
                if isinstance(v, Value):
                    uses.setdefault(self.root(v), []).append(number)
        for value in (v for i, v in enumerate(outputs) if i not in direct):
            uses.setdefault(self.root(value), []).append(len(entries))
        lifetimes = []
        looped = [(*span, self.network.made_in(loop)) for loop, span in spans.items()]
        for value, ends in needed(uses, looped).items():
            if value.data is not None:
                places[value] = self.weights.add(value.number, value.data)
            elif value not in places:
                lifetimes.append((value, Lifetime(value.number, value.nbytes, *ends)))
        offsets, size = place([life for _, life in lifetimes])
        places |= {v: Place(ARENA, offsets[life.key]) for v, life in lifetimes}
        return places, size

    def signature(self, name: str) -> Signature:
        inputs = tuple(Parameter(v.name, v.shape, v.dtype) for v in self.network.inputs)
        values = self.network.outputs
        labels = list(self.work.source.outputs) if self.work.source is not None else []
        if len(labels) != len(values):
            numbers = [""] if len(values) == 1 else map(str, range(len(values)))
            labels = [f"output{number}" for number in numbers]
        taken = {p.name for p in inputs}
        outputs = []
        for label, v in zip(labels, values, strict=True):
            while label in taken:  # an input that is returned
                label += "_"
            taken.add(label)
            outputs.append(Parameter(label, v.shape, v.dtype))
        return Signature(name, inputs, tuple(outputs), threads=self.target.threads)
