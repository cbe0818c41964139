"""`Network`: a model as a list of calls on arrays, in an order in which they can run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import GenericConst

from loopwright.dsl.dtypes import DTYPES, item_bytes
from loopwright.dsl.words import counted
from loopwright.graph.errors import ModelError
from loopwright.graph.loops import Loop

MOST_ARGUMENTS = 512
"""LW_MAX_ARGUMENTS of codegen/library/runtime/runtime.h."""


class NotPlannable(ModelError):  # noqa: N818 - it says what is the matter
    """A module that is more than a list of calls on arrays of fixed shapes."""


@dataclass(frozen=True, eq=False)
class Value:
    """An array: an input, a constant with its `data`, or what a step computes.

    `extent` is that of the axis which the integers of an input index, the least of several.
    """

    number: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    data: np.ndarray[Any, Any] | None = None
    extent: int | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(np.prod(self.shape, dtype=np.int64)) * item_bytes(self.dtype)


@dataclass(frozen=True, eq=False)
class Step:
    """One call: a function's name, what it reads and what it writes, in its parameters' order.

    `loop` is the loop that it is repeated in, if any; the steps of one stand together.
    """

    function: str
    args: tuple[Value, ...]
    outs: tuple[Value, ...]
    loop: Loop[Value] | None = None

    @property
    def times(self) -> int:
        """Number of times that a call of the network takes it."""
        return 1 if self.loop is None else self.loop.count


@dataclass(frozen=True, eq=False)
class Network:
    """A model: its functions by name, and the calls. `several`: the result is a tuple."""

    functions: dict[str, Any]
    inputs: tuple[Value, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Value, ...]
    several: bool

    @property
    def loops(self) -> tuple[Loop[Value], ...]:
        """The loops that some steps are repeated in, in order."""
        return tuple(dict.fromkeys(s.loop for s in self.steps if s.loop is not None))

    def made_in(self, loop: Loop[Value]) -> set[Value]:
        """The results of a loop's steps."""
        return {v for step in self.steps if step.loop is loop for v in step.outs}

    def __repr__(self) -> str:
        return f"<Network: {counted(len(self.steps), 'step')}>"


def network(module: Any) -> Network:
    """The calls of a module's "main"; `NotPlannable` with the reason for anything else."""
    return _Reader(module).run()


@dataclass
class _Reader:
    module: Any
    values: dict[Any, Any] = field(default_factory=dict)
    constants: dict[Any, Value] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    count: int = 0

    def run(self) -> Network:
        main = self.module["main"]
        inputs = []
        for p in main.params:
            self.values[p] = self.new(p.name, p.ty)
            inputs.append(self.values[p])
        body = main.body
        if not isinstance(body, relax.SeqExpr):
            raise NotPlannable("it has no bindings")
        for block in body.blocks:
            for binding in block.bindings:
                self.bind(binding)
        result = self.value(body.body)
        outputs = result if isinstance(result, tuple) else (result,)
        if not all(isinstance(v, Value) for v in outputs):
            raise NotPlannable("its result is a tuple of tuples")
        names = {s.function for s in self.steps}
        functions = {n: self.module[n] for n in sorted(names)}
        steps = tuple(self.steps)
        check_arrays("it", len(inputs) + len(outputs))
        return Network(functions, tuple(inputs), steps, outputs, isinstance(result, tuple))

    def bind(self, binding: Any) -> None:
        if not isinstance(binding, relax.VarBinding):
            raise NotPlannable(f"it has a {type(binding).__name__}")
        value = binding.value
        if isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.call_tir":
            self.values[binding.var] = self.call(binding.var, value)
        else:
            self.values[binding.var] = self.value(value)

    def call(self, var: Any, call: Any) -> Any:
        if len(call.args) > 2:
            raise NotPlannable(f"{call.args[0].name_hint} takes a number beside arrays")
        args = self.value(call.args[1])
        args = args if isinstance(args, tuple) else (args,)
        several = hasattr(var.ty, "fields")
        types = list(var.ty.fields) if several else [var.ty]
        outs = tuple(self.new(f"{var.name}", t) for t in types)
        check_arrays(call.args[0].name_hint, len(args) + len(outs))
        self.steps.append(Step(call.args[0].name_hint, args, outs))
        return outs if several else outs[0]

    def value(self, x: Any) -> Any:
        """Value that an expression stands for: a `Value`, or a tuple of such."""
        if isinstance(x, relax.Var):
            return self.values[x]
        if isinstance(x, GenericConst):
            return self.constant(x)
        if isinstance(x, relax.Tuple):
            return tuple(self.value(each) for each in x.fields)
        if isinstance(x, relax.TupleGetItem):
            return self.value(x.tuple_value)[int(x.index)]
        what = getattr(getattr(x, "op", None), "name", type(x).__name__)
        raise NotPlannable(f"it calls {what}, which is no function on arrays")

    def constant(self, x: Any) -> Value:
        if x not in self.constants:
            data = x.value.numpy()
            self.constants[x] = self.new("constant", x.ty, data)
        return self.constants[x]

    def new(self, name: str, ty: Any, data: np.ndarray[Any, Any] | None = None) -> Value:
        shape = getattr(ty, "shape", None)
        if shape is None or not all(isinstance(n, tirx.IntImm) for n in shape):
            raise NotPlannable(f"the shape of {name} is known at run time only: {ty}")
        extents, dtype = tuple(int(n) for n in shape), str(ty.dtype)
        if dtype not in DTYPES or 0 in extents:
            raise NotPlannable(f"{name} is {dtype}{list(extents)}")
        self.count += 1
        return Value(self.count, name, extents, dtype, data)


def check_plannable(function: Any, name: str) -> None:
    """Raises `NotPlannable` for a function of TVM's that calls into its run-time."""
    calls: list[str] = []
    tvm_ffi.structural_walk(
        function.body, (tvm.ir.Call, lambda c: calls.append(str(getattr(c.op, "name", ""))))
    )
    if any("packed" in c for c in calls):
        raise NotPlannable(f"{function.attrs.get('global_symbol', name)} calls TVM's run-time")


def check_arrays(what: str, count: int) -> None:
    """Raises `NotPlannable` for more arrays than our run-time calls something with."""
    if count > MOST_ARGUMENTS:
        raise NotPlannable(f"{what} takes {count} arrays; {MOST_ARGUMENTS} may be")
