"""Plans of open sizes: the calls of a network over an arena whose places follow the sizes.

The plan is C, as a fixed one is. `main` first computes where every array lies, and then calls the
steps in order. Each step has a program for some sizes and others for the rest; rules say which.
A library may have several plans, each for a box of sizes, as `variants.c` has programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loopwright.codegen.library import plan as fixed
from loopwright.codegen.library.binary import DTYPE_CODES, bits
from loopwright.codegen.library.signature import Parameter
from loopwright.dsl.size import Dim
from loopwright.schedule.open.rule import Rule
from loopwright.schedule.tree.formula import EXTREMES, Formula

Number = Formula | int
SYMBOL = "lw_weights"
"""Name of the weights in a plan."""


@dataclass(frozen=True, eq=False)
class OpenKernel:
    """Compiled functions of the same arguments, for some boxes of sizes, with their object files;
    symbols begin with `__tvm_ffi_`. `parameters` are at the greatest sizes, behind an array of
    sizes if `sized`. By `rules`, a call runs the first one whose box has its sizes."""

    names: tuple[str, ...]
    codes: tuple[bytes, ...]
    parameters: tuple[Parameter, ...]
    rules: tuple[Rule, ...]
    sized: bool


@dataclass(frozen=True, eq=False)
class OpenPlan:
    """The calls for a box of sizes. `slots` of the arena have the bytes of arrays that lie there
    in turn; `limits` are of arguments that index, numbered behind the array of sizes."""

    dims: tuple[Dim, ...]
    calls: tuple[fixed.Planned, ...]
    slots: tuple[tuple[Number, ...], ...]
    limits: tuple[fixed.Limit, ...] = ()


def c_source(plans: Sequence[OpenPlan], arguments: int) -> str:
    """The C source of plans, which take so many arrays after the array of sizes."""
    kernels = {
        name: None
        for plan in plans
        for call in fixed.entries(plan.calls)
        if isinstance(call, fixed.PlannedCall)
        for name in call.kernel.names
    }
    declared = "\n".join(f"LW_HIDDEN extern lw_kernel __tvm_ffi_{name};" for name in kernels)
    parts = [_PlanSource(number, plan, arguments).text() for number, plan in enumerate(plans)]
    count = len(plans[0].dims)
    head = _HEAD.format(kernels=declared, symbol=SYMBOL, ends=2 * count, functions=FUNCTIONS)
    return head + "\n".join(parts)


@dataclass
class _PlanSource:
    number: int
    plan: OpenPlan
    arguments: int
    places: dict[str, int] = field(default_factory=lambda: {"{(char *)(uintptr_t)sizes, 0, 0}": 0})

    def text(self) -> str:
        functions: list[str] = []
        parameters: list[str] = []
        rules: list[str] = []
        used: list[str] = []
        steps: list[str] = []
        copied: list[str] = ["0"]
        first: dict[OpenKernel, tuple[int, int, int]] = {}
        for call in fixed.entries(self.plan.calls):
            at = len(used)
            if isinstance(call, fixed.PlannedCopy):
                used += [self.place(call.source), self.place(call.target)]
                steps.append(f"{{0, 0, 0, 0, 0, {at}, {len(copied)}}}")
                copied.append(expression(call.nbytes))
                continue
            kernel: OpenKernel = call.kernel
            if kernel not in first:
                first[kernel] = len(functions), len(rules), len(parameters)
                functions += [f"__tvm_ffi_{name}" for name in kernel.names]
                rules += map(self.rule, kernel.rules)
                if kernel.sized:
                    parameters.append(_parameter(1 + len(self.plan.dims), "int64"))
                parameters += [_parameter(p.elements, p.dtype) for p in kernel.parameters]
            used += [*(["0"] if kernel.sized else []), *map(self.place, call.places)]
            entry = (*first[kernel], len(kernel.rules), len(used) - at, at, 0)
            steps.append("{" + ", ".join(map(str, entry)) + "}")
        return _PLAN.format(
            number=self.number,
            functions=_rows(functions, "0"),
            parameters=_rows(parameters, "{0}"),
            rules=_rows(rules, "{{0}, 0}"),
            used=_rows(used, "0"),
            steps=_rows(steps, "{0}"),
            loops=_rows(
                [f"{{{stop}, {expression(n)}}}" for stop, n in fixed.loops(self.plan.calls)], "{0}"
            ),
            arguments=1 + self.arguments,
            sizes="".join(
                f"  const int64_t {_name(d)} = sizes[{k}];\n  (void){_name(d)};\n"
                for k, d in enumerate(self.plan.dims, 1)
            ),
            limits="".join(limit.check() for limit in self.plan.limits),
            slots="".join(map(self.slot, range(len(self.plan.slots)))),
            places=_rows(list(self.places), ""),
            copied=_rows(copied, ""),
        )

    def rule(self, rule: Rule) -> str:
        ends = ", ".join(str(end) for pair in rule.bounds for end in pair)
        return f"{{{{{ends}}}, {rule.program}}}"

    def slot(self, number: int) -> str:
        most = ""
        for nbytes in dict.fromkeys(map(expression, self.plan.slots[number])):
            most = f"lw_most({most}, {nbytes})" if most else nbytes
        return f"  const int64_t slot{number} = at;\n  at += lw_lines({most});\n"

    def place(self, place: fixed.Place) -> str:
        """The number of a place, as C."""
        base = {
            fixed.ARENA: f"arena + slot{place.slot}",
            fixed.WEIGHTS: f"(char *)(uintptr_t){SYMBOL}",
        }.get(
            place.space, f"*(char **)arguments[{place.space - fixed.ARGUMENTS + 1}].value.pointer"
        )
        moves = f"{expression(place.stride)}, {place.several}"
        text = f"{{{base} + {expression(place.offset)}, {moves}}}"
        return str(self.places.setdefault(text, len(self.places)))


def expression(x: Number, names: Mapping[str, str] | None = None) -> str:
    """A number as C, over the values of the dims, which may have other `names`."""
    if isinstance(x, int):
        return f"INT64_C({x})"
    if x.op == "dim":
        return f"size_{x.args[0]}" if names is None else names[x.args[0]]
    a, b = (expression(part, names) for part in x.args)
    if x.op in ("floordiv", *EXTREMES):
        return f"lw_{x.op}({a}, {b})"
    return f"({a} {'+' if x.op == 'add' else '*'} {b})"


def _name(known: Dim) -> str:
    return f"size_{known.name}"


def _parameter(elements: int, dtype: str) -> str:
    return f"{{{elements}, {DTYPE_CODES[dtype]}, {bits(dtype)}, 1, 0}}"


def _rows(rows: Sequence[str], empty: str) -> str:
    return ",\n".join(f"    {row}" for row in rows) or f"    {empty}"


FUNCTIONS = """static inline int64_t lw_floordiv(int64_t a, int64_t b) {
  return a >= 0 ? a / b : -((b - 1 - a) / b);
}
static inline int64_t lw_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t lw_max(int64_t a, int64_t b) { return a > b ? a : b; }
"""
"""C source of what an `expression` calls."""

_HEAD = f"""/* Plans of open sizes: steps, and where their arguments lie. Made by Loopwright. */
#define _POSIX_C_SOURCE 199309L
#include <string.h>
#include <time.h>

