"""`PlacedLibrary`: a network whose steps run on the processor and on a GPU, by a plan."""

from __future__ import annotations

import functools
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.codegen.devices.device import DeviceProgram, Memory
from loopwright.codegen.gpu.library import GpuLibrary
from loopwright.codegen.library import arrays, calls
from loopwright.codegen.library.arrays import Array
from loopwright.codegen.library.binary import PartialCall
from loopwright.codegen.library.calls import Located, Slot
from loopwright.codegen.library.library import Library
from loopwright.codegen.library.signature import Parameter
from loopwright.codegen.library.torch_tensors import given_back


@dataclass(frozen=True)
class Part:
    """Entries of the processor's plan, from `first` to before `stop`."""

    first: int
    stop: int


@dataclass(frozen=True)
class Copy:
    """A copy of bytes between a place of the processor's plan and a block of the GPU; `up` to the
    GPU. Spaces are those of `codegen.library.plan`."""

    up: bool
    space: int
    offset: int
    nbytes: int
    block: int


@dataclass(frozen=True)
class Launch:
    """A library of the GPU, by its number, with the block of each argument that is not bound."""

    library: int
    blocks: Mapping[str, int]


_KINDS = {"part": Part, "copy": Copy, "launch": Launch}


@dataclass(frozen=True)
class PlacedPlan:
    """The order of the work of a call. `arena` is bytes of the processor, and `blocks` those of
    each block of the GPU's memory."""

    arena: int
    blocks: tuple[int, ...]
    work: tuple[Part | Copy | Launch, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data for a manifest."""
        names = {kind: name for name, kind in _KINDS.items()}
        work = [{"kind": names[type(each)], **vars(each)} for each in self.work]
        return {"arena": self.arena, "blocks": list(self.blocks), "work": work}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> PlacedPlan:
        """The inverse of `to_json`."""
        work = [
            _KINDS[each["kind"]](**{k: v for k, v in each.items() if k != "kind"})
            for each in data["work"]
        ]
        return PlacedPlan(data["arena"], tuple(data["blocks"]), tuple(work))


class PlacedLibrary:
    """A network on two devices. Arrays of a call are the host's, and one call at a time runs.

    Attributes
    ----------
    cpu: the whole network on the processor, parts of which the plan runs.
    gpus: the libraries that the plan starts, weights bound; the first one's memory serves all.
    missing: why the GPU cannot run its part. The processor computes all then.
    """

    def __init__(
        self,
        cpu: Library,
        gpus: Sequence[GpuLibrary],
        plan: PlacedPlan,
        explanation: str = "",
        missing: str = "",
    ) -> None:
        """Use `lw.build_model` with targets, or `lw.either` of a file that it exported."""
        self.cpu, self.gpus, self.plan = cpu, tuple(gpus), plan
        self.missing, self._explanation = missing, explanation
        self._slots = [Slot.of(p) for p in cpu.inputs]
        self._outputs = [Slot.of(p) for p in cpu.signature.outputs]
        self._lock = threading.Lock()

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """Inputs of a call, in order."""
        return self.cpu.inputs

    def explain(self) -> str:
        """The device of each step, with the times that were predicted where it was built."""
        if self.missing:
            return f"all on the processor: {self.missing}\n{self._explanation}"
        return self._explanation

    def __repr__(self) -> str:
        return f"<PlacedLibrary {self.cpu.signature}>"

    def __call__(self, /, *inputs: Any, **named: Any) -> Any:
        """Computes; inputs by position or by name. See `Library.__call__`."""
        names = [p.name for p in self.inputs]
        inputs = calls.positional(inputs, named, names, self.cpu._shown)
        if self.missing:
            return self.cpu(*inputs)
        given = [slot.read(value) for slot, value in zip(self._slots, inputs)]
        made = [slot.make() for slot in self._outputs]
        extents = self.cpu.origin.extra.get("indexed")
        call = PartialCall(self.cpu._loaded, addresses(self.cpu, given, made), extents)
        with self._lock:
            run = self._run
            spaces = [
                run.arena,
                run.arena,
                *(arrays.as_bytes(array) for array, _, _ in (*given, *made)),
            ]
            for work in run.steps:
                work(call, spaces)
        return given_back(tuple(array for array, _, _ in made), inputs)

    @functools.cached_property
    def _run(self) -> _Run:
        return _Run(self.plan, self.gpus)


_Work = Callable[[PartialCall, Sequence[Array]], object]


class _Run:
    """The memory of a plan, and its work made ready."""

    def __init__(self, plan: PlacedPlan, gpus: Sequence[GpuLibrary]) -> None:
        self.arena, self._at = arrays.aligned((plan.arena,), np.dtype(np.uint8), plan.arena)
        self._program: DeviceProgram | None = gpus[0]._running if gpus else None
        self._gpus = gpus
        self._blocks: list[Memory] = [self._gpu.allocate(nbytes) for nbytes in plan.blocks]
        self.steps: list[_Work] = [self._step(work) for work in plan.work]

    @property
    def _gpu(self) -> DeviceProgram:
        assert self._program is not None, "a plan that uses the GPU has a library for it"
        return self._program

    def _step(self, work: Part | Copy | Launch) -> _Work:
        if isinstance(work, Part):
            return lambda call, spaces: call(work.first, work.stop, self._at)
        if isinstance(work, Copy):
            gpu, block = self._gpu, self._blocks[work.block]
            move = gpu.write if work.up else gpu.read
            part = slice(work.offset, work.offset + work.nbytes)
            return lambda call, spaces: move(block, spaces[work.space][part])
        library = self._gpus[work.library]
        held = library._bound | {name: self._blocks[n] for name, n in work.blocks.items()}
        arguments = [held[p.name] for p in library.signature.main_parameters]
        own = library._running.in_order_of(self._gpu)
        return lambda call, spaces: own.run("main", arguments)


def addresses(cpu: Library, given: list[Located], made: list[Located]) -> tuple[int, ...]:
    """The arguments of `main`, what is bound among them."""
    pointers, _ = cpu._pointers(given, made)
    return struct.unpack(f"{len(cpu.signature.main_parameters)}P", pointers)
