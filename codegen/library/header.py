"""The C side of an exported library: its header, and the wrapper that defines what it declares."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

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

_NOTES = {
    "float16": " (its bits)",
    "bfloat16": " (its bits)",
    "bool": " (0 or 1)",
}

_KEYWORDS = """
    alignas alignof and asm auto bitand bitor bool break case catch char class compl concept
    const constexpr continue decltype default delete do double else enum explicit export extern
    false float for friend goto if inline int long main mutable namespace new noexcept not nullptr
    operator or private protected public register requires restrict return short signed sizeof
    static struct switch template this throw true try typedef typeid typename typeof union
    unsigned using virtual void volatile wchar_t while xor and_eq char8_t char16_t char32_t
    co_await co_return co_yield const_cast consteval constinit dynamic_cast not_eq or_eq
    reinterpret_cast static_assert static_cast thread_local xor_eq"""
_RESERVED = frozenset(_KEYWORDS.split())

_ARENA_ALIGNMENT = 64

MADE_BY = "made by Loopwright"
"""First line of a header."""


def is_identifier(name: str) -> bool:
    """Return whether `name` can name something in C and in C++."""
    return bool(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name)) and name not in _RESERVED


def is_function(name: str) -> bool:
    """Return whether `name` can name a function of a library's own. A name that the C library has
    cannot: that code would be called instead, by the library or its users. Nor can one of the
    run-time inside."""
    return is_identifier(name) and not _is_runtimes(name) and not hasattr(_c_library(), name)


def _is_runtimes(name: str) -> bool:
    return name == "lw" or name.startswith("lw_")  # and what `public_symbols` adds to lw


@functools.cache
def _c_library() -> ctypes.CDLL | None:
    """The C library's mathematical part, through which all of it is found."""
    found = ctypes.util.find_library("m")
    return ctypes.CDLL(found) if found else None


def as_identifier(name: str) -> str:
    """A name that a function in C and in C++ may have, as near as can be to `name`."""
    if is_function(name):
        return name
    better = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    return better if is_function(better) else f"my_{better or 'library'}"


def check_name(name: str) -> None:
    """Raises `LibraryError` unless `name` can name a function in C and in C++."""
    if is_function(name):
        return
    if not is_identifier(name):
        why = f"{name!r} cannot be one"
    elif _is_runtimes(name):
        why = "lw and those that begin with lw_ are the run-time's own"
    else:
        why = f"the C library has {name}"
    raise LibraryError(
        f"the file's name becomes the name of a C function, and {why}; "
        f"try {as_identifier(name)}.so"
    )


@dataclass(frozen=True)
class Names:
    """Names of the parameters in C; two Python names may need the same one."""

    of: dict[str, str]

    @staticmethod
    def choose(signature: Signature) -> Names:
        """Names that are legal, distinct, and as near as can be to those in Python."""
        taken = ("prepared", "status", "threads", "pointers", "stream", "block")
        chosen = dict.fromkeys(taken, "")
        for p in (*signature.inputs, *signature.outputs):
            name = re.sub(r"\W", "_", p.name, flags=re.ASCII)
            name = name if is_identifier(name) else f"x_{name}"
            while name in chosen.values() or name in chosen:
                name += "_"
            chosen[p.name] = name
        return Names(chosen)


def public_symbols(name: str, signature: Signature) -> tuple[str, ...]:
    """The functions that the header declares."""
    more = ("_prepared_bytes", "_prepare", "_run") if signature.prepared else ()
    return (name, *(name + end for end in (*more, "_set_threads", "_threads", "_error")))


def header(name: str, signature: Signature) -> str:
    """The text of NAME.h. Raises `LibraryError` where `name` is no C identifier."""
    check_name(name)
    names = Names.choose(signature)
    shapes = "\n".join(
        describe_parameter(p, names) for p in (*signature.inputs, *signature.outputs)
    )
    guard = f"LOOPWRIGHT_LIBRARY_{name}_H_"
    return f"""/* {name}: {MADE_BY}. Link with {name}.so, which needs the C library alone.
 *
 * Arrays are dense, in C order:
{shapes}
 *
 * Every function may be called from any thread. An output must not overlap an input or another
 * output. Pointers must be aligned to their element type; nothing more is needed.
 */
#ifndef {guard}
#define {guard}

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* Computes the outputs from the inputs. Returns 0, or a status for {name}_error. */
{prototype(name, (*signature.inputs, *signature.outputs), signature, names)};
{_preparation(name, signature, names)}
/* How many threads a call uses, the caller's included: at first {signature.threads}, or the number
 * of processors if that is less. `threads` is from 1 to {MAX_THREADS}. Returns 0 or a status. */
int {name}_set_threads(int threads);
int {name}_threads(void);

/* What a status means, in English. The text lives as long as the library. */
const char *{name}_error(int status);

#ifdef __cplusplus
}}
#endif

#endif
"""