#include "runtime.h"

typedef struct {{{{
  int64_t ends[{{ends}}], function;
}}}} rule;
typedef struct {{{{
  int32_t function, rule, parameter, rules, count, used, copied; /* copied: 0 for a call */
}}}} step;
typedef struct {{{{
  char *start;
  int64_t stride, several; /* as in a plan of fixed sizes */
}}}} place;
typedef struct {{{{
  int64_t stop, count;
}}}} loop;

{{kernels}}
extern const char *const {{symbol}} __attribute__((visibility("hidden")));

{{functions}}static inline int64_t lw_most(int64_t a, int64_t b) {{{{ return a > b ? a : b; }}}}
static inline int64_t lw_lines(int64_t bytes) {{{{
  return (bytes + {fixed.ALIGNMENT - 1}) / {fixed.ALIGNMENT} * {fixed.ALIGNMENT};
}}}}

static int64_t now(void) {{{{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}}}}

static inline char *at(const place *p, int64_t iteration) {{{{
  return p->start + p->stride * (p->several ? iteration % p->several : iteration);
}}}}

/* The first of some rules whose box has the sizes. */
static int64_t chosen(const rule *r, int32_t count, const int64_t *sizes) {{{{
  for (int32_t k = 0; k < count; k++) {{{{
    int inside = 1;
    for (int d = 0; d < {{ends}} / 2; d++)
      inside &= r[k].ends[2 * d] <= sizes[d] && sizes[d] <= r[k].ends[2 * d + 1];
    if (inside) return r[k].function;
  }}}}
  return -1;
}}}}
"""

_PLAN = """
static lw_kernel *const functions{number}[] = {{
{functions}
}};
static const lw_parameter parameters{number}[] = {{
{parameters}
}};
static const rule rules{number}[] = {{
{rules}
}};
static const int32_t used{number}[] = {{
{used}
}};
static const step steps{number}[] = {{
{steps}
}};

