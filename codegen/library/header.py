"""The C side of an exported library: its header, and the wrapper that defines what it declares."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from loopwright.c_names import as_identifier, is_variable, why_no_function
from loopwright.codegen.library.binary import DTYPE_CODES, MAX_THREADS, bits
from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.dsl.errors import LibraryError

C_TYPES = {
    "float64": "double",
    "float32": "float",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "int64": "int64_t",
    "int32": "int32_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "uint64": "uint64_t",
    "uint32": "uint32_t",
    "uint16": "uint16_t",
    "uint8": "uint8_t",
    "bool": "uint8_t",
}

_NOTES = {"float16": " (its bits)", "bfloat16": " (its bits)", "bool": " (0 or 1)"}

_ARENA_ALIGNMENT = 64

MADE_BY = "made by Loopwright"
"""First line of a header."""


def check_name(name: str, suffix: str = ".so") -> None:
    """Raises `LibraryError` unless the stem of `name` can name a function in C and in C++."""
    why = why_no_function(name)
    if not why:
        return
    raise LibraryError(
        f"the file's name becomes the name of a C function, and {why}; "
        f"try {as_identifier(name.removesuffix('.c'))}{suffix}"
    )


def parameter_names(signature: Signature) -> dict[str, str]:
    """Names of the parameters in C by those in Python: legal, distinct, as near as can be to
    these, and none that the functions use themselves."""
    taken = ("prepared", "status", "threads", "pointers", "arrays", "stream", "block")
    chosen = dict.fromkeys(taken, "")
    for p in (*signature.inputs, *signature.outputs):
        name = re.sub(r"\W", "_", p.name, flags=re.ASCII)
        name = name if is_variable(name) else f"x_{name}"
        while name in chosen.values() or name in chosen:
            name += "_"
        chosen[p.name] = name
    return chosen


def public_symbols(name: str, signature: Signature) -> tuple[str, ...]:
    """The functions that the header declares."""
    more = ("_prepared_bytes", "_prepare", "_run") if signature.prepared else ()
    return (name, *(name + end for end in (*more, "_set_threads", "_threads", "_error")))


def header(functions: Functions, about: str | None = None) -> str:
    """The text of NAME.h; `about` says what it goes with, a shared object unless given."""
    name = functions.name
    return functions.header(
        about
        or f"""{MADE_BY}. Link with {name}.so, which needs the C library alone.
 *
 * Arrays are dense, in C order:""",
        """Every function may be called from any thread. An output must not overlap an input
 * or another output. Pointers must be aligned to their element type; nothing more is needed.""",
        f"""
/* How many threads a call uses, the caller's included: at first {functions.signature.threads}, or
 * the number of processors if that is less. `threads` is from 1 to {MAX_THREADS}. Returns 0 or a
 * status. */
int {name}_set_threads(int threads);
int {name}_threads(void);

/* What a status means, in English. The text lives as long as the library. */
const char *{name}_error(int status);""",
    )


def wrapper(functions: Functions) -> str:
    """C source that defines what `header` declares; it includes runtime.h."""
    signature = functions.signature
    parts = ['#include "runtime.h"\n', f"const int lw_default_threads = {signature.threads};\n"]
    if not functions.sizes:
        parts.append(_table("main", signature.main_parameters, signature.outputs))
    if signature.prepared:
        parts.append(_table("prepare", signature.prepare_parameters, signature.prepared))
    parts += [
        functions.definitions(),
        *(define(prototype, body) for prototype, body in shared_functions(functions.name)),
    ]
    return "\n".join(parts)


def shared_functions(name: str) -> tuple[tuple[str, str], ...]:
    """The functions that every library for processors has: prototype and body."""
    return (
        (f"int {name}_set_threads(int threads)", "  return lw_set_threads(threads);"),
        (f"int {name}_threads(void)", "  return lw_threads();"),
        (f"const char *{name}_error(int status)", "  return lw_error(status);"),
    )


class Functions:
    """The functions by which C calls a library, declared and defined. The values of dims (`sizes`)
    stand before all parameters of what computes, and `stream` behind them. `memory` says whose the
    prepared arrays are, and how they lie."""

    stream: ClassVar[tuple[str, ...]] = ()
    sizes: tuple[str, ...] = ()
    memory: ClassVar[str] = "of your own at `prepared`, best aligned"

    def __init__(self, name: str, signature: Signature) -> None:
        check_name(name)
        self.name, self.signature, self.names = name, signature, parameter_names(signature)
        everything = (*signature.inputs, *signature.outputs)
        self.whole = self._prototype(name, everything)
        self.prepare = self._prototype(f"{name}_prepare", signature.constant_inputs, "prepared")
        self.run = self._prototype(f"{name}_run", signature.main_parameters)

    def _prototype(self, function: str, parameters: Sequence[Parameter], *more: str) -> str:
        """`int function(…)`, where the prepared parameters are one pointer."""
        arguments = [] if "prepared" in more else [f"int64_t {size}" for size in self.sizes]
        for p in parameters:
            if p in self.signature.prepared:
                if "const void *prepared" not in arguments:
                    arguments.append("const void *prepared")
            else:
                const = "" if p in self.signature.outputs else "const "
                arguments.append(f"{const}{C_TYPES[p.dtype]} *{self.names[p.name]}")
        arguments += [f"void *{name}" for name in (*more, *self.stream)]
        return f"int {function}({', '.join(arguments)})"

    def header(self, about: str, rules: str, more: str) -> str:
        """The text of NAME.h: what it is, the arrays, `rules` for calls, and `more` functions."""
        parameters = (*self.signature.inputs, *self.signature.outputs)
        shapes = "\n".join(map(self._described, parameters))
        guard = f"LOOPWRIGHT_LIBRARY_{self.name}_H_"
        return f"""/* {self.name}: {about}
{shapes}
 *
 * {rules}
 */
