"""`Workload`: what to compute, the paper's e; a DAG of definitions in canonical form."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.elements import FUNCTIONS_OF_TWO
from loopwright.dsl.errors import NotationError, ShapeError
from loopwright.dsl.expr import ARITHMETIC, ORDERS, Binary, Expr, Extent, Gather, Read, Unary
from loopwright.dsl.index import Index
from loopwright.dsl.scans import scan_of
from loopwright.dsl.serial import Names, tensor_from_json, tensor_to_json
from loopwright.dsl.show import show_definition, show_tensor
from loopwright.dsl.size import Dim, Size, chosen, dim, extent_at, merged, solved
from loopwright.dsl.tensor import Definition, Tensor
from loopwright.dsl.traversal import children, map_reads, rebuild, walk
from loopwright.dsl.words import brief, html_table

SCHEMA = 1

_TAKES = "give a defined tensor, such as lw.einsum('ij->ji', lw.tensor('A', (8, 8)))"


@dataclass(frozen=True, eq=False)
class Workload:
    """A computation: inputs, the stages that define everything else, and the outputs.

    Attributes
    ----------
    inputs: tensors without a definition, constants included; `workload` says in which order.
    stages: defined tensors, each after those that it reads.
    outputs: the stages whose elements are the result, in the order asked for.

    Two workloads are equal if they differ in names only: `key` says so.
    """

    inputs: tuple[Tensor, ...]
    stages: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def constants(self) -> tuple[Tensor, ...]:
        """The inputs that are known ahead of time."""
        return tuple(t for t in self.inputs if t.constant)

    @functools.cached_property
    def key(self) -> str:
        """A hash (32 hexadecimal digits) of everything but the names."""
        return hashlib.sha256(json.dumps(_numbered_form(self)).encode()).hexdigest()[:32]

    @functools.cached_property
    def dims(self) -> tuple[Dim, ...]:
        """The sizes known only at the call, in order of appearance."""
        sizes: list[Any] = []
        for t in (*self.inputs, *self.stages):
            sizes += tensor_shape(t)
            if t.definition:
                sizes += t.definition.extents.values()
                body = t.definition.body
                sizes += (x.size for x in walk(body) if isinstance(x, Extent))
        return merged(tuple(d for n in sizes if isinstance(n, Size) for d in n.dims))

    def at(self, /, **sizes: int) -> Workload:
        """The workload of fixed shapes for a value of every dim: `w.at(n=777)`.

        Raises `RangeError` for a value that a dim does not take, a dim without a value, and a
        name that is no dim.
        """
        values = chosen(self.dims, sizes, "at(…)")
        if not self.dims:
            return self
        tensors = (*self.inputs, *self.stages)
        copies = _copied(tensors, lambda t: t.name, lambda n: extent_at(n, values))
        inputs, stages, outputs = (
            tuple(copies[t] for t in part) for part in (self.inputs, self.stages, self.outputs)
        )
        return Workload(inputs, stages, outputs)

    def sizes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The value of every dim, by its name, from the shapes of the inputs in their order.

        Raises `ShapeError` for shapes that no values give, naming the axes that disagree, and
        `RangeError` for values that a dim does not take.
        """
        if len(shapes) != len(self.inputs):
            names = ", ".join(t.name for t in self.inputs)
            raise ShapeError(f"{len(self.inputs)} inputs ({names}), got {len(shapes)}")
        given = [(t.name, tensor_shape(t), s) for t, s in zip(self.inputs, shapes, strict=True)]
        return solved(self.dims, given)

    @functools.cached_property
    def flops(self) -> int:
        """Arithmetic operations on elements: every operator and function counts one, and so does
        every step of a reduction; comparisons, selections, casts and index arithmetic are free."""
        total = 0
        for stage in fixed(self).stages:
            definition = defined(stage)
            d = definition
            steps = math.prod(d.extents.values())
            if scan_of(d.axes, d.reduce, d.reducer, d.body) is not None:
                steps //= d.extents[d.reduce[0]]  # one for each element
            reduces = definition.reducer is not None and definition.reducer not in ORDERS
            total += steps * (_operations(definition.body)[0] + reduces)
        return total

    @functools.cached_property
    def min_bytes(self) -> int:
        """The bytes that any program must move: every input read and every output written once."""
        fixed(self)
        return sum(tensor_bytes(t) for t in (*self.inputs, *self.outputs))

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; `from_json` gives an equal workload with equal names."""
        dims = [[d.name, d.low, d.high, d.multiple] for d in self.dims]
        return {
            "schema": SCHEMA,
            **({"dims": dims} if dims else {}),
            "tensors": [tensor_to_json(t) for t in (*self.inputs, *self.stages)],
            "outputs": [t.name for t in self.outputs],
        }

    def to_numbered_json(self) -> dict[str, Any]:
        """The text of the equal workload whose names are numbers in order. It has no dims."""
        schema, tensors, outputs = _numbered_form(fixed(self))
        return {"schema": schema, "tensors": tensors, "outputs": outputs}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Workload:
        """Read what `to_json` wrote; `NotationError` for anything else."""
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise NotationError(
                f"not a workload of schema {SCHEMA}: write it by Workload.to_json of this version"
            )
        try:
            tensors: dict[str, Tensor] = {}
            dims = {entry[0]: dim(*entry) for entry in data.get("dims", [])}
            for entry in data["tensors"]:
                new = tensor_from_json(entry, tensors, dims)
                if new.name in tensors:
                    raise NotationError(f"a damaged workload: two tensors are named {new.name}")
                tensors[new.name] = new
            inputs = [t for t in tensors.values() if t.definition is None]
            return workload(*(tensors[name] for name in data["outputs"]), inputs=inputs)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise NotationError(f"a damaged workload: {type(error).__name__} {error}") from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workload) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        inputs = (show_tensor(t) for t in self.inputs)
        stages = (show_definition(stage, defined(stage)) for stage in self.stages)
        end = f"return {', '.join(t.name for t in self.outputs)}"
        return "\n".join((*map(str, self.dims), *inputs, *stages, end))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table("Workload", {"definitions": self})


def workload(*outputs: Tensor, inputs: Sequence[Tensor] | None = None) -> Workload:
    """Gather the definitions that the outputs need into a `Workload`.

    Names that occur twice get a number; the tensors are copied, so that nothing done to the
    originals later changes the workload.

    Parameters
    ----------
    outputs: defined tensors, in the order in which a library returns them.
    inputs: all tensors that the outputs need and that have no definition, in the order in which a
        library takes them. By default the order of the call, for `einsum` and `ops`, and that of
        first use, for notation.

    Raises `NotationError` for outputs without a definition, and for inputs that are not needed,
    missing, or named twice.
    """
    if not outputs:
        raise NotationError("a workload needs at least one output tensor")
    for tensor in outputs:
        if not isinstance(tensor, Tensor):
            raise NotationError(f"{brief(tensor)} is no output: {_TAKES}, and several one by one")
        if tensor.definition is None:
            raise NotationError(f"{tensor!r} is not defined: an output needs a definition")
    twice = next((t for k, t in enumerate(outputs) if any(t is u for u in outputs[:k])), None)
    if twice is not None:
        raise NotationError(f"output {twice.name} is named twice: name each tensor once")
    order = in_order(outputs, _operands)
    needed = [t for t in in_order(outputs, _calls) if t.definition is None and t in order]
    if inputs is not None:
        if not isinstance(inputs, Sequence):
            raise NotationError(f"inputs = {brief(inputs)}: give a list of tensors")
        needed = _checked_inputs(list(inputs), needed)
    # The stages stand in order of first use, whatever order the inputs have.
    names = _Names()
    inputs_first = sorted(order, key=lambda t: t.definition is not None)
    named = {t: names.fresh(t.name) for t in inputs_first}  # a call names inputs
    copies = _copied(order, named.__getitem__, lambda n: n)
    return Workload(
        inputs=tuple(copies[t] for t in needed),
        stages=tuple(copies[t] for t in order if t.definition is not None),
        outputs=tuple(copies[t] for t in outputs),
    )


def as_workload(given: Workload | Tensor) -> Workload:
    """A workload of fixed shapes, or that of a defined tensor. Raises `NotationError`."""
    return fixed(any_workload(given))


def any_workload(given: Workload | Tensor) -> Workload:
    """A workload, or that of a defined tensor. Raises `NotationError`."""
    if isinstance(given, (Workload, Tensor)):
        return given if isinstance(given, Workload) else workload(given)
    raise NotationError(
        f"{brief(given)} is no workload: {_TAKES}, or lw.workload(C, …) of several"
    )


def fixed(given: Workload) -> Workload:
    """A workload as it is; `NotationError` if it has dims."""
    if given.dims:
        example = ", ".join(f"{d.name}={d.high}" for d in given.dims)
        raise NotationError(
            f"the workload has dims ({'; '.join(map(str, given.dims))}), and a program is of "
            f"fixed shapes: choose sizes, as by workload.at({example})"
        )
    return given


def defined(tensor: Tensor) -> Definition:
    """The definition of a stage."""
    assert tensor.definition is not None, tensor
    return tensor.definition


def tensor_shape(tensor: Tensor) -> tuple[int, ...]:
    """The shape of an input or a stage, which always has one."""
    assert tensor.shape is not None, tensor
    return tensor.shape


def tensor_bytes(tensor: Tensor) -> int:
    """Bytes of all elements."""
    return math.prod(tensor_shape(tensor)) * item_bytes(tensor.dtype)


def reads(expr: Expr) -> Iterator[Read]:
    """Every read in an expression, in order of appearance."""
    return (part for part in walk(expr) if isinstance(part, Read))


def _operands(tensor: Tensor) -> list[Tensor]:
    """Tensors that a definition reads, in order of first use; none of an input."""
    if tensor.definition is None:
        return []
    return list(dict.fromkeys(r.tensor for r in reads(tensor.definition.body)))


def _calls(tensor: Tensor) -> list[Tensor]:
    """Arguments of the call that made a tensor, then what its definition reads."""
    return [] if tensor.definition is None else [*tensor.operands, *_operands(tensor)]


def in_order(
    outputs: Sequence[Tensor],
    before: Callable[[Tensor], list[Tensor]],
    seen: Collection[Tensor] = (),
) -> dict[Tensor, None]:
    """Every tensor that the outputs need and that is not `seen`, each after those `before` it
    (iterative: chains of thousands of definitions are fine)."""
    order: dict[Tensor, None] = {}
    stack: list[tuple[Tensor, bool]] = [(t, False) for t in reversed(outputs)]
    while stack:
        tensor, done = stack.pop()
        if tensor in order or tensor in seen:
            continue
        if done:
            order[tensor] = None
            continue
        stack.append((tensor, True))
        stack.extend((t, False) for t in reversed(before(tensor)))
    return order


def _checked_inputs(given: list[Tensor], needed: list[Tensor]) -> list[Tensor]:
    """The inputs in the order asked for, which must be those that the outputs need."""
    names = ", ".join(t.name for t in needed) or "none"
    for number, tensor in enumerate(given):
        if tensor in given[:number]:
            raise NotationError(f"inputs: {tensor.name} is named twice; name each once: {names}")
        if tensor not in needed:
            raise NotationError(
                f"inputs: {tensor!r} is no input of the outputs, which need {names}; leave it out"
            )
    if missing := [t.name for t in needed if t not in given]:
        raise NotationError(
            f"inputs: {', '.join(missing)} missing; name all that the outputs need: {names}"
        )
    return given


class _Names:
    """Hands out each name once: `C`, then `C_1`, `C_2`, …"""

    def __init__(self) -> None:
        self.used: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        name = wanted
        while name in self.used:
            self.used[wanted] += 1
            name = f"{wanted}_{self.used[wanted]}"
        self.used[name] = 0
        return name


def _copied(
    tensors: Iterable[Tensor], name: Callable[[Tensor], str], extent: Callable[[Any], Any]
) -> dict[Tensor, Tensor]:
    """Copies of tensors, each of which follows those that it reads, with other names and sizes."""
    copies: dict[Tensor, Tensor] = {}
    for tensor in tensors:
        shape = tuple(map(extent, tensor_shape(tensor)))
        copy = copies[tensor] = Tensor(name(tensor), shape, tensor.dtype, tensor.constant)
        if (d := tensor.definition) is not None:
            axes, reduce = (
                tuple(Index(i.name, extent(i.extent)) for i in part) for part in (d.axes, d.reduce)
            )
            body = map_reads(d.body, lambda r: Read(copies[r.tensor], r.index))
            copy.definition = Definition(axes, reduce, d.reducer, _resized(body, extent))
    return copies


def _resized(body: Expr, change: Callable[[Any], Any]) -> Expr:
    """An expression with other sizes."""
    if isinstance(body, Extent):
        return body.at(change(body.size))
    if isinstance(body, Gather):
        body = replace(body, shape=tuple(map(change, body.shape)))
    return rebuild(body, lambda child: _resized(child, change))


def _operations(body: Expr) -> tuple[int, bool]:
    """Number of operators that work on elements, and whether any element is read at all. Without
    one it is index arithmetic, which is free."""
    counted = {*ARITHMETIC, *FUNCTIONS_OF_TWO}
    inner = [_operations(child) for child in children(body)]
    reading = isinstance(body, Read) or any(found for _, found in inner)
    own = isinstance(body, Unary) or (isinstance(body, Binary) and body.op in counted)
    return sum(count for count, _ in inner) + (own and reading), reading


def _numbered_form(source: Workload) -> list[Any]:
    """A workload as JSON whose names are numbers in order of appearance."""
    dims = {d.name: f"d{n}" for n, d in enumerate(source.dims)}
    names = {t: f"t{n}" for n, t in enumerate((*source.inputs, *source.stages))}

    def written(t: Tensor) -> dict[str, Any]:
        d = t.definition
        loops = () if d is None else (*d.axes, *d.reduce)
        numbers = {i.name: f"i{n}" for n, i in enumerate(loops)}
        return tensor_to_json(t, Names(names, dims, numbers))

    bounds = [[d.low, d.high, d.multiple] for d in source.dims]
    outputs = [names[t] for t in source.outputs]
    return [SCHEMA, [*map(written, names)], outputs, *([bounds] if dims else [])]
