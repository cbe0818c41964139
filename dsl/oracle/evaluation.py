"""Evaluation of every definition by NumPy, slowly and obviously.

Floating elements are computed in float64 and rounded to the tensor's type once per stage (and at
every explicit cast), so that a tolerance covers the rounding of the program under test alone.
Integers wrap as their type does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.dsl import expr as e
from loopwright.dsl.dtypes import identity, is_float, numpy_dtype
from loopwright.dsl.elements import BINARY, STEPS, UNARY
from loopwright.dsl.errors import ShapeError
from loopwright.dsl.index import Index, position
from loopwright.dsl.ranges import indices_in, ranks_of
from loopwright.dsl.scans import Scan, scan_of
from loopwright.dsl.tensor import Definition, Tensor
from loopwright.dsl.traversal import children
from loopwright.dsl.workload import Workload, defined, fixed, tensor_shape

Array = np.ndarray[Any, Any]
_CHUNK = 1 << 22  # elements of a stage's iteration domain that are held at once

_REDUCE: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def evaluate(
    workload: Workload, inputs: Sequence[Array] | Mapping[str, Array]
) -> tuple[Array, ...]:
    """The outputs of a workload for NumPy inputs, in the order of `workload.inputs` or by name.

    Dims are what the shapes of the inputs say.

    Raises `ShapeError` if an input is missing or has the wrong shape or dtype, and `RangeError`
    for a size that a dim does not take.
    """
    given = _match(workload, inputs)
    if workload.dims:
        shapes = [np.shape(given[t.name]) for t in workload.inputs]
        workload = workload.at(**workload.sizes(shapes))
    return run(workload, [_check(t, given[t.name]) for t in workload.inputs])


class Exact:
    """Evaluation that changes no number on the way."""

    def tensor(self, tensor: Tensor, value: Array, values: Mapping[Tensor, Array]) -> Array:
        """A whole tensor, before it is read; `values` are those before it."""
        return value

    def operand(self, x: e.Expr, value: Array) -> Array:
        """Operand of a step."""
        return value


EXACT = Exact()


def run(workload: Workload, inputs: Sequence[Array], change: Exact = EXACT) -> tuple[Array, ...]:
    """The outputs, each number changed before it is read."""
    values: dict[Tensor, Array] = {}
    with np.errstate(all="ignore"):
        for tensor, value in zip(workload.inputs, inputs, strict=True):
            values[tensor] = change.tensor(tensor, value, values)
        for stage in workload.stages:
            made = _evaluate_stage(stage, values, change)
            values[stage] = change.tensor(stage, made, values)
    return tuple(values[t] for t in workload.outputs)


def _evaluate_stage(stage: Tensor, values: Mapping[Tensor, Array], change: Exact) -> Array:
    """Evaluate over the iteration domain: at once if it is small, else slab by slab."""
    d = defined(stage)
    if d.reducer in e.ORDERS:
        return _evaluate_order(d, values, change)
    if (scan := scan_of(d.axes, d.reduce, d.reducer, d.body)) is not None:
        return _evaluate_scan(d, scan, values, change)
    out = np.empty(tensor_shape(stage), numpy_dtype(stage.dtype))
    for slab in _slabs(d):
        out[slab] = _evaluate_slab(d, slab, values, change)
    return out


def _slabs(d: Definition) -> Iterator[tuple[slice, ...]]:
    """Slices of the axes of the result, so that at most `_CHUNK` elements of what is spread over
    loops are held at once: of the whole body, or of each factor of a product."""
    spread = [set(d.extents)]
    if is_sum_of_products(d):
        spread = [set(indices_in(x)) for x in children(d.body)]
    lengths = dict(d.extents)
    parts = []
    for axis in d.axes:
        held = (math.prod(lengths[i] for i in each) for each in spread if axis in each)
        if (most := max(held, default=0)) > _CHUNK:
            lengths[axis] = max(1, _CHUNK // (most // lengths[axis]))
        starts = range(0, d.extents[axis], lengths[axis] or 1)
        parts.append([slice(at, at + lengths[axis]) for at in starts])
    return itertools.product(*parts)


def _evaluate_slab(
    d: Definition, slab: tuple[slice, ...], values: Mapping[Tensor, Array], change: Exact
) -> Array:
    rank = len(d.extents)
    grid: dict[Index, Array] = {}
    shape = []
    for number, (index, extent) in enumerate(d.extents.items()):
        span = np.arange(extent)[slab[number] if number < len(slab) else slice(None)]
        shape.append(len(span))
        grid[index] = span.reshape([-1 if p == number else 1 for p in range(rank)])
    if is_sum_of_products(d):
        factors = [evaluate_element(x, grid, values, change) for x in children(d.body)]
        return _sum_of_products(factors, shape, len(d.axes))
    body = np.broadcast_to(evaluate_element(d.body, grid, values, change), shape)
    return body if d.reducer is None else _reduce(d, body)


def _evaluate_order(d: Definition, values: Mapping[Tensor, Array], change: Exact) -> Array:
    """The places of elements in order, which is stable."""
    ranks, (along,) = ranks_of(d.axes, d.body), d.reduce
    loops = (*(i for i in d.axes if i not in ranks), along)
    shape = [d.extents[i] for i in loops]
    grid = dict(zip(loops, np.ix_(*map(np.arange, shape)), strict=True))
    body = np.broadcast_to(evaluate_element(d.body, grid, values, change), shape)
    if is_float(d.body.dtype):
        body = change.operand(d.body, body)
    if d.reducer == "least":
        found = np.argsort(body, axis=-1, kind="stable")
    else:  # of equal elements, the last one comes last both times
        found = (shape[-1] - 1 - np.argsort(body[..., ::-1], axis=-1, kind="stable"))[..., ::-1]
    if not ranks:
        return found[..., 0].astype(np.int32)
    (rank,) = ranks
    return np.moveaxis(found[..., : d.extents[rank]], -1, d.axes.index(rank)).astype(np.int32)


def _evaluate_scan(
    d: Definition, scan: Scan, values: Mapping[Tensor, Array], change: Exact
) -> Array:
    """Running results, which are n steps in place of n for each of n."""
    at = d.axes.index(scan.axis)
    loops = (*d.axes[:at], *d.reduce, *d.axes[at + 1 :])
    shape = [d.extents[i] for i in loops]
    grid = dict(zip(loops, np.ix_(*map(np.arange, shape)), strict=True))
    body = np.broadcast_to(evaluate_element(scan.body, grid, values, change), shape)
    row = np.moveaxis(body, at, 0)[:: -1 if scan.backward else 1]
    reducer, dtype = d.reducer or "sum", d.body.dtype
    result = _REDUCE[reducer].accumulate(row, axis=0, dtype=_work_type(dtype))
    if scan.exclusive:
        first = np.full_like(result[:1], identity(reducer, dtype))
        result = np.concatenate([first, result[:-1]])
    return np.moveaxis(result[:: -1 if scan.backward else 1], 0, at).astype(numpy_dtype(dtype))


def _reduce(d: Definition, body: Array) -> Array:
    dtype, along = d.body.dtype, tuple(range(len(d.axes), body.ndim))
    function, initial = _REDUCE[d.reducer or "sum"], identity(d.reducer or "sum", dtype)
    result: Array = function.reduce(body, axis=along, dtype=_work_type(dtype), initial=initial)
    return result


def is_sum_of_products(d: Definition) -> bool:
    """Return whether it is a sum of floating products of two factors."""
    product = isinstance(d.body, e.Binary) and d.body.op == "mul"
    return d.reducer == "sum" and product and is_float(d.body.dtype)


def _sum_of_products(factors: list[Array], shape: list[int], rank: int) -> Array:
    """Multiply two factors over a domain and sum all but its first `rank` axes.

    Matrix products and convolutions come here: einsum has BLAS do them, a hundred times faster
    than by spreading each factor over the axes of the other.
    """
    full = [x.reshape((1,) * (len(shape) - x.ndim) + x.shape) for x in factors]
    # An axis that neither factor has still multiplies what is summed over it.
    missing = [n if 1 == x == y else x for n, x, y in zip(shape, full[0].shape, full[1].shape)]
    full[0] = np.broadcast_to(full[0], missing)
    operands: list[Any] = []
    for x in full:
        axes = [axis for axis, extent in enumerate(x.shape) if extent != 1]
        operands += [x.reshape([x.shape[axis] for axis in axes]), axes]
    kept = [axis for axis in range(rank) if shape[axis] != 1]
    result: Array = np.einsum(*operands, kept, optimize=True)
    return result.reshape(shape[:rank])


def evaluate_element(
    x: e.Expr, grid: Mapping[Index, Array], values: Mapping[Tensor, Array], change: Exact
) -> Array:
    """An expression over the grid, broadcast: float64 for floats, the type itself for others."""
    if isinstance(x, e.Const):
        return np.asarray(x.value, numpy_dtype(x.dtype)).astype(_work_type(x.dtype))
    if isinstance(x, e.IndexValue):
        return position(x.value, grid).astype(np.int32)
    if isinstance(x, e.Read):
        shape = tensor_shape(x.tensor)
        where = tuple(
            np.clip(position(a, grid), 0, n - 1) for a, n in zip(x.index, shape, strict=True)
        )
        if 0 in shape:  # what is read there, if anything, is not used
            return np.zeros(np.broadcast_shapes(*(w.shape for w in where)), _work_type(x.dtype))
        return _elements(values[x.tensor], where).astype(_work_type(x.dtype))
    if isinstance(x, e.Gather):
        return _gathered(x, grid, values, change)
    parts = [evaluate_element(child, grid, values, change) for child in children(x)]
    if is_step(x):
        parts = [change.operand(child, part) for child, part in zip(children(x), parts)]
    if isinstance(x, e.Cast):
        return _cast(parts[0], x.type)
    if isinstance(x, e.Unary):
        return UNARY[x.op](parts[0])
    if isinstance(x, e.Binary):
        return BINARY[x.op](parts[0], parts[1])
    assert isinstance(x, e.Select), x
    return np.where(parts[0], parts[1], parts[2])


def _elements(value: Array, where: tuple[Array, ...]) -> Array:
    """Elements at places that broadcast together: a view of a box of them where every place moves
    by one with a loop of its own, which takes a tenth of the time."""
    box: list[slice | int] = []
    loops: list[int] = []  # from the last on: -1, -2, …
    for places in where:
        moving = [n - places.ndim for n, extent in enumerate(places.shape) if extent > 1]
        alone = not moving or (len(moving) == 1 and moving[0] not in loops)
        if not (alone and places.size) or np.any(np.diff(places.ravel()) != 1):
            return np.asarray(value[where])
        first = int(places.flat[0])
        box.append(slice(first, first + places.size) if moving else first)
        loops += moving
    found: Array = np.asarray(value[tuple(box)])
    rank = max((places.ndim for places in where), default=0)
    spread = tuple(slice(None) if loop in loops else None for loop in range(-rank, 0))
    return found.transpose(sorted(range(len(loops)), key=loops.__getitem__))[spread]


def _gathered(
    x: e.Gather, grid: Mapping[Index, Array], values: Mapping[Tensor, Array], change: Exact
) -> Array:
    where = []
    for place, at, size in zip(x.table.index, x.at, tensor_shape(x.table.tensor), strict=True):
        if at is None:
            where.append(position(place, grid))
        else:
            named = evaluate_element(at, grid, values, change)
            named = np.minimum(named, size - 1).astype(np.int64)
            where.append(np.where(named < 0, named + size, named))
    sizes = tensor_shape(x.table.tensor)
    near = tuple(np.clip(p, 0, n - 1) for p, n in zip(where, sizes, strict=True))
    return np.asarray(values[x.table.tensor][near].astype(_work_type(x.dtype)))


def is_step(x: e.Expr) -> bool:
    """Return whether a little more of an operand, a float, may make much of the result."""
    if not any(is_float(child.dtype) for child in children(x)):
        return False
    if isinstance(x, e.Cast):
        return not is_float(x.type)
    return isinstance(x, (e.Unary, e.Binary)) and x.op in STEPS


def _cast(x: Array, dtype: str) -> Array:
    if is_float(dtype):  # round to the type, then go on in float64
        return x.astype(numpy_dtype(dtype)).astype(np.float64)
    if x.dtype.kind == "f":
        wide = np.uint64 if dtype == "uint64" else np.int64
        return np.trunc(x).astype(wide).astype(numpy_dtype(dtype))
    return x.astype(numpy_dtype(dtype))


def _work_type(dtype: str) -> np.dtype[Any]:
    return np.dtype(np.float64) if is_float(dtype) else numpy_dtype(dtype)


def _match(
    workload: Workload, inputs: Sequence[Array] | Mapping[str, Array]
) -> Mapping[str, Array]:
    names = [t.name for t in workload.inputs]
    if isinstance(inputs, Mapping):
        if set(inputs) != set(names):
            raise ShapeError(f"the inputs are {', '.join(names)}; got {', '.join(inputs)}")
        return inputs
    if len(inputs) != len(names):
        raise ShapeError(f"{len(names)} inputs ({', '.join(names)}), got {len(inputs)}")
    return dict(zip(names, inputs, strict=True))


def _check(tensor: Tensor, value: Array) -> Array:
    array = np.asarray(value)
    if array.shape != tensor.shape or array.dtype != numpy_dtype(tensor.dtype):
        raise ShapeError(
            f"{tensor.name} is {tensor.dtype}{list(tensor_shape(tensor))}, "
            f"got {array.dtype}{list(array.shape)}"
        )
    return array


def random_inputs(workload: Workload, rng: np.random.Generator) -> tuple[Array, ...]:
    """Inputs drawn so that results neither vanish nor overflow: floats uniform in [-1, 1),
    integers over a small range, truth values evenly."""
    return tuple(_draw(t, rng) for t in fixed(workload).inputs)


def _draw(tensor: Tensor, rng: np.random.Generator) -> Array:
    shape, dtype = tensor_shape(tensor), numpy_dtype(tensor.dtype)
    if is_float(tensor.dtype):
        return rng.uniform(-1, 1, shape).astype(dtype)
    low, high = (0, 2) if tensor.dtype == "bool" else (0, 5) if dtype.kind == "u" else (-4, 5)
    return rng.integers(low, high, shape).astype(dtype)
