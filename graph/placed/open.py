"""Networks of open sizes on two devices: a placement for each of some sizes.

Programs of GPUs have fixed sizes, so that the GPU takes part at the sizes that they were made for.
The processor runs all others. Its library is one for all, of which every placement runs parts.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loopwright.codegen.either.placed import PlacedLibrary
from loopwright.codegen.library import calls
from loopwright.codegen.library.library import Library
from loopwright.codegen.library.plan import ARENA, Place, aligned
from loopwright.codegen.library.signature import Parameter
from loopwright.codegen.open.library import OpenLibrary
from loopwright.dsl.size import named
from loopwright.dsl.words import assigned
from loopwright.graph.compile.call import ModelCall
from loopwright.graph.compile.entries import Entry
from loopwright.graph.compile.model import random_array, seconds_of, summed
from loopwright.graph.network import Network, Value
from loopwright.graph.open.link import LinkedFrame
from loopwright.graph.open.model import OpenModel, ReadAt
from loopwright.graph.open.source import OpenSource
from loopwright.graph.placed.build import check_placed, gpu_steps, placement_of
from loopwright.graph.placed.model import Placement
from loopwright.graph.placed.path import GPU
from loopwright.graph.placed.plan import planned
from loopwright.graph.placed.steps import GpuStep
from loopwright.schedule.target import Target
from loopwright.schedule.tree.formula import evaluated
from loopwright.transfer.records.location import GivenLocation

Sizes = tuple[int, ...]
"""Values of the dims, in their order."""


@dataclass(frozen=True, eq=False)
class SizedFrame:
    """The plan of a frame at some sizes. Values are those of the network as read at these sizes;
    `twins` are the frame's own."""

    linked: LinkedFrame
    sizes: Mapping[str, int]
    twins: Mapping[Value, Value]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The plan's entries, in order."""
        return self.linked.entries

    @functools.cached_property
    def _starts(self) -> list[int]:
        """The start of each slot of the arena, and the end of the last one."""
        found = [0]
        for slot in self.linked.plan.slots:
            most = max(evaluated(nbytes, self.sizes) for nbytes in slot)
            found.append(found[-1] + aligned(most))
        return found

    @property
    def arena_bytes(self) -> int:
        """Bytes between steps."""
        return self._starts[-1]

    def place(self, value: Value) -> Place:
        """The place of a value, in a fixed arena."""
        found = self.linked.place(self.twins[value])
        begin = self._starts[found.slot] if found.space == ARENA else 0
        return Place(found.space, begin + evaluated(found.offset, self.sizes))

    def step_seconds(self, library: Library) -> dict[int, float]:
        """The median seconds of every step of a library for these sizes, by its number."""
        given = [random_array(p, 1) for p in library.inputs]
        every = seconds_of(library, given, len(self.entries))
        return summed((entry.step for entry in self.entries), every)


def twins(one: Network, other: Network) -> dict[Value, Value]:
    """The values of another network in place of those of one with the same steps."""
    pairs = list(zip((*one.inputs, *one.outputs), (*other.inputs, *other.outputs), strict=True))
    for a, b in zip(one.steps, other.steps, strict=True):
        pairs += zip((*a.args, *a.outs), (*b.args, *b.outs), strict=True)
    for c, d in zip(one.loops, other.loops, strict=True):
        pairs += zip(c.values(), d.values(), strict=True)
    return dict(pairs)


@dataclass(frozen=True, eq=False)
class SizedPlacement:
    """Placement of the steps at some sizes, with programs. `network` is the frame's."""

    placement: Placement
    steps: tuple[GpuStep | None, ...]
    frame: SizedFrame
    network: Network

    def library(self, cpu: Library) -> PlacedLibrary:
        """The library of both devices, by the processor's library for these sizes."""
        problem, path = self.placement.problem, self.placement.path
        plan, started = planned(self.frame, self.network, problem, path, self.steps)
        return PlacedLibrary(cpu, [s.library for s in started if s.library], plan)


