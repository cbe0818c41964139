"""The oracle: every definition evaluated by NumPy, slowly and obviously.

Floating elements are computed in float64 and rounded to the tensor's type once per stage (and at
every explicit cast), so that a tolerance covers the rounding of the program under test alone.
Integers wrap as their type does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.dsl import expr as e
from loopwright.dsl.dtypes import epsilon, identity, is_float, numpy_dtype
from loopwright.dsl.elements import BINARY, STEPS, UNARY
from loopwright.dsl.errors import ShapeError
from loopwright.dsl.index import Index, position
from loopwright.dsl.ranges import indices_in, ranks_of
from loopwright.dsl.scans import Scan, scan_of
from loopwright.dsl.tensor import Definition, Tensor
from loopwright.dsl.traversal import children, walk
from loopwright.dsl.workload import Workload, defined, fixed, reads, tensor_shape

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
    return _run(workload, [_check(t, given[t.name]) for t in workload.inputs])


def slack(
    workload: Workload, inputs: Sequence[Array], outputs: Sequence[Array]
) -> tuple[Array, ...]:
    """Tolerance of each element of the outputs of `evaluate` beyond `tolerance`, in float32;
    nothing at all where that is never needed.

    A quotient by a sum that almost vanishes, or the exponential of a large number, makes much of
    the rounding before it; a step (a comparison, what cuts off a fraction) makes a whole number of
    it. So all is computed again, with floating inputs, stages and what steps look at off by what
    they may be, up or down at random, and for steps all up and all down: an element may move twice
    as far as it does then.
    """
    (stage, *more) = workload.stages
    if not more and _is_plain_product(defined(stage)):
        return ()
    given = [np.asarray(value) for value in inputs]
    rng = np.random.default_rng(0)
    definitions = [defined(s) for s in workload.stages]
    steps = any(d.reducer in e.ORDERS or any(map(_is_step, walk(d.body))) for d in definitions)
    runs = [
        _run(workload, given, _Off(workload, rng, signs))
        for signs in (_SIGNS if steps else _SIGNS[:1])
    ]
    rtol, atol = tolerance(workload)
    found = []
    for tensor, value, *moved in zip(workload.outputs, outputs, *runs):
        floating = is_float(tensor.dtype)
        exact = value.astype(np.float64)
        beyond = np.zeros(value.shape)
        with np.errstate(all="ignore"):
            for other in moved:
                distance = np.abs(other.astype(np.float64) - exact)
                if floating:
                    distance = 2 * (distance - (atol + rtol * np.abs(exact)))
                beyond = np.fmax(beyond, distance)
        found.append(beyond.astype(np.float32))
    return tuple(found) if any(map(np.any, found)) else ()


def random_inputs(workload: Workload, rng: np.random.Generator) -> tuple[Array, ...]:
    """Inputs drawn so that results neither vanish nor overflow: floats uniform in [-1, 1),
    integers over a small range, truth values evenly."""
    return tuple(_draw(t, rng) for t in fixed(workload).inputs)


def tolerance(workload: Workload, error_growth: float = 1.0) -> tuple[float, float]:
    """`(rtol, atol)` for comparing a program of this workload with the oracle; `error_growth` is
    how much larger its rounding errors may be than those of the definitions' own sums.

    A sum of K terms of magnitude 1 and varying sign walks: σ√k away after k steps, and λσ√k in the
    worst of many results, with λ = √(2 ln N) for N steps in all. Each step rounds by at most ε/2
    of where it stands, at random, so that the errors walk too: λ · λσε/2 · √(Σ k/12), below
    2ε·K for the products of uniform numbers (σ = 1/3) and any N that a machine has memory for.
    (Their worst case, ε/2 · Σ k, is √K times that, and would hide a missing term.) Where terms
    have one sign, the sum stands at K, and its relative error is ε√K. Halves that a sum reads from
    an earlier stage were rounded, also at random. Stages in a row add up.
    """
    bounds = [_bounds(stage) for stage in workload.stages]
    inputs = max((epsilon(t.dtype) for t in workload.inputs), default=0.0)
    coarsest = max((epsilon(t.dtype) for t in workload.stages), default=0.0)
    rtol = 8 * min(inputs, coarsest) + sum(one for one, _ in bounds)
    return rtol, error_growth * sum(other for _, other in bounds)


def _bounds(stage: Tensor) -> tuple[float, float]:
    """Tolerance of a stage whose operands are right, relative and absolute."""
    d = defined(stage)
    worked = [x for x in walk(d.body) if not isinstance(x, (e.Read, e.Const))]
    eps = max(map(epsilon, (stage.dtype, *(x.dtype for x in worked))))
    terms = 1 + sum(isinstance(x, e.Binary) and x.op in ("add", "sub") for x in worked)
    steps = math.prod(i.extent or 1 for i in d.reduce)
    summed = terms * steps if d.reducer in ("sum", "prod") else terms
    read = (r.tensor for r in reads(d.body) if r.tensor.definition is not None)
    rounded = sum(epsilon(t.dtype) for t in set(read) if epsilon(t.dtype) > eps)
    return (
        eps * (8 + math.sqrt(steps)),
        eps * (4 + 2 * summed) + 4 * rounded * math.sqrt(steps),
    )


class _Exact:
    """Evaluation that changes no number on the way."""

    def tensor(self, tensor: Tensor, value: Array, values: Mapping[Tensor, Array]) -> Array:
        """A whole tensor, before it is read; `values` are those before it."""
        return value

    def operand(self, x: e.Expr, value: Array) -> Array:
        """Operand of a step."""
        return value


_EXACT = _Exact()
_SIGNS: tuple[tuple[int, ...], ...] = ((1, -1), (1,), (-1,))
"""Ways in which numbers may be off, at random among them."""
_SAMPLED = 4  # places along each axis at which the terms of a sum are looked at


class _Off(_Exact):
    """Every floating number is off by what rounding may make of it."""

    def __init__(
        self, workload: Workload, rng: np.random.Generator, signs: tuple[int, ...]
    ) -> None:
        self._inputs, self._rng, self._signs = set(workload.inputs), rng, signs

    def tensor(self, tensor: Tensor, value: Array, values: Mapping[Tensor, Array]) -> Array:
        if not is_float(tensor.dtype):
            return value
        rtol, atol = epsilon(tensor.dtype) / 2, 0.0
        if tensor not in self._inputs:
            # What is to be expected, a quarter of what is allowed.
            rtol, atol = (bound / 4 for bound in _bounds(tensor))
            atol *= _magnitude(defined(tensor), values)
        return self._moved(value, rtol, atol).astype(value.dtype)

    def operand(self, x: e.Expr, value: Array) -> Array:
        return self._moved(value, 8 * epsilon(x.dtype), 0.0) if is_float(x.dtype) else value

    def _moved(self, value: Array, rtol: float, atol: float) -> Array:
        exact = value.astype(np.float64)
        sign = self._rng.choice(self._signs, value.shape)
        return np.asarray(exact + sign * (atol + rtol * np.abs(exact)))


def _magnitude(d: Definition, values: Mapping[Tensor, Array]) -> float:
    """Magnitude of the terms of a sum, by some of them; at least 1."""
    if d.reducer != "sum":
        return 1.0
    grid: dict[Index, Array] = {}
    for number, (index, extent) in enumerate(d.extents.items()):
        span = np.unique(np.linspace(0, extent - 1, _SAMPLED).astype(int))
        grid[index] = span.reshape([-1 if p == number else 1 for p in range(len(d.extents))])
    terms = np.abs(_evaluate(d.body, grid, values, _EXACT))
    return float(np.max(terms, initial=1.0, where=np.isfinite(terms)))


def _run(
    workload: Workload, inputs: Sequence[Array], change: _Exact = _EXACT
) -> tuple[Array, ...]:
    """The outputs, each number changed before it is read."""
    values: dict[Tensor, Array] = {}
    with np.errstate(all="ignore"):
        for tensor, value in zip(workload.inputs, inputs, strict=True):
            values[tensor] = change.tensor(tensor, value, values)
        for stage in workload.stages:
            made = _evaluate_stage(stage, values, change)
            values[stage] = change.tensor(stage, made, values)
    return tuple(values[t] for t in workload.outputs)


def _evaluate_stage(stage: Tensor, values: Mapping[Tensor, Array], change: _Exact) -> Array:
    """Evaluate over the iteration domain: at once if it is small, else slab by slab."""
    d = defined(stage)
    if d.reducer in e.ORDERS:
        return _evaluate_order(d, values, change)
    if (scan := scan_of(d.axes, d.reduce, d.reducer, d.body)) is not None:
        return _evaluate_scan(d, scan, values, change)
    out = np.empty(tensor_shape(stage), numpy_dtype(stage.dtype))
    if _is_sum_of_products(d):
        held = max(math.prod(d.extents[i] for i in set(indices_in(x))) for x in children(d.body))
    else:
        held = math.prod(d.extents.values())
    steps = math.prod(d.extents[i] for i in d.reduce)
    for slab in _slabs(out.shape, steps) if held > _CHUNK else [()]:
        out[slab] = _evaluate_slab(d, slab, values, change)
    return out


def _slabs(shape: tuple[int, ...], steps: int) -> Iterator[tuple[slice, ...]]:
    """Slices of the leading axes that cover a shape, each of at most `_CHUNK` elements times
    steps, or of a single element."""
    if not shape:
        yield ()
        return
    inner = math.prod(shape[1:]) * steps
    step = max(1, min(_CHUNK // inner, shape[0]))
    for start in range(0, shape[0], step):
        first = slice(start, min(start + step, shape[0]))
        for rest in _slabs(shape[1:], steps) if inner > _CHUNK else [()]:
            yield (first, *rest)


def _evaluate_slab(
    d: Definition, slab: tuple[slice, ...], values: Mapping[Tensor, Array], change: _Exact
) -> Array:
    rank = len(d.extents)
    grid: dict[Index, Array] = {}
    shape = []
    for number, (index, extent) in enumerate(d.extents.items()):
        span = np.arange(extent)[slab[number] if number < len(slab) else slice(None)]
        shape.append(len(span))
        grid[index] = span.reshape([-1 if p == number else 1 for p in range(rank)])
    if _is_sum_of_products(d):
        factors = [_evaluate(x, grid, values, change) for x in children(d.body)]
        return _sum_of_products(factors, shape, len(d.axes))
    body = np.broadcast_to(_evaluate(d.body, grid, values, change), shape)
    return body if d.reducer is None else _reduce(d, body)


def _evaluate_order(d: Definition, values: Mapping[Tensor, Array], change: _Exact) -> Array:
    """The places of elements in order, which is stable."""
    ranks, (along,) = ranks_of(d.axes, d.body), d.reduce
    loops = (*(i for i in d.axes if i not in ranks), along)
    shape = [d.extents[i] for i in loops]
    grid = dict(zip(loops, np.ix_(*map(np.arange, shape)), strict=True))
    body = np.broadcast_to(_evaluate(d.body, grid, values, change), shape)
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
    d: Definition, scan: Scan, values: Mapping[Tensor, Array], change: _Exact
) -> Array:
    """Running results, which are n steps in place of n for each of n."""
    at = d.axes.index(scan.axis)
    loops = (*d.axes[:at], *d.reduce, *d.axes[at + 1 :])
    shape = [d.extents[i] for i in loops]
    grid = dict(zip(loops, np.ix_(*map(np.arange, shape)), strict=True))
    body = np.broadcast_to(_evaluate(scan.body, grid, values, change), shape)
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


def _is_sum_of_products(d: Definition) -> bool:
    product = isinstance(d.body, e.Binary) and d.body.op == "mul"
    return d.reducer == "sum" and product and is_float(d.body.dtype)


def _is_plain_product(d: Definition) -> bool:
    """Return whether it is a sum of products of inputs, whose terms are of magnitude 1."""
    return _is_sum_of_products(d) and all(isinstance(x, e.Read) for x in children(d.body))


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


def _evaluate(
    x: e.Expr, grid: Mapping[Index, Array], values: Mapping[Tensor, Array], change: _Exact
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
        element: Array = values[x.tensor][where].astype(_work_type(x.dtype))
        return element
    if isinstance(x, e.Gather):
        return _gathered(x, grid, values, change)
    parts = [_evaluate(child, grid, values, change) for child in children(x)]
    if _is_step(x):
        parts = [change.operand(child, part) for child, part in zip(children(x), parts)]
    if isinstance(x, e.Cast):
        return _cast(parts[0], x.type)
    if isinstance(x, e.Unary):
        return UNARY[x.op](parts[0])
    if isinstance(x, e.Binary):
        return BINARY[x.op](parts[0], parts[1])
    assert isinstance(x, e.Select), x
    return np.where(parts[0], parts[1], parts[2])


def _gathered(
    x: e.Gather, grid: Mapping[Index, Array], values: Mapping[Tensor, Array], change: _Exact
) -> Array:
    where = []
    for place, at, size in zip(x.table.index, x.at, tensor_shape(x.table.tensor), strict=True):
        if at is None:
            where.append(position(place, grid))
        else:
            named = _evaluate(at, grid, values, change)
            named = np.minimum(named, size - 1).astype(np.int64)
            where.append(np.where(named < 0, named + size, named))
    sizes = tensor_shape(x.table.tensor)
    near = tuple(np.clip(p, 0, n - 1) for p, n in zip(where, sizes, strict=True))
    return np.asarray(values[x.table.tensor][near].astype(_work_type(x.dtype)))


def _is_step(x: e.Expr) -> bool:
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


def _draw(tensor: Tensor, rng: np.random.Generator) -> Array:
    shape, dtype = tensor_shape(tensor), numpy_dtype(tensor.dtype)
    if is_float(tensor.dtype):
        return rng.uniform(-1, 1, shape).astype(dtype)
    low, high = (0, 2) if tensor.dtype == "bool" else (0, 5) if dtype.kind == "u" else (-4, 5)
    return rng.integers(low, high, shape).astype(dtype)
