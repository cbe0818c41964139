"""Description of workloads, machines and choices by numbers and words, for a sequence model."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.dsl.index import Affine, Index
from loopwright.dsl.workload import tensor_shape
from loopwright.schedule.cpu.cost_prior import estimate
from loopwright.schedule.program.nest import Nest, extent
from loopwright.schedule.sketch.naming import Derivation
from loopwright.schedule.sketch.sketch import Knob, NestSketch, Sketch
from loopwright.schedule.space import Space
from loopwright.schedule.target import Target

Floats = np.ndarray[Any, np.dtype[np.float32]]
Words = tuple[str, ...]

WIDTH = 4
"""Numbers of a choice that are looked at: the last ones, where the vector axis is."""
NUMBERS = 5 * WIDTH + 6
"""Numbers that describe a choice."""
AXIS = 12
"""Numbers that describe an axis of a workload."""
MACHINE = 8
"""Numbers that describe a machine and the work."""
_BYTES = 4
"""Bytes of an element, for the registers that a tile takes."""
_NESTS = 2
"""The largest nests of a program, whose structure and axes are described."""
_KNOB = re.compile(r"(tile|block|unroll)(?:(\d+)_)?(\d+)")


@dataclass(frozen=True, eq=False)
class Described:
    """Choices of one decision: `numbers` of shape (choices, NUMBERS), and the words of each."""

    numbers: Floats
    words: tuple[Words, ...]


@dataclass(frozen=True, eq=False)
class Context:
    """A workload on a machine: `axes` of shape (axes, AXIS), `machine` of shape (MACHINE,)."""

    axes: Floats
    machine: Floats


def context(space: Space) -> Context:
    """The axes of the largest nests of the definition's own program, and the machine."""
    own = [s for s in space.sketches if not s.derivation] or [space.sketches[0]]
    nests = _largest(own[0])
    rows = [
        _axis(n.nest, axis, rank)
        for rank, n in enumerate(nests)
        for axis in (*n.nest.axes, *n.nest.reduce)
    ]
    steps = sum(n.nest.steps for n in own[0].nests)
    machine = [*_machine(space.target), _log(steps), float(len(own[0].nests))]
    axes = np.array(rows, np.float32).reshape(len(rows), AXIS)
    return Context(axes, np.array(machine, np.float32))


def derivations(firsts: Sequence[Sketch], target: Target) -> Described:
    """Derivations by the first sketch of each, in the order of a space, the most promising
    first."""
    words = tuple(("derivation", *_rewrites(sketch.derivation)) for sketch in firsts)
    return Described(_programs(firsts, target), words)


def sketches(found: Sequence[Sketch], target: Target) -> Described:
    """Sketches of one program, the likeliest structures first."""
    words: list[Words] = []
    for sketch in found:
        largest = _largest(sketch)
        own = [f"{rank} {word}" for rank, n in enumerate(largest) for word in _structure(n)]
        words.append(("sketch", *_rewrites(sketch.derivation), *own))
    return Described(_programs(found, target), tuple(words))


def _programs(found: Sequence[Sketch], target: Target) -> Floats:
    """The numbers of sketches in their order: the shape of the largest nest, the nests' work, and
    on a CPU the analytical estimate beside the least of all."""
    numbers = np.zeros((len(found), NUMBERS), np.float32)
    for row, sketch in zip(numbers, found, strict=True):
        if largest := _largest(sketch):
            steps = [n.nest.steps for n in sketch.nests]
            written = sum(n.nest.size for n in sketch.nests)
            work = [_log(sum(steps)), _log(written), float(len(steps)), max(steps) / sum(steps)]
            own = [*_shape(largest[0]), *work]
            row[: len(own)] = own
    if target.gpu is None:
        logs = np.array([_log(estimate(sketch, target)) for sketch in found])
        numbers[:, -4], numbers[:, -3] = logs, logs - logs.min()
    rank = np.arange(len(numbers))
    numbers[:, -2], numbers[:, -1] = 1.0 / (1.0 + rank), rank / len(numbers)
    return numbers


def choices(sketch: Sketch, number: int, allowed: Sequence[int], target: Target) -> Described:
    """The `allowed` choices of a sketch's knob."""
    knob, default = sketch.knobs[number], sketch.knobs[number].choices[sketch.default[number]]
    name, axes = _place(sketch, knob)
    extents = _aligned([extent(a) for a in axes], 0.0)
    taken = [knob.choices[i] for i in allowed]
    values = np.array([_aligned(choice, 1.0) for choice in taken])
    logs = np.log2(1.0 + np.abs(values))
    apart = logs - np.log2(1.0 + np.abs(_aligned(default, 1.0)))
    steps = np.where(extents > 0, np.ceil(extents / np.maximum(values, 1.0)), 0.0)
    waste = np.where(extents > 0, steps * np.maximum(values, 1.0) / np.maximum(extents, 1.0), 1.0)
    wide = np.broadcast_to(np.log2(1.0 + extents), logs.shape)
    numbers = np.zeros((len(taken), NUMBERS), np.float32)
    parts = [logs, apart, wide, np.log2(1.0 + steps), np.minimum(waste - 1.0, 2.0)]
    numbers[:, : 5 * WIDTH] = np.concatenate(parts, axis=1)
    numbers[:, -6] = logs.sum(axis=1)
    numbers[:, -5] = apart.sum(axis=1)
    numbers[:, -4] = [choice == default for choice in taken]
    numbers[:, -3] = np.array(allowed) / len(knob.choices)
    if name.startswith("tile") and target.gpu is None:
        vectors = np.ceil(values[:, -1] * _BYTES / target.vector_bytes)
        held = values[:, :-1].prod(axis=1) * vectors
        numbers[:, -2] = np.log2(1.0 + held)
        numbers[:, -1] = np.minimum(held / target.vector_registers, 2.0)
    words = (".".join(map(str, choice)) for choice in taken)
    return Described(numbers, tuple((name, f"{name}={word}") for word in words))