@dataclass(frozen=True, eq=False)
class OpenPlacedModel:
    """A network of open sizes on two devices.

    ::

        model = lw.build_model(net, dims={"n": (1, 512)}, targets=["cpu", "opencl"],
                               sizes=[{"n": 128}, {"n": 512}])
        model(x)                     # at these sizes wherever each step is predicted to end first
        model.explain(n=128)         # which step where, and the sums

    One call at a time runs on the GPU. It cannot be exported; `whole` can.

    Attributes
    ----------
    whole: the network on the processor, of all sizes.
    sized: the placements by sizes.
    """

    whole: OpenModel
    sized: Mapping[Sizes, SizedPlacement]
    notes: tuple[str, ...]

    def __call__(self, /, *inputs: Any, **named: Any) -> Any:
        """Computes, as an `OpenModel` does."""
        return self._call(*inputs, **named)

    @functools.cached_property
    def _call(self) -> ModelCall:
        library = self.whole.library
        placed = {
            sizes: each.library(library.at(**named(library.dims, sizes)))
            for sizes, each in self.sized.items()
            if GPU in each.placement.path.devices
        }
        return replace(self.whole._call, library=_Chosen(library, placed))

    def explain(self, /, **sizes: int) -> Placement | str:
        """The device of each step at these sizes, with predicted times; nothing runs. Raises
        `RangeError` for sizes that are not allowed."""
        values = self._values(sizes)
        if values in self.sized:
            return self.sized[values].placement
        dims = self.whole.library.dims
        known = "; ".join(assigned(named(dims, each)) for each in self.sized)
        return f"all on the processor: the GPU has programs for {known}"

    def at(self, /, devices: Mapping[int, str] | Sequence[str], **sizes: int) -> OpenPlacedModel:
        """The same with another placement at these sizes, as `PlacedModel.at` takes it."""
        values = self._values(sizes)
        old = self.sized[values]
        new = replace(old, placement=old.placement.at(devices))
        return replace(self, sized={**self.sized, values: new})

    def _values(self, sizes: Mapping[str, int]) -> Sizes:
        return _sizes(self.whole.library, self.whole.library.at(**sizes))

    def __repr__(self) -> str:
        return f"<OpenPlacedModel: {self.whole!r}, {len(self.sized)} sizes on two devices>"


class _Chosen:
    """Calls of the processor's library, or of a placement where there is one for the sizes."""

    def __init__(self, cpu: OpenLibrary, placed: Mapping[Sizes, PlacedLibrary]) -> None:
        self.cpu, self.placed = cpu, placed

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """Inputs of a call, in order; of the greatest sizes."""
        return self.cpu.inputs

    def __call__(self, /, *inputs: Any, **named: Any) -> Any:
        names = [p.name for p in self.inputs]
        inputs = calls.positional(inputs, named, names, self.cpu._shown)
        own = self.cpu._of(inputs)
        return self.placed.get(_sizes(self.cpu, own), own)(*inputs)


def _sizes(whole: OpenLibrary, own: Library) -> Sizes:
    """The sizes that a library of one size was made for."""
    return tuple(map(int, own._bound[whole.open_signature.sizes][1:]))


def open_placed_model(
    whole: OpenModel,
    source: OpenSource,
    gpu: Target,
    read: ReadAt,
    sizes: Sequence[Mapping[str, int]],
    records: GivenLocation | None,
    policy: str,
    check: bool,
) -> OpenPlacedModel:
    """A network of open sizes, made of a `source`, with a placement for each of some, by the times
    at these; with `check`, results are compared. Raises `RangeError`, `BuildError`,
    `ModelError`."""
    sized: dict[Sizes, SizedPlacement] = {}
    notes: dict[str, None] = dict.fromkeys(whole.notes)
    sources = []
    for values in sizes:
        own = whole.library.at(**values)
        number = whole.library.open_signature.program(values)
        network = whole.frames[number].work.network
        work = read(source.model, source.inputs(values))
        sources.append(work.source)
        work = replace(work, source=None)
        frame = SizedFrame(whole.linked[number], values, twins(work.network, network))
        made = gpu_steps(work, gpu, records, policy)
        placement, steps = placement_of(work, frame.step_seconds(own), made)
        notes.update(dict.fromkeys(made.notes))
        sized[_sizes(whole.library, own)] = SizedPlacement(placement, steps, frame, network)
    model = OpenPlacedModel(whole, sized, tuple(notes))
    for one in sources if check else ():
        check_placed(model, one)
    return model
