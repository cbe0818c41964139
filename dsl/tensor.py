"""Tensors, and the definitions that give them their elements."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loopwright.dsl import expr as e
from loopwright.dsl.dtypes import check_dtype, sum_type
from loopwright.dsl.errors import NoAttributeError, NotationError
from loopwright.dsl.functions import cast
from loopwright.dsl.index import Affine, Index, IndexExpr, as_affine
from loopwright.dsl.ranges import indices_in, infer, ranks_of
from loopwright.dsl.size import Size, least
from loopwright.dsl.traversal import children, rebuild, walk, widened
from loopwright.dsl.valueless import refuse_truth
from loopwright.dsl.words import brief


class _NoArithmetic:
    """Base of values that operators and NumPy's functions refuse, with `_refusal` as the error."""

    def _refusal(self) -> str:
        return f"{self!r} takes no operators"

    def _refuse(self, *others: object, **options: object) -> Any:
        raise NotationError(self._refusal())

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __neg__ = __abs__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __array_ufunc__ = _refuse


@dataclass(frozen=True)
class Definition:
    """Definition of a tensor's elements: `T[axes] = reducer over reduce of body`.

    `axes` and `reduce` are indices with their extents; `reducer` is one of sum, max, min, prod,
    or None for an element-wise definition.
    """

    axes: tuple[Index, ...]
    reduce: tuple[Index, ...]
    reducer: str | None
    body: e.Expr

    @property
    def extents(self) -> dict[Index, int]:
        return {index: _known(index) for index in (*self.axes, *self.reduce)}


