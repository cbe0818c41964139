"""Networks on two devices in files: the processor's library, the plan, and what the GPU needs."""

from __future__ import annotations

import copy
import ctypes
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from loopwright.codegen.either.held import held, with_held
from loopwright.codegen.either.placed import PlacedLibrary, PlacedPlan
from loopwright.codegen.gpu.library import GpuLibrary
from loopwright.codegen.library.arrays import Array, address
from loopwright.codegen.library.binary import PartialCall
from loopwright.codegen.library.library import Library
from loopwright.codegen.library.plan import HELD, Weights, weights_object
from loopwright.codegen.library.signature import Parameter
from loopwright.dsl.dtypes import numpy_dtype
from loopwright.dsl.errors import LibraryError, LoopwrightError

_PLACED = "placed"


def with_placed(
    cpu: Library,
    plan: PlacedPlan,
    steps: Sequence[tuple[GpuLibrary, Mapping[str, Array]]],
    explanation: str,
    path: str | os.PathLike[str],
) -> Library:
    """The processor's library of a network for an export to `path`, with a plan inside, and the
    libraries and weights that it starts. Raises `LibraryError`, `BuildError`."""
    distinct = list(dict.fromkeys(library for library, _ in steps))
    weights = Weights()
    listed = []
    for library, arrays in steps:
        offsets = {
            name: weights.add((address(a), a.nbytes), a).offset for name, a in arrays.items()
        }
        listed.append({"library": distinct.index(library), "weights": offsets})
    made = with_held(cpu, distinct, path) if distinct else copy.copy(cpu)
    said = {"plan": plan.to_json(), "steps": listed, "explanation": explanation}
    made.origin = replace(
        made.origin,
        objects=(*cpu.origin.objects, weights_object(weights, HELD, cpu.origin.triple)),
        extra={**made.origin.extra, _PLACED: said},
    )
    return made


def is_placed(cpu: Library) -> bool:
    """Return whether a file of a network on two devices was loaded."""
    return _PLACED in cpu.origin.extra


def placed_library(cpu: Library) -> PlacedLibrary:
    """The network of a file on both devices. Where this machine has no such GPU, a warning says so
    and the processor computes all."""
    said = cpu.origin.extra[_PLACED]
    plan, explanation = PlacedPlan.from_json(said["plan"]), said["explanation"]
    if not said["steps"]:
        return PlacedLibrary(cpu, (), plan, explanation)
    try:
        found = held(cpu)
    except LoopwrightError as error:  # no such GPU, no driver, or one that refuses the code
        missing = str(error)
        warnings.warn(
            f"{cpu.signature.name}: all steps run on the processor: {missing}", stacklevel=3
        )
        return PlacedLibrary(cpu, (), plan, explanation, missing)
    begin = PartialCall(cpu._loaded, ())(0, 0)
    if begin is None:
        raise LibraryError(f"{cpu.signature.name} holds no weights for the GPU: export it anew")
    gpus = []
    for step in said["steps"]:
        library = found[step["library"]]
        known = {p.name: p for p in library.signature.inputs}
        arrays = {
            name: _weights(begin + offset, known[name]) for name, offset in step["weights"].items()
        }
        bound = library.bind(**arrays) if arrays else library
        assert isinstance(bound, GpuLibrary)
        gpus.append(bound)
    return PlacedLibrary(cpu, gpus, plan, explanation)


def _weights(at: int, parameter: Parameter) -> Array:
    """The array of a parameter in the library's own memory."""
    memory = (ctypes.c_uint8 * parameter.nbytes).from_address(at)
    flat = np.ctypeslib.as_array(memory).view(numpy_dtype(parameter.dtype))
    return flat.reshape(parameter.shape)
