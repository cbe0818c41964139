"""From compiled kernels to one library: a static plan of calls over one arena.

A network's kernels are the steps of one, and so is an operator whose weights are bound.

The plan is C: a table of steps, each a function with the places of its arguments (in the arena, in
the weights, or among the caller's arrays), and the `main` that walks it. Steps may stand in loops,
where a place moves by so many bytes an iteration. It is linked with the steps' object files and
the weights, so there is no interpreter, no allocation but the arena, and no copy between steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.codegen.library.binary import DTYPE_CODES, bits
from loopwright.codegen.library.linker import RUNTIME, architecture, find_compiler
from loopwright.codegen.library.signature import Parameter
from loopwright.dsl.dtypes import is_unsigned
from loopwright.temporary import TemporaryFolder

Number = Any
"""An integer; in a plan of open sizes a formula of them, too."""

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector. Arrays of a plan begin at a multiple."""

ARENA, WEIGHTS, ARGUMENTS = 0, 1, 2
"""Spaces: the arena, the weights, and from 2 on the caller's arrays, outputs after inputs."""

_FAR = '.lrodata,"al"'
"""The section of x86-64 for data which code does not reach: it lies behind what code does, so that
2 GiB of weights do not stand between code and its variables. Not every assembler knows it."""
_LARGE = 1 << 30
"""Bytes of weights that stand there."""

HELD = "lw_held"
"""The symbol of weights that a file holds for another device, and that no step reads."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """A compiled function with the C symbol `__tvm_ffi_` and its name. Its `code` is empty where
    others bring it; `aligned` arrays are to 64 bytes, as TVM's own code needs them."""

    name: str
    code: bytes
    parameters: tuple[Parameter, ...]
    aligned: bool = False

    @property
    def symbol(self) -> str:
        """The function in C."""
        return f"__tvm_ffi_{self.name}"


@dataclass(frozen=True)
class Place:
    """Place of an array: a space, and bytes from its start; in a loop `stride` bytes further for
    each iteration. Where it is one of `several` places, it goes back to the first one after these.
    In a plan of open sizes, bytes are from the start of a `slot` of the arena.
    """

    space: int
    offset: Number = 0
    stride: Number = 0
    several: int = 0
    slot: int = 0


@dataclass(frozen=True, eq=False)
class PlannedCall:
    """A kernel with the places of its arguments; in a plan of open sizes an `OpenKernel`."""

    kernel: Any
    places: tuple[Place, ...]


@dataclass(frozen=True, eq=False)
class PlannedCopy:
    """A copy of so many bytes."""

    source: Place
    target: Place
    nbytes: Number


@dataclass(frozen=True, eq=False)
class PlannedLoop:
    """Calls and copies that are repeated so many times."""

    count: Number
    body: tuple[PlannedCall | PlannedCopy, ...]


Planned = PlannedCall | PlannedCopy | PlannedLoop