class Tensor(_NoArithmetic):
    """A named array of elements: an input, or defined once by `T[i, j] = …` or `T[i, j] += …`.

    Sums and products of halves (float16, bfloat16) go through float32 and are rounded once:

    `C[i, j] += A[i, k] * B[k, j]
     ↦  C_sum[i, j] += cast(A[i, k], "float32") * cast(B[k, j], "float32");
        C[i, j] = cast(C_sum[i, j], "float16")`

    Attributes
    ----------
    name: what the user calls it; need not be unique.
    shape: extents in elements; None until it is defined.
    dtype: element type.
    constant: known ahead of time (weights), so that a schedule may re-lay it out once.
    definition: how it is computed; None for an input.
    operands: arguments of the call that made it, whose order a workload follows; empty
        where the notation alone says how it is computed.
    """

    def __init__(
        self,
        name: str,
        shape: Sequence[int | Size] | None = None,
        dtype: str | None = None,
        constant: bool = False,
    ) -> None:
        if not (isinstance(name, str) and name.isidentifier()):
            raise NotationError(f"{name!r} cannot name a tensor: use letters, digits and _")
        self.name = name
        self.shape = None if shape is None else _check_shape(name, shape)
        self._dtype = None if dtype is None else check_dtype(dtype)
        self.constant = constant
        self.definition: Definition | None = None
        self.operands: tuple[Tensor, ...] = ()

    @property
    def dtype(self) -> str:
        return self._dtype or "float32"

    @property
    def open_dtype(self) -> bool:
        """Return whether a definition may still decide the dtype."""
        return self._dtype is None

    def __getitem__(self, index: Any) -> e.Expr:
        parts = index if isinstance(index, tuple) else (index,)
        if self.shape is None:
            return _Pending(self, _subscript(index))  # type: ignore[return-value]
        if len(parts) != len(self.shape):
            raise NotationError(
                f"{self.name} has {len(self.shape)} axes, shape {self.shape}, but is indexed by "
                f"{len(parts)}: [{', '.join(map(str, parts))}]; give each axis an index"
            )
        if any(isinstance(x, e.Expr) for x in parts):
            return e.gather(
                self, tuple(x if isinstance(x, e.Expr) else as_affine(x) for x in parts)
            )
        return e.Read(self, _subscript(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        axes = self._check_left(_subscript(index))
        if isinstance(value, Tensor):
            raise NotationError(f"write the indices of {value.name}: {value.name}[i, j]")
        own = e.Read(self, _plain(axes))
        if isinstance(value, e.Accumulation) and value.read == own:
            value = e.Reduce("sum", value.x)
        refuse_truth(value, f"{self.name}: its definition")
        body = e.as_expr(value)
        if isinstance(body, e.Binary) and body.op == "add" and body.x == own:
            body = e.Reduce("sum", body.y)  # what Python makes of  T[i] += …  for a known shape
        reducer = body.op if isinstance(body, e.Reduce) else None
        self._define(axes, reducer, body.x if isinstance(body, e.Reduce) else body)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or name == "name":
                raise AttributeError(name)
            raise NoAttributeError(
                f"{self.name} is a tensor without data, and has no .{name}: define what you want "
                f"of its elements, as T[j, i] = {self.name}[i, j], or take an operator of lw.ops"
            )

    def _refusal(self) -> str:
        return (
            f"{self.name} is a tensor, and operators work on its elements: write its indices, "
            f"{self.name}[i, j]; products of matrices are lw.ops.matmul(A, B) or "
            "C[i, j] += A[i, k] * B[k, j]"
        )

    def __iter__(self) -> None:
        raise NotationError(f"{self.name} is not iterable: index it by lw.indices(…)")

    def __repr__(self) -> str:
        return f"Tensor({self.name}: {self.dtype}{list(self.shape or ())})"

    def _check_left(self, subscript: tuple[Affine, ...]) -> tuple[Index, ...]:
        if self.definition is not None:
            raise NotationError(
                f"{self.name} is already defined; a tensor is defined once, so give what is "
                "computed of it a name of its own"
            )
        axes = []
        for position in subscript:
            index = position.plain()
            if index is None:
                raise NotationError(
                    f"{self.name}[{', '.join(map(str, subscript))}] on the left: {position} is "
                    "not a plain index; move the arithmetic to the right side"
                )
            axes.append(index)
        if len(set(axes)) != len(axes):
            raise NotationError(
                f"an index stands twice on the left of {self.name}: give each axis its own; a "
                "diagonal is lw.where(lw.equal(i, j), …, 0)"
            )
        return tuple(axes)

    def _parted(self, axes: tuple[Index, ...], reducer: str | None, body: e.Expr) -> e.Expr:
        """Body with tensors of their own in place of its reductions.

        `T[i] = lw.sum(A[i, k]) / 7  ↦  T_sum[i] = lw.sum(A[i, k]);  T[i] = T_sum[i] / 7`
        """
        parts = dict.fromkeys(x for x in walk(body) if isinstance(x, e.Reduce))
        if not parts:
            return body
        if reducer or any(part.op in e.ORDERS for part in parts):
            raise NotationError(
                f"{self.name}: a reduction stands inside of another one; give the "
                f"{next(iter(parts)).op} a tensor of its own and use that"
            )
        extents = infer(self.name, axes, self.shape, body)
        reads: dict[e.Expr, e.Expr] = {}
        for part in parts:
            used = dict.fromkeys(indices_in(part.x))
            if all(i in axes for i in used):
                raise NotationError(
                    f"{self.name}: the {part.op} of {part.x} reduces no index, as all of its own "
                    "are on the left; reduce over an index of another name"
                )
            outer = tuple(i for i in axes if i in used)
            whole = Tensor(f"{self.name}_{part.op}", tuple(extents[i] for i in outer))
            whole._define(outer, part.op, part.x)
            reads[part] = e.Read(whole, _plain(outer))
        return _replaced(body, reads)

    def _define(self, axes: tuple[Index, ...], reducer: str | None, body: e.Expr) -> None:
        _check_depth(self.name, body)
        body = self._parted(axes, reducer, body)
        for part in walk(body):
            if isinstance(part, e.Read) and part.tensor is self:
                raise NotationError(
                    f"{self.name} is defined in terms of itself; of operators that change it, "
                    "the notation has += alone"
                )
        dtype = body.dtype if reducer is None else e.Reduce(reducer, body).dtype
        if self._dtype is not None and dtype != self._dtype:
            raise NotationError(
                f"{self.name} is declared {self._dtype} but its definition is {dtype}: "
                f'write lw.cast(…, "{self._dtype}") or declare another dtype'
            )
        extents = infer(self.name, axes, self.shape, body)
        _check_positions(self.name, body, extents)
        inner = tuple(Index(i.name, n) for i, n in extents.items() if i not in axes)
        if inner and reducer is None:
            raise NotationError(
                f"{self.name}: {', '.join(map(str, inner))} only on the right of =; sum with +=, "
                "or reduce with lw.max, lw.min, lw.prod"
            )
        if reducer in e.ORDERS:
            _check_order(self.name, axes, extents, body)
        if inner and body.dtype == "bool":
            raise NotationError(f"{self.name}: {reducer} over truth values: cast them first")
        outer = tuple(Index(i.name, extents[i]) for i in axes)
        nothing = [i for i in inner if least(extents[i]) < 1]
        empty = any(isinstance(i.extent, int) and not i.extent for i in outer)
        if nothing and reducer in ("max", "min", *e.ORDERS) and not empty:
            extent = nothing[0].extent
            at, remedy = "", "give that axis an element, or sum"
            if isinstance(extent, Size):
                at, remedy = ", 0 at some size", "give the dims narrower bounds, or sum"
            raise NotationError(
                f"{self.name}: the {reducer} over {nothing[0].name}, which has extent {extent}"
                f"{at}, is of no elements and has no value; {remedy}"
            )
        self.shape = tuple(extents[i] for i in axes)
        self._dtype = dtype
        wide = sum_type(body.dtype)
        if inner and reducer in ("sum", "prod") and wide != body.dtype:
            whole = Tensor(f"{self.name}_{reducer}", self.shape, wide)
            whole.definition = Definition(outer, inner, reducer, widened(body, wide))
            inner, body = (), e.Cast(e.Read(whole, _plain(outer)), body.dtype)
        self.definition = Definition(outer, inner, reducer if inner else None, body)


def _replaced(expr: e.Expr, values: Mapping[e.Expr, e.Expr]) -> e.Expr:
    if expr in values:
        return values[expr]
    return rebuild(expr, lambda child: _replaced(child, values))


_DEEPEST = 150  # operations inside of each other: several calls of Python's go into each, of 1000


def _check_depth(name: str, body: e.Expr) -> None:
    level, depth = [body], 0
    while level := [child for x in level for child in children(x)]:
        depth += 1
        if depth > _DEEPEST:
            raise NotationError(
                f"{name}: more than {_DEEPEST} operations stand inside of each other; sum over an "
                "index and a tensor of the factors with +=, or give parts tensors of their own"
            )


def _check_order(
    name: str, axes: tuple[Index, ...], extents: Mapping[Index, int], body: e.Expr
) -> None:
    ranks, inner = ranks_of(axes, body), [i for i in extents if i not in axes]
    if len(inner) != 1 or len(ranks) > 1:
        raise NotationError(
            f"{name}: an order is along one index that is on the right alone, and one index on "
            f"the left alone counts ranks; these are {len(inner)} and {len(ranks)}"
        )
    if any(extents[r] > extents[inner[0]] for r in ranks):
        raise NotationError(
            f"{name}: {ranks[0]} counts {extents[ranks[0]]} ranks, and there are "
            f"{extents[inner[0]]} elements in order: give it as many at most"
        )


def _check_positions(name: str, body: e.Expr, extents: Mapping[Index, int]) -> None:
    for part in walk(body):
        if isinstance(part, e.IndexValue):
            low, high = part.value.bounds(extents)
            if low < -(1 << 31) or high >= 1 << 31:
                raise NotationError(
                    f"{name}: {part.value} is {low} to {high}, and an index is an int32: cast it "
                    'before it is multiplied, lw.cast(i, "int64") * 3'
                )


class _Pending(_NoArithmetic):
    """`C[i, j]` for a tensor without a shape yet: only `C[i, j] += …` makes sense of it."""

    def __init__(self, tensor: Tensor, subscript: tuple[Affine, ...]) -> None:
        self.tensor, self.subscript = tensor, subscript

    # `+` is refused, so the two need not agree.
    def __iadd__(self, value: object) -> e.Expr:  # type: ignore[misc, override]
        return e.Reduce("sum", e.as_expr(value))

    def __getattr__(self, name: str) -> Any:
        return self._refuse()

    def _refusal(self) -> str:
        return (
            f"{self.tensor.name} is read before it has a shape or a definition: define it first, "
            "or make it with its shape"
        )

    def _no_reduction(self, value: object) -> Any:
        raise NotationError(
            f"{self.tensor.name} is defined by `=` or `+=` alone: sum negated elements for `-=`, "
            f"{self.tensor.name}[…] += -(…), and write {self.tensor.name}[…] = lw.prod(…) for `*=`"
        )

    __isub__ = __imul__ = __itruediv__ = __ifloordiv__ = __imod__ = __ipow__ = _no_reduction
    __imatmul__ = __iand__ = __ior__ = __ixor__ = __ilshift__ = __irshift__ = _no_reduction


def tensor(
    name: str,
    shape: Sequence[int | Size] | None = None,
    dtype: str | None = None,
    constant: bool = False,
) -> Tensor:
    """Make a tensor: an input if it has a shape, else one to be defined.

    Parameters
    ----------
    shape: extents in elements; a size by `lw.dim` is known only at the call. Without a shape,
        the definition's ranges decide.
    dtype: element type; by default float32 for an input, that of the right side for a definition.
    constant: the values are known ahead of time (weights); a schedule may re-lay them out once,
        outside the measured kernel.
    """
    if isinstance(shape, int):
        raise NotationError(f"shape {shape!r} of {name}: give a tuple of extents, ({shape},)")
    return Tensor(name, shape, dtype, constant)


def _subscript(index: Any) -> tuple[Affine, ...]:
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, e.Expr):
            raise NotationError(
                "an element is no index on the left of a definition: elements say where to read, "
                "X[I[i], j]; where to write, indices do"
            )
    return tuple(as_affine(i) for i in (index if isinstance(index, tuple) else (index,)))


def _plain(axes: tuple[Index, ...]) -> tuple[Affine, ...]:
    return tuple(axis.affine() for axis in axes)


def _check_shape(name: str, shape: Sequence[int | Size]) -> tuple[int, ...]:
    """Extents that are integers or sizes. Types call both integers: a definition treats them
    alike, and whatever takes no sizes is given none (`as_workload`)."""
    try:
        given = tuple(shape)
        whole: tuple[Any, ...] = tuple(
            n if isinstance(n, Size) else operator.index(n) for n in given
        )
        if not any(isinstance(n, bool) for n in given) and all(n >= 0 for n in whole):
            return whole
        found = str(given)
    except TypeError:
        found = brief(shape)
    raise NotationError(
        f"shape {found} of {name}: give a tuple; extents are integers ≥ 0, or sizes by lw.dim"
    )


def _known(index: Index) -> int:
    if index.extent is None:
        raise NotationError(f"the range of index {index} is not known")
    return index.extent


__all__ = ["Definition", "IndexExpr", "Tensor", "cast", "tensor"]
