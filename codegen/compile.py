"""From a lowered program to object files, and what a library says of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import tvm

from loopwright.codegen.builtin.compile import compile_builtin
from loopwright.codegen.c.source import compile_source, glue, kernels
from loopwright.codegen.gpu.source import compile_gpu, gpu_program, gpu_sources
from loopwright.codegen.library.linker import architecture, disassembly
from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.codegen.passes.pipeline import Pipeline
from loopwright.codegen.passes.process import shared_process
from loopwright.codegen.tir.emit import emit_tree
from loopwright.codegen.tir.pipeline import compiled, object_file
from loopwright.dsl.errors import BuildError, LoopwrightError, TargetError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.workload import Workload, tensor_shape
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Tree
from loopwright.schedule.tree.printer import show

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


@dataclass(frozen=True)
class Compiled:
    """The object files of a program, or the one blob of a GPU's, by `codegen`: "builtin", or the
    target's kind. `reason` says why it is not built-in code where that was asked for."""

    objects: tuple[bytes, ...]
    codegen: str
    reason: str = ""

    def described(self, target: Target) -> dict[str, str]:
        """Provenance of the code where built-in code was asked for."""
        if target.kind != "builtin":
            return {}
        return {"codegen": self.codegen} | ({"not_builtin": self.reason} if self.reason else {})


def compile_by(made: Program, draft: bool = False) -> Compiled:
    """The object files of a program, or the one blob of a GPU's (`compile_gpu`), and what made
    them: LLVM, where the built-in generator cannot. Raises `BuildError` with the compiler's words.

    In a draft the code that prepares constants is not optimized, which halves the time to
    compile: for candidates that are only to be measured.
    """
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


def sources(made: Program, compiled: Compiled) -> dict[str, Callable[[], str]]:
    """Sources that `library.source` shows of a program, each made when it is asked for."""
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
