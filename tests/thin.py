"""Cases for the fast suite, and the rest for the slow one."""

import contextlib
import sys

import pytest

_SLOW = False


def set_slow(slow):
    """Say whether slow tests run, before test modules are imported."""
    global _SLOW
    _SLOW = slow


def several(count):
    """How many random cases a test tries: one in the fast suite."""
    return count if _SLOW else 1


def thinned(cases, keep=2):
    """Every so many of the cases as they are, the others marked slow."""
    return [
        case if number % keep == 0 else pytest.param(*_parts(case), marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]


def _parts(case):
    return case if isinstance(case, tuple) else (case,)


@contextlib.contextmanager
def unoptimized():
    """Let LLVM compile without optimizing, where what compiles is loaded: half the time."""
    module = sys.modules.get("loopwright.codegen.target")
    if module is None:  # a test that imports it meanwhile compiles in full
        yield
        return
    made = module._tvm_target

    def quick(triple, mcpu, features, optimized=True):
        return made(triple, mcpu, features, optimized=False)

    module._tvm_target = quick
    try:
        yield
    finally:
        module._tvm_target = made