#ifndef {guard}
#define {guard}

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* Computes the outputs from the inputs. Returns 0, or a status for {self.name}_error. */
{self.whole};
{self._preparation()}{more}

#ifdef __cplusplus
}}
#endif

#endif
"""

    def _described(self, p: Any) -> str:
        shape = "".join(f"[{n}]" for n in p.shape) or ", one number"
        return f" *   {self.names[p.name]}: {p.dtype}{_NOTES.get(p.dtype, '')}{shape}"

    def _preparation(self) -> str:
        if not self.signature.prepared:
            return ""
        weights = ", ".join(self.names[p.name] for p in self.signature.constant_inputs)
        return f"""
/* The same in two steps, for {weights} that stay the same over many calls: lay them out for the
 * kernels once, into {self.name}_prepared_bytes() bytes {self.memory}
 * to {_ARENA_ALIGNMENT} bytes, and then run on that. */
size_t {self.name}_prepared_bytes(void);
{self.prepare};
{self.run};
"""

    def definitions(self) -> str:
        """C source of what the header declares of these."""
        names, signature = self.names, self.signature
        if not signature.prepared:
            main = [names[p.name] for p in signature.main_parameters]
            return define(self.whole, self.call("main", main))
        offsets, size = _arena(signature)
        pointer = names | {n: f"((char *)prepared + {at})" for n, at in offsets.items()}
        steps = {"prepare": signature.prepare_parameters, "main": signature.main_parameters}
        calls = {
            step: "  if (!prepared) return LW_NULL_POINTER;\n"
            + self.call(step, [pointer[p.name] for p in parameters])
            for step, parameters in steps.items()
        }
        inputs, outputs = (
            [names[p.name] for p in ps] for ps in (signature.plain_inputs, signature.outputs)
        )
        constants = ", ".join((*(names[n] for n in signature.constants), "prepared", *self.stream))
        run = ", ".join((*self.sizes, *inputs, "prepared", *outputs, *self.stream))
        allocate, release = self.allocation(size)
        whole = f"""{allocate}
  int status = {self.name}_prepare({constants});
  if (!status) status = {self.name}_run({run});
  {release}
  return status;"""
        return "\n".join(
            (
                define(f"size_t {self.name}_prepared_bytes(void)", f"  return {size};"),
                define(self.prepare, calls["prepare"]),
                define(self.run, calls["main"]),
                define(self.whole, whole),
            )
        )

    def call(self, step: str, pointers: Sequence[str]) -> str:
        """The statements that call `main` or `prepare`."""
        listed = ", ".join(f"(void *){pointer}" for pointer in pointers)
        return (
            f"  void *const pointers[] = {{{listed}}};\n"
            f"  return lw_checked_call(&{step}_function, pointers);"
        )

    def allocation(self, size: int) -> tuple[str, str]:
        """The statements that make memory for `prepared`, and that free it."""
        allocate = f"""  void *prepared = lw_allocate({size});
  if (!prepared) return LW_OUT_OF_MEMORY;"""
        return allocate, "lw_release(prepared);"


def define(prototype: str, body: str) -> str:
    """A function of a library in C."""
    return f"LW_PUBLIC {prototype} {{\n{body}\n}}\n"


def _table(function: str, parameters: Sequence[Parameter], written: Sequence[Parameter]) -> str:
    rows = ""
    for p in parameters:
        name = re.sub(r"\W", "_", p.name, flags=re.ASCII)  # which could end the comment
        numbers = (p.elements, DTYPE_CODES[p.dtype], bits(p.dtype), 1, int(p in written))
        rows += f"    {{{', '.join(map(str, numbers))}}}, /* {name} */\n"
    return (
        f"static const lw_parameter {function}_parameters[] = {{\n{rows}}};\n\n"
        f"static const lw_function {function}_function = "
        f"{{__tvm_ffi_{function}, {function}_parameters, {len(parameters)}}};\n"
    )


def _arena(signature: Signature) -> tuple[dict[str, int], int]:
    """Offset of each prepared array in the block that C callers hold, and the block's bytes."""
    offsets, end = {}, 0
    for p in signature.prepared:
        offsets[p.name] = end
        end += -(-p.nbytes // _ARENA_ALIGNMENT) * _ARENA_ALIGNMENT
    return offsets, end
