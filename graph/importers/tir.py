"""`from_tir`: a function that TVM made from tensor expressions, as a workload.

Such a function is a sequence of blocks, each of which computes one buffer, or several by one
reduction; fused functions have more of them. A block becomes a definition:

    with T.sblock("C"):                                   C[i, j] += A[i, k] * B[k, j]
        vi, vj, vk = T.axis.remap("SSR", [i, j, k])   ↦
        with T.init(): C[vi, vj] = 0
        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

What has no counterpart in the notation raises `UnsupportedOperator` with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from loopwright.dsl.dtypes import is_float, largest, limits
from loopwright.dsl.errors import LoopwrightError
from loopwright.dsl.expr import Const, Expr, Read, Reduce, Select, binary
from loopwright.dsl.functions import cast
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.ranges import indices_in
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.traversal import map_subscripts, walk
from loopwright.dsl.words import brief
from loopwright.dsl.workload import Workload, workload
from loopwright.graph.errors import UnsupportedOperator
from loopwright.graph.importers.tir_blocks import Block, blocks_of, extent, stores_of
from loopwright.graph.importers.tir_values import Values

_REDUCERS = {tirx.Add: "sum", tirx.Mul: "prod", tirx.Max: "max", tirx.Min: "min"}
_STARTS = {"sum": 0.0, "prod": 1.0}


@dataclass(frozen=True, eq=False)
class Imported:
    """A function as a workload: the numbers of its parameters that are `inputs` and `outputs`, and
    whether arrays were `moved`, to lie otherwise than in the function."""

    workload: Workload
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    moved: bool = False


def from_tir(func: Any, constants: Sequence[int] = ()) -> Workload:
    """The workload that a `tvm.tirx.PrimFunc` computes.

    Parameters
    ----------
    func: made by `te.create_prim_func`, by Relax's legalization, or fused from such functions;
        not yet scheduled, and of fixed shapes.
    constants: numbers of parameters that are constant (weights).

    Raises `UnsupportedOperator` with the reason where the notation has no word for it.
    """
    return import_function(func, constants).workload


def import_function(func: Any, constants: Sequence[int] = ()) -> Imported:
    """The same, with the parameter of each input and output."""
    if not isinstance(func, tirx.PrimFunc):
        raise UnsupportedOperator(
            f"{brief(func)} is not a TIR function: give a PrimFunc of tvm.tirx"
        )
    try:
        return _Import(func, frozenset(constants)).run()
    except UnsupportedOperator:
        raise
    except RecursionError:
        raise UnsupportedOperator("its expression is nested too deeply") from None
    except LoopwrightError as error:  # the notation's own checks
        raise UnsupportedOperator(str(error)) from error


class _Import:
    def __init__(self, func: Any, constants: frozenset[int]) -> None:
        self.func = func
        self.names: set[str] = set()
        self.seen: set[Tensor] = set()  # read so far
        self.tensors: dict[Any, Tensor] = {}
        for number, p in enumerate(func.params):
            if not tirx.buffer.is_buffer_var(p):
                raise UnsupportedOperator(f"parameter {p.name} is a number, not an array")
            self.tensors[p] = self.tensor(p, number in constants)

    def tensor(self, buffer: Any, constant: bool = False) -> Tensor:
        name = re.sub(r"\W", "_", str(buffer.name), flags=re.ASCII)
        name = name if name.isidentifier() else f"t_{name}"
        while name in self.names:
            name += "_"
        self.names.add(name)
        shape = tuple(map(extent, buffer.shape))
        if 0 in shape:
            raise UnsupportedOperator(f"{name} has no elements: its shape is {shape}")
        return Tensor(name, shape, str(buffer.dtype), constant)

    def run(self) -> Imported:
        buffers, blocks = blocks_of(self.func)
        for buffer in buffers:
            self.tensors[buffer] = self.tensor(buffer)
        for block in blocks:
            self.define(block)
        params = [self.tensors[p] for p in self.func.params]
        outputs = tuple(n for n, t in enumerate(params) if t.definition is not None)
        if not outputs:
            raise UnsupportedOperator("it computes none of its parameters")
        made = workload(*(params[n] for n in outputs))
        at = {t.name: n for n, t in enumerate(params)}
        return Imported(made, tuple(at[t.name] for t in made.inputs), outputs)

    def define(self, block: Block) -> None:
        """The definitions of the buffers that a block writes."""
        lets, stores = stores_of(block.body)
        _, inits = stores_of(block.init) if block.init is not None else ({}, [])
        starts = {s.buffer: s.value for s in inits}
        for store in stores:
            out = self.tensors.get(store.buffer)
            if out is None:
                raise UnsupportedOperator(f"block {block.name} writes {store.buffer.name}, a view")
            if out.definition is not None or out in self.seen:
                raise UnsupportedOperator(f"{out.name} is written more than once, or read before")
            values = Values(self.tensors, block.indices, lets)
            left = _left(block, store, values)
            if store.buffer in starts:
                body = self.reduction(block, store, starts[store.buffer], values)
            elif block.reduces:
                raise UnsupportedOperator(f"block {block.name} reduces without a start")
            else:
                body = cast(values.expr(store.value), out.dtype)
            self.assign(out, left, body)

    def reduction(self, block: Block, store: Any, start: Any, values: Values) -> Expr:
        """`C[…] = C[…] + x` with its start as `lw.sum(x)`."""
        update, out = values.resolved(store.value), self.tensors[store.buffer]
        op = _REDUCERS.get(type(update))
        own = [
            isinstance(side, TensorLoad)
            and side.source.same_as(store.buffer)
            and all(
                values.affine(a) == values.affine(b) for a, b in zip(side.indices, store.indices)
            )
            for side in ((values.resolved(update.a), values.resolved(update.b)) if op else ())
        ]
        if op is None or True not in own:
            raise UnsupportedOperator(f"block {block.name} reduces by {update}")
        _check_start(block, op, start, out.dtype)
        body = cast(values.expr(update.a if own[1] else update.b), out.dtype)
        named = set(indices_in(body))
        if lost := [k.name for k in block.reduce if k.extent != 1 and k not in named]:
            raise UnsupportedOperator(
                f"block {block.name} reduces over {lost[0]}, which it does not read at"
            )
        return Reduce(op, _padded_by_infinity(op, body)) if block.reduces else body

    def assign(self, out: Tensor, left: tuple[Index, ...], body: Expr) -> None:
        read = {x.tensor for x in walk(body) if isinstance(x, Read)}
        if out in read:
            raise UnsupportedOperator(
                f"{out.name} is updated in place, or reduced with another result"
            )
        self.seen |= read
        out[left] = one_guard(body)


def _left(block: Block, store: Any, values: Values) -> tuple[Index, ...]:
    """The index of each axis of a store, which must cover its buffer."""
    left: list[Index] = []
    for at, size in zip(store.indices, map(extent, store.buffer.shape)):
        form = values.affine(at)
        index = None if form is None else form.plain()
        if size == 1 and form == Affine((), 0):
            index = Index(f"unit{len(left)}", 1)
        if index is None or index in left or index.extent != size or index in block.reduce:
            raise UnsupportedOperator(
                f"block {block.name} writes a part of {store.buffer.name}, at {at}"
            )
        left.append(index)
    for index in block.indices.values():
        if index.extent != 1 and index not in left and index not in block.reduce:
            raise UnsupportedOperator(f"block {block.name} writes elements more than once")
    return tuple(left)


def one_guard(body: Expr) -> Expr:
    """A guarded read of a guarded read as one, which the rewrites of transposed convolutions know.

    `D[u] = where(u % 2 == 0, X[u // 2], 0);  P[u] = where(u >= 3, D[u - 3], 0)
     ↦  P[u] = where((u >= 3) & ((u - 3) % 2 == 0), X[(u - 3) // 2], 0)`
    """
    if not (isinstance(body, Select) and isinstance(body.x, Read) and isinstance(body.y, Const)):
        return body
    definition = body.x.tensor.definition
    if definition is None or definition.reducer is not None:
        return body
    inner = definition.body
    if not isinstance(inner, Select) or inner.y != body.y:
        return body
    values = dict(zip(definition.axes, body.x.index))

    def index(form: Affine) -> Affine:
        return form.replace(lambda i: values[i])

    cond = map_subscripts(inner.cond, index)
    return Select(binary("and", body.cond, cond), map_subscripts(inner.x, index), body.y)


def _padded_by_infinity(op: str, body: Expr) -> Expr:
    """The operand of a maximum or minimum, padded with what never wins.

    TVM pads with the lowest finite number, which is greater than minus infinity:

    `P[u] = where(u >= 1, X[u - 1], -3.4e38);  Y[u] = max(P[u + r])
     ↦  P[u] = where(u >= 1, X[u - 1], -inf);  Y[u] = max(P[u + r])`
    """
    if op not in ("max", "min") or not is_float(body.dtype):
        return body
    wins = limits(body.dtype)[op == "min"]

    def padded(x: Expr) -> Expr:
        if not isinstance(x, Select) or not isinstance(x.y, Const):
            return x
        finite = abs(x.y.value) == largest(x.dtype) and x.y.value * wins > 0
        return Select(x.cond, x.x, Const(wins, x.dtype)) if finite else x

    if not isinstance(body, Read) or (d := body.tensor.definition) is None or d.reduce:
        return padded(body)
    inner = padded(d.body)
    if inner is d.body:
        return body
    copy = Tensor(body.tensor.name, body.tensor.shape, body.tensor.dtype, body.tensor.constant)
    copy.definition = replace(d, body=inner)
    return Read(copy, body.index)


def _check_start(block: Block, op: str, start: Any, dtype: str) -> None:
    value = getattr(start, "value", None)
    if op in _STARTS:
        right: tuple[float, ...] = (_STARTS[op],)
    else:
        # TVM starts a maximum at the lowest finite number, the notation at minus infinity.
        lowest, highest = limits(dtype)
        finite = (largest(dtype),) if is_float(dtype) else ()
        right = (lowest, *(-x for x in finite)) if op == "max" else (highest, *finite)
    if value is None or float(value) not in right:
        raise UnsupportedOperator(f"block {block.name}: its {op} starts at {start}")
