"""`Call`: one use of an operator, and the table of what operators mean in the notation.

A value is an array where it is known (weights, shapes, what follows from them), else a tensor of
the notation. A rule gets a call and returns the value of each output:

    @operator("Relu")
    def _relu(call: Call) -> Value:
        return call.each(lambda x: f.max(x, 0))

What depends on known values alone seldom reaches a rule: NumPy has computed it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import add
from typing import Any

import numpy as np

from loopwright.dsl.expr import Expr
from loopwright.dsl.functions import cast
from loopwright.dsl.index import Index
from loopwright.dsl.tensor import Tensor
from loopwright.graph.errors import UnsupportedOperator
from loopwright.graph.importers.definitions import Foreign
from loopwright.graph.importers.onnx.values import Array, Value, Weights, define, number, shape_of

Rule = Callable[["Call"], Value | Sequence[Value]]
Results = tuple[list[Value], list[Value]]
"""States, and what beside them an iteration gives, or all iterations."""

OPERATORS: dict[str, Rule] = {}
"""The rule of each operator, by its name; those of other domains than ONNX's own by
"domain:name"."""

SCANS = "loopwright"
"""The domain of operators that ONNX has not, as torch's programs have them: CumProd, CumMax and
CumMin, Interpolate and Linear."""

LIMITS: dict[str, str] = {}
"""Notes on some operators for users: what a call must fulfil, or costs."""


def operator(*names: str, limit: str = "") -> Callable[[Rule], Rule]:
    """Register a rule in the table under these names."""

    def register(rule: Rule) -> Rule:
        OPERATORS.update(dict.fromkeys(names, rule))
        if limit:
            LIMITS.update(dict.fromkeys(names, limit))
        return rule

    return register


@dataclass(frozen=True, eq=False)
class Iterations:
    """Iterations of a body, from states before the first one. Of `rows`, each reads one of the
    first axis, the last one first if that is said beside it; `backward` says the same of what is
    given. `body` takes states and rows, and gives the next states and what an iteration gives."""

    count: int
    states: Sequence[Value]
    rows: Sequence[tuple[Value, bool]]
    backward: Sequence[bool]
    body: Callable[[list[Value], list[Value]], Results]


@dataclass(frozen=True, eq=False)
class Call:
    """One use of an operator.

    Attributes
    ----------
    op, label: the operator's name, and what messages call this use.
    version: of the operator set.
    inputs: the values; None for one that is left out.
    attributes: by name, as Python's numbers, strings (str), arrays, lists, or graphs.
    names: the names of the inputs, "" for one that is left out.
    outputs: the names of the outputs, "" for one that is not wanted.
    shapes: the shapes that the model states for its outputs, where it does.
    weights: makes tensors of arrays.
    uses: how often a value is read, by its name.
    scaled: for results of linear operators with known weights: the same result, each channel
        times a factor and plus a summand.
    sized: in a model of open axes, which elements of known values may be others at other sizes, by
        name, all where none are named; else None.
    branch: computes a graph that is an attribute, given its inputs.
    step: makes functions of TVM's steps of the network, and returns what they give.
    loop: makes iterations a loop of the network, and returns what it gives; None where it cannot.
    """

    op: str
    label: str
    version: int
    inputs: tuple[Value | None, ...]
    attributes: Mapping[str, Any]
    names: tuple[str, ...]
    outputs: tuple[str, ...]
    shapes: tuple[tuple[int, ...] | None, ...]
    weights: Weights
    uses: Mapping[str, int]
    scaled: dict[Tensor, Callable[[Array, Array], Value]]
    sized: Mapping[str, Array | bool] | None
    branch: Callable[[Any, Sequence[Value]], list[Value]]
    step: Callable[[Foreign], Sequence[Tensor]]
    loop: Callable[[Iterations], Results | None]

    # ---- what the call says ----

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or `default`."""
        value = self.attributes.get(name)
        return default if value is None else value

    def has(self, number: int) -> bool:
        """Return whether an input is given."""
        return number < len(self.inputs) and self.inputs[number] is not None

    @property
    def open(self) -> bool:
        """Whether shapes are those of one size among several, at which the call has one form."""
        return self.sized is not None

    def may_vary(self, number: int) -> Array:
        """Return which elements of a known input may be others at other sizes of open axes."""
        if self.sized is None or not self.has(number):
            return np.zeros(1, bool)
        given = self.sized.get(self.names[number], True)
        return np.broadcast_to(given, np.shape(self.value(number)))

    def value(self, number: int) -> Value:
        """An input that must be given."""
        if not self.has(number):
            raise self.unsupported(f"its input {number} is left out")
        given = self.inputs[number]
        assert given is not None
        return given

    def optional(self, number: int) -> Value | None:
        """An input; None where it is left out."""
        return self.value(number) if self.has(number) else None

    def numbers(self, name: str, count: int, default: int = 0) -> list[int]:
        """An attribute of so many integers, or the default of each."""
        return [int(n) for n in self.get(name) or [default] * count]

    def stated(self, reason: NotKnown) -> tuple[int, ...]:
        """The shape that the model states for the result. Raises `reason` where it does not."""
        if self.shapes[0] is None:
            raise reason
        return self.shapes[0]

    def known(self, number: int, default: Any = None) -> Array | None:
        """An input whose elements must be known, as an array; `default` where it is left out."""
        if not self.has(number):
            return None if default is None else np.asarray(default)
        given = self.inputs[number]
        if isinstance(given, Tensor):
            raise self.not_known(number)
        return given

    def required(self, number: int, default: Any = None) -> Array:
        """The same, for an input that must be given or has a default."""
        known = self.known(number, default)
        if known is None:
            raise self.unsupported(f"its input {number} is left out")
        return known

    def integer(self, number: int, default: Any = None) -> int:
        """One integer that is an input, whose value must be known."""
        return int(self.required(number, default).reshape(-1)[0])

    def ints(self, number: int, attribute: str = "") -> list[int] | None:
        """Integers that are an input, or in older versions an attribute."""
        if self.has(number):
            return [int(n) for n in self.required(number).reshape(-1)]
        given = self.get(attribute) if attribute else None
        return None if given is None else [int(n) for n in np.reshape(given, -1)]

    def tensor(self, number: int) -> Tensor:
        """An input as a tensor."""
        return self.as_tensor(self.value(number))

    def as_tensor(self, value: Value) -> Tensor:
        """A value as a tensor."""
        if isinstance(value, Tensor):
            return value
        return self.weights.tensor(value)

    def shape(self, number: int = 0) -> tuple[int, ...]:
        """The shape of an input."""
        return shape_of(self.value(number))

    def dtype(self, number: int = 0) -> str:
        """The element type of an input."""
        return str(self.value(number).dtype)

    def axis(self, default: int = 0, rank: int | None = None, name: str = "axis") -> int:
        """The attribute that names an axis, counted from the front."""
        rank = len(self.shape()) if rank is None else rank
        return self.checked_axis(int(self.get(name, default)), rank)

    def checked_axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= axis < max(rank, 1):
            raise self.unsupported(f"its axis is {axis}, of a tensor with {rank} axes")
        return axis % rank if rank else 0

    def checked_axes(self, axes: Sequence[int], rank: int) -> list[int]:
        """Axes counted from the front, which are named once each."""
        found = [self.checked_axis(int(a), rank) for a in axes]
        if len(set(found)) < len(found):
            raise self.unsupported(f"its axes are {list(axes)}; each may be named once")
        return found

    def check_shape(self, number: int, *shape: int) -> None:
        """Raise an error unless an input has this shape, where it is given."""
        if self.has(number) and self.shape(number) != shape:
            raise self.unsupported(
                f"its input {number} is {self.shape(number)}; it may be {shape} here"
            )

    def not_known(self, number: int) -> NotKnown:
        """Error for an input whose elements must be known, and are not."""
        return NotKnown(self.label, self.names[number], self.inputs[number])

    def unsupported(self, reason: str) -> UnsupportedOperator:
        """Error for a use that has no meaning here."""
        return UnsupportedOperator(f"{self.label}: {reason}")

    # ---- what it computes ----

    def define(self, shape: Sequence[int], body: Callable[..., Expr], name: str = "") -> Tensor:
        """A tensor whose elements are `body(i0, i1, …)`."""
        return define(name or self.op.lower(), shape, body)

    def each(self, body: Callable[..., Expr], *numbers: int, dtype: str = "") -> Tensor:
        """The inputs of these numbers (all, by default) broadcast, and `body` of each element."""
        values = [self.value(n) for n in numbers or range(len(self.inputs))]
        return self.broadcast(values, body, dtype)

    def broadcast(
        self, values: Sequence[Value], body: Callable[..., Expr], dtype: str = ""
    ) -> Tensor:
        """Values broadcast against each other, and `body` of each element."""
        try:
            shape = np.broadcast_shapes(*map(shape_of, values))
        except ValueError:
            shown = " and ".join(str(shape_of(v)) for v in values)
            raise self.unsupported(f"its inputs {shown} do not broadcast") from None

        def element(*axes: Index) -> Expr:
            x = body(*(self.read(v, axes) for v in values))
            return cast(x, dtype) if dtype else x

        return self.define(shape, element)

    def plus(self, value: Value, number: int) -> Value:
        """A value plus an input, where that is given."""
        return self.broadcast([value, self.value(number)], add) if self.has(number) else value

    def read(self, value: Value, axes: Sequence[Any]) -> Expr:
        """An element of a value that is broadcast along `axes`; a single number is said itself."""
        shape = shape_of(value)
        if self.weights.is_number(value) and len(shape) <= len(axes):
            self.weights.say(value)
            return number(value.reshape(-1)[0], str(value.dtype))
        own = axes[len(axes) - len(shape) :]
        extents = tuple((isinstance(i, Index) and i.extent) or n for n, i in zip(shape, own))
        if any(n not in (1, wanted) for n, wanted in zip(shape, extents)):
            raise self.unsupported(f"an input of it is {shape}; it may be {extents} here")
        tensor = self.as_tensor(value)
        at = tuple(0 if n == 1 else i for n, i in zip(shape, own, strict=True))
        return tensor[at]

    def by(self, rule: str, **changes: Any) -> list[Value]:
        """The results of another rule for this call, with some fields changed."""
        made = OPERATORS[rule](replace(self, **changes))
        return [made] if isinstance(made, (np.ndarray, Tensor)) else [*made]

    def single(self, value: Value) -> Expr:
        """The only element of a value, whatever its rank."""
        return self.read(value, (0,) * len(shape_of(value)))


class NotKnown(UnsupportedOperator):
    """An input whose elements decide what is computed, and which are known at a call only.

    Attributes
    ----------
    value: the input.
    inputs: the names of the model's inputs that it follows from.
    """

    def __init__(self, label: str, name: str, value: Value | None) -> None:
        self.value, self.inputs = value, tuple[str, ...]()
        super().__init__(
            f"{label}: what {name!r} holds decides what is computed, and it is "
            "known at a call only; give the inputs that it follows from as arrays (to a command "
            "by --value), and it is fixed"
        )