static int run{number}(const step *s, const place *places, const int64_t *sizes,
    const int64_t *copied, int64_t iteration) {{
  const int32_t *own = used{number} + s->used;
  if (s->copied) {{
    memcpy(at(places + own[1], iteration), at(places + own[0], iteration),
           (size_t)copied[s->copied]);
    return LW_OK;
  }}
  int64_t number = s->rules ? chosen(rules{number} + s->rule, s->rules, sizes + 1) : 0;
  if (number < 0) return LW_BAD_ARGUMENT;
  void *pointers[LW_MAX_ARGUMENTS];
  for (int i = 0; i < s->count; i++) pointers[i] = at(places + own[i], iteration);
  const lw_function function = {{functions{number}[s->function + number],
                                parameters{number} + s->parameter, s->count}};
  return lw_call(&function, pointers);
}}

/* `self` is an lw_part, or null for all. */
LW_HIDDEN int __tvm_ffi_main{number}(void *self, const lw_any *arguments, int32_t count,
    lw_any *result) {{
  lw_part *part = self;
  int64_t *times = part ? part->times : NULL, at = 0;
  int status = LW_OK;
  (void)result;
  if (count != {arguments}) return LW_BAD_ARGUMENT;
  if (part) lw_begin(); /* nobody else has */
  const int64_t *sizes = *(const int64_t *const *)arguments[0].value.pointer;
{sizes}{limits}{slots}  char *given = part ? part->arena : NULL;
  char *arena = given ? given : lw_allocate((uint64_t)(at ? at : 1));
  if (!arena) return LW_OUT_OF_MEMORY;
  const place places[] = {{
{places}
  }};
  const int64_t copied[] = {{
{copied}
  }};
  const loop loops[] = {{
{loops}
  }};
  int64_t first = 0;
  for (const loop *l = loops; l < loops + sizeof loops / sizeof *loops; first = l++->stop) {{
    int64_t from = part && part->first > first ? part->first : first;
    int64_t stop = part && part->stop < l->stop ? part->stop : l->stop;
    for (int64_t iteration = 0; iteration < l->count && !status; iteration++)
      for (int64_t i = from; i < stop && !status; i++) {{
        int64_t start = times ? now() : 0;
        status = run{number}(&steps{number}[i], places, sizes, copied, iteration);
        if (times) times[i] += now() - start;
      }}
  }}
  if (!given) lw_release(arena);
  return status;
}}
"""
