"""`either`: libraries of one computation on two devices, joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.codegen.either.fixed import Either
from loopwright.codegen.either.held import held
from loopwright.codegen.either.open import OpenEither, joined, sized
from loopwright.codegen.either.placed import PlacedLibrary
from loopwright.codegen.either.placed_file import is_placed, placed_library
from loopwright.codegen.either.sums import Sum, measured, ones
from loopwright.codegen.gpu.library import GpuLibrary
from loopwright.codegen.library.library import Library
from loopwright.codegen.open.library import OpenLibrary
from loopwright.dsl.dtypes import is_float
from loopwright.dsl.errors import LibraryError, ShapeError, TargetError
from loopwright.dsl.size import named
from loopwright.dsl.words import brief
from loopwright.dsl.workload import Workload

_ALIKE = 0.02
"""Of the largest result: how far those of equal values may be apart, by fast sums of halves."""


def either(
    *,
    cpu: Library,
    gpu: Library | Sequence[Library] | None = None,
    sums: Mapping[str, Sum] | None = None,
) -> Either | OpenEither | PlacedLibrary:
    """Join libraries of one computation, on the processor and on the GPU.

    Parameters
    ----------
    cpu, gpu: libraries with equal inputs and outputs. Where that of the processor has open sizes,
        give one or several of the GPU, each of some of these sizes. Without `gpu`, `cpu` was
        loaded from a file that `export` of the result wrote, or that of a network on two devices.
        Such a network runs on the processor, and a warning says so, where there is no such GPU.
    sums: predicted seconds by "cpu" and "gpu" of a call whose arrays are on the host, for fixed
        sizes. If None, a few calls are measured now, on arrays of ones.

    Raises `TargetError` for libraries of other devices and where this machine has no such GPU,
    `ShapeError` for unlike ones, and where other values are bound of the one than of the other,
    `LibraryError` where there is no code for a GPU.
    """
    is_cpu = isinstance(cpu, Library) and not isinstance(cpu, GpuLibrary)
    if gpu is None and is_cpu and is_placed(cpu):
        return placed_library(cpu)
    given: list[Any] = list(gpu) if isinstance(gpu, Sequence) else [gpu]
    if gpu is None:
        given = held(cpu) if is_cpu else []
    gpus = [each for each in given if isinstance(each, GpuLibrary)]
    if not is_cpu or len(gpus) != len(given) or not gpus:
        found = [_told(x) for x in (cpu, *given)]
        raise TargetError(
            f"cpu is {found[0]}, and gpu {', '.join(found[1:]) or 'nothing'}: give a library of "
            "the processor as cpu, and one of a GPU as gpu, such as "
            'lw.build(workload, target="opencl")'
        )
    if isinstance(cpu, OpenLibrary):
        if sums is not None:
            raise LibraryError("sums are for fixed sizes: those of open ones are measured")
        at = {sized(cpu, each): each for each in gpus}
        for sizes, each in at.items():
            there = named(cpu.dims, sizes)
            _check_same(cpu, each, there)
            _check_bound(cpu.at(**there), each)
        return joined(cpu, at)
    if len(gpus) > 1:
        raise ShapeError(
            f"{len(gpus)} libraries of the GPU, and {cpu.signature} has one size: give one"
        )
    return _fixed(cpu, gpus[0], sums)


def _told(given: Any) -> str:
    """A library by the kind of its target, anything else by its type, for a message."""
    if isinstance(given, Library):
        return f"a library for {given.origin.target.split(' ')[0]}"
    return type(given).__name__


def _fixed(cpu: Library, gpu: GpuLibrary, sums: Mapping[str, Sum] | None) -> Either:
    kinds = [
        [(p.name, p.shape, str(p.dtype)) for p in (*lib.inputs, *lib.signature.outputs)]
        for lib in (cpu, gpu)
    ]
    if kinds[0] != kinds[1]:
        raise ShapeError(
            f"{cpu.signature} on the processor, {gpu.signature} on the GPU: build both of one "
            "workload, and bind the same inputs"
        )
    _check_same(cpu, gpu, {})
    _check_bound(cpu, gpu)
    if sums is None:
        sums = measured(cpu, gpu)
    if not isinstance(sums, Mapping) or set(sums) != {"cpu", "gpu"}:
        raise LibraryError(f"sums = {brief(sums)}: give those of cpu and gpu, by these names")
    for device, total in sums.items():
        if not isinstance(total, Sum):
            raise LibraryError(
                f"sums[{device!r}] is {brief(total)}: give a Sum, as the sums of `explain` are"
            )
    return Either(cpu, gpu, sums)


def _check_same(cpu: Library, gpu: GpuLibrary, sizes: Mapping[str, int]) -> None:
    """Raise `ShapeError` where the definitions of two libraries are known to differ."""
    keys = _computation(cpu, sizes), _computation(gpu, {})
    if None not in keys and keys[0] != keys[1]:
        raise ShapeError(
            f"{cpu.signature.name} on the processor and {gpu.signature.name} on the GPU compute "
            "different things: build both of one workload"
        )


def _check_bound(cpu: Library, gpu: GpuLibrary) -> None:
    """Raise `ShapeError` where bound libraries have other results on the same random numbers. What
    was bound is laid out in ways of their own, so that it cannot be compared itself."""
    if len(cpu.inputs) == len(cpu.signature.inputs):
        return
    rng = np.random.default_rng(0)
    given = [ones(p) for p in cpu.inputs]
    for parameter, array in zip(cpu.inputs, given):
        if is_float(parameter.dtype):
            array[...] = rng.random(parameter.shape).astype(array.dtype)
    results = (lib(*given) for lib in (cpu, gpu))
    here, there = (r if isinstance(r, tuple) else (r,) for r in results)
    for parameter, x, y in zip(cpu.signature.outputs, here, there):
        if is_float(parameter.dtype) and x.size:
            a, b = x.astype(np.float64), y.astype(np.float64)
            limit = _ALIKE * np.nanmax(np.abs(a))
            if not np.allclose(a, b, rtol=0, atol=limit, equal_nan=True):
                raise ShapeError(
                    f"{parameter.name} is another on the GPU than on the processor, by "
                    f"{np.nanmax(np.abs(a - b)):.3g}: bind the same values of both"
                )


def _computation(library: Library, sizes: Mapping[str, int]) -> str | None:
    """The key of what a library computes, whatever of it is constant, if its manifest tells."""
    form = library.origin.extra.get("workload")
    if form is None:
        return None
    tensors = [{k: v for k, v in t.items() if k != "constant"} for t in form["tensors"]]
    return Workload.from_json({**form, "tensors": tensors}).at(**sizes).key
