"""Targets: from what the user says to what the rules and the compiler need."""

from __future__ import annotations

import functools
import platform
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from loopwright.codegen import llvm
from loopwright.codegen.gpu_target import GPU_KINDS, named_gpu, this_gpu
from loopwright.codegen.library.binary import MAX_THREADS
from loopwright.codegen.library.linker import architecture
from loopwright.codegen.processors import cpu_flags, usable_processors
from loopwright.dsl.errors import TargetError
from loopwright.dsl.words import among, brief, quoted
from loopwright.schedule.target import Target, vector_registers

_KEYS = {"kind", "mcpu", "mattr", "mtriple", "num-cores"}
_WIDTHS = ("avx512f", "avx2", "avx", "sve", "neon")

# /proc/cpuinfo's word for a feature, and LLVM's switch for it where the two differ.
_X86 = {
    "sse3": "pni", "ssse3": "ssse3", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "popcnt": "popcnt",
    "avx": "avx", "avx2": "avx2", "fma": "fma", "f16c": "f16c", "bmi": "bmi1", "bmi2": "bmi2",
    "lzcnt": "abm", "movbe": "movbe", "avx512f": "avx512f", "avx512bw": "avx512bw",
    "avx512cd": "avx512cd", "avx512dq": "avx512dq", "avx512vl": "avx512vl",
    "avx512vnni": "avx512_vnni", "avx512vbmi": "avx512vbmi", "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16", "avxvnni": "avx_vnni", "amx-tile": "amx_tile",
    "amx-int8": "amx_int8", "amx-bf16": "amx_bf16",
}  # fmt: skip
# What names of processors say too: left out where it is hidden, and named in no target.
_IMPLIED = {
    "sse4a": "sse4a", "gfni": "gfni", "vaes": "vaes", "vpclmulqdq": "vpclmulqdq",
    "avx512ifma": "avx512ifma", "avx512vbmi2": "avx512_vbmi2", "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
}  # fmt: skip
_ARM = {
    "neon": "asimd", "fullfp16": "asimdhp", "dotprod": "asimddp", "bf16": "bf16", "i8mm": "i8mm",
    "sve": "sve",
}  # fmt: skip


def resolve(target: str | Mapping[str, Any] | Target, threads: int | None = None) -> Target:
    """The machine that a target names.

    "cpu" (or "llvm") is this machine with the features that it has; "c" is C source for it; a
    mapping in TVM's form names another: {"kind": "llvm", "mcpu": "skylake-avx512"}, with
    "mtriple" and "mattr" where it is of another family. `threads` defaults to the processors
    that this process may use, or to the target's "num-cores".

    "cuda" and "opencl" are this machine's GPU; {"kind": "cuda", "arch": "sm_90"} is another one,
    and limits may be set by the names of `Gpu`'s fields. GPU targets take no `threads`.

    Raises `TargetError` for anything else.
    """
    if isinstance(target, Target):
        if threads is None or target.gpu:
            return target
        return replace(target, threads=_checked(threads))
    if isinstance(target, str):
        if target in GPU_KINDS:
            return this_gpu(target)
        if target not in ("cpu", "llvm", "c"):
            raise TargetError(
                f'target {target!r} is not supported; use "cpu" (this machine), "c", "cuda", '
                '"opencl", or a mapping such as {"kind": "llvm", "mcpu": "skylake-avx512"}'
            )
        return _host("c" if target == "c" else "llvm", _checked(threads))
    if not isinstance(target, Mapping):
        raise TargetError(
            f'target = {brief(target)}: give a name, such as "cpu", or a mapping, such as '
            '{"kind": "llvm", "mcpu": "skylake-avx512"}'
        )
    if target.get("kind") in GPU_KINDS:
        return named_gpu(target)
    return _explicit(target, threads)


def processor(target: str | Mapping[str, Any] | Target, threads: int | None = None) -> Target:
    """`resolve` for what runs on processors alone: models. Raises `TargetError` for a GPU."""
    machine = resolve(target, threads)
    if machine.gpu is not None:
        raise TargetError(
            f"models are compiled for processors, not for {machine}; tune their operators one by "
            "one with lw.tune"
        )
    return machine


def by_codegen(target: Target, codegen: str) -> Target:
    """A target whose code is made by "llvm" or "builtin". Raises `TargetError`."""
    if not among(codegen, ("llvm", "builtin")):
        raise TargetError(f'codegen={quoted(codegen)}: give "llvm" or "builtin"')
    if codegen == "builtin" and target.kind not in ("llvm", "builtin"):
        raise TargetError(
            f'codegen="builtin" is for processors, not for target {target.kind}: leave one out'
        )
    return target if target.kind not in ("llvm", "builtin") else replace(target, kind=codegen)


@functools.cache
def cpu_features(target: Target) -> tuple[str, ...]:
    """Features that code for a target needs, in the words of /proc/cpuinfo."""
    names = _X86 | _IMPLIED if architecture(target.triple) == "x86_64" else _ARM
    has = llvm.features_among(names, target.triple, target.mcpu, target.features)
    return tuple(word for llvm, word in names.items() if llvm in has)


def _checked(threads: int | None) -> int:
    if threads is None:
        return min(usable_processors(), MAX_THREADS)
    whole = isinstance(threads, int) and not isinstance(threads, bool)
    if not whole or not 1 <= threads <= MAX_THREADS:
        raise TargetError(f"threads = {threads!r}: give an integer from 1 to {MAX_THREADS}")
    return threads


