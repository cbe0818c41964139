"""`build`: from a workload and a config to a compiled library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import tvm

from loopwright.codegen.builtin.compile import compile_builtin
from loopwright.codegen.c.source import compile_source, glue, kernels
from loopwright.codegen.devices.code import GpuCode
from loopwright.codegen.devices.load import load_program
from loopwright.codegen.gpu.compile import compile_gpu, gpu_sources
from loopwright.codegen.gpu.library import GpuLibrary
from loopwright.codegen.gpu.source import gpu_program
from loopwright.codegen.library.library import Library
from loopwright.codegen.library.linker import architecture, disassembly
from loopwright.codegen.library.signature import Origin, Parameter, Signature
from loopwright.codegen.open.build import build_open
from loopwright.codegen.passes.pipeline import Pipeline
from loopwright.codegen.passes.process import shared_process
from loopwright.codegen.target import cpu_features, resolve
from loopwright.codegen.tir.emit import emit_tree
from loopwright.codegen.tir.pipeline import compiled, object_file
from loopwright.dsl.errors import (
    BuildError,
    ConfigError,
    LibraryError,
    LoopwrightError,
    TargetError,
)
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.words import brief
from loopwright.dsl.workload import Workload, any_workload, as_workload, fixed, tensor_shape
from loopwright.schedule.explain import Explanation, explanation
from loopwright.schedule.loops.nothing import (
    NOTHING,
    has_elements,
    with_nothing,
    without_nothing,
)
from loopwright.schedule.lowering import lower
from loopwright.schedule.sketch.naming import Derivation, SketchName
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import Space, default_sketch, find_sketch, space
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Tree
from loopwright.schedule.tree.printer import show
from loopwright.schedule.tree.verifier import verify

_T = TypeVar("_T")


@dataclass(frozen=True)
class Program:
    """A workload lowered by one config: what is compiled, by LLVM's own passes or by others."""

    workload: Workload
    target: Target
    config: Config
    tree: Tree
    numerics: Numerics = Numerics.STANDARD
    error_growth: float = 1.0
    passes: str = ""


def space_of(
    workload: Workload | Tensor,
    target: str | Mapping[str, Any] | Target = "cpu",
    threads: int | None = None,
    numerics: str | Numerics = "standard",
) -> Space:
    """Every program that is considered for a workload, or a defined tensor, on a target."""
    return space(as_workload(workload), resolve(target, threads), numerics)


def explain(
    workload: Workload | Tensor,
    target: str | Mapping[str, Any] | Target = "cpu",
    threads: int | None = None,
    numerics: str | Numerics = "standard",
    config: Config | None = None,
) -> Explanation:
    """Explain the space of a workload: the rewrites that apply, those that do not and why, and the
    default; of a config also its loop tree. Print it, or read its attributes. Parameters are as
    for `build`."""
    machine = resolve(target, threads)
    return explanation(as_workload(workload), machine, Numerics.of(numerics), config)


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
    if config is not None and not isinstance(config, Config):
        raise ConfigError(
            f"{brief(config)} is no config: give a point of the workload's "
            "space, such as lw.space(workload).default or the config of what lw.tune returned"
        )
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
    workload: Workload,
    config: Config | None,
    target: Target,
    numerics: str | Numerics | None,
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
    config: a point of `space_of(workload, target, threads)`; the default one if None.
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
        sources=_sources(made, compiled),
        extra=_described(made) | compiled.described(made.target),
        kernels=kernels(made.tree, made.workload, made.target) if made.target.kind == "c" else {},
    )


def _gpu_library(made: Program, compiled: Compiled, name: str) -> Library:
    """The library of a GPU program, which runs where this machine has a GPU for it."""
    code = GpuCode.from_bytes(compiled.objects[0])
    try:
        program = load_program(code)
    except (LibraryError, TargetError):
        if code.language == "opencl":
            raise
        program = None  # it was built for another machine's GPU
    origin = Origin(target=str(made.target), extra=_described(made))
    return GpuLibrary(signature(made, name), code, program, origin, _sources(made, compiled))


