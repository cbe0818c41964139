"""Elementary functions as steps over vectors: those of `codegen.tir.elementary`, read once.

    exp(x)  ↦  0: x   1: constant -104.0   2: x < 1   3: constant 0.0   4: select(2, 3, 0)   …

So both codes compute the same, and there is one definition of each function.
"""

from __future__ import annotations

import functools
from typing import Any

from tvm import tirx

from loopwright.codegen.builtin.code import Uncovered
from loopwright.codegen.tir.bindings import dtype_of
from loopwright.codegen.tir.elementary import ELEMENTARY

Step = tuple[Any, ...]
"""A name, which begins with the type for arithmetic, and numbers of steps before it; or "argument"
or "constant" with a number."""

_OPERATORS = frozenset(
    ("Add", "Sub", "Mul", "Div", "Min", "Max", "LT", "LE", "GT", "GE", "EQ", "NE", "And", "Or")
    + ("LShift", "RShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
)
_LIMITS = {"float32.GT": "float32.Min", "float32.LT": "float32.Max"}
_CALLS = {
    "bitwise_and": "BitwiseAnd",
    "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor",
    "shift_left": "LShift",
    "shift_right": "RShift",
}


@functools.cache
def steps_of(name: str, operands: int, limits: bool) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Steps of a function of float32, of which the last one is its value, and how often each is
    used. With `limits`, a choice of the lesser or greater is one step. Raises `Uncovered`."""
    if name not in ELEMENTARY:
        raise Uncovered(f"the function {name}")
    reader = _Reader(name)
    given = [tirx.Var(f"x{n}", "float32") for n in range(operands)]
    for n, var in enumerate(given):
        reader.known[var.name] = reader.step(("argument", n))
    last = reader.read(ELEMENTARY[name](*given, reader.bind))
    steps = reader.steps[: last + 1]  # none before the last one needs any behind it
    if limits:
        steps = [_as_limit(step, steps) for step in steps]
    uses = [0] * len(steps)
    for kind, *rest in steps:
        for at in rest if kind not in ("argument", "constant") else ():
            uses[at] += 1
    return tuple(steps), tuple(uses)


def _as_limit(step: Step, steps: list[Step]) -> Step:
    """`select(x > c, c, x)` as the least of c and x, x where that is NaN; `<` as the greatest."""
    if step[0] == "Select":
        kind, *compared = steps[step[1]]
        if kind in _LIMITS and compared == [step[3], step[2]]:
            return (_LIMITS[kind], *step[2:])
    return step


class _Reader:
    def __init__(self, name: str) -> None:
        self.name = name
        self.steps: list[Step] = []
        self.known: dict[str, int] = {}
        self._same: dict[Step, int] = {}

    def step(self, step: Step) -> int:
        """The number of a step, which is there once."""
        if step not in self._same:
            self._same[step] = len(self.steps)
            self.steps.append(step)
        return self._same[step]

    def bind(self, value: Any) -> Any:
        """A variable for a value."""
        var = tirx.Var(f"t{len(self.known)}", dtype_of(value))
        self.known[var.name] = self.read(value)
        return var

    def read(self, x: Any) -> int:
        """The step whose value an expression is."""
        kind = type(x).__name__
        if kind == "Var":
            return self.known[x.name]
        if kind in ("FloatImm", "IntImm"):
            return self.step(("constant", dtype_of(x), x.value))
        if kind in _OPERATORS:
            return self.step((f"{dtype_of(x.a)}.{kind}", self.read(x.a), self.read(x.b)))
        if kind == "Not":
            return self.step(("Not", self.read(x.a)))
        if kind == "Select":
            chosen = (x.condition, x.true_value, x.false_value)
            return self.step(("Select", *map(self.read, chosen)))
        if kind == "Cast":
            return self.step((f"{dtype_of(x.value)}.{dtype_of(x)}", self.read(x.value)))
        if kind == "Call":
            called = str(x.op.name).removeprefix("tirx.")
            if called == "reinterpret":
                return self.read(x.args[-1])
            parts = tuple(map(self.read, x.args))
            return self.step((f"{dtype_of(x.args[0])}.{_CALLS.get(called, called)}", *parts))
        raise Uncovered(f"the function {self.name}")