@functools.cache
def _host(kind: str, threads: int) -> Target:
    family = architecture()
    if platform.system() != "Linux" or family not in ("x86_64", "aarch64"):
        raise TargetError(f"this machine ({platform.system()}, {family}) is not supported yet")
    return described(family, cpu_flags(), _host_cpu(family), threads, _caches(), kind)


def described(
    family: str,
    flags: frozenset[str],
    mcpu: str,
    threads: int,
    caches: tuple[int, int],
    kind: str = "llvm",
) -> Target:
    """A machine that runs Linux, as it says of itself.

    Parameters
    ----------
    family: "x86_64" or "aarch64".
    flags: its features, in the words of /proc/cpuinfo; none where they are not known.
    mcpu: LLVM's name of its processor, empty for any of the family.
    caches: bytes of one core's first- and second-level data caches.
    """
    names, implied = (_X86, _IMPLIED) if family == "x86_64" else (_ARM, {})
    triple = f"{family}-unknown-linux-gnu"
    hidden = [llvm for llvm, word in (names | implied).items() if flags and word not in flags]
    unusable = llvm.features_among(hidden, triple, mcpu, ())
    features = (
        *(f"+{llvm}" for llvm, word in names.items() if word in flags),
        *(f"-{llvm}" for llvm in hidden if llvm in unusable),
    )
    return Target(
        kind, triple, mcpu, features, *vector_registers(family, features), threads, *caches
    )


def this_cpu() -> str:
    """LLVM's name of this machine's processor; empty where it has none of use."""
    return _host_cpu(architecture())


def _host_cpu(family: str) -> str:
    """LLVM's name for this processor. It says more than there may be: a virtual machine may hide
    features, and LLVM's table may miss others."""
    return llvm.system_cpu() if family == "x86_64" else ""


def _explicit(config: Mapping[str, Any], threads: int | None) -> Target:
    unknown = sorted(set(config) - _KEYS)
    if unknown or config.get("kind") not in ("llvm", "c"):
        raise TargetError(
            f'{dict(config)} is not a supported target: "kind" is "llvm" or "c" (or, for '
            'GPUs, "cuda" or "opencl"), and the other '
            f"keys are {', '.join(sorted(_KEYS - {'kind'}))}"
        )
    triple = str(config.get("mtriple", f"{architecture()}-unknown-linux-gnu"))
    mcpu = str(config.get("mcpu", ""))
    given = config.get("mattr", ())
    if not isinstance(given, (str, list, tuple)) or not all(isinstance(f, str) for f in given):
        raise TargetError(f'"mattr" is {given!r}: give text such as "+avx2,+fma", or a list of it')
    features = tuple(_words(given) if isinstance(given, str) else given)
    _check_cpu(triple, mcpu, features)
    has = {f"+{f}" for f in llvm.features_among(_WIDTHS, triple, mcpu, features)}
    family = architecture(triple)
    count = _checked(config.get("num-cores") if threads is None else threads)
    return Target(config["kind"], triple, mcpu, features, *vector_registers(family, has), count)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


_OTHERS = ("x86_64-linux-gnu", "aarch64-linux-gnu")
_FAMILIES = (
    "x86_64", "i386", "i686", "aarch64", "arm", "armv7", "armv7a", "armv7l", "riscv32", "riscv64"
)  # fmt: skip


def _similar(mcpu: str, known: frozenset[str]) -> str:
    """Names that may have been meant by a processor that is not among those `known`."""
    close = sorted(c for c in known if c[:3] == mcpu[:3])
    if close:
        return f"; similar ones: {', '.join(close[:8])}"
    for triple in _OTHERS:
        if mcpu in llvm.processors(triple):
            return f'; it is one of another architecture: add "mtriple": "{triple}" to the target'
    return f"; it knows {', '.join(sorted(known)[:8])}, …"


def _check_cpu(triple: str, mcpu: str, features: tuple[str, ...]) -> None:
    """TVM takes a wrong `mcpu` for the generic one with no more than a line in its log. A family
    that LLVM does not know ends the process."""
    if architecture(triple) not in _FAMILIES:
        raise TargetError(
            f'"mtriple" {triple!r} names no processor family of {", ".join(_FAMILIES)}: write it '
            'as "x86_64-linux-gnu"'
        )
    known = llvm.processors(triple)
    if mcpu and mcpu not in known:
        raise TargetError(f"LLVM knows no processor {mcpu!r} for {triple}{_similar(mcpu, known)}")
    for feature in features:
        if feature[:1] not in ("+", "-"):
            raise TargetError(f'feature {feature!r}: write "+{feature}" or "-{feature}"')
    wanted = {f[1:] for f in features if f[0] == "+" and f"-{f[1:]}" not in features}
    unknown = sorted(wanted - llvm.features_among(wanted, triple, mcpu, features))
    if unknown:
        raise TargetError(f"LLVM knows no features {', '.join(unknown)} of {triple}")


def has_avx512(target: Target) -> bool:
    """Return whether code may use AVX-512; no other vectors of x86 have 64 bytes."""
    return architecture(target.triple) == "x86_64" and target.vector_bytes == 64


@functools.cache
def _caches() -> tuple[int, int]:
    """Bytes of one core's first- and second-level data caches."""
    sizes = {1: 32 << 10, 2: 512 << 10}
    for entry in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            level, kind, size = (
                (entry / name).read_text(encoding="utf-8").strip()
                for name in ("level", "type", "size")
            )
        except OSError:
            continue
        if kind != "Instruction" and int(level) in sizes and size.endswith("K"):
            sizes[int(level)] = int(size[:-1]) << 10
    return sizes[1], sizes[2]
