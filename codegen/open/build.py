"""`build` for workloads of open sizes: several programs in one library."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from loopwright.codegen.library.loading import loaded
from loopwright.codegen.library.signature import Origin, Parameter
from loopwright.codegen.open.library import OpenLibrary
from loopwright.codegen.open.signature import OpenParameter, OpenSignature
from loopwright.codegen.target import cpu_features
from loopwright.codegen.tir.emit import emit
from loopwright.codegen.tir.indices import MOST_ELEMENTS
from loopwright.codegen.tir.pipeline import compiled, object_file
from loopwright.dsl.errors import BuildError, LoopwrightError, TargetError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.size import check_told
from loopwright.dsl.words import assigned
from loopwright.dsl.workload import Workload, tensor_shape
from loopwright.schedule.loops.nothing import refuse_nothing_at_some_size
from loopwright.schedule.open.cover import Choose, Cover, covered
from loopwright.schedule.open.family import Sized
from loopwright.schedule.open.merge import merged
from loopwright.schedule.open.program import OpenProgram
from loopwright.schedule.open.short_tiles import default_for_smaller
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import default_sketch
from loopwright.schedule.target import Target


def build_open(
    workload: Workload, target: Target, name: str, numerics: str | Numerics
) -> OpenLibrary:
    """The library of the default programs of a workload with dims."""
    if target.gpu is not None or target.kind == "c":
        raise TargetError(
            'a workload with dims is built for processors, by target="cpu": choose sizes, as by '
            "workload.at(…)"
        )
    refuse_nothing_at_some_size(workload)
    check_told(workload.dims, map(tensor_shape, workload.inputs))
    check_elements(workload)
    word = Numerics.of(numerics)

    def choosing(given: Sized) -> Choose:
        return partial(default_configs, given, target, word)

    return open_library(covered(workload, target, choosing), workload, target, name, str(word))


def check_elements(workload: Workload) -> None:
    """Raise `BuildError` for an input or result that 32 bits cannot index at the greatest sizes:
    finding programs takes long, and none can be built."""
    greatest = {d.name: d.high for d in workload.dims}
    there = workload.at(**greatest)
    for t in (*there.inputs, *there.outputs):
        if (count := math.prod(tensor_shape(t))) > MOST_ELEMENTS:
            raise BuildError(
                f"{t.name} has {count} elements at {assigned(greatest)}, but indices are 32 bits "
                f"wide: give the dims narrower bounds, for at most {MOST_ELEMENTS}"
            )


def default_configs(
    workload: Sized, target: Target, numerics: Numerics, sizes: Mapping[str, int]
) -> Iterator[Config]:
    """The default config of a workload with dims at some sizes; where it has rewrites, which may
    have no form for others, also those without them, down to the one that has none."""
    sketch = default_for_smaller(workload, target, numerics, sizes)
    yield sketch.at(sketch.default)
    without: frozenset[str] = frozenset()
    while sketch.derivation:
        without |= {*sketch.derivation.names}
        sketch = default_sketch(workload.at(**sizes), target, numerics, without)
        yield sketch.at(sketch.default)


def open_library(
    made: Cover, workload: Workload, target: Target, name: str, numerics: str
) -> OpenLibrary:
    """Compile the programs of a cover into one library."""
    programs = merged(workload, [p.tree for p in made.programs])
    arguments = (*programs.inputs, *programs.prepared, *programs.outputs)
    functions = {
        f"main{k}": emit(f"main{k}", arguments, body, p.target, dims=made.dims)
        for k, (p, body) in enumerate(zip(made.programs, programs.bodies, strict=True))
    }
    if programs.prepared:
        alone = replace(target, threads=1)
        given = (*programs.constants, *programs.prepared)
        functions["prepare"] = emit("prepare", given, programs.prepare, alone)
    objects = _compiled(functions, target)
    constants = {b.name for b in programs.constants}
    signature = OpenSignature(
        name,
        made.dims,
        tuple(OpenParameter(t.name, tensor_shape(t), t.dtype) for t in workload.inputs),
        tuple(OpenParameter(t.name, tensor_shape(t), t.dtype) for t in workload.outputs),
        tuple(t.name for t in workload.inputs if t.name in constants),
        tuple(Parameter(b.name, tuple(map(int, b.shape)), b.dtype) for b in programs.prepared),
        made.rules,
        target.threads,
    )
    extra = {
        "workload": workload.to_json(),
        "workload_key": workload.key,
        "programs": [_described(p) for p in made.programs],
        "numerics": numerics,
    }
    features = tuple(cpu_features(target))
    origin = Origin(target.triple, str(target), features, tuple(objects), extra)
    return OpenLibrary(signature, loaded(signature, origin), origin)


def _described(program: OpenProgram) -> dict[str, Any]:
    return {
        "config": program.config.to_json(),
        "made_for": [dict(sizes) for sizes in program.made_for],
        "threads": program.target.threads,
        "takes": {d.name: [d.low, d.high] for d in program.dims},
    }


def _compiled(functions: Mapping[str, Any], target: Target) -> list[bytes]:
    def module(item: tuple[str, Any]) -> bytes:
        return object_file(compiled(dict([item]), target, variant=True))

    try:
        with ThreadPoolExecutor() as threads:
            return list(threads.map(module, functions.items()))
    except LoopwrightError:
        raise
    except Exception as error:  # TVM's errors have no root of their own
        raise BuildError(f"TVM could not compile a program of open sizes: {error}") from error
