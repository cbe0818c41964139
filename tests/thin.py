"""What the fast suite leaves out, and what its tests compute once for all."""

import contextlib
import functools
import sys

import pytest

from tests import exports
from tests.exports import replace

_SLOW = False
_KEPT = 64  # feature programs, of a few megabytes each


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
    """Let LLVM and the C compiler optimize nothing, where what compiles is loaded: half the time.
    What a test imports meanwhile compiles in full."""
    with pytest.MonkeyPatch.context() as patch:
        if (module := sys.modules.get("loopwright.codegen.tvm_target")) is not None:
            made = module._tvm_target

            def quick(triple, mcpu, features, optimized=True):
                return made(triple, mcpu, features, optimized=False)

            patch.setattr(module, "_tvm_target", quick)
        for name in ("loopwright.codegen.library.plan", "loopwright.codegen.c.source"):
            if name in sys.modules:
                patch.setattr(sys.modules[name], "find_compiler", _quick_compiler)
        yield


def _quick_compiler(triple=None):
    """The C compiler, which does not optimize plans of networks and kernels in C."""
    linker = sys.modules["loopwright.codegen.library.linker"]

    class Quick(linker.Compiler):
        def run(self, *words):
            return super().run(*("-O0" if word in ("-O2", "-O3") else word for word in words))

    found = linker.find_compiler(triple)
    return Quick(found.command, found.identity)


def share():
    """Keep what does not depend on the test, as far as modules are loaded that compute it.

    These are feature programs, of which tests that search for one workload record the same, and
    what exports of torch make anew. Steps of open sizes are compiled in this process: two others
    take three seconds to start, as long as all steps do.
    """
    features = sys.modules.get("loopwright.costmodel.features.representation")
    if features is not None:
        replace(features._Programs, "__missing__", _kept)
    pool = sys.modules.get("loopwright.graph.open.step_pool")
    if pool is not None:
        pool.WORTH = sys.maxsize
    exports.keep()


def _kept(record):
    """`_Programs.__missing__` with the programs of the last sketches kept, by space."""
    known = {}
    trace = sys.modules["loopwright.costmodel.features.trace"]  # one test sets its limit

    @functools.wraps(record)
    def kept(programs, sketch):
        key = programs.columns.__func__, id(programs.space), sketch, trace.LIMIT
        if key not in known:
            if len(known) == _KEPT:
                del known[next(iter(known))]
            # The space stays too, so that no other one gets its id.
            known[key] = programs.space, record(programs, sketch)
        programs[sketch] = known[key][1]
        return programs[sketch]

    return kept