def aligned(nbytes: Number) -> Number:
    """Bytes, rounded up to whole cache lines."""
    return (nbytes + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT


def entries(calls: Sequence[Planned]) -> list[PlannedCall | PlannedCopy]:
    """The calls and copies of a plan, those of a loop once."""
    return [
        entry
        for call in calls
        for entry in (call.body if isinstance(call, PlannedLoop) else (call,))
    ]


@dataclass(frozen=True)
class Limit:
    """The extent of the axis that the integers of an argument index; both numbers are in C."""

    argument: int
    elements: str
    dtype: str
    extent: str

    def check(self) -> str:
        """A statement of C for `main`, which ends a call with an integer outside of the axis."""
        values = f"*(void **)arguments[{self.argument}].value.pointer"
        kind = bits(self.dtype) * (-1 if is_unsigned(self.dtype) else 1)
        return (
            f"  if (!lw_within({values}, {self.elements}, {kind}, {self.extent}))\n"
            "    return LW_OUTSIDE;\n"
        )


class Weights:
    """The constants of a network, one after the other, each stored once."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray[Any, Any]] = []
        self._at: dict[Any, int] = {}
        self.nbytes = 0

    def add(self, key: Any, data: np.ndarray[Any, Any]) -> Place:
        """The place of an array; `key` says which arrays are the same."""
        if key not in self._at:
            self._at[key] = self.nbytes
            self._parts.append(data)
            self.nbytes += aligned(data.nbytes)
        return Place(WEIGHTS, self._at[key])

    def known(self, key: Any) -> bool:
        """Return whether there is an array of that key."""
        return key in self._at

    def write(self, path: Path) -> None:
        """All of it as one file."""
        with path.open("wb") as file:
            for part in self._parts:
                data = np.ascontiguousarray(part)
                file.write(data.tobytes())
                file.write(bytes(-data.nbytes % ALIGNMENT))
            file.write(bytes(ALIGNMENT))  # never empty


def object_files(
    calls: Sequence[Planned],
    weights: Weights,
    arena_bytes: int,
    arguments: int,
    triple: str | None,
    around: bool = False,
    limits: Sequence[Limit] = (),
) -> tuple[bytes, ...]:
    """The object files of a plan for machines of a `triple`: its kernels, its table with `main`,
    and the weights. With `around`, `main` stands around a library's own. A call whose arguments
    are not within the `limits` computes nothing. Raises `BuildError`."""
    symbol = "lw_bound" if around else "lw_weights"
    kernels = {c.kernel.name: c.kernel for c in entries(calls) if isinstance(c, PlannedCall)}
    plan = c_source(calls, tuple(kernels.values()), arena_bytes, arguments, symbol, around, limits)
    own = plan_objects(plan, weights, symbol, triple)
    return (*(k.code for k in kernels.values() if k.code), *own)


def plan_objects(
    source: str, weights: Weights, symbol: str, triple: str | None
) -> tuple[bytes, bytes]:
    """The object files of a plan's source and of its weights, which the source knows as `symbol`.
    Raises `BuildError` where the C compiler fails."""
    compiler = find_compiler(triple)
    with TemporaryFolder() as folder:
        written, plan = folder / "plan.c", folder / "plan.o"
        written.write_text(source, encoding="utf-8")
        flags = ("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden")
        compiler.run(*flags, "-I", RUNTIME, "-c", written, "-o", plan)
        return plan.read_bytes(), weights_object(weights, symbol, triple)


def weights_object(weights: Weights, symbol: str, triple: str | None) -> bytes:
    """The object file of weights; `symbol` is a pointer to them. Raises `BuildError`."""
    compiler = find_compiler(triple)
    with TemporaryFolder() as folder:
        data, assembly, packed = folder / "weights", folder / "weights.s", folder / "weights.o"
        weights.write(data)
        far = architecture(triple) == "x86_64" and weights.nbytes > _LARGE
        section = _FAR if far else '.rodata,"a"'
        assembly.write_text(
            f".section {section},%progbits\n.balign {ALIGNMENT}\n"
            f'0:\n.incbin "{data}"\n'
            f'.section .data.rel.ro,"aw",%progbits\n.balign 8\n.globl {symbol}\n'
            f".hidden {symbol}\n{symbol}:\n.quad 0b\n"
            '.section .note.GNU-stack,"",%progbits\n',
            encoding="utf-8",
        )
        compiler.run("-c", assembly, "-o", packed)
        return packed.read_bytes()


def c_source(
    calls: Sequence[Planned],
    kernels: Sequence[Kernel],
    arena_bytes: int,
    arguments: int,
    symbol: str,
    around: bool,
    limits: Sequence[Limit] = (),
) -> str:
    """The C source of a plan, whose `main` takes an `lw_part` of runtime.h, or null, as `self`."""
    real, main = ("__real_", "__wrap_") if around else ("", "")
    first = {}
    parameters: list[Parameter] = []
    for kernel in kernels:
        first[kernel.name] = len(parameters)
        parameters += kernel.parameters
    places: list[Place] = []
    steps = []
    for call in entries(calls):
        at = len(places)
        if isinstance(call, PlannedCopy):
            places += [call.source, call.target]
            steps.append(f"{{{{0}}, {at}, {call.nbytes}}}")
            continue
        places += call.places
        k = call.kernel
        function = f"{{{real}{k.symbol}, parameters + {first[k.name]}, {len(k.parameters)}}}"
        steps.append(f"{{{function}, {at}, 0}}")
    return _TEMPLATE.format(
        kernels="\n".join(f"LW_HIDDEN extern lw_kernel {real}{k.symbol};" for k in kernels),
        parameters=_rows(
            f"{{{p.elements}, {DTYPE_CODES[p.dtype]}, {bits(p.dtype)}, 1, 0}}" for p in parameters
        ),
        places=_rows(f"{{{p.space}, {p.offset}, {p.stride}, {p.several}}}" for p in places),
        steps=_rows(steps),
        loops=_rows(f"{{{stop}, {count}}}" for stop, count in loops(calls)),
        arena=max(arena_bytes, 1),
        limits="".join(limit.check() for limit in limits),
        spaces=ARGUMENTS + arguments,
        arguments=arguments,
        symbol=symbol,
        held=HELD,
        main=f"{main}__tvm_ffi_main",
    )


def loops(calls: Sequence[Planned]) -> list[tuple[int, Number]]:
    """The end of each loop and its count. Entries in no loop are in one of a single iteration."""
    found: list[tuple[int, Number]] = []
    stop = 0
    for looped, some in itertools.groupby(calls, lambda call: isinstance(call, PlannedLoop)):
        for part in ([each] for each in some) if looped else (list(some),):
            stop += len(entries(part))
            first = part[0]
            found.append((stop, first.count if isinstance(first, PlannedLoop) else 1))
    return found


def _rows(rows: Any) -> str:
    return ",\n".join(f"    {row}" for row in rows) or "    {0}"


_TEMPLATE = """/* A plan: its steps, and where their arguments lie. Made by Loopwright. */
#define _POSIX_C_SOURCE 199309L
#include <string.h>
#include <time.h>

#include "runtime.h"

typedef struct {{ int64_t space, offset, stride, several; }} place;
typedef struct {{
  lw_function function; /* without a kernel it is a copy */
  int64_t places, bytes;
}} step;
typedef struct {{ int64_t stop, count; }} loop; /* of what is before `stop` and in no other */

{kernels}
extern const char *const {symbol} __attribute__((visibility("hidden")));
extern const char *const {held} __attribute__((weak, visibility("hidden")));
static const char *const *const volatile held = &{held};

static const lw_parameter parameters[] = {{
{parameters}
}};
static const place places[] = {{
{places}
}};
static const step steps[] = {{
{steps}
}};
static const loop loops[] = {{
{loops}
}};

static int64_t now(void) {{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}}

static inline char *at(const place *p, char *const *bases, int64_t iteration) {{
  return bases[p->space] + p->offset +
         p->stride * (p->several ? iteration % p->several : iteration);
}}

static int run(const step *s, char *const *bases, int64_t iteration) {{
  const place *p = places + s->places;
  if (!s->function.kernel) {{
    memcpy(at(p + 1, bases, iteration), at(p, bases, iteration), (size_t)s->bytes);
    return LW_OK;
  }}
  void *pointers[LW_MAX_ARGUMENTS];
  for (int i = 0; i < s->function.count; i++) pointers[i] = at(p + i, bases, iteration);
  return lw_call(&s->function, pointers);
}}

LW_HIDDEN int {main}(void *self, const lw_any *arguments, int32_t count,
    lw_any *result) {{
  lw_part *part = self;
  int64_t *times = part ? part->times : NULL;
  char *bases[{spaces}];
  int status = LW_OK;
  (void)result;
  if (part) part->held = held ? *held : NULL;
  if (part && part->first >= part->stop) return LW_OK;
  if (count != {arguments}) return LW_BAD_ARGUMENT;
{limits}  if (part) lw_begin(); /* nobody else has */
  char *given = part ? part->arena : NULL;
  char *arena = given ? given : lw_allocate({arena});
  if (!arena) return LW_OUT_OF_MEMORY;
  bases[0] = arena;
  bases[1] = (char *)(uintptr_t){symbol}; /* only read */
  /* The first member of a DLTensor is its data. */
  for (int i = 0; i < count; i++) bases[2 + i] = *(char **)arguments[i].value.pointer;
  int64_t first = 0;
  for (const loop *l = loops; l < loops + sizeof loops / sizeof *loops; first = l++->stop) {{
    int64_t from = part && part->first > first ? part->first : first;
    int64_t stop = part && part->stop < l->stop ? part->stop : l->stop;
    for (int64_t iteration = 0; iteration < l->count && !status; iteration++)
      for (int64_t i = from; i < stop && !status; i++) {{
        int64_t start = times ? now() : 0;
        status = run(&steps[i], bases, iteration);
        if (times) times[i] += now() - start;
      }}
  }}
  if (!given) lw_release(arena);
  return status;
}}
"""
