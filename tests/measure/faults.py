"""Candidates that misbehave, written in C, for the workload y = x + x of 64 elements."""

from __future__ import annotations

import functools

import numpy as np

import loopwright as lw
from loopwright.codegen.library.linker import find_compiler, link
from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.dsl.oracle import evaluate, random_inputs
from loopwright.measure.builder import Built
from loopwright.temporary import TemporaryFolder

N = 64
SIGNATURE = Signature(
    "kernel", (Parameter("x", (N,), "float32"),), (Parameter("y", (N,), "float32"),)
)

_PROGRAM = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {{ int32_t type, padding; float **tensor; }} any;

static void good(float *x, float *y) {{ for (int i = 0; i < {n}; i++) y[i] = x[i] + x[i]; }}

int __tvm_ffi_main(void *self, const any *arguments, int32_t count, any *result) {{
  float *x = *arguments[0].tensor, *y = *arguments[1].tensor;
  {body}
  return 0;
}}
"""

BODIES = {
    "good": "good(x, y);",
    "segfault": "*(volatile int *)8 = 1;",
    "abort": "abort();",
    "exit": "exit(0);",
    "hang": "for (volatile int i = 0;; i++) { }",
    "greedy": "for (char *p; (p = malloc(1 << 24)); ) *p = 1; return -1;",
    "wrong": "good(x, y); y[5] += 1;",
    "idle": "",
    "parent": "if (!fork()) { for (int f = 0; f < 100; f++) close(f); sleep(600); _exit(0); }"
    " *(volatile int *)8 = 1;",
    "chatty": r'good(x, y); printf("%cLWmsg1\n\x7f\x7f\x7f\x7f garbage", 0); fflush(stdout);'
    ' write(1, "{}", 2); write(2, "noise", 5);',
    "slow": "usleep(1200000); good(x, y);",
    "needy": "extern float missing(float); *y = missing(*x);",
    "vandal": "good(x, y); x[0] = y[0] = 1e9f; y[0] = x[0];",
}


def workload() -> lw.Workload:
    (i,) = lw.indices("i")
    x, y = lw.tensor("x", (N,)), lw.tensor("y")
    y[i] = x[i] + x[i]
    return lw.workload(y)


@functools.cache
def shared_object(name: str) -> bytes:
    """The candidate as a builder would give it."""
    with TemporaryFolder() as folder:
        source, code, library = (folder / f"kernel.{end}" for end in ("c", "o", "so"))
        source.write_text(_PROGRAM.format(n=N, body=BODIES[name]))
        find_compiler().run("-O1", "-fPIC", "-w", "-c", source, "-o", code)
        link([code.read_bytes()], library)
        return library.read_bytes()


def built(name: str) -> Built:
    return Built(shared_object(name), SIGNATURE.to_json(), None, 0.0)


def not_ours() -> Built:
    """A file that is no shared object at all."""
    return Built(b"not ELF", SIGNATURE.to_json(), None, 0.0)


def expected(seed: int) -> tuple[bytes, ...]:
    inputs = random_inputs(workload(), np.random.default_rng(seed))
    return tuple(a.tobytes() for a in evaluate(workload(), inputs))