def _place(sketch: Sketch, knob: Knob) -> tuple[str, tuple[Index, ...]]:
    """The name of a knob for all sketches, and the axes that its numbers are about."""
    found = _KNOB.fullmatch(knob.name)
    if not found or not sketch.nests:
        return knob.name, ()
    kind, place, number = found[1], found[2], int(found[3])
    nest = sketch.nests[number]
    largest = _largest(sketch)
    name = f"{kind} {largest.index(nest) if nest in largest else _NESTS}"
    if kind == "tile":
        return name, nest.tile
    if kind == "unroll":
        return name, nest.unrolled
    axis = nest.nest.axes[int(place)]
    return f"{name} {_role(nest, axis)}", (axis,)


def _role(nest: NestSketch, axis: Index) -> str:
    role = "vector" if axis == nest.vector else "tiled" if axis in nest.tiled else "outer"
    return f"{role} {nest.order.index(axis) if axis in nest.order else '-'}"


def _largest(sketch: Sketch) -> list[NestSketch]:
    return sorted(sketch.nests, key=lambda n: -n.nest.steps)[:_NESTS]


def _rewrites(derivation: Derivation) -> Iterable[str]:
    if not derivation:
        yield "direct"
    for step in derivation.steps:
        yield step.rewrite
        for name, value in step.parameters:
            yield f"{step.rewrite}.{name}={value}"


def _structure(sketch: NestSketch) -> Iterable[str]:
    nest = sketch.nest
    yield f"reducer={nest.reducer}"
    if sketch.vector is None:
        yield "scalar"
    else:
        yield "vector=" + ("reduce" if sketch.vector in nest.reduce else "spatial")
        yield f"vector strides={_strides(nest, sketch.vector)}"
    yield f"tiled={len(sketch.tiled)}"
    for axis in sketch.tiled:
        yield f"tiled strides={_strides(nest, axis)}"
    yield "order=" + ".".join(_role(sketch, a).split()[0][0] for a in sketch.order[-4:])
    if sketch.reduce:
        yield f"innermost strides={_strides(nest, sketch.reduce[-1])}"
    yield f"packed={len(sketch.packed)}"
    for packed in sketch.packed:
        spans = any(a in nest.axes for a in packed.inner)
        yield "pack=" + ("block" if spans else "local" if packed.local else "whole")


def _shape(sketch: NestSketch) -> list[float]:
    """Extents of the axes that a structure chooses among."""
    chosen = [sketch.vector, *[a[-1] if a else None for a in (sketch.tiled, sketch.reduce)]]
    chosen += [sketch.order[0], sketch.order[-1]] if sketch.order else [None, None]
    extents = [_log(extent(a)) if a is not None else 0.0 for a in chosen]
    small = sum(_log(extent(a)) for a in sketch.tiled)
    inner = sum(_log(extent(a)) for a in sketch.nest.reduce)
    return [*extents, small, inner, float(len(sketch.nest.reduce))]


def _axis(nest: Nest, axis: Index, rank: int) -> list[float]:
    size = extent(axis)
    found = [_stride(read.index, tensor_shape(read.tensor), axis) for read in nest.reads()]
    own = _stride(nest.index, tensor_shape(nest.out), axis)
    kinds = [sum(s == 0 for s in found), sum(s == 1 for s in found), sum(s > 1 for s in found)]
    size_of = [_log(size), float(size % 8 == 0), float(size % 16 == 0), float(size < 8)]
    roles = [float(axis in nest.reduce), float(rank), float(own == 1), _log(own)]
    return [*size_of, *roles, *map(float, kinds), _log(max(found, default=0))]


def _strides(nest: Nest, axis: Index) -> str:
    """For each read, whether a step along an axis stays, goes on or jumps."""
    found = (_stride(read.index, tensor_shape(read.tensor), axis) for read in nest.reads())
    return "".join(str(min(stride, 2)) for stride in list(found)[:4])


def _stride(index: Sequence[Affine], shape: Sequence[int], axis: Index) -> int:
    """Elements between what two neighbouring iterations of an axis read."""
    total, step = 0, 1
    for place, size in zip(reversed(index), reversed(shape), strict=True):
        total += step * dict(place.terms).get(axis, 0)
        step *= size
    return abs(total)


def _machine(target: Target) -> list[float]:
    gpu = target.gpu
    return [
        _log(target.threads),
        _log(target.vector_bytes),
        _log(target.vector_registers),
        _log(target.l1_bytes),
        _log(target.l2_bytes),
        _log(gpu.multiprocessors) if gpu else 0.0,
    ]


def _aligned(values: Sequence[float], fill: float) -> np.ndarray[Any, Any]:
    last = list(values)[-WIDTH:]
    return np.array([fill] * (WIDTH - len(last)) + last, np.float64)


def _log(value: float) -> float:
    return math.log2(1.0 + value)