def wrapper(name: str, signature: Signature) -> str:
    """C source that defines what `header` declares; it includes runtime.h."""
    check_name(name)
    names = Names.choose(signature)
    parts = [
        '#include "runtime.h"\n',
        f"const int lw_default_threads = {signature.threads};\n",
        _table("main", signature.main_parameters),
    ]
    if signature.prepared:
        parts += [
            _table("prepare", signature.prepare_parameters),
            _prepared_functions(name, signature, names),
        ]
    else:
        parts.append(
            _function(
                prototype(name, signature.main_parameters, signature, names),
                _checked_call("main", [names.of[p.name] for p in signature.main_parameters]),
            )
        )
    parts += [
        _function(f"int {name}_set_threads(int threads)", "  return lw_set_threads(threads);"),
        _function(f"int {name}_threads(void)", "  return lw_threads();"),
        _function(f"const char *{name}_error(int status)", "  return lw_error(status);"),
    ]
    return "\n".join(parts)


def describe_parameter(p: Parameter, names: Names) -> str:
    """A line of a header's comment: an array's name, type and shape."""
    shape = "".join(f"[{n}]" for n in p.shape) or ", one number"
    return f" *   {names.of[p.name]}: {p.dtype}{_NOTES.get(p.dtype, '')}{shape}"


def prototype(
    function: str, parameters: Sequence[Parameter], signature: Signature, names: Names
) -> str:
    """`int function(…)`, where the prepared parameters are one pointer."""
    arguments = []
    for p in parameters:
        if p in signature.prepared:
            if "const void *prepared" not in arguments:
                arguments.append("const void *prepared")
        else:
            const = "" if p in signature.outputs else "const "
            arguments.append(f"{const}{C_TYPES[p.dtype]} *{names.of[p.name]}")
    return f"int {function}({', '.join(arguments)})"


def _prepare_prototype(name: str, signature: Signature, names: Names) -> str:
    constants = prototype(f"{name}_prepare", signature.constant_inputs, signature, names)
    return f"{constants[:-1]}, void *prepared)"


def _preparation(name: str, signature: Signature, names: Names) -> str:
    if not signature.prepared:
        return ""
    weights = ", ".join(names.of[p.name] for p in signature.constant_inputs)
    return f"""
/* The same in two steps, for {weights} that stay the same over many calls: lay them out for the
 * kernel once, into {name}_prepared_bytes() bytes of your own at `prepared` (best aligned to
 * {_ARENA_ALIGNMENT}), and then run on that. */
size_t {name}_prepared_bytes(void);
{_prepare_prototype(name, signature, names)};
{prototype(f"{name}_run", signature.main_parameters, signature, names)};
"""


def _table(function: str, parameters: Sequence[Parameter]) -> str:
    rows = "".join(
        f"    {{{p.elements}, {DTYPE_CODES[p.dtype]}, {bits(p.dtype)}, 1, 0}}, /* {name} */\n"
        for p in parameters
        for name in [re.sub(r"\W", "_", p.name, flags=re.ASCII)]  # which could end the comment
    )
    return (
        f"static const lw_parameter {function}_parameters[] = {{\n{rows}}};\n\n"
        f"static const lw_function {function}_function = "
        f"{{__tvm_ffi_{function}, {function}_parameters, {len(parameters)}}};\n"
    )


def _function(prototype: str, body: str) -> str:
    return f"LW_PUBLIC {prototype} {{\n{body}\n}}\n"


def _checked_call(function: str, pointers: Sequence[str]) -> str:
    listed = ", ".join(f"(void *){pointer}" for pointer in pointers)
    return (
        f"  void *const pointers[] = {{{listed}}};\n"
        f"  return lw_checked_call(&{function}_function, pointers);"
    )


def arena(signature: Signature) -> tuple[dict[str, int], int]:
    """Offset of each prepared array in the block that C callers hold, and the block's bytes."""
    offsets, end = {}, 0
    for p in signature.prepared:
        offsets[p.name] = end
        end += -(-p.nbytes // _ARENA_ALIGNMENT) * _ARENA_ALIGNMENT
    return offsets, end


def _prepared_functions(name: str, signature: Signature, names: Names) -> str:
    offsets, size = arena(signature)
    pointer = {
        p.name: f"((char *)prepared + {offsets[p.name]})"
        if p.name in offsets
        else names.of[p.name]
        for p in (*signature.inputs, *signature.prepared, *signature.outputs)
    }
    null = "  if (!prepared) return LW_NULL_POINTER;\n"
    prepare = [pointer[p.name] for p in signature.prepare_parameters]
    run = [pointer[p.name] for p in signature.main_parameters]
    constants = ", ".join((*(names.of[n] for n in signature.constants), "prepared"))
    run_arguments = ", ".join(
        (
            *(names.of[p.name] for p in signature.plain_inputs),
            "prepared",
            *(names.of[p.name] for p in signature.outputs),
        )
    )
    whole = f"""  void *prepared = lw_allocate({size});
  if (!prepared) return LW_OUT_OF_MEMORY;
  int status = {name}_prepare({constants});
  if (!status) status = {name}_run({run_arguments});
  lw_release(prepared);
  return status;"""
    main = prototype(f"{name}_run", signature.main_parameters, signature, names)
    both = prototype(name, (*signature.inputs, *signature.outputs), signature, names)
    return "\n".join(
        (
            _function(f"size_t {name}_prepared_bytes(void)", f"  return {size};"),
            _function(
                _prepare_prototype(name, signature, names),
                null + _checked_call("prepare", prepare),
            ),
            _function(main, null + _checked_call("main", run)),
            _function(both, whole),
        )
    )