def _described(made: Program) -> dict[str, Any]:
    """Provenance of a program, as a library keeps it."""
    return {
        "workload": made.workload.to_json(),
        "workload_key": made.workload.key,
        "config": made.config.to_json(),
        "numerics": str(made.numerics),
    } | ({"passes": made.passes} if made.passes else {})


@dataclass(frozen=True)
class Compiled:
    """The object files of a program, or the one blob of a GPU's.

    Attributes
    ----------
    codegen: what made them: "builtin", or the target's kind.
    reason: why it was not built-in code where that was asked for.
    """

    objects: tuple[bytes, ...]
    codegen: str
    reason: str = ""

    def described(self, target: Target) -> dict[str, str]:
        """Provenance of the code where built-in code was asked for."""
        if target.kind != "builtin":
            return {}
        return {"codegen": self.codegen} | ({"not_builtin": self.reason} if self.reason else {})


def compile_program(made: Program, draft: bool = False) -> tuple[bytes, ...]:
    """The object files of a program, or the one blob of a GPU's (`gpu_code`). Raises `BuildError`
    with the compiler's words.

    In a draft the code that prepares constants is not optimized, which halves the time to
    compile: for candidates that are only to be measured.
    """
    return compile_by(made, draft).objects


def compile_by(made: Program, draft: bool = False) -> Compiled:
    """`compile_program`, with what made the code: LLVM, where the built-in generator cannot."""
    kind, reason, maker = made.target.kind, "", "TVM"
    try:
        if made.target.gpu is not None:
            return Compiled((compile_gpu(made.tree, made.target, draft).to_bytes(),), kind)
        if kind == "c":
            source = _c_source(made) + glue(made.tree)
            return Compiled((compile_source(source, made.target),), kind)
        if kind == "builtin":
            maker = "the built-in code generator"
            code, reason = compile_builtin(made.tree, made.target)
            if code is not None:
                return Compiled((code,), kind)
            maker = "TVM"
        if made.passes:
            return Compiled(tuple(_passed(made, draft)), "llvm", reason)
        return Compiled(tuple(_modules(made, draft, object_file)), "llvm", reason)
    except LoopwrightError:
        raise
    except Exception as error:  # TVM's errors have no root of their own
        raise BuildError(f"{maker} could not compile {made.config}: {error}") from error


def program_text(made: Program) -> str:
    """Text of what runs at each call, without what all programs have; nothing is compiled.

    Raises `TargetError` for a target that has none, `BuildError` where none can be written.
    """
    kind = made.target.kind
    if kind not in ("c", "cuda", "opencl"):
        raise TargetError(f"programs for target {kind} have no source: give c, cuda or opencl")
    tree = replace(made.tree, inputs=(*made.tree.inputs, *made.tree.prepared), prepared=())
    if kind == "c":
        return kernels(tree, made.workload, made.target)["main"]
    return gpu_program(tree, made.target).kernels


def by_codegen(target: Target, codegen: str) -> Target:
    """A target whose code is made by "llvm" or "builtin". Raises `TargetError`."""
    if codegen not in ("llvm", "builtin"):
        raise TargetError(f'codegen={codegen!r}: give "llvm" or "builtin"')
    if codegen == "builtin" and target.kind not in ("llvm", "builtin"):
        raise TargetError(
            f'codegen="builtin" is for processors, not for target {target.kind}: leave one out'
        )
    return target if target.kind not in ("llvm", "builtin") else replace(target, kind=codegen)


def by_passes(made: Program, passes: str) -> Program:
    """A program that LLVM optimizes by a pass list. Raises `TargetError`, `BuildError`."""
    target = made.target
    if target.kind != "llvm" or architecture(target.triple) != "x86_64":
        raise TargetError(
            f"passes= is for what LLVM compiles for x86-64, not for target {target}: leave one out"
        )
    return replace(made, passes=str(Pipeline.of(passes)))


