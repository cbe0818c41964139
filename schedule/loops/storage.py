"""Storage of each tensor of a workload while it is lowered: argument, heap, or prepared."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload, tensor_shape
from loopwright.schedule.program.heuristics import PROGRAM
from loopwright.schedule.program.nest import extent
from loopwright.schedule.sketch.sketch import Packed
from loopwright.schedule.tree.grammar import Allocate, Buffer, Column, ceildiv


@dataclass
class Storage:
    """Buffers by name, filled in as lowering meets them.

    `prepacked` holds what the "prepare" part makes and the "body" part may read; `used` tells
    which names each part touches.
    """

    workload: Workload
    constants: frozenset[str]
    prepacked: dict[str, Buffer] = field(default_factory=dict)
    packed: dict[tuple[Packed, int], Buffer] = field(default_factory=dict)
    scratch: set[str] = field(default_factory=set)
    in_body: dict[str, Buffer] = field(default_factory=dict)
    used: dict[str, set[str]] = field(default_factory=lambda: {"prepare": set(), "body": set()})

    def __post_init__(self) -> None:
        self._arguments = {t.name for t in (*self.workload.inputs, *self.workload.outputs)}
        self._stages = {t.name: t for t in self.workload.stages}

    def buffer(self, tensor: Tensor) -> Buffer:
        """The buffer of a tensor, seen with the shape of this view of it."""
        shape, scope = tensor_shape(tensor), "heap"
        if tensor.name in self._arguments:
            scope = "argument"
        elif (
            tensor.name in self.scratch
            and math.prod(shape) * item_bytes(tensor.dtype) <= PROGRAM.stack_tensor_bytes
        ):
            scope = "register"  # on the stack: the run-time's workspaces cost a call for every row
        return Buffer(tensor.name, shape, tensor.dtype, scope)

    def touch(self, tensor: Tensor, part: str) -> Buffer:
        """The buffer of a tensor that a part of the program reads or writes."""
        name = tensor.name
        if name not in self._arguments and name not in self.scratch:
            made = self.prepacked if name in self.constants else self.in_body
            made.setdefault(name, self.buffer(self._stages.get(name, tensor)))
        self.used[part].add(name)
        return self.buffer(tensor)

    def add_scratch(self, tensor: Tensor) -> Buffer:
        """A tensor that lives inside a group's rows only."""
        self.scratch.add(tensor.name)
        return self.buffer(tensor)

    def add_packed(self, packed: Packed, number: int, tile: Column, prepacked: bool) -> Buffer:
        """The re-laid copy of an operand, for register tiles of `tile` elements."""
        shape: tuple[Column, ...] = (*(extent(a) for a in packed.inner), tile)
        if not packed.local:
            outer = (extent(a) for a in packed.outer)
            shape = (*outer, ceildiv(extent(packed.axis), tile), *shape)
        name = self.unused(packed.name)
        shallow = math.prod(extent(a) for a in packed.inner) <= PROGRAM.stack_panel_rows
        scope = "register" if packed.local and shallow else "heap"
        buffer = Buffer(name, shape, packed.tensor.dtype, scope)
        self.packed[packed, number] = buffer
        if packed.local:
            return buffer
        self.add_copy(buffer, prepacked)
        return buffer

    def add_copy(self, buffer: Buffer, prepacked: bool) -> None:
        """A copy of an operand that stands before its nest."""
        self.used["body"].add(buffer.name)
        (self.prepacked if prepacked else self.in_body)[buffer.name] = buffer

    def unused(self, name: str) -> str:
        """The name, with underscores behind it until no tensor and no copy has it."""
        taken = {t.name for t in (*self.workload.inputs, *self.workload.stages)}
        taken |= {b.name for b in self.packed.values()}
        while name in taken:
            name += "_"
        return name

    def allocations(self, part: str, prepared: list[Buffer]) -> list[Allocate]:
        """Allocations for what a part makes that is no argument, prepared, or local to a group."""
        names = {b.name for b in prepared}
        if part == "prepare":
            made = [b for b in self.prepacked.values() if b.name not in names]
        else:
            made = list(self.in_body.values())
        return [Allocate(b) for b in made]
