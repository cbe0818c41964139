"""Names that C and C++ allow, and those that their headers and libraries have taken."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import re

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
_MACROS = (
    r"NULL|NAN|INFINITY|HUGE(_VAL.*)?|M_(\d_)?(E|PI|LN|LOG|SQRT).*|MATH_ERR.*|math_errhandling"
    r"|FP_(NAN|INFINITE|ZERO|NORMAL|SUBNORMAL|ILOGB.*|FAST.*)|U?INT.*_(C|MAX|MIN)|SIZE_MAX|EOF"
    r"|errno|stdin|stdout|stderr|assert|unix|linux|i386|offsetof|FILE|va_.*"
)
_TYPES = r"u?int\w*_t|(size|ssize|ptrdiff|wint|float|double|max_align|off|time|clock|[lim]*div)_t"
_FOR_ALL = re.compile(f"{_MACROS}|{_TYPES}")
_FOR_US = re.compile(rf"{_MACROS}|.*_t|lw_.*|LW_.*|kernel_.*")
"""Names to which headers of C, or our run-time, may have given a meaning."""


def is_identifier(name: str) -> bool:
    """Return whether `name` can name something in C and in C++."""
    return bool(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name)) and name not in _RESERVED


def is_variable(name: str) -> bool:
    """Return whether `name` can name a parameter, whatever headers are included before."""
    return is_identifier(name) and not _FOR_US.fullmatch(name)


def is_function(name: str) -> bool:
    """Return whether `name` can name a function of a library's own."""
    return not why_no_function(name)


def why_no_function(name: str) -> str:
    """Reason why `name` cannot name a function, or nothing. A name that the C library has cannot:
    that code would be called instead, by the library or its users."""
    if not (isinstance(name, str) and is_identifier(name)):
        return f"{name!r} cannot be one"
    if name == "lw" or name.startswith("lw_"):  # and what `public_symbols` adds to lw
        return "lw and those that begin with lw_ are the run-time's own"
    if hasattr(_c_library(), name):
        return f"the C library has {name}"
    return f"headers of C have {name}" if _FOR_ALL.fullmatch(name) else ""


@functools.cache
def _c_library() -> ctypes.CDLL | None:
    """The C library's mathematical part, through which all of it is found."""
    found = ctypes.util.find_library("m")
    return ctypes.CDLL(found) if found else None


def as_identifier(name: str) -> str:
    """A name that a function in C and in C++ may have, as near as can be to `name`."""
    if is_function(name):
        return name
    better = re.sub(r"\W+", "_", str(name), flags=re.ASCII).strip("_")
    return better if is_function(better) else f"my_{better or 'library'}"