def unoptimized(made: Program) -> list[str]:
    """LLVM IR of the functions of a program, the kernel first, before any pass."""
    return _modules(made, False, lambda m: str(m.inspect_source("ll")), optimized=False)


def _passed(made: Program, draft: bool) -> list[bytes]:
    """Object files of a program by its passes, in a draft of its kernel alone by these."""
    process, pipeline = shared_process(), Pipeline.of(made.passes)
    texts = unoptimized(made)
    quick = Pipeline("default<O0>", pipeline.switches) if draft else pipeline
    lists = [pipeline, *(quick for _ in texts[1:])]
    pairs = zip(texts, lists, strict=True)
    return [process.run(text, one, made.target, "object").given for text, one in pairs]


def _optimized(made: Program) -> str:
    """LLVM IR of a program behind its passes."""
    process, pipeline = shared_process(), Pipeline.of(made.passes)
    shown = (process.run(text, pipeline, made.target, "llvm") for text in unoptimized(made))
    return "\n".join(one.given.decode() for one in shown)


def signature(made: Program, name: str) -> Signature:
    """Signature of the library of a program."""
    tree, workload = made.tree, made.workload
    constants = {b.name for b in tree.constants}

    def parameter(tensor: Any) -> Parameter:
        return Parameter(tensor.name, tensor_shape(tensor), tensor.dtype)

    prepared = tuple(
        Parameter(b.name, tuple(int(e) for e in b.shape), b.dtype) for b in tree.prepared
    )
    return Signature(
        name=name,
        inputs=tuple(parameter(t) for t in workload.inputs),
        outputs=tuple(parameter(t) for t in workload.outputs),
        constants=tuple(t.name for t in workload.constants if t.name in constants),
        prepared=prepared,
        threads=made.target.threads,
    )


def _functions(made: Program) -> dict[str, Any]:
    if made.target.gpu is not None:
        return dict(gpu_program(made.tree, made.target).tir)
    return emit_tree(made.tree, made.target)


def _modules(
    made: Program, draft: bool, finish: Callable[[Any], _T], optimized: bool = True
) -> list[_T]:
    """Apply `finish` to the module of each function, both at once: LLVM frees the GIL."""

    def module(name: str, function: Any) -> _T:
        full = optimized and (name == "main" or not draft)
        return finish(compiled({name: function}, made.target, full))

    functions = _functions(made)
    with ThreadPoolExecutor(len(functions)) as threads:
        return list(threads.map(module, functions.keys(), functions.values()))


def _c_source(made: Program) -> str:
    return "".join(kernels(made.tree, made.workload, made.target).values())


def _sources(made: Program, compiled: Compiled) -> dict[str, Callable[[], str]]:
    texts: dict[str, Callable[[], str]] = {
        "tree": lambda: show(made.tree),
        "tir": lambda: str(tvm.IRModule(_functions(made)).script()),
    }
    if compiled.codegen == "builtin":
        (code,) = compiled.objects
        return texts | {"asm": lambda: disassembly(code)}
    if made.target.gpu is not None:
        return texts | gpu_sources(made.tree, made.target)
    if made.target.kind == "c":

        def assembly() -> str:
            return compile_source(_c_source(made) + glue(made.tree), made.target, True).decode()

        return texts | {"c": lambda: _c_source(made), "asm": assembly}

    if made.passes:
        return texts | {
            "llvm": lambda: _optimized(made),
            "asm": lambda: "\n".join(map(disassembly, compiled.objects)),
        }

    def inspected(kind: str) -> str:
        return "\n".join(_modules(made, False, lambda m: str(m.inspect_source(kind))))

    return texts | {"llvm": lambda: inspected("ll"), "asm": lambda: inspected("asm")}
