"""`build`: from a workload and a config to a compiled library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from loopwright.codegen.c.source import kernels
from loopwright.codegen.compile import Compiled, Program, by_passes, compile_by, signature, sources
from loopwright.codegen.devices.code import GpuCode
from loopwright.codegen.gpu.library import GpuLibrary, load_program
from loopwright.codegen.library.library import Library
from loopwright.codegen.library.signature import Origin
from loopwright.codegen.open.build import build_open
from loopwright.codegen.target import by_codegen, cpu_features, resolve
from loopwright.dsl.errors import (
    BuildError,
    ConfigError,
    DeviceLostError,
    LibraryError,
    TargetError,
)
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.words import brief
from loopwright.dsl.workload import Workload, any_workload, fixed
from loopwright.schedule.loops.nothing import NOTHING, has_elements, with_nothing, without_nothing
from loopwright.schedule.lowering import lower
from loopwright.schedule.sketch.naming import Derivation, SketchName
from loopwright.schedule.sketch.sketch import Config, check_config
from loopwright.schedule.space import default_sketch, find_sketch
from loopwright.schedule.target import Target
from loopwright.schedule.tree.verifier import verify


def program(
    workload: Workload,
    config: Config | None,
    target: Target,
    numerics: str | Numerics | None = None,
) -> Program:
    """Lower a workload by a config, and verify the result.

    Without a config it is the default one of what `numerics` allows, "standard" if None. Raises
    `ConfigError` if the config is of no program, or of one that `numerics` does not allow.
    """
    check_config(config)
    if not has_elements(workload):
        return _program_of_nothing(workload, config, target, numerics)
    allowed = None if numerics is None else Numerics.of(numerics)
    if config is None:
        word = Numerics.STANDARD if allowed is None else allowed
        sketch = default_sketch(workload, target, word)
        config = sketch.at(sketch.default)
    else:
        sketch = find_sketch(workload, target, config.sketch)
        if allowed is not None and sketch.numerics > allowed:
            raise ConfigError(
                f"the config's program {sketch.derivation} has {sketch.numerics} numerics, and "
                f'numerics="{allowed}" is asked for: give numerics="{sketch.numerics}"'
            )
    tree = lower(sketch, target, config)
    verify(tree, target.gpu)
    return Program(workload, target, config, tree, sketch.numerics, sketch.error_growth)


def _program_of_nothing(
    workload: Workload, config: Config | None, target: Target, numerics: str | Numerics | None
) -> Program:
    """The program of a workload some of whose tensors have no elements."""
    left = without_nothing(workload)
    if left.stages and target.gpu is not None:
        raise TargetError("tensors without elements are for processors: build it for the CPU")
    if not left.stages:
        nothing = Config(SketchName(Derivation(), "nothing"), ())
        return Program(workload, target, nothing, with_nothing(NOTHING, workload))
    made = program(left, config, target, numerics)
    return replace(made, workload=workload, tree=with_nothing(made.tree, workload))


def build(
    workload: Workload | Tensor,
    config: Config | None = None,
    target: str | Mapping[str, Any] | Target = "cpu",
    threads: int | None = None,
    name: str = "kernel",
    numerics: str | Numerics | None = None,
    codegen: str | None = None,
    passes: str | None = None,
) -> Library:
    """Compile a workload.

    A workload with dims becomes an `OpenLibrary`: programs for all sizes, one of which each call
    runs. It takes no config.

    Parameters
    ----------
    workload: or one defined tensor.
    config: a point of `lw.space(workload, target, threads)`; the default one if None.
    target: "cpu" (this machine), "c" (C source that can be read and taken elsewhere), "cuda" or
        "opencl" (this machine's GPU), or the mapping of another machine, such as
        {"kind": "llvm", "mcpu": "skylake-avx512"} or {"kind": "cuda", "arch": "sm_90"}.
    threads: how many threads parallel loops run on; all that this process may use if None. With
        one, nothing is parallel.
    name: what messages call the library; an exported one is called like its file.
    numerics: what the program may do to rounding errors: "strict", "standard" or "fast", see
        `dsl.numerics`; "standard" if None, but for a config, whose own program it is.
    codegen: "llvm", or "builtin" for machine code without LLVM, in milliseconds, where that covers
        the program: `library.codegen` says what made it, and why. If None, what the target says.
    passes: what LLVM does with the program in place of its -O3, in the words of `opt -passes=…`,
        and switches of its back end: "default<O3>,function(gvn) -disable-lsr". Needs the extra
        llvm. `lw.tune_passes` looks for a list.

    Raises `NotationError`, `ConfigError`, `TargetError`, `BuildError`.
    """
    given, machine = any_workload(workload), resolve(target, threads)
    if not isinstance(name, str):
        raise BuildError(f"name = {brief(name)}: give a text, such as 'kernel'")
    if codegen is not None:
        machine = by_codegen(machine, codegen)
    if not given.dims:
        return build_fixed(given, config, machine, name, numerics, passes)
    if passes is not None:
        raise TargetError("passes= is for fixed sizes: build workload.at(…), or leave it out")
    if config is not None:
        sizes = ", ".join(f"{d.name}=…" for d in given.dims)
        raise ConfigError(f"a config is of fixed sizes: give none, or build workload.at({sizes})")
    if machine.kind == "builtin":
        raise TargetError(
            'codegen="builtin" is for fixed sizes: build workload.at(…), or leave it out'
        )
    return build_open(given, machine, name, numerics or Numerics.STANDARD)


def build_fixed(
    workload: Workload,
    config: Config | None,
    target: Target,
    name: str = "kernel",
    numerics: str | Numerics | None = None,
    passes: str | None = None,
) -> Library:
    """Compile a workload of fixed shapes, as `build` does."""
    made = program(fixed(workload), config, target, numerics)
    if passes is not None:
        made = by_passes(made, passes)
    compiled = compile_by(made)
    if made.target.gpu is not None:
        return _gpu_library(made, compiled, name)
    return Library.from_object(
        compiled.objects,
        signature(made, name),
        target_triple=made.target.triple,
        target=str(made.target),
        cpu_features=cpu_features(made.target),
        sources=sources(made, compiled),
        extra=_described(made) | compiled.described(made.target),
        kernels=kernels(made.tree, made.workload, made.target) if made.target.kind == "c" else {},
    )


def _gpu_library(made: Program, compiled: Compiled, name: str) -> Library:
    """The library of a GPU program, which runs where this machine has a GPU for it."""
    code = GpuCode.from_bytes(compiled.objects[0])
    try:
        program = load_program(code)
    except (LibraryError, TargetError) as error:
        if code.language == "opencl" or isinstance(error, DeviceLostError):
            raise
        program = None  # it was built for another machine's GPU
    origin = Origin(target=str(made.target), extra=_described(made))
    return GpuLibrary(signature(made, name), code, program, origin, sources(made, compiled))


def _described(made: Program) -> dict[str, Any]:
    """Provenance of a program, as a library keeps it."""
    return {
        "workload": made.workload.to_json(),
        "workload_key": made.workload.key,
        "config": made.config.to_json(),
        "numerics": str(made.numerics),
    } | ({"passes": made.passes} if made.passes else {})
